"""Where a handler is that does not come back: as text like a traceback, without local variables, which hold secrets.

Python tells it of a thread and of a coroutine. If a handler holds the interpreter nothing written in Python runs, and
``faulthandler`` tells it: on a signal it writes to a file that another process reads.
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
# One that no project is likely to use. Not all systems have those of real time, and Windows has neither.
DUMP = signal.SIGRTMAX - 1 if hasattr(signal, "SIGRTMAX") else getattr(signal, "SIGUSR2", 0)

# Of a keeper, before it kills a child that shows no sign of life. Its heartbeats come from another thread.
LOOKS_FOR_DUMP, BETWEEN_LOOKS = 10, 0.02

_HERE, _ASYNCIO = (os.path.join(os.path.dirname(file), "") for file in (__file__, asyncio.__file__))
_AROUND = (_HERE, *CALLS_HANDLERS, threading.__file__, _ASYNCIO)
_THREAD = re.compile(r"^(?:Current thread|Thread) ", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.+)$', re.MULTILINE)


def stack_of_thread(ident: int) -> str:
    """Say where a thread is. Empty: it is gone."""
    frame = sys._current_frames().get(ident)
    if frame is None:
        return ""
    return _in_words(reversed(traceback.StackSummary.extract(traceback.walk_stack(frame))))


def stack_of_coroutine(coroutine: Any, thread: int | None) -> str:
    """Say where a coroutine waits. If it is at work, its thread says where."""
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
    """Say where the handler is, in what ``faulthandler`` wrote of a process. Threads without a handler are left out."""
    return "\n".join(_in_words(reversed(frames)) for frames in _threads_in(dump))


def _threads_in(dump: str) -> Iterator[list[traceback.FrameSummary]]:
    for thread in _THREAD.split(dump)[1:]:
        found = [traceback.FrameSummary(file, int(line), name) for file, line, name in _FRAME.findall(thread)]
        if any(frame.filename.startswith(CALLS_HANDLERS) for frame in found):
            yield found


def _first_of(link: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(link, name, None))), None)


def _in_words(frames: Iterable[traceback.FrameSummary]) -> str:
    """Spell frames, the outermost first, from the handler's first line on."""
    every = list(frames)
    first = next((place for place, one in enumerate(every) if one.filename.startswith(CALLS_HANDLERS)), 0)
    while first < len(every) - 1 and every[first].filename.startswith(_AROUND):
        first += 1
    return TITLE + "".join(traceback.StackSummary.from_list(every[first:]).format())


def send_dump_file(channel: Channel) -> None:
    """Have ``faulthandler`` write where all threads are when ``DUMP`` comes, and send the file to another process."""
    with suppress(OSError, ValueError, RuntimeError):
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("pulse-stacks")
        else:
            with tempfile.TemporaryFile() as opened:
                file = os.dup(opened.fileno())
        faulthandler.register(DUMP, file=file, all_threads=True, chain=False)
        channel.send({"stack_file": True}, [file])


def dump_of(pid: int, file: int) -> str:
    """Ask a process where its handlers are, and wait for that. Empty: it does not say, as when it is stopped."""
    dump = AskedDump(pid, file)
    for _ in range(LOOKS_FOR_DUMP):
        time.sleep(BETWEEN_LOOKS)
        if dump.is_complete():
            return stack_in_dump(dump.read())
    return ""


class AskedDump:
    """A dump that was asked of a process, as it comes."""

    def __init__(self, pid: int, file: int) -> None:
        self._file, self._size = file, -1
        self._from = os.fstat(file).st_size
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, DUMP)

    def is_complete(self) -> bool:
        """Whether it has stopped growing since this was asked last."""
        before, self._size = self._size, os.fstat(self._file).st_size
        return self._from < self._size == before

    def read(self) -> str:
        return os.pread(self._file, max(0, self._size - self._from), self._from).decode(errors="replace")
