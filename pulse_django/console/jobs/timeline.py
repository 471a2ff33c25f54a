"""The timeline of a job: when it waited, which workers ran it, and which continued after losing the lease.

Pure geometry, for a template to draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from pulse_django.queue.words.outcomes import OutcomeName

WIDTH = 860
LABELS = 90  # on the left
LANE = 26  # the height of a run's line
BAR = 14
TOP = 22  # for the scale
NARROWEST = 3  # keeps a run of a millisecond visible
MOST_LANES = 60  # the latest runs; the table shows earlier ones

GOOD = frozenset({OutcomeName.SUCCEEDED})
NEUTRAL = frozenset(
    {OutcomeName.SNOOZED, OutcomeName.WAITED, OutcomeName.RELEASED, OutcomeName.CANCELLED, OutcomeName.DISCARDED}
)


AmendedAt = tuple[datetime, str]  # the instant of the change and the user


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One run, from the ledger or the lease."""

    number: int
    begun: datetime
    ended: datetime | None  # None: the run has not ended
    outcome: str = ""
    worker: str = ""
    late_at: datetime | None = None  # when its worker sent a late report
    late_outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A bar of the drawing. ``kind`` is a class of the style sheet, and ``says`` its meaning as text."""

    kind: str  # wait, good, bad, neutral, running, zombie, amended
    x: float
    width: float
    y: float
    says: str
    height: int = BAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    height: float
    shapes: list[Shape] = field(default_factory=list)
    labels: list[Shape] = field(default_factory=list)
    marks: list[Shape] = field(default_factory=list)
    left_out: int = 0  # earlier runs
    has_overlap: bool = False  # two runs were active at the same time
    width: int = WIDTH


def draw(created: datetime, spans: Sequence[Span], now: datetime, amended: Sequence[AmendedAt] = ()) -> Timeline:
    """Draw the runs of a job below each other, from its creation to its last event."""
    shown = sorted(spans, key=lambda span: span.number)[-MOST_LANES:]
    begin = min([created, *(span.begun for span in shown)]) if len(shown) == len(spans) else shown[0].begun
    changes = [one for one in amended if one[0] >= begin]
    last = [max(span.ended or now, span.late_at or begin) for span in shown] + [at for at, _ in changes]
    scale = _Scale(begin, max([begin + timedelta(milliseconds=1), *last]))
    shapes, labels, has_overlap = [], [], False
    before = begin
    for lane, span in enumerate(shown):
        y = TOP + lane * LANE
        if span.begun > before:
            shapes.append(
                scale.bar("wait", before, span.begun, y, _("waited %(time)s") % {"time": _said(span.begun - before)})
            )
        ended = span.ended or now
        shapes.append(scale.bar(_kind(span), span.begun, ended, y, _text_of(span, ended)))
        if span.late_at is not None and span.late_at > ended:
            overlaps = any(other.begun < span.late_at and other.number > span.number for other in shown)
            has_overlap = has_overlap or overlaps
            shapes.append(
                scale.bar("zombie", ended, span.late_at, y, _text_of_late_end(span, ended, overlaps=overlaps))
            )
        said = _("attempt %(number)d") % {"number": span.number}
        labels.append(Shape(kind="label", x=0, width=LABELS, y=y + BAR - 3, says=said))
        before = ended
    lanes = max(1, len(shown)) * LANE
    shapes += [scale.stroke("amended", at, lanes, _amended_text(at - begin, by)) for at, by in sorted(changes)]
    return Timeline(
        height=TOP + lanes,
        shapes=shapes,
        labels=labels,
        marks=scale.marks(),
        left_out=shown[0].number - 1 if len(shown) < len(spans) else 0,
        has_overlap=has_overlap,
    )


class _Scale:
    """Convert instants to pixels."""

    def __init__(self, begin: datetime, end: datetime) -> None:
        self._begin = begin
        self._seconds = (end - begin).total_seconds()

    def x(self, instant: datetime) -> float:
        share = (instant - self._begin).total_seconds() / self._seconds
        return round(LABELS + max(0.0, min(share, 1.0)) * (WIDTH - LABELS - NARROWEST), 1)

    def bar(self, kind: str, begin: datetime, end: datetime, y: float, says: str) -> Shape:
        x = self.x(begin)
        return Shape(kind=kind, x=x, width=max(NARROWEST, round(self.x(end) - x, 1)), y=y, says=says)

    def stroke(self, kind: str, at: datetime, height: int, says: str) -> Shape:
        """Return a line through all runs."""
        return Shape(kind=kind, x=self.x(at), width=NARROWEST, y=TOP, height=height, says=says)

    def marks(self) -> list[Shape]:
        """Return the ends and three instants between them, as times since the beginning."""
        parts = 4
        times = [timedelta(seconds=self._seconds * part / parts) for part in range(parts + 1)]
        return [Shape(kind="mark", x=self.x(self._begin + one), y=TOP, width=0, says=_said(one)) for one in times]


def _kind(span: Span) -> str:
    if span.ended is None:
        return "running"
    if span.outcome in GOOD:
        return "good"
    return "neutral" if span.outcome in NEUTRAL else "bad"


def _text_of(span: Span, ended: datetime) -> str:
    return _("attempt %(number)d: %(outcome)s after %(time)s, by %(worker)s") % {
        "number": span.number, "outcome": span.outcome or _("running"), "time": _said(ended - span.begun),
        "worker": span.worker,
    }  # fmt: skip


def _text_of_late_end(span: Span, ended: datetime, *, overlaps: bool) -> str:
    late = _said(span.late_at - ended)  # type: ignore[operator]  # it is not None
    facts = {"number": span.number, "outcome": span.late_outcome, "time": late}
    if span.outcome == "SUCCEEDED":
        return _("attempt %(number)d raised an error %(time)s after completing the job") % facts
    if overlaps:
        return _("attempt %(number)d reported %(outcome)s %(time)s too late, while another run was active") % facts
    return _("attempt %(number)d reported %(outcome)s %(time)s too late") % facts


def _amended_text(after: timedelta, by: str) -> str:
    facts = {"time": _said(after), "user": by}
    return (_("arguments amended after %(time)s, by %(user)s") if by else _("arguments amended after %(time)s")) % facts


def _said(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"
