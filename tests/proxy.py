"""A proxy in front of PostgreSQL that can swallow an answer: the commit happened, and its client never learns of it."""

from __future__ import annotations

import socket
import threading
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
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{self.port}"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow_the_next_answer(self) -> None:
        """Let the next statement through, drop what the server says to it, and hang up on the client."""
        self._swallow.set()

    def close(self) -> None:
        _hang_up(self._listener)  # wakes the thread that waits in accept()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
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
            if self._swallow.is_set():
                self._swallow.clear()
                break
            client.sendall(data)
        _hang_up(client)
        _hang_up(upstream)


def _pass_on(client: socket.socket, upstream: socket.socket) -> None:
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
