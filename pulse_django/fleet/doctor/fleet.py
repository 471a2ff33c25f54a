"""Whether there is somebody to do the work: the invariants that fail, and what workers say of themselves."""

from __future__ import annotations

from collections.abc import Iterator

from pulse_django import conf
from pulse_django.fleet.invariants import Limits, Severity, ask_all
from pulse_django.words.display import inert

from .advice import Advice, Level, rows

_LIVE = """
SELECT host, COALESCE(versions ->> 'pulse_django'::text, 'unknown'), stuck_slots
FROM pulse_django_worker
WHERE stopped_at IS NULL AND last_beat_at > statement_timestamp() - %s
"""


def on_the_fleet(alias: str, settings: conf.PulseSettings) -> Iterator[Advice]:
    live = rows(alias, _LIVE, [settings.worker_silence])
    yield _of_workers(live)
    if len(versions := {version for _, version, _ in live}) > 1:
        yield Advice(
            topic="workers",
            level=Level.HINT,
            what=f"workers of {len(versions)} versions run side by side: {', '.join(sorted(versions))}",
            why="That is meant to work during a deploy, and is not tested for longer.",
            to_do="Finish the deploy.",
        )
    if stuck := sum(stuck for _, _, stuck in live):
        yield Advice(
            topic="workers",
            level=Level.WARNING,
            what=f"{stuck} slots are held by handlers that nobody waits for any more",
            why="A thread cannot be ended. Its slot is lost until its process is replaced.",
            to_do='Call context.check() in long loops, or give such tasks isolation="process".',
        )
    broken = [finding for finding in ask_all(alias, Limits.of(settings)) if not finding.holds]
    for finding in broken:
        about = "; ".join(inert(f"{subject.key}: {subject.words}") for subject in finding.subjects[:3])
        yield Advice(
            topic=finding.invariant.name,
            level=Level.HINT if finding.invariant.severity is Severity.RISK else Level.WARNING,
            what=about or f"could not be asked: {inert(finding.error)}",
            why=finding.invariant.means,
            to_do=finding.invariant.to_do,
        )
    if not broken:
        yield Advice(
            topic="invariants", level=Level.GOOD, what="all of them hold", why="Nothing is stuck or impossible."
        )


def _of_workers(live: list[tuple[object, ...]]) -> Advice:
    if not live:
        return Advice(
            topic="workers",
            level=Level.WARNING,
            what="no worker is alive",
            why="Jobs are kept, and nobody runs them.",
            to_do="Start one: manage.py pulse_worker.",
        )
    hosts = {row[0] for row in live}
    if len(hosts) == 1:
        return Advice(
            topic="workers",
            level=Level.HINT,
            what=f"{len(live)} live, all on one host",
            why="If that host dies, nobody is left to see that its leases run out until another worker starts.",
            to_do="Run a worker, or a pulse_watchdog, on a second host, if you have one.",
        )
    return Advice(topic="workers", level=Level.GOOD, what=f"{len(live)} live on {len(hosts)} hosts", why="One may die.")
