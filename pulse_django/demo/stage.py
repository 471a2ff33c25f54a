"""Where the workers of the demo live and die: real processes, found, killed, frozen, and gone at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pulse_django.harness.census import Census, Process, census, descendants

COMMAND = (sys.executable, "-m", "pulse_django.demo.worker")
PATIENCE_AT_STOP = 5.0  # seconds from SIGTERM to SIGKILL; the demo's jobs are over by then
PATIENCE_WITH_SIGNAL = 5.0  # seconds for the kernel to do as it was told
LAST_LINES = 25  # of a log


class DemoWorker:
    """One ``pulse_worker`` with everything that it made: keeper, nursery, and the child that runs handlers."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name, self._process, self._log = name, process, log
        self._seen: dict[int, Process] = {}
        self.is_wanted = True  # nobody has killed or stopped it yet

    @property
    def pid(self) -> int:
        """Of the keeper."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LAST_LINES:])

    def family(self) -> list[Process]:
        """All its processes: the keeper, the nursery, then those that run handlers."""
        found = descendants(self.pid, census())
        self._seen |= {one.pid: one for one in found}
        return found

    def child(self) -> Process | None:
        """The process that runs handlers, if there is one just now."""
        family = self.family()
        return family[2] if len(family) > 2 else None

    def survivors(self) -> list[Process]:
        """Those of its processes that live, though their keeper may not."""
        self.family()
        now: Census = census()
        return [now[pid] for pid, then in self._seen.items() if _is_same(then, now) and now[pid].is_alive]

    def kill_child(self) -> int:
        """SIGKILL to the process that runs handlers; its keeper lives."""
        child = self.child()
        if child is None:
            raise ProcessLookupError(f"{self.name} has no process that runs handlers")
        os.kill(child.pid, signal.SIGKILL)
        return child.pid

    def kill(self) -> int:
        """SIGKILL to all its processes, and return how many. The keeper is first: it would see to the others' jobs."""
        self.is_wanted = False
        victims = self.survivors()
        for one in victims:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_WITH_SIGNAL)
        deadline = time.monotonic() + PATIENCE_WITH_SIGNAL
        while self.survivors() and time.monotonic() < deadline:
            time.sleep(0.02)
        return len(victims)

    def freeze(self) -> int:
        """SIGSTOP to all its processes, as when a host is paused. Return how many."""
        frozen = self.family()
        for one in frozen:
            os.kill(one.pid, signal.SIGSTOP)
        return len(frozen)

    def thaw(self) -> None:
        """SIGCONT to all its processes."""
        for one in self.family():
            os.kill(one.pid, signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """SIGTERM to the keeper."""
        self.is_wanted = False
        self.family()
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Return how it ended after it was asked to, or kill it."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_AT_STOP)
        code = self._process.poll()
        self.kill()
        return -signal.SIGKILL if code is None else code


class Stage:
    """Starts workers on one queue; use ``set_up()``, which leaves none behind."""

    def __init__(self, folder: Path, queue: str, changes: dict[str, Any]) -> None:
        self.workers: list[DemoWorker] = []
        self._folder, self._queue, self._changes = folder, queue, changes

    def start(self, name: str) -> DemoWorker:
        log = self._folder / f"{name}.log"
        command = [*COMMAND, json.dumps(self._changes), "--queues", self._queue, "--name", name]
        with log.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603 - our own module
                command, env=_environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )  # a session of its own: Ctrl-C is for the demo, which then ends its workers
        worker = DemoWorker(name, process, log)
        self.workers.append(worker)
        return worker

    def deserters(self) -> list[DemoWorker]:
        """Workers that ended though nobody made them."""
        return [worker for worker in self.workers if worker.is_wanted and worker.exit_code is not None]


@contextmanager
def set_up(queue: str, changes: dict[str, Any]) -> Iterator[Stage]:
    """Whatever happens in the block, no process is left of it."""
    with tempfile.TemporaryDirectory(prefix="pulse-demo-", ignore_cleanup_errors=True) as folder:
        stage = Stage(Path(folder), queue, changes)
        try:
            yield stage
        finally:
            for worker in stage.workers:
                worker.kill()


def _environment() -> dict[str, str]:
    """Hand on where this process finds its modules; the name of the settings is in its environment already."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | {"PYTHONPATH": path}


def _is_same(then: Process, now: Census) -> bool:
    return then.pid in now and now[then.pid].born == then.born
