"""Write a statement for Citus as its difference from plain statements: lines that these have are told, not repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from .layout import key_of, laid_out

FEWEST = 3  # lines that are told
FOLDER = Path(__file__).parent
OF_CITUS = FOLDER / "citus"


class Plain:
    """The lines of the plain statements."""

    def __init__(self, files: Mapping[Path, str]) -> None:
        self._lines: list[tuple[str, str]] = []  # of all files: a line, and the name of its file
        for path, text in sorted(files.items()):
            name = str(path.relative_to(FOLDER))
            if not path.is_relative_to(OF_CITUS):
                self._lines += [(_bare(line), name) for line in [*text.splitlines(), "--"]]
        self._places: dict[str, list[int]] = {}
        for place, (line, _name) in enumerate(self._lines):
            self._places.setdefault(line, []).append(place)

    def difference_of(self, statement: str) -> str:
        return "\n".join([f"-- the whole: {digest_of(statement)}", *self._told(laid_out(statement).splitlines())])

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
