"""A PostgreSQL server in a folder: its files, and whether it responds."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg

from .programs import NoPostgresError, find_programs, version_of

DATABASE = "pulse"
PORT = 5432  # only names the socket file; explicit, because a PGPORT in the environment would rename it
LONGEST_SOCKET_PATH = 103 if sys.platform == "darwin" else 107


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server and its data: one for each major version, because they cannot read each other's data."""

    programs: Path
    version: str
    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)  # of the server's programs, besides PATH

    @property
    def major(self) -> str:
        return self.version.split(".")[0]

    @property
    def home(self) -> Path:
        """The private folder that holds the socket, the data and the log."""
        return self.root / self.major

    @property
    def socket(self) -> Path:
        return self.home / f".s.PGSQL.{PORT}"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def lock(self) -> Path:
        """Return the lock file of the process that starts or stops the server."""
        return self.root / f"{self.major}.lock"

    @property
    def life_sign(self) -> Path:
        """Return the file that each process of the server keeps locked. The kernel unlocks it when the last one ends.

        A process id does not prove that the server runs: postmaster.pid survives a SIGKILL, and ids are used again.
        """
        return self.root / f"{self.major}.alive"

    @property
    def url(self) -> str:
        return f"postgres://postgres@/{DATABASE}?host={quote(str(self.home))}&port={PORT}"

    def answers(self, database: str = DATABASE) -> bool:
        try:
            self.connect(database).close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self, database: str = DATABASE) -> psycopg.Connection:
        url = f"{self.url}&connect_timeout=10"
        return psycopg.connect(url, dbname=database, autocommit=True)


def server_in(root: Path, environment: Mapping[str, str] | None = None) -> Server:
    """Describe the server of this folder, running or not. PULSE_PG_HOME names another folder."""
    programs = find_programs()
    root = Path(os.environ.get("PULSE_PG_HOME") or root).expanduser().absolute()
    server = Server(programs=programs, version=version_of(programs), root=root, environment=environment or {})
    if (length := len(os.fsencode(server.socket))) > LONGEST_SOCKET_PATH:
        raise NoPostgresError(
            f"The socket path {server.socket} has {length} bytes, the system allows {LONGEST_SOCKET_PATH}: "
            "set PULSE_PG_HOME to a folder with a shorter name."
        )
    return server
