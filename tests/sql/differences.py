"""Write a statement for Citus as its difference from those before it: lines that these have are told, not repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from .layout import key_of, laid_out

FEWEST = 3  # lines that are told
FOLDER = Path(__file__).parent
OF_CITUS = FOLDER / "citus"


class Written:
    """The lines of the plain statements, and of those for Citus that were written after them."""

    def __init__(self, files: Mapping[Path, str]) -> None:
        self._lines: list[tuple[str, str]] = []  # of all files: a line, and the name of its file
        self._places: dict[str, list[int]] = {}
        for path, text in sorted(files.items()):
            if not path.is_relative_to(OF_CITUS):
                self._add(path, text.splitlines())

    def difference_of(self, statement: str, path: Path) -> str:
        lines = laid_out(statement).splitlines()
        told = "\n".join([f"-- the whole: {digest_of(statement)}", *self._told(lines)])
        self._add(path, lines)
        return told

    def _add(self, path: Path, lines: Iterable[str]) -> None:
        for line in [*map(_bare, lines), "--"]:
            self._places.setdefault(line, []).append(len(self._lines))
            self._lines.append((line, str(path.relative_to(FOLDER))))

    def _told(self, lines: list[str]) -> Iterable[str]:
        at = 0
        while at < len(lines):
            length, place = max(
                ((self._common(lines, at, one), -one) for one in self._places.get(_bare(lines[at]), ())), default=(0, 0)
            )
            if length < FEWEST:
                yield lines[at]
                at += 1
                continue
            yield f"-- {length} lines of {self._lines[-place][1]}: {_bare(lines[at])}"
            at += length

    def _common(self, lines: list[str], at: int, place: int) -> int:
        count = 0
        while (
            at + count < len(lines)
            and place + count < len(self._lines)
            and _bare(lines[at + count]) == self._lines[place + count][0]
        ):
            count += 1
        return count


def digest_of(statement: str) -> str:
    """Return what tells a statement from others, as ``key_of`` does, in short."""
    return sha256(key_of(statement).encode()).hexdigest()[:8]


def _bare(line: str) -> str:
    return line.strip().rstrip(";,")
