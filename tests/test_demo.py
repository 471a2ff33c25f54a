from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper
from django.core.management.color import no_style
from django.db import connection

from pulse_django import conf
from pulse_django.models import Job, Worker
from pulse_django.queue.words.states import Status
from testproject.demo import deaths, handlers
from testproject.demo.pace import REAL_TIME, SCALED, DemoPace
from testproject.demo.rows import Row, look
from testproject.demo.screen import Screen, has_news, line, table
from testproject.demo.stage import Stage, set_up
from testproject.demo.telling import Telling, WentOtherwise
from testproject.harness.census import Process, census, descendants, from_ps
from testproject.shop.management.commands import pulse_demo
from tests.crash.processes import ROOT, environment
from tests.crash.workers import is_alive, wait_until
from tests.factories import AttemptFactory, WorkerFactory, make_job, now
from tests.faults import each_of

RUNNING = Row(
    id=7,
    task="pulse_demo.steps",
    status="RUNNING",
    attempts=1,
    locked_by="demo-A:boot:3",
    lease_left=2.45,
    progress={"done": 40, "total": 100},
)
DEAD = Row(id=8, task="pulse_demo.poison", status="DEAD_LETTERED", attempts=2, last_error="lost 2 workers: SIGKILL")


def changed(row: Row, **changes: Any) -> Row:
    return Row(**{name: getattr(row, name) for name in Row.__slots__} | changes)


# The command. `make demo` plays the whole story; here it must fail when it should


def test_the_demo_exits_with_1_and_shows_the_log_when_its_worker_cannot_start(pulse_db: None, tmp_path: Path) -> None:
    (tmp_path / "not_in_workers.py").write_text("import sys\n\nassert 'pulse_worker' not in sys.argv, 'nowhere'\n")
    settings = {"METRICS_TOKEN": "", "TASK_MODULES": ["not_in_workers"]}
    env = environment(PULSE=json.dumps(settings), PYTHONPATH=str(tmp_path))
    command = [sys.executable, "manage.py", "pulse_demo"]
    demo = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert demo.returncode == 1
    assert "The demo failed: expected three small jobs to be completed" in demo.stderr
    assert "demo-A ended with status 1" in demo.stderr
    assert "nowhere" in demo.stdout  # what the worker itself said
    assert "Nothing was lost" not in demo.stdout


def test_a_demo_that_is_terminated_leaves_no_worker_behind(pulse_db: None) -> None:
    command = [sys.executable, "manage.py", "pulse_demo"]
    demo = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    family: list[Process] = []
    try:
        wait_until(lambda: Job.objects.filter(status=Status.COMPLETED).count() >= 3)
        wait_until(Worker.objects.exists)
        family = descendants(Worker.objects.get().pid, census())
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=30)
        left = [one.pid for one in family if is_alive(one.pid)]
    finally:
        for pid in (demo.pid, *(one.pid for one in family)):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        demo.communicate()
    assert demo.returncode == 130
    assert len(family) == 3
    assert left == []
    assert Worker.objects.get().stopped_at is not None  # or the next demo would be refused


def test_a_last_heartbeat_of_a_killed_worker_is_waited_for(
    pulse_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server still runs what a killed worker sent. It marks the worker as alive, so goodbye comes after it."""
    row = WorkerFactory(name="demo-A")
    stage = Stage(tmp_path, "demo", {})
    monkeypatch.setattr(stage, "kill", lambda: None)
    stage.started.append(cast(Any, SimpleNamespace(name=row.name, pid=row.pid)))
    beat = connection.copy()
    beat.settings_dict = beat.settings_dict | {"OPTIONS": {"application_name": "pulse heartbeat"}}
    with beat.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE pulse_django_worker SET stopped_at = NULL WHERE id = %s", [row.pk])
    waits: list[float] = []

    def ends_at_the_second_look(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            with beat.cursor() as cursor:
                cursor.execute("COMMIT")
            beat.close()

    monkeypatch.setattr(pulse_demo.time, "sleep", ends_at_the_second_look)
    try:
        pulse_demo._say_goodbye_for_the_dead(stage)
    finally:
        beat.close()
    assert len(waits) >= 2
    assert Worker.objects.get().stopped_at is not None


def test_goodbye_does_not_wait_for_ever(pulse_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = WorkerFactory(name="demo-A")
    stage = Stage(tmp_path, "demo", {})
    monkeypatch.setattr(stage, "kill", lambda: None)
    stage.started.append(cast(Any, SimpleNamespace(name=row.name, pid=row.pid)))
    monkeypatch.setattr(pulse_demo, "PATIENCE_WITH_SESSIONS", 0.1)
    pooled = connection.copy()
    pooled.settings_dict = pooled.settings_dict | {"OPTIONS": {"application_name": "pulse pooled"}}
    pooled.ensure_connection()
    try:
        pulse_demo._say_goodbye_for_the_dead(stage)
    finally:
        pooled.close()
    assert Worker.objects.get().stopped_at is not None


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Telling]:
    """What the story was begun with; it is not played."""
    tellings: list[Telling] = []
    monkeypatch.setattr(pulse_demo, "play", tellings.append)
    return tellings


def test_the_demo_refuses_to_run_beside_live_workers(
    pulse_db: None, played: list[Telling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that stopped or fell silent do not keep it from running; a flag chooses its pace."""
    live = WorkerFactory(name="shop-1")
    with pytest.raises(CommandError, match=r"running on this database: shop-1:boot\d+ on host"):
        call_command("pulse_demo", stdout=StringIO())
    assert played == []
    live.delete()
    WorkerFactory(stopped_at=now())
    WorkerFactory(last_beat_at=now(timedelta(seconds=-31)))
    call_command("pulse_demo", stdout=StringIO())
    call_command("pulse_demo", "--real-time", stdout=StringIO())
    assert [one.pace for one in played] == [SCALED, REAL_TIME]
    monkeypatch.setattr(pulse_demo, "play", lambda telling: telling.expect(False, "the job to be completed", "PENDING"))
    with pytest.raises(CommandError, match="The demo failed: expected the job to be completed; seen: PENDING"):
        call_command("pulse_demo", stdout=StringIO())


# The pace


@each_of(SCALED, REAL_TIME)
def test_the_settings_of_a_pace_are_sound(*, pace: DemoPace) -> None:
    parsed, problems = conf.parse(pace.settings)
    assert problems == []  # no warning either: three beats to a lease
    assert parsed.lease_ttl == timedelta(seconds=pace.ttl)
    assert pace.long_work > 3 * pace.ttl  # "outlives several leases"
    assert pace.short_work > 2 * pace.beat  # a beat carries progress, and something is left to do
    assert pace.nap > pace.beat * 2  # time to freeze the worker after a beat
    settings = conf.PulseSettings()
    theirs = (settings.lease_ttl, settings.heartbeat_interval, settings.watchdog_interval)
    assert tuple(timedelta(seconds=one) for one in (REAL_TIME.ttl, REAL_TIME.beat, REAL_TIME.tick)) == theirs


# How it is told


@pytest.fixture
def telling(pulse_db: None, tmp_path: Path) -> Telling:
    stage = Stage(tmp_path, "demo", {})
    return Telling(Screen(OutputWrapper(StringIO()), no_style()), stage, SCALED, "demo", patience=0.3)


def test_what_is_not_as_expected_fails_the_story(telling: Telling) -> None:
    """At once if jobs are over, when patience is over if they are not, and by the ledger."""
    with pytest.raises(WentOtherwise, match=r"expected a retry; seen: \n.*DEAD_LETTERED"):
        telling.watch("a retry", [make_job(Status.DEAD_LETTERED).pk], lambda rows: rows[0].status == Status.RETRYING)
    with pytest.raises(WentOtherwise, match=r"expected a claim within 0 s; seen: \n.*PENDING"):
        telling.watch("a claim", [make_job().pk], lambda rows: rows[0].attempts > 0)
    job = make_job(Status.COMPLETED)
    AttemptFactory(job=job)
    telling.expect_ledger(job.pk, "SUCCEEDED")
    with pytest.raises(WentOtherwise, match="WORKER_LOST"):
        telling.expect_ledger(job.pk, "WORKER_LOST", "SUCCEEDED")
    enqueued = Job.objects.get(pk=telling.enqueue(handlers.poison))
    assert (enqueued.task, enqueued.queue, enqueued.max_lost_workers) == ("pulse_demo.poison", "demo", 2)


@each_of((0, 1, "resumed from the checkpoint"), (4, 0, "a backoff of at least"))
def test_a_second_run_that_does_not_resume_or_comes_at_once_fails_the_story(
    telling: Telling, *, step: int, seconds: int, why: str
) -> None:
    result = {"resumed_after_step": step}
    job = make_job(Status.COMPLETED, attempts=2, progress={"done": 9, "total": 9}, result=result)
    AttemptFactory(job=job, outcome="WORKER_LOST", finished_at=now(timedelta(seconds=-seconds)))
    AttemptFactory(job=job, number=2)
    with pytest.raises(WentOtherwise, match=why):
        deaths.expect_resumed(telling, job.pk)


def test_a_second_attempt_does_only_the_steps_that_are_left() -> None:
    noted: list[int] = []
    context = SimpleNamespace(
        checkpoint={"done": 3, "total": 5}, attempt=2, progress=lambda done, total: noted.append(done)
    )
    assert handlers.steps.func(context, 5, 0.0) == {"attempt": 2, "resumed_after_step": 3, "steps_done": 2}
    assert noted == [4, 5]


def test_the_servers_clock_says_what_is_left_of_a_lease(pulse_db: None) -> None:
    job = make_job(Status.RUNNING, lease_until=now(timedelta(seconds=-1)))
    [row] = look([job.pk])
    assert row.lease_left is not None
    assert -10 < row.lease_left <= -1


# What is shown


def test_a_table_shows_what_matters_and_fits_the_terminal() -> None:
    head, running, dead = table([RUNNING, DEAD], 100)
    for text in ("#7 steps", "RUNNING", "demo-A", "2.5s", "████░░░░░░ 40/100"):
        assert text in running
    assert "lost 2 workers" in dead
    assert running.index("demo-A") == head.index("locked_by")
    assert all(len(one) <= 30 for one in table([RUNNING, DEAD], 30))  # a line that wraps could not be drawn over
    head, *rows = table([RUNNING, changed(DEAD, id=10**12)], 120)
    assert {row.index(status) for row, status in zip(rows, ("RUNNING", "DEAD"), strict=True)} == {head.index("status")}
    _, painted = table([RUNNING], 100, {"RUNNING": lambda text: f"<{text}>"})
    assert "<RUNNING      >" in painted
    assert painted.replace("<", "").replace(">", "") == table([RUNNING], 100)[1]


def test_a_plain_line_tells_the_same() -> None:
    told = line(RUNNING, 4.21)
    assert told == "    4.2s  #7 steps: RUNNING, attempts 1, locked_by demo-A, lease left 2.5s, progress 40/100"
    assert line(DEAD, 30.0).endswith("DEAD_LETTERED, attempts 2, lost 2 workers: SIGKILL")


@each_of(
    ({}, False, False),
    ({"lease_left": 1.2}, False, False),  # it goes up and down all the time
    ({"lease_left": 1.2}, True, True),  # but not when nobody extends it
    ({"lease_left": 2.1}, True, False),  # the same second
    ({"lease_left": -0.1}, True, True),
    ({"progress": {"done": 45, "total": 100}}, False, False),  # the same quarter
    ({"progress": {"done": 50, "total": 100}}, False, True),
    ({"status": "RETRYING"}, False, True),
    ({"attempts": 2}, False, True),
    ({"locked_by": "demo-B:boot:1"}, False, True),
    ({"last_error": "worker lease expired"}, False, True),
)
def test_a_plain_line_is_written_when_there_is_news(
    *, changes: dict[str, Any], counting_down: bool, news: bool
) -> None:
    assert has_news(changed(RUNNING, **changes), RUNNING, counting_down=counting_down) is news


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_the_table_drawn_over_until_something_is_said_and_others_a_line_for_each_change() -> None:
    out, file = Terminal(), StringIO()
    screen, plain = (Screen(OutputWrapper(one), no_style()) for one in (out, file))
    screen.show([RUNNING])
    assert "\x1b[2A" not in out.getvalue()
    screen.show([RUNNING])
    assert out.getvalue().count("\x1b[2A") == 1  # a header and a row up
    screen.say("kill -9")
    screen.show([RUNNING])
    assert out.getvalue().count("\x1b[2A") == 1  # what was said stays
    plain.head("Act 1")
    for row in (RUNNING, RUNNING, changed(RUNNING, status="COMPLETED")):
        plain.show([row])
    assert len(re.findall("#7 steps", file.getvalue())) == 2
    assert "\x1b" not in file.getvalue()


# The stage


@pytest.fixture
def stage(pulse_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("DATABASE_URL", environment()["DATABASE_URL"])
    with set_up("demo", SCALED.settings) as stage:
        yield stage


def test_a_worker_is_killed_as_a_whole_also_when_it_is_frozen(pulse_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", environment()["DATABASE_URL"])
    with set_up("demo", SCALED.settings) as stage:
        killed, frozen = stage.worker("demo-A"), stage.worker("demo-B")
        for worker in (killed, frozen):
            wait_until(lambda worker=worker: worker.children(), lambda worker=worker: worker.log)
            assert len(worker.family()) == 3  # keeper, fork server, child
        assert stage.ended_by_themselves() == []
        assert killed.kill() == 3
        assert killed.survivors() == []
        assert stage.ended_by_themselves() == []  # it was not its own idea
        assert set(frozen.freeze()) == set(stopped_of(frozen.family())) == set(frozen.family())
        frozen.thaw()
        wait_until(lambda: not stopped_of(frozen.family()), frozen.family)
        frozen.freeze()
    assert frozen.survivors() == []


def test_a_child_is_killed_alone_and_a_worker_that_ends_by_itself_is_noticed(stage: Stage) -> None:
    worker = stage.worker("demo-A")
    wait_until(worker.children, lambda: worker.log)
    keeper, fork_server, child = worker.family()
    assert child == worker.child()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: worker.children() not in ([], [child]), lambda: worker.log)
    assert worker.family()[:2] == [keeper, fork_server]
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: stage.ended_by_themselves() == [worker])


@pytest.mark.skipif(shutil.which("ps") is None, reason="no ps on this machine")
def test_ps_tells_the_same_family_as_proc() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        wait_until(lambda: sleeper.pid in from_ps())
        for processes in (census(), from_ps()):
            assert processes[sleeper.pid].parent == os.getpid()
            assert processes[sleeper.pid].is_alive
        sleeper.kill()
        wait_until(lambda: not from_ps()[sleeper.pid].is_alive)  # a zombie, until we ask how it ended
    finally:
        sleeper.kill()
        sleeper.wait()


def stopped_of(family: list[int]) -> list[int]:
    now = census()
    return [pid for pid in family if now[pid].is_stopped]


def alive_of(family: list[int]) -> list[int]:
    now = census()  # once: a process may end between two looks
    return [pid for pid in family if pid in now and now[pid].is_alive]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a process that its parent died")
def test_workers_do_not_outlive_a_demo_that_is_killed(pulse_db: None, tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "manage.py", "pulse_demo"],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        wait_until(lambda: len(descendants(demo.pid, census())) >= 4)  # itself, a keeper, a fork server and a child
        family = [one.pid for one in descendants(demo.pid, census())]
    finally:
        demo.kill()
        demo.communicate()
    wait_until(lambda: not alive_of(family), patience=15)


def test_it_needs_nothing_of_the_development_tools_but_its_own_group() -> None:
    """``make demo`` installs that group alone, because a first look should not wait for mypy and Chromium."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    tools = {re.split(r"[\[>]", one)[0] for one in groups["dev"] if one not in groups["demo"] and isinstance(one, str)}
    code = "import sys; from testproject import urls; from testproject.shop.management.commands import pulse_demo; "
    code += "print(*{name.partition('.')[0] for name in sys.modules})"
    shell = [sys.executable, "manage.py", "shell", "--no-imports", "-v", "0", "-c", code]
    done = subprocess.run(shell, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    known = importlib.metadata.packages_distributions()
    needed = {name.replace("_", "-").lower() for one in done.stdout.split() for name in known.get(one, ())}
    assert needed & tools == set()
