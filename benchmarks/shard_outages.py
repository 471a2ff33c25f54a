"""The rates of shards while one of them is away."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.db import connections

from benchmarks import quota
from benchmarks.processes import PlainSurroundings, working
from tests.cluster import Cluster
from tests.proxy import BlackHole

VICTIM = "shard_1"
SETTLING = 1 / 3  # of the calm before an outage: the rate does not count yet
_BETWEEN = """
SELECT count(*) FROM pulse_django_job
WHERE finished_at BETWEEN to_timestamp(%s) AND to_timestamp(%s) AND status = 'COMPLETED'
"""
_LEFT = "SELECT count(*) FROM pulse_django_job WHERE finished_at IS NULL"
_LOST = "SELECT count(*) FROM pulse_django_job WHERE losses > 0"


def killed(victim: Cluster, _: BlackHole, seconds: float) -> None:
    victim.stop(victim.primary, "immediate")
    time.sleep(seconds)
    victim.start_again(victim.primary)


def frozen(victim: Cluster, _: BlackHole, seconds: float) -> None:
    victim.stall_primary(seconds)


def cut_off(_: Cluster, proxy: BlackHole, seconds: float) -> None:
    proxy.swallow()
    time.sleep(seconds)
    proxy.heal()
    proxy.bury()


def untouched(_: Cluster, __: BlackHole, seconds: float) -> None:
    """What rates do by themselves meanwhile: tables grow, and are vacuumed."""
    time.sleep(seconds)


WAYS: Mapping[str, Callable[[Cluster, BlackHole, float], None]] = {
    "untouched": untouched,
    "killed": killed,
    "frozen": frozen,
    "cut off": cut_off,
}


def measure_outage(
    around: PlainSurroundings, clusters: Mapping[str, Cluster], way: str, options: argparse.Namespace, folder: Path
) -> None:
    """Print the rates of the shards before one of them is away, and meanwhile, and how many of their jobs were lost."""
    proxy = BlackHole(folder, connections.settings[VICTIM])
    settings = [
        "from .settings import *",
        f'DATABASES["{VICTIM}"] = {{**DATABASES["{VICTIM}"], "HOST": "{proxy.host}", "PORT": {proxy.port}}}',
    ]
    (around.project / "mysite" / "proxied.py").write_text("\n".join([*settings, ""]))
    environment = around.environment(DJANGO_SETTINGS_MODULE="mysite.proxied")
    flags = ("--processes", str(options.processes))
    postmasters = [one.postmaster for one in clusters.values()]
    with quota.held_to(options.share, postmasters), working(around, around.log(way), environment, *flags):
        time.sleep((1 + SETTLING) * options.calm)
        begin = time.time()
        WAYS[way](clusters[VICTIM], proxy, options.outage)
        end = time.time()
    proxy.close()
    connections.close_all()
    for alias in [alias for alias in clusters if alias != VICTIM]:
        with connections[alias].cursor() as cursor:
            before = rate(cursor, begin - options.calm, begin)
            meanwhile = rate(cursor, begin, end)
            cursor.execute(_LOST)
            [lost] = cursor.fetchone()
            cursor.execute(_LEFT)
            if not cursor.fetchone()[0]:
                raise SystemExit(f"{alias} ran out of jobs: the figure would be a lie. Give more --jobs")
        print(
            f"{VICTIM} {way} for {end - begin:.0f} s: {alias} {before:,.0f} jobs/s before, {meanwhile:,.0f} meanwhile: "
            f"{meanwhile / before:.2f}; {lost} leases lost",
            flush=True,
        )


def rate(cursor: Any, begin: float, end: float) -> float:
    cursor.execute(_BETWEEN, [begin, end])
    [count] = cursor.fetchone()
    return float(count / (end - begin))
