"""Messages between the processes of a worker: lines of JSON over a non-blocking socket. Nothing is pickled."""

from __future__ import annotations

import json
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import timedelta
from threading import Lock
from typing import Any, get_args

from pulse_django.queue.words.decisions import Decision
from pulse_django.queue.words.leases import Claim, Lease
from pulse_django.queue.words.options import ClaimedOptions
from pulse_django.queue.words.outcomes import Outcome
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report, Settled

Message = dict[str, Any]

CHUNK = 65_536
MOST_FDS = 4
# The most unsent bytes for a reader. With more, it counts as frozen, and further messages are dropped.
MOST_WAITING = 8_000_000


class Hung(Exception):
    """The other end was closed, or does not read."""


class Channel:
    """One end. ``send`` may be called by any thread, ``receive`` by one."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self._out: deque[tuple[bytes, list[int]]] = deque()
        self._waiting = 0
        self._lock = Lock()
        self._in = b""
        self._fds: list[int] = []

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Return one end, and the socket of the other end for another process."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: Message, fds: list[int] | None = None) -> None:
        """Send a message, with files for the other process. ``flush`` sends the part that does not fit now."""
        if self.is_stuck:
            return  # the reader does not read
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            self._out.append((data, [os.dup(fd) for fd in fds or []]))
            self._waiting += len(data)
        self.flush()

    def flush(self) -> None:
        """Send waiting data, as far as the socket accepts it."""
        with self._lock, suppress(BlockingIOError, BrokenPipeError, ConnectionError, OSError):
            while self._out:
                data, fds = self._out.popleft()
                try:
                    sent = socket.send_fds(self.socket, [data], fds) if fds else self.socket.send(data)
                except OSError:
                    self._out.appendleft((data, fds))
                    raise
                for fd in fds:
                    os.close(fd)
                self._waiting -= sent
                if sent < len(data):
                    self._out.appendleft((data[sent:], []))
                    break

    @property
    def has_more(self) -> bool:
        """Return whether data is still waiting to be sent."""
        return bool(self._out)

    @property
    def is_stuck(self) -> bool:
        return self._waiting > MOST_WAITING

    def receive(self) -> list[Message]:
        """Return the received messages. Raise ``Hung`` if the other end was closed and everything was received."""
        closed = False
        while True:
            try:
                data, fds, _flags, _address = socket.recv_fds(self.socket, CHUNK, MOST_FDS)
            except BlockingIOError:
                break
            except OSError:
                closed = True
                break
            for fd in fds:  # otherwise, processes that a handler starts would inherit it
                os.set_inheritable(fd, False)
            self._fds += fds
            if not data:
                closed = True
                break
            self._in += data
        *lines, self._in = self._in.split(b"\n")
        if closed and not lines:
            raise Hung
        return [json.loads(line) for line in lines]

    def take_fd(self) -> int:
        """Return the next file that came with a message."""
        return self._fds.pop(0)

    def close(self) -> None:
        self.socket.close()


class Nudges:
    """Wake the selector of a thread: other threads with ``nudge``, signals through ``wakes``."""

    def __init__(self) -> None:
        self._woken, self.wakes = socket.socketpair()
        for end in (self._woken, self.wakes):
            end.setblocking(False)

    def fileno(self) -> int:
        return self._woken.fileno()

    def nudge(self) -> None:
        with suppress(BlockingIOError):
            self.wakes.send(b"!")

    def taken(self) -> bool:
        """Return whether there was a nudge since the last call."""
        with suppress(BlockingIOError):
            return bool(self._woken.recv(4_096))
        return False

    def close(self) -> None:
        self._woken.close()
        self.wakes.close()


# Claims, outcomes and reports as JSON: each object is the name of its class with its fields.


_KINDS = (Claim, ClaimedOptions, Lease, Report, Settled, ErrorReport, *get_args(Outcome), *get_args(Decision))
_MAKERS: dict[str, Callable[..., Any]] = {kind.__name__: kind for kind in (*_KINDS, Status)}
_MAKERS |= {
    "timedelta": timedelta,
    "dict": lambda *items: dict(items),
    "frozenset": lambda *items: frozenset(items),
    "tuple": lambda *items: items,
}


def to_wire(value: Any) -> Any:
    """Return a value for JSON."""
    if is_dataclass(value):
        parts: Any = {one.name: to_wire(getattr(value, one.name)) for one in fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        parts = {name: to_wire(one) for name, one in value._asdict().items()}
    elif isinstance(value, tuple | frozenset | dict):
        parts = [to_wire(one) for one in (value.items() if isinstance(value, dict) else value)]
    elif isinstance(value, timedelta):
        parts = [value.days, value.seconds, value.microseconds]
    elif isinstance(value, Status):
        parts = [str(value)]
    else:
        return value
    return {type(value).__name__: parts}


def from_wire(said: Any) -> Any:
    """Return the original value of ``to_wire``."""
    if not isinstance(said, dict):
        return said
    [(kind, parts)] = said.items()
    if isinstance(parts, dict):
        return _MAKERS[kind](**{name: from_wire(part) for name, part in parts.items()})
    return _MAKERS[kind](*map(from_wire, parts))
