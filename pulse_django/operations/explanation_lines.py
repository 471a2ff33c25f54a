"""An explanation as lines of a terminal."""

from __future__ import annotations

from datetime import timedelta

from pulse_django.fleet.explanation import Explanation
from pulse_django.words.display import in_words


def explanation_in_lines(explanation: Explanation) -> list[str]:
    lines = [f"Job {explanation.job_id}: {explanation.status.value}"]
    lines += [f"  {place}. {reason.sentence}" for place, reason in enumerate(explanation.reasons, 1)]
    if explanation.position is not None:
        lines.append(f"Jobs before it: {explanation.place}")
        lines.append(f"Starts in: {span_in_words(explanation.starts_in)}")
    return lines


def span_in_words(span: tuple[timedelta, timedelta] | None) -> str:
    """Say from when to when."""
    if span is None:
        return "not known"
    return " to ".join(in_words(one.total_seconds()) for one in span)
