"""Asks a disposable process where its handler is, before the process is killed."""

from __future__ import annotations

import os
from contextlib import suppress

from pulse_django.worker.channel import Channel
from pulse_django.worker.handler_stacks import TITLE, AskedDump, dump_of, stack_in_dump

# Seconds for its answer. It needs the interpreter, which the handler may hold: then faulthandler is asked. It writes as
# soon as the process gets a processor, which on a busy machine took more than 0.3 s. No other run waits for it.
PATIENCE_WITH_ANSWER = 0.15
PATIENCE_WITH_DUMP = 1.0
TICK = 0.02


class LastStack:
    def __init__(self, channel: Channel) -> None:
        self.text = ""
        self._channel = channel
        self._file: int | None = None
        self._dump: AskedDump | None = None
        self._asked_at: float | None = None

    def file_came(self) -> None:
        """Keep the file to which the process dumps."""
        self._file = self._channel.take_fd()

    def is_awaited(self, pid: int, now: float) -> bool:
        """Ask, or look whether there is an answer. Return whether to wait for it: for about a second at most."""
        if self._asked_at is None:
            self._asked_at = now
            self._channel.send({"where": True})
        waited = now - self._asked_at
        if self.text or waited > PATIENCE_WITH_ANSWER + PATIENCE_WITH_DUMP:
            return False
        if waited <= PATIENCE_WITH_ANSWER:
            return True
        return self._file is not None and self._is_dumping(pid, self._file)

    def dumped_now(self, pid: int) -> str:
        """Say where the handler is, and let it go on. It waits for some hundredths of a second."""
        with suppress(OSError):
            return dump_of(pid, self._file).removeprefix(TITLE) if self._file is not None else ""
        return ""

    def _is_dumping(self, pid: int, file: int) -> bool:
        self._dump = self._dump or AskedDump(pid, file)
        if not self._dump.is_complete():
            return True
        self.text = stack_in_dump(self._dump.read())
        return False

    @property
    def is_asked(self) -> bool:
        return self._asked_at is not None

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None
