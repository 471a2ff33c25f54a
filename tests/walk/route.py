"""The route of a job through the package, from the calls that processes wrote down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.floors import floor_of

# Not of one job: whether a claim waits for a slot, what ended since the last claim, and what is asked a few times a
# second (whether a logger is on).
BESIDE = ("Claimer.slot_freed", "KeyedLanes._note_settled", "is_on")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")  # functions before Python 3.12


class Function(NamedTuple):
    file: str
    name: str


@dataclass(slots=True)
class Call:
    function: Function
    calls: list[Call] = field(default_factory=list)

    def walk(self) -> Iterator[Call]:
        yield self
        for call in self.calls:
            yield from call.walk()

    @property
    def names(self) -> set[str]:
        return {call.function.name for call in self.walk()}


class Stage(NamedTuple):
    """A part of a route: one call of ``function``. In a loop, only a call that led to ``reached`` was about the job."""

    title: str
    function: str
    reached: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    stages: Sequence[tuple[str, Call]]

    @property
    def functions(self) -> list[Function]:
        """Return each function once, in the order of the first call."""
        return list(dict.fromkeys(call.function for _, root in self.stages for call in root.walk()))

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(function.file for function in self.functions))

    @property
    def hand_overs(self) -> list[tuple[str, str]]:
        """Return each call from one file to another: (caller's file, file of the called function)."""
        return [
            (call.function.file, called.function.file)
            for _, root in self.stages
            for call in root.walk()
            for called in call.calls
            if called.function.file != call.function.file
        ]

    @property
    def upward(self) -> list[tuple[str, str]]:
        """Return the hand-overs to a file that may import the caller's: against the direction of the imports."""
        return [one for one in self.hand_overs if floor_of(_module(one[0])) > floor_of(_module(one[1]))]

    def lines(self) -> list[str]:
        """Return the route for a reader: a line for each function, where it is first called."""
        lines: list[str] = []
        seen: set[Function] = set()
        for title, root in self.stages:
            lines.append(f"  {title}")
            lines += _lines(root, "", 2, seen)
        return lines

    def calls(self) -> list[str]:
        """Return a line for each call."""
        return [f"{call.function.name}   {call.function.file}" for _, root in self.stages for call in root.walk()]

    def __str__(self) -> str:
        return (
            f"{len(self.files)} files, {len(self.functions)} functions, {len(self.hand_overs)} hand-overs,"
            f" {len(self.upward)} of them against the imports"
        )


class Calls:
    """Reads what processes write down while they run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}  # so many bytes of each file
        self._open: dict[tuple[Path, str], list[Call]] = {}  # by file and thread, the outermost first
        self._over: list[Call] = []

    def forget(self) -> None:
        """Forget the calls that are over."""
        self.read()
        self._over.clear()

    def read(self) -> None:
        for file in self._folder.glob("*.calls"):
            with file.open("rb") as lines:
                lines.seek(self._read.get(file, 0))
                for line in lines:
                    if not line.endswith(b"\n"):
                        break  # it is being written
                    self._read[file] = self._read.get(file, 0) + len(line)
                    self._note(file, *line.decode().rstrip("\n").split("\t"))

    def _note(self, file: Path, thread: str, event: str, where: str, name: str) -> None:
        if name.endswith(COMPREHENSIONS):
            return
        stack = self._open.setdefault((file, thread), [])
        if event == "c":
            call = Call(Function(where, name))
            if stack and name not in BESIDE:
                stack[-1].calls.append(call)
            stack.append(call)
        elif stack and stack[-1].function == (where, name):  # else it was called before anybody wrote
            self._over.append(stack.pop())

    def route(self, stages: Sequence[Stage]) -> Route | None:
        """Return the last call of each stage; None: one of them is not over."""
        self.read()
        found = []
        for stage in stages:
            fitting = [
                call
                for call in self._over
                if call.function.name == stage.function and (not stage.reached or stage.reached in call.names)
            ]
            if not fitting:
                return None
            found.append((stage.title, fitting[-1]))
        return Route(found)


def _lines(call: Call, caller: str, depth: int, seen: set[Function]) -> Iterable[str]:
    file, name = call.function
    if call.function not in seen:
        seen.add(call.function)
        yield f"{'  ' * depth}{name}" + (f"   {file}" if file != caller else "")
    for called in call.calls:
        yield from _lines(called, file, depth + 1, seen)


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".")
