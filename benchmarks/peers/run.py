"""This project, its floor and its peers, side by side: ``make bench``, or ``python -m benchmarks.peers.run``.

The contenders take turns, round by round, and another begins each round, because machines drift. What was measured is
written after every measurement; what could not be measured is written with the reason. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.peers import growth
from benchmarks.peers.catalogue import BY_NAME, FLOOR, FLOOR_SETTINGS, FLOOR_TITLE, OURS, PEERS
from benchmarks.peers.contender import Contender, MeasureFailed
from benchmarks.peers.environments import ROOT, NotInstalled, make_ready
from benchmarks.peers.options import parse_arguments, sizes_of
from benchmarks.peers.peer import REDIS
from benchmarks.peers.recoveries import recover
from benchmarks.peers.results import Results
from benchmarks.peers.rounds import NOT_MEASURABLE, Rounds, one_line
from benchmarks.peers.server_counts import ServerCounts
from benchmarks.peers.stores import Server, redis_server, redis_version, store_of
from benchmarks.scratch import scratch_database, server
from testproject.postgres import log_file

PLACES = ("--out", "--venvs", "--python")


def main() -> None:
    options = parse_arguments(__doc__)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    try:
        measure(options)
    except KeyboardInterrupt:
        say(f"broken off; what was measured is in {options.out / 'results.json'}")
        sys.exit(130)


def measure(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulse-bench-")))
        stack.enter_context(scratch_database("bench_floor"))
        ours = Server()
        stack.callback(ours.close)
        counts = ServerCounts(ours, None if os.environ.get("DATABASE_URL") else log_file())
        results = Results(options.out / "results.json", describe(options, counts))
        chosen = [BY_NAME[name] for name in options.only if name != FLOOR]
        port = stack.enter_context(redis_server()) if any(peer.store == REDIS for peer in chosen) else None
        contenders = introduce(options, results, stack, ours, port, folder)
        rounds = Rounds(
            options, results, contenders, counts, sizes_of(options), has_floor=FLOOR in options.only, say=say
        )
        rounds.run()
        if "beside" in options.measures:
            rounds.run_beside(options.most_finished)
        if "growth" in options.measures and OURS in options.only:
            measure_growth(options, results)
        if "recovery" in options.measures:
            measure_recovery(options, results, contenders)
        results.finish(ended_at=now(), load_at_end=os.getloadavg()[0])
    say(f"{results.data['about']['ended_at']}: {options.out / 'results.json'}")


def introduce(
    options: argparse.Namespace, results: Results, stack: ExitStack, ours: Server, port: int | None, folder: Path
) -> list[Contender]:
    """Install everybody who was asked for. Who cannot be is reported with the reason."""
    if FLOOR in options.only:
        results.introduce(FLOOR, FLOOR_TITLE, FLOOR_SETTINGS, version=None)
    found = []
    for number, peer in enumerate(BY_NAME[name] for name in options.only if name != FLOOR):
        try:
            if peer.store == REDIS and port is None:
                raise NotInstalled("there is no redis-server on the PATH")
            environment = make_ready(peer, options.venvs, options.python or ())
            store = store_of(peer, ours, port, number)
            stack.callback(store.end)
            contender = Contender(peer, environment, store, folder)
            version = contender.prepare()
        except (NotInstalled, MeasureFailed) as reason:
            say(f"{peer.title}: not measured: {reason}")
            results.introduce(peer.name, peer.title, peer.settings, version=None, reason=str(reason))
        else:
            say(f"{peer.title}: {version}")
            results.introduce(peer.name, peer.title, peer.settings, version=version, without=peer.without)
            found.append(contender)
    return found


def measure_growth(options: argparse.Namespace, results: Results) -> None:
    def keep(point: str, figures: dict[str, float]) -> None:
        say(f"claims, {point}: {', '.join(f'{name} {value:.2f}' for name, value in figures.items())}")
        results.add(OURS, "growth", point, 1, figures)

    try:
        growth.grow(keep, options.most_rows)
    except NOT_MEASURABLE as failed:
        results.fail(OURS, "growth", "claims", one_line(failed))


def measure_recovery(options: argparse.Namespace, results: Results, contenders: list[Contender]) -> None:
    say(f"{len(contenders)} workers are killed, and up to {options.recovery_limit:g} s waited")
    for name, outcome in recover(contenders, options.recovery_limit, say).items():
        if isinstance(outcome, float):
            results.add(name, "recovery", "defaults", 1, {"seconds": outcome})
        else:
            results.fail(name, "recovery", "defaults", outcome)


def describe(options: argparse.Namespace, counts: ServerCounts) -> dict[str, Any]:
    shown = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "autovacuum")
    return {
        "command": " ".join(["python -m benchmarks.peers.run", *without_places(sys.argv[1:])]),
        "commit": commit(),
        "begun_at": now(),
        "load_at_begin": os.getloadavg()[0],
        "niceness": os.nice(0),
        "postgresql": server(),
        "postgresql_settings": {name: counts.setting(name) for name in shown},
        "redis": redis_version() if any(peer.store == REDIS for peer in PEERS if peer.name in options.only) else None,
        "statements_from": counts.source,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        **{
            name: getattr(options, name)
            for name in ("rounds", "jobs", "seconds", "pickups", "idle", "recovery_limit", "most_rows", "quick")
        },
        "measures": list(options.measures),
        "only": list(options.only),
    }


def without_places(arguments: list[str]) -> list[str]:
    """Leave out where things are on this machine."""
    kept, is_place = [], False
    for argument in arguments:
        if not is_place and not argument.startswith(PLACES):
            kept.append(argument)
        is_place = argument in PLACES
    return kept


def commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
