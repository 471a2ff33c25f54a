"""How fast the worker is: against its floor and against PgQueuer, side by side; pickup; what idling costs.

Run by hand on a quiet machine: ``python benchmarks/worker.py``. The contenders alternate, because machines drift; every
figure is the median over the rounds, every ratio the median of the rounds' own ratios. Prints one JSON object; what was
not measured is null. Linux only: it reads /proc.

The worker is that of a plain project: ``startproject``, the README's lines and nothing else. Figures that begin with
``lean_`` are those of this repository's own project, where DEBUG is off and Django logs nothing.

Rates are jobs a second from the first claim to the last settle, as the server noted them; ``_with_startup`` includes
the start and the end of the worker's processes. ``idle_*`` and ``statements_per_job`` count transactions where
pg_stat_statements is not loaded: a worker sends each of its statements as a transaction, in one message.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django
import psycopg

from benchmarks.counters import Counters
from benchmarks.drains import DRAINS, Contender, Figures, contenders
from benchmarks.processes import PlainSurroundings, Surroundings
from benchmarks.rival import PgQueuer, find_pgqueuer
from benchmarks.scratch import execute, scratch_database, server
from benchmarks.waits import GAP_POLLING, heartbeat, idle, percentile, pickup

NEWEST_DJANGO, NEWEST_PYTHON = (6, 1), (3, 13)
LEAN = tuple(drain for drain in DRAINS if drain.is_lean_too)
PARTS = (
    *dict.fromkeys(drain.part for drain in DRAINS),
    *dict.fromkeys(f"lean_{drain.part}" for drain in LEAN),
    "floor", "pgqueuer", "pickup", "trickle", "polling", "idle", "heartbeat",
)  # fmt: skip
DRAINED = (*(drain.name for drain in DRAINS), *(f"lean_{drain.name}" for drain in LEAN))
RATES = (*DRAINED, "floor_1", "floor_2", "pgqueuer_1", "pgqueuer_2")
WITH_STARTUP = tuple(f"{name}_with_startup" for name in DRAINED)
RATIOS = (
    ("drain_1", "floor_2"),
    ("drain_1", "floor_1"),
    ("drain_2", "floor_2"),
    ("drain_async_1", "drain_1"),
    ("drain_1", "lean_drain_1"),
    ("drain_1", "pgqueuer_1"),
    ("drain_2", "pgqueuer_2"),
)
PER_JOB = ("statements_per_job", "wal_bytes_per_job")
TRICKLES = (100, 200, 300)  # jobs a second
TRICKLE = tuple(f"pickup_at_{rate}_ms_{share}" for rate in TRICKLES for share in ("p50", "p95", "p99"))
PICKUP = ("pickup_ms_p50", "pickup_ms_p99", "pickup_polling_ms_p50", "pickup_polling_ms_p99")
AT_REST = ("idle_statements_per_s", "idle_cpu_percent", "idle_pss_mb", "idle_processes", "heartbeat_1000_ms")
KEYS = (
    *RATES,
    *WITH_STARTUP,
    *(f"{above}_vs_{below}" for above, below in RATIOS),
    *PER_JOB,
    *PICKUP,
    *TRICKLE,
    *AT_REST,
)


def main() -> None:
    options = parse_arguments()
    if django.VERSION < NEWEST_DJANGO or sys.version_info < NEWEST_PYTHON:
        say(f"Figures that count are taken with Django {NEWEST_DJANGO} and Python {NEWEST_PYTHON} or newer")
    rival = rival_of(options)
    with scratch_database("bench_worker"), tempfile.TemporaryDirectory(prefix="pulse-bench-") as folder:
        lean = Surroundings(folder=Path(folder), receivers=options.receivers)
        plain = PlainSurroundings.make(Path(folder), receivers=options.receivers)
        counters = Counters()
        if rival is not None:
            tune(rival, options.jobs)
        rounds = measure_drains(options, contenders([plain, lean], counters, rival))
        alone = measure_waits(options, plain, counters)
        about = describe(options, counters, rival)
    medians: dict[str, float | None] = dict.fromkeys(KEYS)
    medians |= {key: statistics.median(values) for key, values in rounds.items()} | alone
    spread = {key: [rounded(key, min(values)), rounded(key, max(values))] for key, values in rounds.items()}
    figures = {key: None if value is None else rounded(key, value) for key, value in medians.items()}
    print(json.dumps(figures | {"spread": spread} | about, indent=2))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs per drain")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", type=parts, default=PARTS, help=f"some of {','.join(PARTS)}, or of their rates, as drain_1"
    )
    parser.add_argument("--pickups", type=int, default=200, help="jobs whose pickup is measured, with NOTIFY")
    parser.add_argument("--trickle-seconds", type=float, default=10.0, help="of single jobs at each rate")
    parser.add_argument("--polls", type=int, default=20, help="the same without NOTIFY")
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--pgqueuer-python", help="an interpreter that has PgQueuer 1.6, asyncpg and uvloop")
    parser.add_argument("--pgqueuer-batch", type=int, help="its batch size; without it the fastest is looked for")
    parser.add_argument("--receivers", action="store_true", help="let receivers listen to the signals of every job")
    return parser.parse_args()


def parts(text: str) -> tuple[str, ...]:
    chosen = tuple(part.strip() for part in text.split(","))
    if unknown := set(chosen) - {*PARTS, *RATES}:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return chosen


def rival_of(options: argparse.Namespace) -> PgQueuer | None:
    if not {"pgqueuer", "pgqueuer_1", "pgqueuer_2"} & set(options.only):
        return None
    rival = find_pgqueuer(options.pgqueuer_python, options.pgqueuer_batch)
    if rival is None:
        say(
            "PgQueuer is not measured: install pgqueuer==1.6.*, asyncpg and uvloop into a virtual environment and "
            "name its interpreter with --pgqueuer-python"
        )
    return rival


def tune(rival: PgQueuer, jobs: int) -> None:
    rates = rival.tune(jobs)
    shown = ", ".join(f"{driver} {batch}: {rate:,.0f}" for (driver, batch), rate in rates.items())
    say(f"PgQueuer by driver and batch size, jobs/s: {shown}; {rival.driver} {rival.batch} it is")


def measure_drains(options: argparse.Namespace, all_of_them: Iterable[Contender]) -> dict[str, list[float]]:
    """Let the contenders take turns; another begins each round."""
    them = [one for one in all_of_them if {one.part, one.name} & set(options.only)]
    found: dict[str, list[float]] = {}
    for number in range(options.rounds if them else 0):
        start = number % len(them)
        figures: Figures = {}
        for contender in them[start:] + them[:start]:
            new = contender.drain(options.jobs)
            say(f"round {number + 1}: {contender.name} {new[contender.name]:,.0f} jobs/s")
            figures |= new
        figures |= {
            f"{above}_vs_{below}": figures[above] / figures[below]
            for above, below in RATIOS
            if above in figures and below in figures
        }
        for key, value in figures.items():
            found.setdefault(key, []).append(value)
    return found


def measure_waits(options: argparse.Namespace, around: Surroundings, counters: Counters) -> Figures:
    figures: Figures = {}
    if "pickup" in options.only:
        say(f"pickup with NOTIFY, {options.pickups} jobs")
        figures |= summary("pickup_ms", pickup(around, options.pickups))
    for rate in TRICKLES if "trickle" in options.only else ():
        say(f"pickup of {rate} single jobs a second, for {options.trickle_seconds:g} s")
        took = pickup(around, int(rate * options.trickle_seconds), gap=1 / rate)
        figures |= summary(f"pickup_at_{rate}_ms", took)
        figures[f"pickup_at_{rate}_ms_p95"] = percentile(took, 0.95)
    if "polling" in options.only:
        say(f"pickup by polling, {options.polls} jobs")
        figures |= summary("pickup_polling_ms", pickup(around, options.polls, notify=False, gap=GAP_POLLING))
    if "idle" in options.only:
        say(f"an idle worker, {options.idle_seconds:g} s")
        figures |= idle(around, options.idle_seconds, counters)
    if "heartbeat" in options.only:
        say("heartbeats for 1,000 jobs")
        figures["heartbeat_1000_ms"] = heartbeat()
    return figures


def summary(name: str, ordered: list[float]) -> Figures:
    return {f"{name}_p50": statistics.median(ordered), f"{name}_p99": percentile(ordered, 0.99)}


def describe(options: argparse.Namespace, counters: Counters, rival: PgQueuer | None) -> dict[str, Any]:
    shown = ("full_page_writes", "fsync", "synchronous_commit")
    return {
        "jobs": options.jobs,
        "rounds": options.rounds,
        "receivers": options.receivers,
        "statements_from": counters.source,
        "pgqueuer": f"{rival.version}, {rival.driver}, batch {rival.batch}" if rival else None,
        "server": server(),
        **{name: execute(f"SHOW {name}")[0][0] for name in shown},
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "django": django.__version__,
        "psycopg": psycopg.__version__,
    }


def rounded(key: str, value: float) -> float:
    if key in RATES or key in WITH_STARTUP or key == "wal_bytes_per_job":
        return round(value)
    return round(value, 4 if key == "statements_per_job" else 3)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
