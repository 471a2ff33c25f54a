"""The processes of a worker: what they open to others, what they hand on, and what a flood of crashes does to them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from testproject.harness.processes import StartedWorker
from tests.crash.processes import ROOT
from tests.crash.workers import LONG_LEASE, Workers, is_alive, outcomes, wait_for
from tests.security import handlers
from tests.worker.test_http_port import free_port

pytestmark = pytest.mark.usefixtures("pulse_db")

OURS = LONG_LEASE | {"TASK_MODULES": ["tests.security.handlers"]}
LISTENING = "0A"
ACCEPTS = 0x10000  # __SO_ACCEPTCON, of /proc/net/unix
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}

# ------------------------------------------------------------------------------------------------------------- sockets


def files_of(pid: int) -> list[str]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return found


def sockets_of(worker: StartedWorker) -> set[str]:
    return {name[8:-1] for pid in worker.family() for name in files_of(pid) if name.startswith("socket:[")}


def listening(worker: StartedWorker) -> list[tuple[str, int]]:
    """The addresses and ports at which any process of this worker takes connections: TCP, and with port 0 Unix."""
    mine, found = sockets_of(worker), []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == LISTENING and columns[9] in mine:
                address, port = columns[1].split(":")
                found.append((address, int(port, 16)))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        columns = line.split()
        if int(columns[3], 16) & ACCEPTS and columns[6] in mine:
            found.append((" ".join(columns[7:]), 0))
    return found


def test_a_worker_that_is_told_to_listen_does_so_at_home_only(workers: Workers) -> None:
    port = free_port()
    worker = workers.ready("--metrics-port", str(port), settings=OURS)
    wait_for(Status.COMPLETED, handlers.innocent.enqueue().id)
    [(address, found)] = listening(worker)
    assert address in LOOPBACK
    assert found == port


# --------------------------------------------------------------------------------------------------------------- files


def test_a_worker_listens_nowhere_and_makes_no_file(workers: Workers, tmp_path: Path) -> None:
    """No file of its pid, no socket for orders: also under a umask that would let everybody write to them."""
    home = tmp_path / "home"
    home.mkdir()
    before = everybodys()
    env = {"HOME": str(home), "TMPDIR": str(home), "XDG_RUNTIME_DIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    prefix = ("sh", "-c", 'umask 0; exec "$@"', "sh")
    worker = workers.ready(settings=OURS, env=env, prefix=prefix)
    wait_for(Status.COMPLETED, handlers.innocent.enqueue().id, handlers.echo_apart.enqueue(1).id)
    assert listening(worker) == [], "no port, and no socket with a name, unless it is told to"
    assert list(home.rglob("*")) == []
    assert everybodys() - before == set()
    opened = {name for pid in worker.family() for name in writable_files_of(pid)}
    in_memory = "/memfd:pulse-stacks (deleted)"  # without a name: only who was given it can open it
    assert {name for name in opened if not name.endswith(".log")} <= {in_memory}


def everybodys() -> set[str]:
    """Files below the project, and in the usual places for pids, that everybody may write."""
    roots = [ROOT, Path("/dev/shm"), Path("/run"), Path("/var/run"), Path("/var/lock")]
    return {str(path) for root in roots if root.exists() for path in below(root) if is_everybodys(path)}


def below(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in (".git", "__pycache__", ".mypy_cache", ".hypothesis")]
        yield from (Path(folder, name) for name in (*folders, *names))


def is_everybodys(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return not stat.S_ISLNK(mode) and bool(mode & stat.S_IWOTH)


def writable_files_of(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            name, flags = str(link.readlink()), Path(f"/proc/{pid}/fdinfo/{link.name}").read_text()
            if name.startswith("/") and not name.startswith("/dev/") and int(flags.split()[3], 8) & os.O_ACCMODE:
                yield name


# -------------------------------------------------------------------------------------------- what a program inherits


def test_a_program_that_a_handler_starts_has_no_socket_and_no_variable_that_was_added(workers: Workers) -> None:
    """From a thread, whose process has all connections of the worker; a process of its own has none to begin with."""
    worker = workers.ready(settings=OURS)
    jobs = [handlers.starts_a_program.enqueue(close_fds).id for close_fds in (True, False)]
    wait_for(Status.COMPLETED, *jobs)
    assert len([name for name in files_of(worker.child()) if name.startswith("socket:")]) >= 3, "it has connections"
    own = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
    started_with = {entry.partition(b"=")[0].decode() for entry in own}
    for result in Job.objects.filter(pk__in=jobs).values_list("result", flat=True):
        said = json.loads(result)
        kinds = ("socket:", "/dev/zero", "/memfd", "anon_inode")
        assert [name for name in said["files"] if name.startswith(kinds)] == []
        assert set(said["environment"]) - started_with - {"LC_CTYPE"} == set(), "Pulse adds no variable"


# ------------------------------------------------------------------------------------------------------ poisoned queues

# Of ``isolation="process"``: each kills its own process, eight at a time, in about 12 ms. Ten thousand take two minutes
# and show the same.
CRASHES = 200
INNOCENT = 100


def test_hundreds_of_jobs_that_crash_keep_a_hundred_innocent_ones_from_nothing(workers: Workers) -> None:
    """The innocent of another queue take turns with them, and those behind them in their own queue come too."""
    worker = workers.ready("--concurrency", "8", settings=OURS)
    child = worker.child()
    deadly = enqueue("security.crashes", CRASHES, "poisoned")
    elsewhere = enqueue("security.innocent", INNOCENT // 2, "default")
    behind = enqueue("security.innocent", INNOCENT // 2, "poisoned")
    wait_for(Status.COMPLETED, *elsewhere)
    left = Job.objects.filter(pk__in=deadly).exclude(status=Status.DEAD_LETTERED).count()
    assert left > 0, "the other queue waited for the poisoned one"
    wait_for(Status.COMPLETED, *behind)
    wait_for(Status.DEAD_LETTERED, *deadly)
    assert is_alive(child), "no crash left its own process"
    assert outcomes(deadly[0]) == ["WORKER_LOST"]
    assert set(Job.objects.filter(pk__in=behind).values_list("attempts", flat=True)) == {1}


def enqueue(task: str, count: int, queue: str) -> list[int]:
    return Job.objects.enqueue_many(NewJob(task=task, queue=queue, max_attempts=1) for _ in range(count))
