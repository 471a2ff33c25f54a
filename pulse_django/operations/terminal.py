"""Show progress on a terminal: bars, tables, a line that is overwritten. Elsewhere: plain lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from pulse_django.words.display import inert

WIDTH = 24
_FULL, _EMPTY = "█", "░"


def is_terminal(stream: Any) -> bool:
    """Whether it is a terminal that shows colours and changing lines. Django's wrapper of a stream says so too."""
    return bool(getattr(stream, "isatty", lambda: False)())


def bar(share: float, width: int = WIDTH) -> str:
    """Draw a share from 0 to 1."""
    full = round(max(0.0, min(share, 1.0)) * width)
    return _FULL * full + _EMPTY * (width - full)


def showable(text: str, stream: Any) -> str:
    """Return ``text`` as this stream can take it: under LANG=C a bar is drawn with # and the rest escaped."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.replace(_FULL, "#").replace(_EMPTY, ".")
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def table(headers: tuple[str, ...], rows: Sequence[tuple[object, ...]], indent: str = "  ") -> list[str]:
    """Lay out rows under their headers, numbers to the right. Every cell is made inert."""
    cells = [[inert(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [headers, *cells]) for column in range(len(headers))]
    is_number = [all(isinstance(row[column], int) for row in rows) for column in range(len(headers))]
    lines = []
    for line in [headers, *cells]:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        lines.append(indent + "  ".join(padded).rstrip())
    return lines


class OverwrittenLine:
    """One line that is written over, on a terminal; elsewhere nothing is shown until it is over."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._shows = stream, is_terminal(stream)
        self._last = ""

    def show(self, text: str) -> None:
        self._last = showable(text, self._stream)
        if self._shows:
            self._stream.write(f"\r\x1b[2K{self._last}")
            self._stream.flush()

    def end(self) -> None:
        """Leave what was shown last."""
        if self._last:
            self._stream.write("\n" if self._shows else f"{self._last}\n")
            self._last = ""
