"""What can be asked of a run: who, what, and how much of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import FLOOR, OURS, PEERS
from benchmarks.peers.measures import Sizes

MEASURES = ("drain", "orm", "enqueue", "cost", "pickup", "idle", "beside", "growth", "recovery")
QUICK = {
    "jobs": 400, "seconds": 1.0, "one_by_one": 50, "bulk": 500, "cost": 200, "pickups": 5, "idle": 2.0, "calm": 1.0,
    "recovery_limit": 20.0, "most_rows": 10_000, "most_finished": 10_000, "rounds": 1, "limit": 60.0,
}  # fmt: skip


def parse_arguments(told: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [OURS, FLOOR, *(peer.name for peer in PEERS if peer.name != OURS)]
    parser.add_argument("--only", type=some_of(names), default=tuple(names), help=f"some of {','.join(names)}")
    parser.add_argument("--measures", type=some_of(MEASURES), default=MEASURES, help=f"some of {','.join(MEASURES)}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=10_000, help="the most jobs of a drain")
    parser.add_argument("--seconds", type=float, default=3.0, help="that a drain should take; the slow get fewer jobs")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a drain is given up")
    parser.add_argument("--one-by-one", type=int, default=500, help="jobs that are enqueued one by one")
    parser.add_argument("--bulk", type=int, default=10_000, help="jobs that are enqueued in bulk")
    parser.add_argument("--cost", type=int, default=5_000, help="jobs whose statements are counted")
    parser.add_argument("--pickups", type=int, default=30, help="jobs whose pickup is measured, in each round")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds for which an idle worker is watched")
    parser.add_argument("--calm", type=float, default=25.0, help="seconds before that")
    parser.add_argument("--recovery-limit", type=float, default=130.0, help="seconds that are waited for a second run")
    parser.add_argument(
        "--most-rows", type=int, default=1_000_000, help="of the growth of claims; 5000000 for all points"
    )
    parser.add_argument("--most-finished", type=int, default=100_000, help="rows that everybody drains beside")
    parser.add_argument("--quick", action="store_true", help="little of everything, to see that it works")
    parser.add_argument("--venvs", type=Path, default=Path(".bench/venvs"), help="where the peers are installed")
    parser.add_argument("--python", action="append", help="an interpreter to install peers with; may be repeated")
    parser.add_argument("--out", type=Path, default=Path(".bench"), help="the folder of results.json")
    options = parser.parse_args()
    if options.quick:
        for name, value in QUICK.items():
            setattr(options, name, min(value, getattr(options, name)))
    return options


def some_of(known: Any) -> Any:
    def chosen(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
        return names

    return chosen


def sizes_of(options: argparse.Namespace) -> Sizes:
    return Sizes(
        jobs=options.jobs,
        seconds=options.seconds,
        one_by_one=options.one_by_one,
        bulk=options.bulk,
        cost=options.cost,
        pickups=options.pickups,
        idle_seconds=options.idle,
        calm_seconds=options.calm,
        limit=options.limit,
    )
