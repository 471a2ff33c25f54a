"""Does anything grow? A worker runs at half of its maximum rate for half an hour, with retention on.

Run by hand on a quiet machine: ``make soak``. First a backlog of the same mix of jobs is drained, and then more than
that enqueued while the worker works: what it ends meanwhile is the maximum, for enqueueing takes its share of the
machine. Then half as many are enqueued each second, steadily. Every few seconds the memory of the worker's processes
is looked at, the size of tables and indexes, dead rows, backlog, WAL, and how long claims took: the statement, and a
job from due to claimed. RESULTS/results.json has all of it, also if it is broken off; the table that is printed judges.

    python benchmarks/soak_figures.py RESULTS/results.json                    the figures in Markdown
    python benchmarks/soak_plots.py RESULTS/results.json docs/images/soak.svg

Jobs: 97 of 100 do nothing, 2 report progress, 1 fails once and is tried again. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django

from benchmarks.processes import LONGEST_STOP, ROOT, Surroundings, run_burst, working
from benchmarks.scratch import empty, execute, fill, scratch_database, server, settle_down
from benchmarks.soak_figures import table
from benchmarks.soak_samples import Sampler, errors_in
from benchmarks.soak_tasks import CLAIMS, kind_of
from pulse_django.queue.words.job_options import NewJob
from pulse_django.run.registry import key_of
from testproject.harness.processes import LONGEST_START, StartedProcess, wait_until

GUESS = 10_000  # jobs/s; how many are drained to find the maximum follows from it
LONGEST_REST = 120.0  # seconds until all is done after the last was enqueued
# From the first twentieth to the last: what failed once comes back after a second, and would count as slowness.
_RATE = """
SELECT (0.9 * runs / EXTRACT(epoch FROM ends[2] - ends[1]))::float8
FROM (
    SELECT count(*) AS runs, percentile_disc(ARRAY[0.05, 0.95]) WITHIN GROUP (ORDER BY finished_at) AS ends
    FROM pulse_django_ledger
) AS run
"""
# It does not wait for those that come back later.
_DRAINED = """
SELECT count(*) FILTER (WHERE attempts > 0), count(*) FILTER (WHERE status NOT IN ('COMPLETED', 'RETRYING'))
FROM pulse_django_job
"""
# Each has an index: what has ended is not read.
_LEFT = """
SELECT
    (SELECT count(*) FROM pulse_django_job WHERE status IN ('PENDING', 'RETRYING'))
    + (SELECT count(*) FROM pulse_django_job WHERE status = 'RUNNING'),
    (SELECT count(*) FROM pulse_django_job WHERE status = 'DEAD_LETTERED')
"""


def main() -> None:
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    with scratch_database("bench_soak"), tempfile.TemporaryDirectory(prefix="pulse-bench-") as folder:
        around = Surroundings(folder=Path(folder))
        drained = draining(options, around)
        fastest = maximum(options, around, drained)
        results = {
            "command": " ".join(["python", "benchmarks/soak.py", *sys.argv[1:]]),
            "about": about(),
            "processes": options.processes,
            "keep_s": options.keep,
            "warm_up_s": options.warm_up * 60,
            "drained_per_s": round(drained),
            "max_per_s": round(fastest),
            "rate": round(fastest * options.share),
            "samples": [],
            "end": None,
        }
        say(
            f"{results['drained_per_s']:,} jobs/s from a backlog, {results['max_per_s']:,} while they are enqueued;"
            f" {results['rate']:,} it is, for {options.minutes:g} minutes"
        )
        soak(options, around, results)
    print(table(results))
    if (end := results["end"]) and (end["unfinished"] or end["dead_letters"] or end["errors"]):
        raise SystemExit(f"Not all went well: {json.dumps(end)}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long, with the warm-up")
    parser.add_argument("--warm-up", type=float, default=5.0, help="minutes at the beginning that are not judged")
    parser.add_argument("--sample", type=float, default=5.0, help="seconds between two looks")
    parser.add_argument("--processes", type=int, default=2, help="of the worker that run handlers")
    parser.add_argument("--keep", type=float, default=90.0, help="KEEP_COMPLETED, in seconds")
    parser.add_argument("--drain", type=float, default=20.0, help="about how many seconds to look for the maximum")
    parser.add_argument("--share", type=float, default=0.5, help="of the maximum that is enqueued")
    parser.add_argument("--out", type=Path, default=Path("soak"), help="the folder for results.json")
    return parser.parse_args()


def maximum(options: argparse.Namespace, around: Surroundings, offered: float) -> float:
    """Return how many runs a second the worker ends while more are enqueued than it can do."""
    empty()
    settle_down("pulse_django_job", "pulse_django_attempt")
    environment, log = around.environment(tasks()), around.log("maximum")
    flags = ("--processes", str(options.processes))
    with working(around, log, environment, *flags) as worker, enqueuing(around, environment, offered):
        wait_until(lambda: ended() > 0, lambda: f"no job was run:\n{worker.log_end}", LONGEST_START)
        time.sleep(options.drain / 4)  # until both are at full speed
        before, began = ended(), time.monotonic()
        time.sleep(options.drain)
        return (ended() - before) / (time.monotonic() - began)


def ended() -> int:
    """How many runs have ended."""
    return int(execute("SELECT count(*) FROM pulse_django_ledger")[0][0])


def draining(options: argparse.Namespace, around: Surroundings) -> float:
    """Return how many runs a second the worker ends when all is there already."""
    jobs = int(options.drain * GUESS)
    say(f"looking for the maximum with {jobs:,} jobs")
    fill([NewJob(task=key_of(kind_of(number))) for number in range(jobs)])
    run_burst(around, options.processes, pulse=tasks())
    [[had_a_run, alive]] = execute(_DRAINED)
    if had_a_run != jobs or alive:
        raise SystemExit(
            f"Of {jobs} jobs {had_a_run} had a run, and {alive} did not end well: the figure would be a lie"
        )
    return float(execute(_RATE)[0][0])


def soak(options: argparse.Namespace, around: Surroundings, results: dict[str, Any]) -> None:
    """Let it run, look at it, and write down what was seen each time."""
    empty()
    settle_down("pulse_django_job", "pulse_django_attempt")
    claims, log = around.folder / "claims", around.log("soak")
    pulse = tasks() | {"KEEP_COMPLETED": options.keep}
    environment = around.environment(pulse, **{CLAIMS: str(claims)})
    file = options.out / "results.json"
    flags = ("--processes", str(options.processes))
    with (
        working(around, log, environment, *flags) as worker,
        enqueuing(around, environment, results["rate"]) as enqueuer,
    ):
        sampler, until = Sampler(worker, claims, log), time.monotonic() + options.minutes * 60
        for now in ticks(options.sample, until):
            if worker.exit_code is not None or enqueuer.exit_code is not None:
                raise SystemExit(f"Ended: worker {worker.exit_code}, enqueuer {enqueuer.exit_code}\n{worker.log_end}")
            results["samples"].append(sampler.look())
            keep(results, file)
            say(summary(results["samples"][-1], until - now))
        said = end_of(enqueuer)
        results["end"] = said | rest(sampler) | {"errors": [*sampler.errors, *errors_in(log)][:50]}
    keep(results, file)


@contextmanager
def enqueuing(around: Surroundings, environment: dict[str, str], rate: float) -> Iterator[StartedProcess]:
    command = [sys.executable, "-m", "benchmarks.soak_enqueuer", str(rate)]
    quietly = environment | {CLAIMS: ""}
    enqueuer = StartedProcess.start(around.log("enqueuer"), command, quietly, cwd=ROOT, stderr=None)
    try:
        yield enqueuer
    finally:
        enqueuer.kill()


def end_of(enqueuer: StartedProcess) -> dict[str, Any]:
    enqueuer.signal(signal.SIGTERM)
    enqueuer.wait(LONGEST_STOP)
    answer: dict[str, Any] = json.loads(enqueuer.log)
    return answer


def rest(sampler: Sampler) -> dict[str, Any]:
    """Wait until all is done. Return what was left over, and how long it took."""
    began = time.monotonic()
    while (unfinished := execute(_LEFT)[0][0]) and time.monotonic() - began < LONGEST_REST:
        time.sleep(0.2)
    last = sampler.look()
    took = round(time.monotonic() - began, 1)
    return {"unfinished": unfinished, "dead_letters": execute(_LEFT)[0][1], "rest_s": took, "last": last}


def ticks(every: float, until: float) -> Iterator[float]:
    """Come back at regular instants."""
    instant = time.monotonic()
    while (instant := instant + every) <= until:
        time.sleep(max(0.0, instant - time.monotonic()))
        yield time.monotonic()


def keep(results: dict[str, Any], file: Path) -> None:
    """Write it beside and put it in place: who is killed here leaves the one before."""
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(results))
    beside.replace(file)


def summary(sample: dict[str, Any], left: float) -> str:
    memory = sum(process["pss"] for process in sample["memory"].values())
    claims = sample["claims"]
    size = sum(sample["bytes"].values()) / 1_000_000
    p99 = f"{claims['p99_ms']:.1f} ms" if claims else "none"
    return (
        f"{sample['at']:7.1f} s  {sample['claimed_per_s']:8,.0f} claims/s  backlog {sample['backlog']:6,}"
        f"  claim p99 {p99}  {memory:6.1f} MiB  {size:8.1f} MB  {left:6.0f} s to go"
    )


def tasks() -> dict[str, Any]:
    return {"TASK_MODULES": ["benchmarks.soak_tasks"]}


def about() -> dict[str, Any]:
    return {
        "server": server(),
        "python": sys.version.split()[0],
        "django": django.__version__,
        "cores": os.cpu_count(),
        "autovacuum": execute("SHOW autovacuum")[0][0],
        "job_storage": execute("SELECT reloptions FROM pg_class WHERE relname = 'pulse_django_job_hot'")[0][0],
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
