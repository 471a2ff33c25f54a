"""How soon the job of a killed worker runs again, at everybody's defaults. All at once: nearly all of it is waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.peers.contender import Contender, MeasureFailed, wait_until

LONGEST_START = 60.0
PAUSE = 2.0  # between the first run's begin and the kill, so that nobody is killed in the middle of a claim
Outcome = float | str  # seconds, or why there are none


@dataclass
class Victim:
    who: Contender
    killed_at: int


def recover(them: list[Contender], limit: float, say: Callable[[str], None]) -> dict[str, Outcome]:
    """Kill each one's worker in the middle of a job, start another at once, and wait for the job's next run."""
    outcomes: dict[str, Outcome] = {}
    with ExitStack() as others:
        victims = []
        for who in them:
            try:
                victims.append(kill_one(who))
                replacement = who.start(who.peer.main_mode, 1, tuned=False)
                others.callback(replacement.kill)
                say(f"{who.peer.title}: killed")
            except MeasureFailed as failed:
                outcomes[who.peer.name] = str(failed)
        deadline = time.monotonic() + limit
        while victims and time.monotonic() < deadline:
            time.sleep(0.05)
            for victim in list(victims):
                instants = begun(victim.who)
                if len(instants) > 1:
                    seconds = (instants[1] - victim.killed_at) / 1e9
                    outcomes[victim.who.peer.name] = seconds
                    say(f"{victim.who.peer.title}: {seconds:.1f} s")
                    victims.remove(victim)
        for victim in victims:
            outcomes[victim.who.peer.name] = f"not within {limit:g} s"
    return outcomes


def kill_one(who: Contender) -> Victim:
    who.reset()
    who.ask("hold")
    worker = who.start(who.peer.main_mode, 1, tuned=False)
    try:
        wait_until(lambda: begun(who), f"the job did not begin; {who.said()}", LONGEST_START, 0.05)
        time.sleep(PAUSE)
        if len(begun(who)) > 1:
            raise MeasureFailed("the job had begun twice before anybody was killed")
        killed_at = time.monotonic_ns()
    finally:
        worker.kill()
    return Victim(who, killed_at)


def begun(who: Contender) -> list[int]:
    """Return the instants at which the job began."""
    text = who.begun.read_text() if who.begun.exists() else ""
    return [int(line.split()[1]) for line in text[: text.rfind("\n") + 1].splitlines()]
