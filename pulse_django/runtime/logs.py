"""What a worker logs: one line for each run, with its facts as ``extra`` for those who log JSON.

Names come from rows and hosts. They are shown as Python would show them, so that none can forge a line.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from .. import conf
from ..answers import Report
from ..outcomes import OutcomeName
from ..runs import Run
from ..states import Status

logger = logging.getLogger("pulse_django.jobs")

MOST_SHOWN = 200  # characters of arguments
_GOOD = frozenset({OutcomeName.SUCCEEDED, OutcomeName.SNOOZED, OutcomeName.CANCELLED, OutcomeName.DISCARDED})


def log_run(run: Run, report: Report | None, status: str, took: float) -> None:
    """Tell how a run ended: INFO if all is well, WARNING if it failed, ERROR if the job is dead."""
    outcome = report.outcome.name if report is not None else OutcomeName.SUCCEEDED
    level = _level(outcome, status)
    if not logger.isEnabledFor(level):
        return
    claim = run.claim
    reason = getattr(report.decision, "reason", "") if report is not None else ""
    text = "job %d %r attempt %d: %s in %.0f ms"
    values: tuple[Any, ...] = (claim.job_id, claim.task, claim.attempt, status, took * 1000)
    if reason:
        text, values = f"{text}: %s", (*values, _one_line(reason))
    if level != logging.INFO and conf.current().log_arguments:
        shown = f"{claim.args_json} {claim.kwargs_json}"[:MOST_SHOWN]
        text, values = f"{text} (%s)", (*values, _one_line(shown))
    logger.log(level, text, *values, extra=facts_of(run, outcome, took))


def facts_of(run: Run, outcome: str, took: float) -> dict[str, Any]:
    claim = run.claim
    return {
        "job_id": claim.job_id,
        "task": claim.task,
        "attempt": claim.attempt,
        "queue": claim.queue,
        "holder": claim.lease.holder,
        "outcome": str(outcome),
        "duration": took,
    }


def log_lost(run: Run, what: str) -> None:
    """Tell that a lease was lost, and what that meant for its run."""
    claim = run.claim
    logger.warning(
        "job %d %r attempt %d: lease lost; %s",
        claim.job_id,
        claim.task,
        claim.attempt,
        what,
        extra=facts_of(run, "", 0),
    )


def configure(stream: Any = None) -> None:
    """Show our lines on standard error, unless the project has made up its mind about them."""
    ours, root = logging.getLogger("pulse_django"), logging.getLogger()
    if ours.handlers or root.handlers:
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    ours.addHandler(handler)
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
    ours.propagate = False


def _level(outcome: str, status: str) -> int:
    if status == Status.DEAD_LETTERED:
        return logging.ERROR
    return logging.INFO if outcome in _GOOD or outcome == OutcomeName.RELEASED else logging.WARNING


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
