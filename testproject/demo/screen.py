"""What the demo shows: on a terminal a table that is drawn over, elsewhere one line for each change of a job."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pulse_django.operations.terminal import bar, is_terminal
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.states import Status

from .rows import Row

Paint = Callable[[str], str]

HEADER = "status         attempts  locked_by  lease left  progress            last_error"
JOB_WIDTH, STATUS_WIDTH, BAR = 13, 13, 10
QUARTERS = 4  # a plain line for every quarter of the progress is enough
TOP = "\x1b[{}A"
WIPE = "\x1b[2K"


def table(rows: Sequence[Row], width: int, colours: Mapping[str, Paint] | None = None) -> list[str]:
    """Draw the rows, no line longer than ``width``: one that wraps could not be drawn over."""
    jobs = max([JOB_WIDTH, *(len(row.label) for row in rows)])
    drawn = (_drawn(row, jobs, width, (colours or {}).get(row.status)) for row in rows)
    return [f"  {'job':<{jobs}}  {HEADER}"[:width], *drawn]


def line(row: Row, elapsed: float) -> str:
    """Say a row in one plain line."""
    said = [row.status, f"attempts {row.attempts}"]
    if row.lease_left is not None:
        said += [f"locked_by {row.worker}", f"lease left {in_words(row.lease_left)}"]
    if row.total:
        said.append(f"progress {row.done}/{row.total}")
    if row.last_error and not row.is_over:
        said.append(f"last_error: {row.last_error}")
    elif row.status == Status.DEAD_LETTERED:
        said.append(row.last_error)
    return f"  {elapsed:5.1f}s  {row.label}: {', '.join(said)}"


def has_news(row: Row, before: Row | None, *, counting_down: bool = False) -> bool:
    """Whether a plain line is worth it. A lease that is not extended is worth one for each second."""
    return before is None or _news(row, counting_down) != _news(before, counting_down)


class Screen:
    def __init__(self, out: Any, style: Any) -> None:
        self._out, self._style = out, style
        self._redraws = is_terminal(out)
        self._drawn = 0  # lines of a table that the next one replaces
        self._shown: dict[int, Row] = {}
        self._began = time.monotonic()
        self.counting_down = False
        self._colours: dict[str, Paint] = {
            Status.RUNNING: style.HTTP_INFO,
            Status.RETRYING: style.WARNING,
            Status.COMPLETED: style.SUCCESS,
            Status.DEAD_LETTERED: style.ERROR,
        }

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def head(self, title: str) -> None:
        """Begin an act."""
        self._below_table()
        self._write(f"\n{self._style.MIGRATE_HEADING(title)}\n")

    def say(self, *lines: str) -> None:
        """Tell what is about to happen."""
        self._below_table()
        self._write("".join(f"{one}\n" for one in lines))

    def praise(self, text: str) -> None:
        """Tell that a step of the story happened."""
        self._below_table()
        self._write(f"  {self._style.SUCCESS('✓')} {text}\n")

    def show(self, rows: Sequence[Row]) -> None:
        """Show how the jobs are, over what was shown before."""
        if self._redraws:
            self._redraw(table(rows, shutil.get_terminal_size().columns - 1, self._colours))
            return
        for row in rows:
            if has_news(row, self._shown.get(row.id), counting_down=self.counting_down):
                self._write(f"{line(row, self.elapsed)}\n")
                self._shown[row.id] = row

    def _redraw(self, lines: Sequence[str]) -> None:
        up = TOP.format(self._drawn) if self._drawn else ""
        self._write(up + "".join(f"{WIPE}{one}\n" for one in lines))
        self._drawn = len(lines)

    def _below_table(self) -> None:
        """Leave the table as it is: what follows stands under it."""
        self._drawn = 0

    def _write(self, text: str) -> None:
        self._out.write(text, ending="")
        self._out.flush()


def _drawn(row: Row, jobs: int, width: int, paint: Paint | None) -> str:
    left = "" if row.lease_left is None else f"{row.lease_left:.1f}s"
    share = f"{bar(row.done / row.total, BAR)} {row.done}/{row.total}" if row.total else ""
    text = (
        f"  {row.label:<{jobs}}  {row.status:<{STATUS_WIDTH}}  {row.attempts:<8}  {row.worker:<9}  "
        f"{left:<10}  {share:<18}  {row.last_error}"
    )[:width].rstrip()
    if paint is None:
        return text
    begin = jobs + 4
    end = begin + STATUS_WIDTH
    return text[:begin] + paint(text[begin:end]) + text[end:]


def _news(row: Row, counting_down: bool) -> tuple[object, ...]:
    second = math.floor(row.lease_left) if counting_down and row.lease_left is not None else None
    quarter = row.done * QUARTERS // row.total if row.total else None
    return row.status, row.attempts, row.locked_by, row.last_error, quarter, second
