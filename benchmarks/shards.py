"""What shards bring: ``python -m benchmarks.shards``.

Three servers, each held to a share of a core, so that the servers are what limits. A worker of a plain project drains
the same number of jobs for each server, from one of them and from all; the numbers of servers alternate. With
``--outage`` a server is killed, frozen or cut off for so many seconds while a worker drains all of them, and the rates
of the others before and meanwhile are compared. Exits with 3 where servers cannot be held to a share.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from benchmarks import quota
from benchmarks.processes import PlainSurroundings, run_burst
from benchmarks.shard_outages import WAYS, measure_outage
from pulse_django.embedded.server import DATABASE, PORT
from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from tests.cluster import Cluster

ALIASES = ("default", "shard_1", "shard_2")
NUMBERS = {alias: number for number, alias in enumerate(ALIASES)}
AT_ONCE = 5_000
_EVIDENCE = """
SELECT count(*), count(*) FILTER (WHERE status = 'COMPLETED' AND attempts = 1),
    extract(epoch FROM min(started_at))::float8, extract(epoch FROM max(finished_at))::float8
FROM pulse_django_job
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000, help="for each server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.25, help="of a core, for each server; 0: not held")
    parser.add_argument("--processes", type=int, default=2, help="of the worker")
    parser.add_argument("--task", default="nothing", help="of benchmarks/noop.py")
    parser.add_argument("--outage", type=float, default=0.0, help="seconds; the drains are left out")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="of the outages; without it all of them")
    parser.add_argument("--calm", type=float, default=15.0, help="seconds before an outage for which the rate counts")
    options = parser.parse_args()
    if options.share and (reason := quota.why_not()):
        say(f"Nothing was measured: {reason}")
        return 3
    with tempfile.TemporaryDirectory(prefix="pulse-bench-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)  # started by root, PostgreSQL runs as another user
        with servers(folder) as clusters, override_settings(PULSE={"SHARDS": NUMBERS}):
            around = project(folder)
            if options.outage:
                for number, way in enumerate(options.way or WAYS):
                    with filled(ALIASES, around.key(options.task), options.jobs):
                        (proxies := folder / f"proxy-{number}").mkdir()
                        measure_outage(around, clusters, way, options, proxies)
            else:
                compare(around, clusters, options)
    return 0


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, Cluster]]:
    """Start a server for each alias, with the tables of jobs."""
    clusters = {}
    try:
        for alias in ALIASES:
            (folder / alias).mkdir(mode=0o755)
            clusters[alias] = Cluster(folder / alias, waits_for_standby=False)
            clusters[alias].start(with_standby=False)
            where = {"NAME": DATABASE, "HOST": str(clusters[alias].primary.home), "PORT": str(PORT), "USER": "postgres"}
            connections.settings[alias] = {**connections.settings["default"], **where}
        connections.close_all()
        del connections["default"]  # it leads to the server of the project
        yield clusters
    finally:
        connections.close_all()
        for cluster in clusters.values():
            cluster.end()


def project(folder: Path) -> PlainSurroundings:
    """Make a project with the README's lines, which knows all of the servers."""
    around = PlainSurroundings.make(folder)
    for alias in ALIASES[1:]:
        host = connections.settings[alias]["HOST"]
        around.made.settings(f'DATABASES["{alias}"] = {{**DATABASES["default"], "HOST": "{host}"}}')
    around.made.settings(f"PULSE = {{'SHARDS': {NUMBERS!r}}}")
    for alias in ALIASES[1:]:
        call_command("migrate", "pulse_django", database=alias, verbosity=0)
    return around


def compare(around: PlainSurroundings, clusters: dict[str, Cluster], options: argparse.Namespace) -> None:
    counts = (1, len(ALIASES))
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for number in range(options.rounds):
        for count in counts if number % 2 else reversed(counts):
            rates[count].append(drain(around, clusters, ALIASES[:count], options))
            say(f"round {number + 1}: {count} servers: {rates[count][-1]:,.0f} jobs/s")
    ratios = [several / one for one, several in zip(*rates.values(), strict=True)]
    for count, found in rates.items():
        print(f"{count} servers: {statistics.median(found):,.0f} jobs/s ({min(found):,.0f} to {max(found):,.0f})")
    print(f"ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def drain(
    around: PlainSurroundings, clusters: dict[str, Cluster], aliases: Sequence[str], options: argparse.Namespace
) -> float:
    flags = [part for alias in aliases for part in ("--shard", alias)]
    with (
        filled(aliases, around.key(options.task), options.jobs),
        quota.held_to(options.share, [one.postmaster for one in clusters.values()]),
    ):
        run_burst(around, options.processes, *flags)
        return checked_rate(aliases, options.jobs)


@contextmanager
def filled(aliases: Sequence[str], task: str, jobs: int) -> Iterator[None]:
    """Leave so many jobs in each of these databases, and nothing else, until the block ends."""
    for alias in aliases:
        for begin in range(0, jobs, AT_ONCE):
            new = [NewJob(task=task)] * min(AT_ONCE, jobs - begin)
            Job.objects.db_manager(alias).enqueue_many(new)
        execute(alias, "VACUUM ANALYZE pulse_django_job")
        execute(alias, "CHECKPOINT")
    try:
        yield
    finally:
        for alias in aliases:
            execute(alias, "TRUNCATE pulse_django_job, pulse_django_attempt, pulse_django_key")


def checked_rate(aliases: Sequence[str], jobs: int) -> float:
    """Return jobs a second from the first claim to the last settle, if every job ran once."""
    begins, ends = [], []
    for alias in aliases:
        [(kept, completed, begin, end)] = execute(alias, _EVIDENCE)
        if not kept == completed == jobs:
            raise SystemExit(f"{alias}: {kept} of {jobs} jobs are kept, {completed} completed at the first attempt")
        begins.append(begin)
        ends.append(end)
    return jobs * len(aliases) / (max(ends) - min(begins))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def execute(alias: str, sql: str) -> list[tuple[float, ...]]:
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else []


if __name__ == "__main__":
    sys.exit(main())
