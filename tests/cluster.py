"""A primary and a standby that streams from it, each a PostgreSQL of its own on a Unix socket of its own.

What is done to them is what happens to servers: they are stopped, killed, promoted and made anew.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from pulse_django.embedded import starter
from pulse_django.embedded.server import DATABASE, PORT, Server
from testproject.harness.census import census, descendants
from testproject.postgres import this_server

PATIENCE = 30.0
# A standby that lost its primary looks for it again after this, and not after five seconds.
LOOK_AGAIN = "200ms"

DEADLOCK = "deadlock detected"
MOST_OF_A_DEADLOCK = 6_000  # characters


class Cluster:
    """Two servers in ``folder``. ``primary`` and ``standby`` say which is which just now."""

    def __init__(self, folder: Path, *, waits_for_standby: bool = True) -> None:
        self.primary, self.standby = (_server_in(folder / name) for name in ("a", "b"))
        self._waits = waits_for_standby

    def start(self, *, with_standby: bool = True) -> None:
        """Make both, and return once the standby streams."""
        starter.start(self.primary)
        if with_standby:
            self.make_standby()

    def end(self) -> None:
        for server in (self.standby, self.primary):
            with suppress(Exception):
                self.stop(server, "immediate")

    def url(self, **options: object) -> str:
        """Both, for a client that finds out by itself which one takes writes."""
        hosts = ",".join(str(server.home) for server in (self.primary, self.standby))
        options = {"target_session_attrs": "read-write", "connect_timeout": 2, **options}
        more = "".join(f"&{name}={quote(str(value))}" for name, value in options.items())
        return f"postgres://postgres@/{DATABASE}?host={quote(hosts)}&port={PORT},{PORT}{more}"

    def ask(self, statement: str, *params: Any) -> list[Any]:
        """Ask the primary."""
        with self.primary.connect() as connection:
            cursor = connection.execute(statement, params)
            return cursor.fetchall() if cursor.description else []

    def stop(self, server: Server, mode: str = "fast") -> None:
        starter.pg_ctl(server, "-m", mode, "stop")

    def start_again(self, server: Server) -> None:
        starter.forget_the_dead(server)
        starter.pg_ctl(server, "-l", str(server.log), "-o", starter.options_of(server), "start")

    def kill_primary(self) -> None:
        """SIGKILL to all its processes, and return when they are gone: while one of them is attached to the shared
        memory of the server, PostgreSQL refuses to start again."""
        wait_until(lambda: not _killed(self.primary))
        wait_until(lambda: not self.primary.answers("postgres"))

    def stall_primary(self, seconds: float) -> None:
        """Let none of its processes run for a while, as on a host that swaps or a disk that hangs."""
        stalled = descendants(self.postmaster, census())
        for signum, pause in ((signal.SIGSTOP, seconds), (signal.SIGCONT, 0.0)):
            for one in stalled:
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signum)
            time.sleep(pause)

    @property
    def postmaster(self) -> int:
        """The process of the primary that starts its others."""
        return int((self.primary.data / "postmaster.pid").read_text().split()[0])

    def promote(self) -> None:
        """Let the standby take over. The other one is the standby from now on, once it is made anew."""
        starter.pg_ctl(self.standby, "promote")
        self.primary, self.standby = self.standby, self.primary

    def make_standby(self) -> None:
        """Copy the primary, let the copy stream, and let commits wait for it if they are to."""
        standby = self.standby
        shutil.rmtree(standby.data, ignore_errors=True)
        starter.make_home(standby)
        source = ["-h", str(self.primary.home), "-p", str(PORT), "-U", "postgres", "-w"]
        starter.run_program(standby, "pg_basebackup", *source, "-D", str(standby.data), "-R", "-c", "fast", "--no-sync")
        with (standby.data / "postgresql.conf").open("a") as settings:
            settings.write(f"\nwal_retrieve_retry_interval = '{LOOK_AGAIN}'\nhot_standby = on\n")
        self.start_again(standby)
        wait_until(lambda: self._streams("state = 'streaming'"))
        if self._waits:
            self.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.ask("SELECT pg_reload_conf()")
            wait_until(lambda: self._streams("sync_state = 'sync'"))

    def deadlocks(self) -> list[str]:
        """Return what the servers wrote about each deadlock: the processes, their locks and their statements."""
        logs = (server.log for server in (self.primary, self.standby) if server.log.exists())
        return [
            text[:MOST_OF_A_DEADLOCK] for log in logs for text in log.read_text(errors="replace").split(DEADLOCK)[1:]
        ]

    def _streams(self, condition: str) -> bool:
        [(count,)] = self.ask(f"SELECT count(*) FROM pg_stat_replication WHERE {condition}")
        return bool(count)


def _killed(server: Server) -> list[int]:
    """Kill the processes of a server that are alive, and return them. A postmaster may make more meanwhile."""
    processes = census()
    found = {pid for pid in processes if processes[pid].is_alive and _works_in(pid, server.data)}
    with suppress(FileNotFoundError):
        postmaster = int((server.data / "postmaster.pid").read_text().split()[0])
        found |= {one.pid for one in descendants(postmaster, processes)}
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return sorted(found)


def _works_in(pid: int, folder: Path) -> bool:
    """Each process of PostgreSQL works in the folder of its data, also one whose postmaster is gone."""
    with suppress(OSError):  # there is no /proc, or it has just ended
        return Path(f"/proc/{pid}/cwd").resolve(strict=True) == folder.resolve()
    return False


def _server_in(root: Path) -> Server:
    usual = this_server()
    root.mkdir(mode=0o755)
    root.chmod(0o755)  # whatever the umask: a server that root starts runs as somebody else
    programs = usual.root / f"programs-{usual.version}"
    if programs.exists():  # they are large
        (root / programs.name).symlink_to(programs)
    return replace(usual, root=root)


def wait_until(happened: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while True:
        with suppress(psycopg.OperationalError):
            if happened():
                return
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {patience} s")
        time.sleep(0.05)
