"""Proxies in front of PostgreSQL: answers are swallowed, or questions, or everything; connections are cut.

A commit then happened and its client never learns of it, or a client waits for ever on a connection that looks alive.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

CHUNK = 65_536


class SwallowingProxy:
    """Listens on a Unix socket in ``folder`` and passes everything on to the server, until told to swallow."""

    def __init__(self, folder: Path, server: dict[str, Any]) -> None:
        self.host, self.port = str(folder), 5432
        self._server = server
        self._swallow = threading.Event()
        self._after = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{self.port}"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow_the_next_answer(self, *, after: int = 0) -> None:
        """Let the next statement through, drop what the server says to it, and hang up on the client.

        ``after``: so many others are answered before.
        """
        self._after = after
        self._swallow.set()

    def close(self) -> None:
        _hang_up(self._listener)  # wakes the thread that waits in accept()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        upstream = self._connect()
        threading.Thread(target=_pass_on, args=(client, upstream), daemon=True).start()
        threading.Thread(target=self._answer, args=(upstream, client), daemon=True).start()

    def _connect(self) -> socket.socket:
        host, port = self._server["HOST"], int(self._server["PORT"] or 5432)
        if host.startswith("/"):
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect(f"{host}/.s.PGSQL.{port}")
            return upstream
        return socket.create_connection((host, port))

    def _answer(self, upstream: socket.socket, client: socket.socket) -> None:
        while data := _receive(upstream):
            if self._swallow.is_set() and not self._after:
                self._swallow.clear()
                break
            self._after = max(0, self._after - 1)
            client.sendall(data)
        _hang_up(client)
        _hang_up(upstream)


class LateProxy(SwallowingProxy):
    """Forwards the server's messages, or holds them until it is told. It never forwards the end of a connection."""

    def __init__(self, folder: Path, server: dict[str, Any]) -> None:
        self._passes_on = threading.Event()
        self._passes_on.set()
        self.heard = b""
        super().__init__(folder, server)

    def hold(self) -> None:
        self._passes_on.clear()

    def pass_on(self) -> None:
        self._passes_on.set()

    def _answer(self, upstream: socket.socket, client: socket.socket) -> None:
        held = b""
        while data := _receive(upstream):
            held += data
            self.heard += data
            if self._passes_on.is_set():
                client.sendall(held)
                held = b""
        if self._passes_on.wait(20) and held:
            client.sendall(held)
        while _receive(client):  # until the client closes it
            pass
        _hang_up(client)


class CountingProxy(SwallowingProxy):
    """Counts how often each of some texts is said to the server."""

    def __init__(self, folder: Path, server: dict[str, Any], *texts: bytes) -> None:
        self.counted = dict.fromkeys(texts, 0)
        super().__init__(folder, server)

    def _serve(self, client: socket.socket) -> None:
        upstream = self._connect()
        threading.Thread(target=self._count, args=(client, upstream), daemon=True).start()
        threading.Thread(target=_pass_on, args=(upstream, client), daemon=True).start()

    def _count(self, client: socket.socket, upstream: socket.socket) -> None:
        spoken = Spoken()
        while data := _receive(client):
            for statement in spoken.statements(data):
                for text in self.counted:
                    self.counted[text] += statement.count(text)
            upstream.sendall(data)
        _hang_up(upstream)


class Spoken:
    """What a client says to a server, as the frontend's protocol has it: statements, also those that are prepared."""

    def __init__(self) -> None:
        self._unread = b""
        self._begun = False  # the first message has no type
        self._prepared: dict[bytes, bytes] = {}

    def statements(self, data: bytes) -> Iterator[bytes]:
        """Yield the text of each statement that is run."""
        self._unread += data
        while message := self._next():
            kind, body = message
            if kind == b"Q":
                yield body
            elif kind == b"P":
                name, text, _ = body.split(b"\0", 2)
                self._prepared[name] = text
            elif kind == b"B":
                _, name, _ = body.split(b"\0", 2)
                yield self._prepared[name]

    def _next(self) -> tuple[bytes, bytes] | None:
        at = 1 if self._begun else 0
        if len(self._unread) < at + 4:
            return None
        end = at + int.from_bytes(self._unread[at : at + 4])
        if len(self._unread) < end:
            return None
        kind, body, self._unread = self._unread[:at], self._unread[at + 4 : end], self._unread[end:]
        if not self._begun and body[:4] != (80877103).to_bytes(4):  # a request for TLS comes before it
            self._begun = True
        return kind, body


class BlackHole(SwallowingProxy):
    """Can swallow everything, both ways or one, and for good, while its connections look alive; and single answers."""

    def __init__(self, folder: Path, server: dict[str, Any]) -> None:
        self._pairs: list[_Pair] = []
        self._questions = self._answers = False  # are swallowed
        self._refusing = False
        self._losing: bytes | None = None
        self.lost = 0  # answers
        super().__init__(folder, server)

    def swallow(self, *, questions: bool = True, answers: bool = True) -> None:
        """From now on nothing gets through in these directions, and no connection is closed.

        With answers alone swallowed, the server does what it is asked, and nobody learns of it.
        """
        self._questions, self._answers = questions, answers
        for pair in self._pairs:
            pair.is_deaf |= questions
            pair.is_mute |= answers

    def refuse(self) -> None:
        """Close all connections, and from now on every new one as soon as it is made."""
        self._refusing = True
        self.hang_up()

    def heal(self) -> None:
        """Let new connections through. What the old ones said is lost, as with a firewall that forgot them."""
        self._questions = self._answers = self._refusing = False

    def bury(self) -> None:
        """Let the server know that the clients behind dead connections are gone, as its keepalives would in time."""
        for pair in [pair for pair in self._pairs if pair.is_deaf or pair.is_mute]:
            pair.hang_up()
            self._pairs.remove(pair)

    def lose_the_answer_to(self, text: bytes) -> None:
        """Let the next statement that contains this through, drop its answer, and hang up."""
        self._losing = text

    def hang_up(self) -> None:
        """Close all connections."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.hang_up()

    def close(self) -> None:
        self._refusing = True
        super().close()
        self.hang_up()

    def take_statement(self, statement: bytes) -> bool:
        """Say whether the answer to this is to be lost."""
        if self._losing is None or self._losing not in statement:
            return False
        self._losing = None
        return True

    def _serve(self, client: socket.socket) -> None:
        if self._refusing:
            _hang_up(client)
            return
        try:
            pair = _Pair(self, client, None if self._questions and self._answers else self._connect())
        except OSError:  # the server is away, as the client is to learn
            _hang_up(client)
            return
        pair.is_deaf |= self._questions
        pair.is_mute |= self._answers
        self._pairs.append(pair)
        pair.start()
        if self._refusing:  # since it was asked above
            pair.hang_up()


class _Pair:
    def __init__(self, proxy: BlackHole, client: socket.socket, upstream: socket.socket | None) -> None:
        # What the client says is dropped, and what the server says.
        self.is_deaf = self.is_mute = upstream is None
        self._proxy, self._client, self._upstream = proxy, client, upstream
        self._loses_answer = False

    def start(self) -> None:
        threading.Thread(target=self._ask, daemon=True).start()
        if self._upstream is not None:
            threading.Thread(target=self._answer, args=(self._upstream,), daemon=True).start()

    def hang_up(self) -> None:
        _hang_up(self._client)
        if self._upstream is not None:
            _hang_up(self._upstream)

    def _ask(self) -> None:
        spoken = Spoken()
        while data := _receive(self._client):
            if self.is_deaf or self._upstream is None:
                continue
            for statement in spoken.statements(data):
                self._loses_answer = self._loses_answer or self._proxy.take_statement(statement)
            with suppress(OSError):
                self._upstream.sendall(data)
        if not self.is_deaf:
            self.hang_up()

    def _answer(self, upstream: socket.socket) -> None:
        while data := _receive(upstream):
            if self.is_mute:
                continue
            if self._loses_answer:
                self._proxy.lost += 1
                break
            with suppress(OSError):
                self._client.sendall(data)
        if not self.is_mute:
            self.hang_up()


def _pass_on(client: socket.socket, upstream: socket.socket) -> None:
    with suppress(OSError):  # the other side was first
        while data := _receive(client):
            upstream.sendall(data)
    _hang_up(upstream)


def _receive(end: socket.socket) -> bytes:
    try:
        return end.recv(CHUNK)
    except OSError:
        return b""


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):  # the other side was first
        end.shutdown(socket.SHUT_RDWR)
    end.close()
