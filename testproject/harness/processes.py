"""Start programs, wait until they are ready, read their logs, freeze them, kill them with all that they started.

Each program runs in a session of its own: Ctrl-C reaches only the process that started it, which then ends the others.
Its output goes to a file, so it never waits for a reader.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from .census import Census, Process, census, descendants

PATIENCE = 30.0  # seconds for a process to end, or to be seen to do something
LONGEST_START = 60.0
PATIENCE_WITH_SIGNAL = 5.0  # seconds for the kernel to stop or end a process
PAUSE = 0.03
LAST_LINES = 25  # of a log
READY = "is ready"  # what a worker logs when it claims jobs


class ProcessFailed(AssertionError):
    """A process did not do in time what was expected. The message shows the end of its log."""


class StartedProcess:
    """A program that was started, with every process that it started itself."""

    def __init__(self, popen: subprocess.Popen[Any], log_path: Path) -> None:
        self.popen, self.log_path = popen, log_path
        self.ended_by_us = False  # set before the harness signals it
        self._seen: dict[int, Process] = {}

    @classmethod
    def start(cls, log_path: Path, command: Sequence[str], environment: dict[str, str], **options: Any) -> Self:
        """Start it with an empty log. What ``options`` say goes to ``subprocess.Popen``."""
        log_path.write_bytes(b"")
        with log_path.open("ab") as out:  # appended to, so that it can be emptied meanwhile
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            popen = subprocess.Popen(  # noqa: S603 - the caller's program
                command, env=environment, start_new_session=True, **(streams | options)
            )
        return cls(popen, log_path)

    @property
    def name(self) -> str:
        return self.log_path.stem

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def exit_code(self) -> int | None:
        """Return None while it runs."""
        return self.popen.poll()

    # Its log

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def log_end(self) -> str:
        return "\n".join(self.log.splitlines()[-LAST_LINES:])

    def says(self, text: str) -> bool:
        return text in self.log

    def wait_until_it_says(self, *texts: str, patience: float = LONGEST_START) -> None:
        """Wait until its log holds all these texts. Fail at once if the program ends before."""

        def has_said() -> bool:
            code = self.exit_code  # before its log is read, which may be written until then
            if all(map(self.says, texts)):
                return True
            if code is not None:
                raise ProcessFailed(f"{self.name} ended with {code} before it said {texts}:\n{self.log_end}")
            return False

        wait_until(has_said, lambda: f"{self.name} did not say {texts}:\n{self.log_end}", patience)

    # Its end

    def wait(self, patience: float = PATIENCE) -> int:
        """Return its exit code."""
        try:
            return int(self.popen.wait(patience))
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"{self.name} did not end within {patience} s:\n{self.log_end}") from None

    def expect_exit(self, code: int = 0, patience: float = PATIENCE) -> None:
        if (found := self.wait(patience)) != code:
            raise ProcessFailed(f"{self.name} ended with {found}, not with {code}:\n{self.log_end}")

    def stop(self, patience: float = PATIENCE) -> int:
        """Send SIGTERM, and SIGKILL to all that is left after that time. Return the exit code."""
        if not self.ended_by_us:
            self.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(patience)
        self.kill()
        return int(self.popen.wait(PATIENCE_WITH_SIGNAL))

    def kill(self) -> int:
        """Send SIGKILL to all its processes, and return how many there were."""
        self.ended_by_us = True
        victims = self.survivors()
        if self.exit_code is None:  # at once, so that none sees the death of another
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_WITH_SIGNAL
        while (alive := self.survivors()) and time.monotonic() < deadline:
            send(alive, signal.SIGKILL)
            time.sleep(0.02)
        self.popen.wait(PATIENCE_WITH_SIGNAL)
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return len(victims)

    # Signals

    def signal(self, number: int) -> None:
        """Send a signal to the program alone."""
        self.family()
        self.ended_by_us |= number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
        self.popen.send_signal(number)

    def freeze(self) -> list[int]:
        """Send SIGSTOP to all its processes, as when a host is paused, and return which. They are stopped on return."""
        deadline = time.monotonic() + PATIENCE_WITH_SIGNAL
        while time.monotonic() < deadline:
            now = census()
            pids = self._family(now)
            if all(now[pid].is_stopped for pid in pids):
                return pids
            send(pids, signal.SIGSTOP)
            time.sleep(0.01)
        raise ProcessFailed(f"{self.name} could not be stopped: {self.family()}")

    def thaw(self) -> None:
        """Send SIGCONT to all its processes."""
        send(self.survivors(), signal.SIGCONT)

    # Its processes

    def family(self) -> list[int]:
        """Return its processes that are alive, itself first, then generation by generation."""
        return self._family(census())

    def survivors(self) -> list[int]:
        """Return all its processes that are alive, also those whose parents are not."""
        now = census()
        self._family(now)
        for pid in self._seen_in(now):
            self._seen |= {one.pid: one for one in descendants(pid, now)}
        return [pid for pid in self._seen_in(now) if now[pid].is_alive]

    def left_behind(self, patience: float = 2.0) -> set[int]:
        """Return its processes that are alive, and stay so: the last to go may need a moment for it."""
        deadline = time.monotonic() + patience
        while (alive := self.survivors()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return set(alive)

    def _family(self, now: Census) -> list[int]:
        found = descendants(self.pid, now) if self.popen.returncode is None else []  # its number may be used again
        self._seen |= {one.pid: one for one in found}
        return [one.pid for one in found]

    def _seen_in(self, now: Census) -> list[int]:
        return [pid for pid, then in self._seen.items() if pid in now and now[pid].born == then.born]


class StartedWorker(StartedProcess):
    """A ``pulse_worker``: a keeper, which started a fork server, which started the children that run handlers."""

    def wait_until_ready(self, patience: float = LONGEST_START) -> StartedWorker:
        self.wait_until_it_says(READY, patience=patience)
        self.family()
        return self

    def fork_server(self) -> int:
        [fork_server] = _children_of([self.pid], census())
        return fork_server

    def children(self) -> list[int]:
        """Return the processes that run handlers, in the order of their birth."""
        now = census()
        return _children_of(_children_of([self.pid], now), now)

    def child(self) -> int:
        [child] = self.children()
        return child


class StartedProcesses:
    """Starts programs in a block, and kills all of them, with all that they started, when the block ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[StartedProcess] = []

    def start(self, name: str, command: Sequence[str], environment: dict[str, str], **options: Any) -> StartedProcess:
        """Start a program. Its log gets this name; ``options`` go to ``subprocess.Popen``."""
        started = StartedProcess.start(self.folder / f"{name}.log", command, environment, **options)
        self.started.append(started)
        return started

    def start_worker(
        self, name: str, command: Sequence[str], environment: dict[str, str], **options: Any
    ) -> StartedWorker:
        started = StartedWorker.start(self.folder / f"{name}.log", command, environment, **options)
        self.started.append(started)
        return started

    def ended_by_themselves(self) -> list[StartedProcess]:
        return [one for one in self.started if one.exit_code is not None and not one.ended_by_us]

    def kill(self) -> None:
        with ExitStack() as stack:  # the others also if one cannot be killed
            for one in self.started:
                stack.callback(one.kill)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def worker_command(*arguments: str) -> list[str]:
    """Return the command for a worker of the project in the working directory."""
    return [sys.executable, "manage.py", "pulse_worker", *arguments]


def wait_until(
    happened: Callable[[], object], otherwise: str | Callable[[], object], patience: float = PATIENCE
) -> None:
    """Wait until this is true. Otherwise fail, and say this."""
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            raise ProcessFailed(otherwise() if callable(otherwise) else otherwise)
        time.sleep(PAUSE)


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to those of these processes that there still are."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _children_of(pids: Sequence[int], now: Census) -> list[int]:
    return sorted(one.pid for one in now.values() if one.parent in pids and one.is_alive)
