"""Output for terminals: bars, tables that fit, colours, a line that is overwritten. Plain lines elsewhere."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

from pulse_django.queue.words.display import inert

WIDTH = 24
_FULL, _EMPTY = "█", "░"
_CUT = "…"
_NARROWEST = 8  # the minimum width of a column of text, unless its header is longer


class Screen(NamedTuple):
    """The size of a terminal. None: unlimited."""

    width: int | None = None
    height: int | None = None


def screen_of(stream: Any) -> Screen:
    return Screen(*shutil.get_terminal_size()) if is_terminal(stream) else Screen()


# Patterns in the output of commands, and their colours.
_RED, _YELLOW, _GREEN = "31", "33", "32"
_COLOURS = (
    (re.compile(r"(?m)^(Problems:.*)$"), f"1;{_RED}"),
    (re.compile(r"(?m)^(No problems found\. Warnings:)$"), f"1;{_YELLOW}"),
    (re.compile(r"(?m)^(No problems found\.)$"), f"1;{_GREEN}"),
    (re.compile(r"(?m)^( *! [\w-]+ \((?:broken|stuck|failing)\))"), _RED),
    (re.compile(r"(?m)^( *! [\w-]+ \(risk\))"), _YELLOW),
    (re.compile(r"(\bPAUSED\b)"), _YELLOW),
    (re.compile(r"(\((?:LOST|stopped)\))"), _RED),
)


def painted(text: str, stream: Any) -> str:
    """Return ``text`` with colours, if the stream is a terminal and NO_COLOR is not set. ``text`` must be inert."""
    if not is_terminal(stream) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    for pattern, colour in _COLOURS:
        text = pattern.sub(f"\x1b[{colour}m\\1\x1b[0m", text)
    return text


def is_terminal(stream: Any) -> bool:
    """Return whether the stream, or Django's wrapper of a stream, is a terminal."""
    return bool(getattr(stream, "isatty", lambda: False)())


def bar(share: float, width: int = WIDTH) -> str:
    """Draw a share from 0 to 1."""
    full = round(max(0.0, min(share, 1.0)) * width)
    return _FULL * full + _EMPTY * (width - full)


def showable(text: str, stream: Any) -> str:
    """Return ``text`` in the encoding of the stream. With LANG=C, draw bars with # and escape other characters."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.replace(_FULL, "#").replace(_EMPTY, ".").replace(_CUT, "~")
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def table(
    headers: tuple[str, ...], rows: Sequence[tuple[object, ...]], indent: str = "  ", *, within: int | None = None
) -> list[str]:
    """Format rows under their headers, with numbers on the right. Every cell is made inert.

    With ``within``, columns of text are cut until the table has at most this width.
    """
    cells = [[inert(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [headers, *cells]) for column in range(len(headers))]
    is_number = [all(isinstance(row[column], int) for row in rows) for column in range(len(headers))]
    if within is not None:
        _narrow(widths, headers, is_number, within - len(indent))
    lines = []
    for line in [headers, *cells]:
        padded = [
            _cut(cell, width).rjust(width) if right else _cut(cell, width).ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        lines.append(indent + "  ".join(padded).rstrip())
    return lines


def _narrow(widths: list[int], headers: Sequence[str], is_number: Sequence[bool], most: int) -> None:
    """Shorten the widest column of text until the table fits, or no column can be shortened."""
    while sum(widths) + 2 * (len(widths) - 1) > most:
        can = [
            column
            for column, width in enumerate(widths)
            if not is_number[column] and width > max(_NARROWEST, len(headers[column]))
        ]
        if not can:
            return
        widths[max(can, key=lambda column: widths[column])] -= 1


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}{_CUT}"


def cut_to(lines: Sequence[str], screen: Screen) -> list[str]:
    """Return the first lines that fit on the screen. If not all fit, the last line has the number of the others."""
    shown = [line if screen.width is None else _cut(line, screen.width) for line in lines]
    if screen.height is None or len(shown) < screen.height:
        return shown
    kept = shown[: max(1, screen.height - 2)]
    return [*kept, f"({len(lines) - len(kept)} more lines: make the window larger)"]


class OverwrittenLine:
    """A line that is overwritten on a terminal. On other streams, only the last text is written."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._shows = stream, is_terminal(stream)
        self._last = ""

    def show(self, text: str) -> None:
        self._last = showable(text, self._stream)
        if self._shows:
            self._stream.write(f"\r\x1b[2K{self._last}")
            self._stream.flush()

    def end(self) -> None:
        """End the line, and keep the last text."""
        if self._last:
            self._stream.write("\n" if self._shows else f"{self._last}\n")
            self._last = ""
