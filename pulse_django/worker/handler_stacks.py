"""The stacks of handlers that do not return, as text like a traceback, but without local variables, which have secrets.

Python code can read the stack of a thread and of a coroutine. If a handler holds the interpreter, no Python code runs.
Then ``faulthandler`` dumps the stacks on a signal, to a file that another process reads.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pulse_django.queue.words.payloads import CALLS_HANDLERS

if TYPE_CHECKING:
    from .channel import Channel

TITLE = "Stack of the handler when it was given up (most recent call last):\n"
# A signal that projects are unlikely to use. Not all systems have real-time signals, and Windows has neither.
DUMP = signal.SIGRTMAX - 1 if hasattr(signal, "SIGRTMAX") else getattr(signal, "SIGUSR2", 0)

# Of a keeper, before it kills a silent child. Heartbeats go on in another thread.
LOOKS_FOR_DUMP, BETWEEN_LOOKS = 10, 0.02

_HERE, _ASYNCIO = (os.path.join(os.path.dirname(file), "") for file in (__file__, asyncio.__file__))
_AROUND = (_HERE, *CALLS_HANDLERS, threading.__file__, _ASYNCIO)
_THREAD = re.compile(r"^(?:Current thread|Thread) ", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.+)$', re.MULTILINE)


def stack_of_thread(ident: int) -> str:
    """Return the stack of a thread. Empty: it has ended."""
    frame = sys._current_frames().get(ident)
    if frame is None:
        return ""
    return _in_words(reversed(traceback.StackSummary.extract(traceback.walk_stack(frame))))


def stack_of_coroutine(coroutine: Any, thread: int | None) -> str:
    """Return the stack of a coroutine that awaits. If it is running, return the stack of its thread."""
    frames = []
    link = coroutine
    while link is not None:
        if _first_of(link, "cr_running", "gi_running", "ag_running") and thread is not None:
            return stack_of_thread(thread)
        if (frame := _first_of(link, "cr_frame", "gi_frame", "ag_frame")) is not None:
            frames.append((frame, frame.f_lineno))
        link = _first_of(link, "cr_await", "gi_yieldfrom", "ag_await")
    return _in_words(traceback.StackSummary.extract(iter(frames)))


def stack_in_dump(dump: str) -> str:
    """Return the stacks of handlers in a dump of ``faulthandler``. Leave out threads without a handler."""
    return "\n".join(_in_words(reversed(frames)) for frames in _threads_in(dump))


def _threads_in(dump: str) -> Iterator[list[traceback.FrameSummary]]:
    for thread in _THREAD.split(dump)[1:]:
        found = [traceback.FrameSummary(file, int(line), name) for file, line, name in _FRAME.findall(thread)]
        if any(frame.filename.startswith(CALLS_HANDLERS) for frame in found):
            yield found


def _first_of(link: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(link, name, None))), None)


def _in_words(frames: Iterable[traceback.FrameSummary]) -> str:
    """Format frames, the outermost first, beginning with the handler's first line."""
    every = list(frames)
    first = next((place for place, one in enumerate(every) if one.filename.startswith(CALLS_HANDLERS)), 0)
    while first < len(every) - 1 and every[first].filename.startswith(_AROUND):
        first += 1
    return TITLE + "".join(traceback.StackSummary.from_list(every[first:]).format())


def send_dump_file(channel: Channel) -> None:
    """Make ``faulthandler`` dump all stacks on the signal ``DUMP``, and send the file to another process."""
    with suppress(OSError, ValueError, RuntimeError):
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("pulse-stacks")
        else:
            with tempfile.TemporaryFile() as opened:
                file = os.dup(opened.fileno())
        faulthandler.register(DUMP, file=file, all_threads=True, chain=False)
        channel.send({"stack_file": True}, [file])


def dump_of(pid: int, file: int) -> str:
    """Request the stacks of a process, and wait for them. Empty: no answer, for example from a stopped process."""
    dump = AskedDump(pid, file)
    for _ in range(LOOKS_FOR_DUMP):
        time.sleep(BETWEEN_LOOKS)
        if dump.is_complete():
            return stack_in_dump(dump.read())
    return ""


class AskedDump:
    """A dump that was requested from a process."""

    def __init__(self, pid: int, file: int) -> None:
        self._file, self._size = file, -1
        self._from = os.fstat(file).st_size
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, DUMP)

    def is_complete(self) -> bool:
        """Return whether it has stopped growing since the last call."""
        before, self._size = self._size, os.fstat(self._file).st_size
        return self._from < self._size == before

    def read(self) -> str:
        return os.pread(self._file, max(0, self._size - self._from), self._from).decode(errors="replace")
