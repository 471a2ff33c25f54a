"""How soon the jobs of the dead are somebody else's, and what a mass of them does to the living.

Run by hand on a quiet machine: ``python benchmarks/recovery.py``. Prints a table of what was found beside what was
promised; ``--json`` writes the same for programs. A promise that was not kept is printed as NOT met. A job that was
lost, reaped twice or taken from a living worker is no figure: the benchmark fails. Linux only: it reads /proc.

Instants are the database's. The kill is taken to be as early as it can have been, the reap is the ledger's
``finished_at``. Workers leave expired leases to one ``pulse_watchdog``, so nobody's sweeps add up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django
import psycopg

from benchmarks.processes import Surroundings
from benchmarks.recovery_backlog import claim_beside_a_reap, of, reap_together
from benchmarks.recovery_children import kill_children
from benchmarks.recovery_figures import Figure, distribution, over_rounds, table
from benchmarks.recovery_kills import DEFAULTS, SHORT, Recovered, kill_workers
from benchmarks.scratch import execute, scratch_database, server

PARTS = ("kills", "children", "backlog", "watchdogs")
AT_ONCE = 5  # workers in a wave; more would be slowed down by each other's start
GRACE = 0.5  # seconds that a recovery may take beyond TTL and tick
GRACE_AFTER_LEASE = 1.5
LONGEST_AT_DEFAULTS = 41.0
CHILD_P95 = 1.5
REAP_SECONDS, CLAIM_RATIO = 5.0, 3.0
WATCHDOGS = 4


def main() -> None:
    options = parse_arguments()
    load = os.getloadavg()[0]  # of others: a machine that is busy has no quiet claims to compare with
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with scratch_database("bench_recovery"), tempfile.TemporaryDirectory(prefix="pulse-bench-") as folder:
        figures = measure(options, Surroundings(folder=Path(folder)))
        about = describe(options) | {"load before": round(load, 2)}
    print(table(figures))
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    if options.json:
        said = {"figures": {figure.name: figure.to_json() for figure in figures}, "about": about}
        options.json.write_text(json.dumps(said, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="whole workers, and as many children")
    parser.add_argument("--rounds", type=int, default=5, help="of the backlog, and of the watchdogs")
    parser.add_argument("--expired", type=int, default=10_000, help="leases that have run out")
    parser.add_argument("--claimable", type=int, default=200_000, help="jobs beside them that can be claimed")
    parser.add_argument("--quiet-seconds", type=float, default=5.0, help="of claims without a reap, for comparison")
    parser.add_argument(
        "--default-constants",
        type=int,
        nargs="?",
        const=1,
        default=0,
        metavar="N",
        help="also kill a worker, or N, with TTL 30 s, beat and tick 10 s: takes a minute",
    )
    parser.add_argument("--only", type=parts, default=PARTS, help=f"some of {','.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="little of everything, to see that it works")
    parser.add_argument("--json", type=Path, metavar="OUT", help="a file for the figures")
    options = parser.parse_args()
    if options.quick:
        small = {"kills": 3, "rounds": 1, "expired": 2_000, "claimable": 20_000, "quiet_seconds": 0.5}
        for name, value in small.items():
            setattr(options, name, min(value, getattr(options, name)))
    return options


def parts(text: str) -> tuple[str, ...]:
    chosen = tuple(part.strip() for part in text.split(",") if part.strip())
    if unknown := set(chosen) - set(PARTS):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return chosen


def measure(options: argparse.Namespace, around: Surroundings) -> list[Figure]:
    figures: list[Figure] = []
    if "kills" in options.only:
        say(f"{options.kills} workers are killed, {AT_ONCE} in a wave")
        figures += figures_of_kills(kill_workers(around, SHORT, options.kills, AT_ONCE))
    if "children" in options.only:
        say(f"{options.kills} children are killed")
        figures += figures_of_children(around, options.kills)
    if "backlog" in options.only:
        figures += figures_of_backlog(options, around)
    if "watchdogs" in options.only:
        figures += figures_of_watchdogs(options, around)
    if options.default_constants:
        say(f"{options.default_constants} killed at the default settings")
        killed = kill_workers(around, DEFAULTS, options.default_constants, AT_ONCE)
        figures += figures_at_the_defaults(killed)
    return figures


def figures_of_kills(kills: list[Recovered]) -> list[Figure]:
    ttl, tick = SHORT["LEASE_TTL"], SHORT["WATCHDOG_INTERVAL"]
    limit = ttl + tick + GRACE
    reaped = [kill.reaped for kill in kills]
    too_late = sum(seconds > limit for seconds in reaped)
    return [
        Figure(name="workers killed", value=len(kills), unit=""),
        *distribution("kill to reap", reaped, {"max": limit}),
        Figure(name=f"kills over {limit:g} s", value=too_late, unit="", goal=0),
        *distribution(
            "lease end to reap",
            [kill.after_lease for kill in kills],
            {"p99": tick, "max": tick + GRACE_AFTER_LEASE},
        ),
        Figure(name="longest doubt about a kill", value=max(kill.uncertain for kill in kills)),
        Figure(name="death to requeue, reported and observed apart", value=max(kill.apart for kill in kills), goal=1.0),
    ]


def figures_at_the_defaults(kills: list[Recovered]) -> list[Figure]:
    worst = max(kills, key=lambda kill: kill.reaped)
    return [
        Figure(name="at the defaults: workers killed", value=len(kills), unit=""),
        Figure(name="at the defaults: kill to reap, max", value=worst.reaped, goal=LONGEST_AT_DEFAULTS),
        Figure(name="at the defaults: lease left at that kill", value=worst.lease_left),
        Figure(name="at the defaults: lease end to that reap", value=worst.after_lease),
    ]


def figures_of_children(around: Surroundings, kills: int) -> list[Figure]:
    killed = kill_children(around, kills)
    return [
        Figure(name="children killed", value=len(killed), unit=""),
        *distribution("child's death to settle", [kill.settled for kill in killed], {"p95": CHILD_P95}),
        *distribution("child's death to the next run", [kill.again for kill in killed], {}),
    ]


def figures_of_backlog(options: argparse.Namespace, around: Surroundings) -> list[Figure]:
    rounds = []
    for number in range(options.rounds):
        found = claim_beside_a_reap(
            around,
            sweep_settings(options),
            expired=options.expired,
            claimable=options.claimable,
            quiet_seconds=options.quiet_seconds,
        )
        say(
            f"round {number + 1}: reaped in {found.reap_seconds:.2f} s, claims' p99 {found.ratio():.2f} times the quiet"
        )
        rounds.append(found)
    quiet = [took for found in rounds for took in found.quiet]
    during = [took for found in rounds for took in found.during]
    goal = {"unit": "times", "goal": CLAIM_RATIO, "strictly": True}
    seconds = [found.reap_seconds for found in rounds]
    lines = [
        over_rounds(f"{options.expired:,} reaped", seconds, goal=REAP_SECONDS, strictly=True),
        over_rounds("the whole sweep", [found.sweep_seconds for found in rounds]),
    ]
    for which, share in (("p50", 0.50), ("p99", 0.99)):
        lines += [
            over_rounds(f"claim {which}, quiet", [of(found.quiet, share) for found in rounds], unit="ms"),
            over_rounds(f"claim {which}, beside the reap", [of(found.during, share) for found in rounds], unit="ms"),
        ]
    return [
        *lines,
        over_rounds("claim p50, ratio", [found.ratio(0.50) for found in rounds], unit="times"),
        over_rounds("claim p99, ratio", [found.ratio() for found in rounds], **goal),
        Figure(name="claim p99, ratio, rounds taken together", value=of(during, 0.99) / of(quiet, 0.99), **goal),  # type: ignore[arg-type]
        Figure(name="longest claim beside the reap", value=max(during), unit="ms"),
        over_rounds("claims counted beside the reap", [len(found.during) for found in rounds], unit=""),
        Figure(name="deadlocks beside claims", value=sum(found.deadlocks for found in rounds), unit="", goal=0),
    ]


def figures_of_watchdogs(options: argparse.Namespace, around: Surroundings) -> list[Figure]:
    rounds = []
    for number in range(options.rounds):
        found = reap_together(around, sweep_settings(options), watchdogs=WATCHDOGS, expired=options.expired)
        say(f"round {number + 1}: {WATCHDOGS} watchdogs reaped {found.shares} in {found.seconds:.2f} s")
        rounds.append(found)
    return [
        over_rounds(f"{options.expired:,} reaped by {WATCHDOGS} at once", [found.seconds for found in rounds]),
        over_rounds("smallest share of a watchdog", [min(found.shares) for found in rounds], unit="jobs"),
        over_rounds("largest share of a watchdog", [max(found.shares) for found in rounds], unit="jobs"),
        Figure(name="reaped by them, each job once", value=sum(sum(found.shares) for found in rounds), unit="jobs"),
        Figure(name="deadlocks among watchdogs", value=sum(found.deadlocks for found in rounds), unit="", goal=0),
    ]


def sweep_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The defaults; with short leases a server that has only just been started need not be waited for."""
    return SHORT if options.quick else DEFAULTS


def describe(options: argparse.Namespace) -> dict[str, Any]:
    shown = ("fsync", "synchronous_commit", "full_page_writes")
    return {
        "PostgreSQL": server(),
        **{name: execute(f"SHOW {name}")[0][0] for name in shown},
        "Python": platform.python_version(),
        "Django": django.get_version(),
        "psycopg": psycopg.__version__,
        "processors": os.cpu_count(),
        "quick": options.quick,
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
