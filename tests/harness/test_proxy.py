"""The proxies that chaos and crash tests rely on do what they say: a fault that does not happen proves nothing."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy import BlackHole, Spoken

SOON = 0.3  # seconds in which what gets through would have got through


class Echo:
    """A server that answers everything with itself, and keeps it."""

    def __init__(self, folder: Path) -> None:
        self.heard: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(client,), daemon=True).start()

    def _echo(self, client: socket.socket) -> None:
        with client:
            while data := client.recv(1_000):
                self.heard.append(data)
                client.sendall(data)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as name:  # a short path: sockets have little room
        yield Path(name)


@pytest.fixture
def server(folder: Path) -> Iterator[Echo]:
    (folder / "server").mkdir()
    server = Echo(folder / "server")
    yield server
    server.close()


@pytest.fixture
def proxy(folder: Path, server: Echo) -> Iterator[BlackHole]:
    (folder / "proxy").mkdir()
    proxy = BlackHole(folder / "proxy", {"HOST": str(folder / "server"), "PORT": ""})
    yield proxy
    proxy.close()


@pytest.fixture
def client(proxy: BlackHole) -> Iterator[socket.socket]:
    with connected(proxy) as client:
        yield client


def connected(proxy: BlackHole) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(5)
    client.connect(f"{proxy.host}/.s.PGSQL.{proxy.port}")
    return client


def ask(client: socket.socket, question: bytes) -> bytes | None:
    """Return the answer; None if there is none. A connection that is closed answers with nothing."""
    client.sendall(question)
    client.settimeout(SOON)
    try:
        return client.recv(1_000)
    except TimeoutError:
        return None


def test_it_passes_everything_on(server: Echo, client: socket.socket) -> None:
    assert ask(client, b"one") == b"one"
    assert server.heard == [b"one"]


@pytest.mark.parametrize(
    ("questions", "answers", "heard"), [(True, True, []), (True, False, []), (False, True, [b"two"])]
)
def test_it_swallows_one_way_or_both_and_closes_nothing(
    proxy: BlackHole, server: Echo, client: socket.socket, questions: bool, answers: bool, heard: list[bytes]
) -> None:
    assert ask(client, b"one") == b"one"
    proxy.swallow(questions=questions, answers=answers)
    assert ask(client, b"two") is None
    assert server.heard[1:] == heard
    with connected(proxy) as later:
        assert ask(later, b"three") is None
    proxy.heal()
    assert ask(client, b"four") is None, "what was forgotten stays so"
    with connected(proxy) as new:
        assert ask(new, b"five") == b"five"
    proxy.bury()
    assert client.recv(1_000) == b"", "closed"


def test_it_refuses_everybody_until_it_is_healed(proxy: BlackHole, client: socket.socket) -> None:
    assert ask(client, b"one") == b"one"
    proxy.refuse()
    assert client.recv(1_000) == b"", "closed"
    with connected(proxy) as refused:
        assert refused.recv(1_000) == b"", "closed as well"
    proxy.heal()
    with connected(proxy) as new:
        assert ask(new, b"two") == b"two"


@pytest.mark.parametrize("is_prepared", [False, True])
def test_it_loses_the_answer_to_one_statement(
    proxy: BlackHole, server: Echo, client: socket.socket, is_prepared: bool
) -> None:
    """To prepare it is not to run it."""
    proxy.lose_the_answer_to(b"settle")
    parse, bind = message(b"P", b"s1\0settle this\0\0\0"), message(b"B", b"\0s1\0\0\0")
    said = [message(b"", b"hello"), parse if is_prepared else message(b"Q", b"claim\0")]
    for one in said:
        assert ask(client, one) == one
    settle = bind if is_prepared else message(b"Q", b"settle this\0")
    assert ask(client, settle) == b"", "it hangs up"
    assert server.heard == [*said, settle]
    assert proxy.lost == 1


def test_statements_are_known_however_they_are_cut() -> None:
    said = [
        message(b"", b"hello"),
        message(b"Q", b"one\0"),
        message(b"P", b"s\0two\0\0\0"),
        message(b"B", b"\0s\0\0\0"),
    ]
    spoken = Spoken()
    heard = [one for byte in b"".join(said) for one in spoken.statements(bytes([byte]))]
    assert heard == [b"one\0", b"two"]


def message(kind: bytes, body: bytes) -> bytes:
    """Spell a message of the frontend's protocol. The first of a connection has no kind."""
    return kind + (len(body) + 4).to_bytes(4) + body
