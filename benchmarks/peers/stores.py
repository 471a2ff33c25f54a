"""Where the jobs of a peer are: a database of its own, made anew from a template for every measurement; or a Redis."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from benchmarks.peers.peer import REDIS, Peer
from benchmarks.scratch import database_url

LONGEST_REDIS_START = 10.0
REDIS_FLAGS = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--bind", "127.0.0.1")

# What the harness itself asks is no statement of the peer's.
UNCOUNTED = "-c log_statement=none -c pg_stat_statements.track=none"


class Server:
    """The PostgreSQL that everybody uses."""

    def __init__(self) -> None:
        self._session = psycopg.connect(database_url("postgresql", "postgres"), autocommit=True)

    def ask(self, statement: str, *parameters: Any) -> Any:
        """Return the only value of the only row, if there is one."""
        cursor = self._session.execute(statement.encode(), parameters or None)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    def make(self, name: str, template: str | None = None) -> None:
        self.drop(name)
        made = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template:
            made += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        self._session.execute(made)

    def drop(self, name: str) -> None:
        self._session.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def configure(self, name: str, parameter: str, value: str) -> None:
        """Set a parameter for the sessions of a database."""
        parts = map(sql.Identifier, (name, parameter))
        self._session.execute(sql.SQL("ALTER DATABASE {} SET {} = {}").format(*parts, sql.Literal(value)))

    def close(self) -> None:
        self._session.close()


class Database:
    """A peer's database."""

    def __init__(self, peer: Peer, server: Server) -> None:
        self._peer, self._server, self._session = peer, server, None
        self.name, self.template = peer.database, f"{peer.database}_empty"
        self.asked = 0  # transactions of our own

    def variables(self) -> dict[str, str]:
        return {"BENCH_DSN": database_url("postgresql", self.name)}

    def begin(self) -> None:
        """Make an empty one, for the peer to install itself into."""
        self._server.make(self.name)

    def keep_as_template(self) -> None:
        self._server.make(self.template, self.name)

    def reset(self) -> None:
        self.close()
        self._server.make(self.name, self.template)

    def settle_down(self) -> None:
        """Do now what the server would otherwise do in the middle of a measurement."""
        self.session.execute("VACUUM ANALYZE")
        self.session.execute("CHECKPOINT")

    def counts(self) -> tuple[int, int | None]:
        """Return how many jobs are not done, and how many are if that is kept."""
        return self._count(self._peer.left), self._count(self._peer.done) if self._peer.done else None

    def left(self) -> int:
        return self._count(self._peer.left)

    def _count(self, query: str) -> int:
        self.asked += 1
        row = self.session.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0

    @property
    def session(self) -> psycopg.Connection[Any]:
        if self._session is None or self._session.closed:
            url = database_url("postgresql", self.name)
            self._session = psycopg.connect(url, autocommit=True, options=UNCOUNTED)
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def end(self) -> None:
        self.close()
        self._server.drop(self.name)
        self._server.drop(self.template)


class RedisStore:
    """One of the numbered databases of the Redis."""

    def __init__(self, port: int, number: int) -> None:
        self._port, self._number = port, number

    def variables(self) -> dict[str, str]:
        return {"BENCH_REDIS": f"redis://127.0.0.1:{self._port}/{self._number}"}

    def reset(self) -> None:
        say_to_redis(self._port, f"SELECT {self._number}", "FLUSHDB")

    def settle_down(self) -> None: ...

    def close(self) -> None: ...

    def end(self) -> None: ...  # it ends with its server


@contextmanager
def redis_server() -> Iterator[int | None]:
    """Run a Redis of our own, as durable as its documentation advises. Yield its port; None if there is none."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="pulse-bench-redis-") as folder:
        with Path(folder, "log").open("w") as log:
            command = [program, "--port", str(port), "--dir", folder, *REDIS_FLAGS]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_for(port)
            yield port
        finally:
            process.terminate()
            process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + LONGEST_REDIS_START
    while True:
        try:
            say_to_redis(port, "PING")
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def say_to_redis(port: int, *commands: str) -> list[str]:
    """Send commands that are answered in one line, and return the answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plug, plug.makefile("rw", newline="\r\n") as file:
        answers = []
        for command in commands:
            file.write(f"{command}\r\n")
            file.flush()
            answers.append(file.readline().strip())
    if problems := [answer for answer in answers if answer.startswith("-")]:
        raise OSError(problems[0])
    return answers


def redis_version() -> str | None:
    program = shutil.which("redis-server")
    if program is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return next((word[2:] for word in said.split() if word.startswith("v=")), said.strip())


def store_of(peer: Peer, server: Server, redis_port: int | None, number: int) -> Database | RedisStore:
    if peer.store != REDIS:
        return Database(peer, server)
    assert redis_port is not None
    return RedisStore(redis_port, number)
