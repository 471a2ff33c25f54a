"""Start and stop a real PostgreSQL server.

The server listens on a Unix socket in a private folder and stays up until ``stop()``. PULSE_PG_BIN is the
folder of the programs, PULSE_PG_HOME that of the data.
"""

import fcntl
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .programs import NoPostgresError, own_copy
from .server import DATABASE, PORT, Server

LOCALE = "C" if sys.platform == "darwin" else "C.UTF-8"
START_TIMEOUT = 60  # seconds, long enough for a crash recovery
SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "max_connections": "200",
    "max_locks_per_transaction": "256",  # tests drop schemas of thousands of objects, several at once
    "shared_buffers": "256MB",
    # The defaults of PostgreSQL, explicit because benchmarks depend on them.
    "fsync": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
}


def start(server: Server) -> bool:
    """Start the server unless it is running. Return whether it was started."""
    with _usable(server):
        _refuse_strangers(server)
    if server.answers():
        return False
    with _usable(server), _one_process_at_a_time(server):
        is_new = _start(server)
        _create_database(server)
    return is_new


def stop(server: Server) -> bool:
    """Stop the server and its running queries. Return False if it was not running."""
    with _usable(server):
        if not server.data.exists():
            return False
        with _one_process_at_a_time(server), server.life_sign.open("a") as life_sign:
            if _is_ours_alone(life_sign):
                return False
            pg_ctl(server, "-m", "fast", "stop")
            fcntl.flock(life_sign, fcntl.LOCK_EX)  # returns when the last process of the server has ended
            return True


@contextmanager
def _usable(server: Server) -> Iterator[None]:
    """Say in one line what is wrong with the folder."""
    try:
        yield
    except OSError as error:
        problem = f"{error.filename or server.root}: {error.strerror}"
        raise NoPostgresError(f"{problem}. Set PULSE_PG_HOME to a folder that is yours, or to a new one.") from error


def _refuse_strangers(server: Server) -> None:
    """Refuse folders in which others can write: they could replace the data, or the server that answers."""
    for folder in filter(Path.exists, (server.root, server.home)):
        found, chmod = folder.stat(), shlex.join(["chmod", "go-w", str(folder)])
        remedy = "or set PULSE_PG_HOME to a folder that is yours"
        if os.geteuid() not in (0, found.st_uid):  # a server that root starts runs as another user
            raise NoPostgresError(f"{folder} belongs to user {found.st_uid}: work as this user, {remedy}.")
        if found.st_mode & 0o022:
            raise NoPostgresError(f"Others can write in {folder}. Run: {chmod}, {remedy}.")


@contextmanager
def _one_process_at_a_time(server: Server) -> Iterator[None]:
    if not server.root.exists():
        server.root.mkdir(parents=True, exist_ok=True)
        server.root.chmod(0o755)  # regardless of the umask, because a server that root starts runs as another user
        (server.root / ".gitignore").write_text("*\n")
    with server.lock.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(server: Server) -> bool:
    if server.answers("postgres"):
        return False
    make_home(server)
    with server.life_sign.open("a") as life_sign:
        if _earlier_start_succeeds(server, life_sign):
            return False
        if not server.data.exists():
            _initialise(server)
        elif not (server.data / "PG_VERSION").exists():
            problem = f"{server.data} holds something else than PostgreSQL's data"
            raise NoPostgresError(f"{problem}: remove it, or set PULSE_PG_HOME to another folder.")
        forget_the_dead(server)
        pg_ctl(server, "-l", str(server.log), "-o", options_of(server), "start", heir=life_sign)
    return True


def make_home(server: Server) -> None:
    server.home.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() == 0 and server.home.stat().st_uid == 0:
        user = _unprivileged_user()
        os.chown(server.home, user.pw_uid, user.pw_gid)
    owner = server.home.stat().st_uid
    for parent in server.home.parents if os.geteuid() == 0 else ():
        if parent.stat().st_uid != owner and not parent.stat().st_mode & stat.S_IXOTH:
            raise NoPostgresError(
                f"User {owner} cannot enter {parent}. PostgreSQL does not run as root: use another user, or a folder "
                "that everybody can enter."
            )


def _unprivileged_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgresError("PostgreSQL does not run as root, and no user postgres or nobody exists to run it.")


def _earlier_start_succeeds(server: Server, life_sign: IO[str]) -> bool:
    """Wait until an earlier server has started, or has ended after a stop or a SIGKILL."""
    deadline = time.monotonic() + START_TIMEOUT
    while not _is_ours_alone(life_sign):
        if server.answers("postgres"):
            return True
        if time.monotonic() > deadline:
            raise NoPostgresError(_with_log(server, f"PostgreSQL did not answer for {START_TIMEOUT} s."))
        time.sleep(0.05)
    return False


def _is_ours_alone(life_sign: IO[str]) -> bool:
    try:
        fcntl.flock(life_sign, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _initialise(server: Server) -> None:
    unfinished = server.home / "data.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    encoding = ["-E", "UTF8", f"--locale={LOCALE}"]
    run_program(server, "initdb", "--no-sync", "-U", "postgres", "--auth=trust", *encoding, "-D", str(unfinished))
    unfinished.rename(server.data)


def forget_the_dead(server: Server) -> None:
    """Remove the pid file that a SIGKILL left: if another process has this id, no server would start."""
    for leftover in (server.data / "postmaster.pid", server.home / f"{server.socket.name}.lock"):
        leftover.unlink(missing_ok=True)


def options_of(server: Server) -> str:
    settings = SETTINGS | {"unix_socket_directories": f'"{server.home}"'}
    return shlex.join(f"--{name}={value}" for name, value in settings.items())


def pg_ctl(server: Server, *arguments: str, heir: IO[str] | None = None) -> None:
    run_program(server, "pg_ctl", "-D", str(server.data), "-w", "-t", str(START_TIMEOUT), *arguments, heir=heir)


def run_program(server: Server, program: str, *arguments: str, heir: IO[str] | None = None) -> None:
    """Run a program as the owner of the server's home. Its children inherit the open file `heir`."""
    programs = own_copy(server.programs, server.root / f"programs-{server.version}")
    home, is_root = server.home.stat(), os.geteuid() == 0
    try:
        done = subprocess.run(  # noqa: S603 - its own programs
            [programs / program, *arguments],
            user=home.st_uid if is_root else None,
            group=home.st_gid if is_root else None,
            extra_groups=[] if is_root else None,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"} | dict(server.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[heir.fileno()] if heir else [],
        )
    except OSError as error:
        raise NoPostgresError(f"User {home.st_uid} cannot run {programs / program}: {error.strerror}.") from error
    if done.returncode:
        raise NoPostgresError(_with_log(server, f"{program} failed: {done.stdout.strip()}"))


def _with_log(server: Server, problem: str) -> str:
    tail = server.log.read_text(errors="replace").splitlines()[-15:] if server.log.exists() else []
    return "\n".join([problem, f"The end of {server.log}:", *tail]) if tail else problem


def _create_database(server: Server) -> None:
    with server.connect("postgres") as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
            connection.execute(f"CREATE DATABASE {DATABASE}")
