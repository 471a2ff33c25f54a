"""Does for the harness what is asked of one queue. Run by a Python that has that queue.

python run.py NAME version | install | hold | counts
python run.py NAME enqueue COUNT one|many|fill TASK   prints the seconds that it took, once connected and warm
python run.py NAME pace COUNT SECONDS_BETWEEN         prints, for each job, the instant before it was enqueued
python run.py NAME work sync|async PROCESSES tuned|default
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import time

WARM_UP = 3
# Its own folder would hide packages of the same name; what stands beside this is found by PYTHONPATH.


def main() -> None:
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    name, verb, *rest = sys.argv[1:]
    side = importlib.import_module(f"with_{name.replace('-', '_')}").SIDE
    if verb == "version":
        print(side.version())
    elif verb == "install":
        side.install()
    elif verb == "work":
        side.work(rest[0], int(rest[1]), tuned=rest[2] == "tuned")
    elif verb == "counts":
        left, done = side.counts()
        print(left, -1 if done is None else done)
    else:
        side.open()
        {"enqueue": enqueue, "pace": pace, "hold": hold}[verb](side, *rest)
        side.close()


def enqueue(side, count, how, task) -> None:  # type: ignore[no-untyped-def]  # run by whatever Python there is
    if how == "fill":
        many(side, task, int(count))
        return
    warm_up = WARM_UP if how == "one" else 1
    for _ in range(warm_up):
        side.one(task)
    started = time.perf_counter()
    if how == "many":
        side.many(task, int(count) - warm_up)
    else:
        for _ in range(int(count) - warm_up):
            side.one(task)
    print((time.perf_counter() - started) * int(count) / (int(count) - warm_up))


def many(side, task, count) -> None:  # type: ignore[no-untyped-def]
    try:
        side.many(task, count)
    except NotImplementedError:  # it has no such way
        for _ in range(count):
            side.one(task)


def pace(side, count, gap) -> None:  # type: ignore[no-untyped-def]
    for number in range(-WARM_UP, int(count)):
        time.sleep(float(gap) * random.uniform(0.5, 1.5))
        before = time.monotonic_ns()
        side.one("stamp", number)
        if number >= 0:
            print(number, before, flush=True)


def hold(side) -> None:  # type: ignore[no-untyped-def]
    side.one("hold")


if __name__ == "__main__":
    main()
