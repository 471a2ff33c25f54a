"""The running processes and their parents: from /proc, or from ``ps`` where there is none, as on macOS."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# Their parent has not asked how they ended, or they are ending: they run no code any more.
_GONE = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    state: str  # a letter: R, S, T for stopped, Z for zombie
    born: str  # with the pid it names one process for ever, though pids are used again

    @property
    def is_alive(self) -> bool:
        return self.state not in _GONE

    @property
    def is_stopped(self) -> bool:
        return self.state in "Tt"


Census = Mapping[int, Process]


def census() -> Census:
    """Return all processes of this machine that can be seen."""
    return _from_proc() if (PROC / "self" / "stat").exists() else from_ps()


def descendants(pid: int, processes: Census) -> list[Process]:
    """Return a process that is alive and all that it made, itself first, then generation by generation."""
    found = [processes[pid]] if pid in processes and processes[pid].is_alive else []
    for elder in found:  # the list grows while we go through it
        found += sorted(
            (one for one in processes.values() if one.parent == elder.pid and one.is_alive), key=lambda one: one.pid
        )
    return found


def _from_proc() -> Census:
    found = {}
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            # The name of the program comes second, in brackets, and may hold anything.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            pid = int(folder.name)
            found[pid] = Process(pid, int(fields[1]), fields[0], fields[19])
    return found


def from_ps() -> Census:
    """Ask a program that every Unix has."""
    command = ["ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "lstart="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - no input in it
    found = {}
    for line in listed.stdout.splitlines():
        pid, parent, state, born = line.split(maxsplit=3)
        found[int(pid)] = Process(int(pid), int(parent), state[0], born)
    return found
