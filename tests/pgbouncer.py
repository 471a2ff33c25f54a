"""A real PgBouncer in front of the test database, if this machine has one."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
PORT = 6432
POOL_SIZE = 4
PATIENCE = 10.0

LISTENS = "it waits for notifications"  # why a test needs a session of its own
needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="no pgbouncer on this machine")


class PgBouncer:
    """On a Unix socket in a folder of its own. Few connections to the server, so that clients really share them."""

    def __init__(
        self, folder: Path, settings: dict[str, Any], mode: str = "transaction", pool_size: int = POOL_SIZE
    ) -> None:
        assert PROGRAM is not None
        self.host, self.port = str(folder), PORT
        self._database = {"dbname": settings["NAME"], "user": settings["USER"]}
        config = folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host={settings['HOST']} port={settings['PORT'] or 5432} user={settings['USER']}\n"
            f"[pgbouncer]\nlisten_addr =\nunix_socket_dir = {folder}\nlisten_port = {PORT}\nauth_type = any\n"
            f"pool_mode = {mode}\ndefault_pool_size = {pool_size}\nmax_client_conn = 200\n"
            "ignore_startup_parameters = extra_float_digits,options\n"
            "server_login_retry = 1\n"
        )
        command = [PROGRAM, str(config)]
        if os.geteuid() == 0:  # it refuses to run as root; the server's own user may use the server's socket
            owner = pwd.getpwuid(Path(settings["HOST"], f".s.PGSQL.{settings['PORT'] or 5432}").stat().st_uid)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            command = [PROGRAM, "-u", owner.pw_name, str(config)]
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        try:
            self._wait(folder / "log")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._log.close()

    def _wait(self, log: Path) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(host=self.host, port=self.port, connect_timeout=2, **self._database).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise AssertionError(log.read_text()) from None
                time.sleep(0.02)
            else:
                return
