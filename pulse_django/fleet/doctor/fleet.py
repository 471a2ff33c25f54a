"""Advice about the fleet: the conditions that were found, and how many workers run where."""

from __future__ import annotations

from collections.abc import Iterator

from pulse_django import conf
from pulse_django.fleet.conditions import Limits, ask_all

from .advice import Advice, Level, rows

_LIVE = """
SELECT host, COALESCE(versions ->> 'pulse_django'::text, 'unknown')
FROM pulse_django_worker
WHERE stopped_at IS NULL AND last_beat_at > statement_timestamp() - %s
"""


def on_the_fleet(alias: str, settings: conf.PulseSettings) -> Iterator[Advice]:
    live = rows(alias, _LIVE, [settings.worker_silence])
    yield _of_workers(live)
    if len(versions := {version for _, version in live}) > 1:
        yield Advice(
            topic="workers",
            level=Level.HINT,
            what=f"workers of {len(versions)} versions are running: {', '.join(sorted(versions))}",
            why="Mixed versions are supported during a deploy, but not tested for longer.",
            to_do="Finish the deploy.",
        )
    verdict = ask_all(alias, Limits.of(settings))
    for finding in verdict.found:
        yield Advice(
            topic=finding.condition.name,
            level=Level.WARNING if finding.is_problem else Level.HINT,
            what=finding.says,
            why=finding.condition.means,
            to_do=finding.condition.to_do,
        )
    if not verdict.found:
        yield Advice(
            topic="conditions",
            level=Level.GOOD,
            what="none was found",
            why="No job is stuck, too few fail to matter, and no state is invalid.",
        )


def _of_workers(live: list[tuple[object, ...]]) -> Advice:
    if not live:
        return Advice(
            topic="workers",
            level=Level.WARNING,
            what="no worker is alive",
            why="Jobs are stored, but none will run.",
            to_do="Start one: manage.py pulse_worker.",
        )
    hosts = {row[0] for row in live}
    if len(hosts) == 1:
        return Advice(
            topic="workers",
            level=Level.HINT,
            what=f"{len(live)} live, all on one host",
            why="If that host fails, its jobs are not recovered until another worker starts.",
            to_do="Run a worker or pulse_watchdog on a second host.",
        )
    return Advice(
        topic="workers",
        level=Level.GOOD,
        what=f"{len(live)} live on {len(hosts)} hosts",
        why="The fleet survives the loss of one host.",
    )
