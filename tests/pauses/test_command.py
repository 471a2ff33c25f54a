"""Queues and tasks are paused and resumed on the command line, and from code."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import transaction

from pulse_django import pause_queue, pause_task, resume_queue, resume_task, task
from pulse_django.models import Job, Pause
from pulse_django.pauses import pausing as pauses
from pulse_django.queue.set_aside import SET_ASIDE_LIMIT
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.run.registry import registry
from pulse_django.testing import drain, run_job
from tests.database import on_empty_tables
from tests.factories import WorkerFactory
from tests.faults import all_faults, each_of
from tests.operations.steps import run, run_json
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("pulse_db")


def claimed() -> int:
    return len(Job.objects.claim(Identity("me"), limit=100))


class TestAQueue:
    def test_no_job_of_it_starts_until_it_is_resumed(self) -> None:
        Job.objects.enqueue_many([NewJob(task="shop.send", queue="mail")] * 2)
        said = run("pulse_pause", "--queue", "mail", "--for", "1h", "--reason", "the provider is down")
        assert said.startswith("queue mail: paused until 2")
        assert said.endswith(": the provider is down; stops 2 waiting jobs\n")
        assert claimed() == 0
        assert run("pulse_resume", "--queue", "mail") == "queue mail: resumed\n"
        assert claimed() == 2
        assert run("pulse_resume", "--queue", "mail") == "queue mail: was not paused\n"

    def test_one_that_nobody_knows_is_asked_back(self) -> None:
        Job.objects.enqueue_many([NewJob(task="shop.send", queue="mail")] * 2)
        with pytest.raises(CommandError, match=r"No queue is called 'mial'\. Did you mean 'mail'\?"):
            run("pulse_pause", "--queue", "mial")
        with pytest.raises(CommandError, match="--force"):
            run("pulse_pause", "--task", "shop.send", "--queue", "mial")
        assert not Pause.objects.exists()
        assert not Pause.objects.exists()
        assert claimed() == 2
        assert "stops 0 waiting jobs" in run("pulse_pause", "--queue", "mial", "--force")

    def test_it_is_told_as_json(self) -> None:
        said = run_json("pulse_pause", "--queue", "mail", "--force")
        assert (said["queue"], said["paused_until"], said["due"]) == ("mail", None, 0)
        assert run_json("pulse_resume", "--queue", "mail")["was_paused"] is True

    def test_code_does_the_same(self) -> None:
        pause_queue("mail", duration=timedelta(hours=1), reason="x")
        assert Pause.objects.get().reason == "x"
        assert resume_queue("mail")
        assert not resume_queue("mail")


class TestATask:
    def test_no_job_of_it_starts_until_it_is_resumed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pulse_django.pauses.pausing.MOST_BATCHES", 1)  # the command does the rest
        Job.objects.enqueue_many([NewJob(task="shop.send")] * 2_500 + [NewJob(task="shop.other")])
        said = run("pulse_pause", "--task", "shop.send", "--for", "1h", "--reason", "the mail server is down")
        assert "task shop.send: paused until 2" in said
        assert ": the mail server is down; stops 1000+ waiting jobs\n" in said
        assert Job.objects.filter(ready=None).count() == 2_500
        with pytest.raises(CommandError, match="paused for longer"):
            run("pulse_pause", "--task", "shop.send", "--for", "1m")
        assert "task shop.send: paused until 2" in run("pulse_limits")
        found = run_json("pulse_limits")
        assert found["paused_keys"] == []
        [one] = found["paused_tasks"]
        assert (one["task"], one["reason"], one["is_more"]) == ("shop.send", "the mail server is down", True)
        assert run("pulse_resume", "--task", "shop.send") == "task shop.send: resumed\n"
        assert not Job.objects.filter(ready=None).exists()
        assert run("pulse_resume", "--task", "shop.send") == "task shop.send: was not paused\n"

    def test_one_that_nobody_knows_is_asked_back(self) -> None:
        Job.objects.enqueue_many([NewJob(task="store.tasks.post_letter")] * 2)
        with all_faults() as about:
            for name, meant in [
                ("post_letter", "store.tasks.post_letter"),
                ("tasks.post_letter", "store.tasks.post_letter"),
                ("store.task.postletter", "store.tasks.post_letter"),
                ("shop.tasks.add", "testproject.shop.tasks.add"),
                ("zzz", None),
            ]:
                with about(name):
                    with pytest.raises(CommandError) as caught:
                        run("pulse_pause", "--task", name)
                    said = f"No task is called {name!r}."
                    said += f" Did you mean {meant!r}?" if meant else ""
                    assert str(caught.value).startswith(said + " ")
                    assert "--force" in str(caught.value)
        assert not Pause.objects.exists()
        assert claimed() == 2
        assert "stops 0 waiting jobs" in run("pulse_pause", "--task", "post_letter", "--force")

    def test_a_task_is_known_by_its_code_its_workers_or_its_jobs(self) -> None:
        Job.objects.enqueue_many([NewJob(task="shop.send")])
        WorkerFactory(tasks=["shop.of_a_worker"])
        with all_faults() as about:
            for name in ["shop.send", "shop.of_a_worker", next(iter(registry))]:
                with about(name):
                    assert run("pulse_pause", "--task", name).startswith(f"task {name}: paused")

    def test_jobs_behind_a_long_line_are_counted(self) -> None:
        """They are not set aside: no claim reads so far."""
        Job.objects.enqueue_many([NewJob(task="shop.other")] * 21 + [NewJob(task="shop.send")] * 2)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("pulse_django.pauses.pausing.set_aside", lambda *_, **__: 0)
            assert "stops 2 waiting jobs" in run("pulse_pause", "--task", "shop.send")

    def test_a_command_that_was_killed_can_be_given_again(self) -> None:
        """The rest would be brought back by a watchdog."""
        Job.objects.enqueue_many([NewJob(task="shop.send")] * 3)
        run("pulse_pause", "--task", "shop.send")
        Pause.objects.resume("shop.send")
        assert run_json("pulse_resume", "--task", "shop.send")["brought_back"] == 3
        assert not Job.objects.filter(ready=None).exists()

    def test_a_task_without_an_end_says_so_as_json(self) -> None:
        said = run_json("pulse_pause", "--task", "shop.send", "--force")
        assert said["set_aside"] == 0
        assert said["tasks"][0]["paused_until"] is None
        assert "paused until it is resumed by" in run("pulse_limits")

    def test_in_one_queue_alone(self) -> None:
        Job.objects.enqueue_many([NewJob(task="shop.send", queue="mail"), NewJob(task="shop.send")])
        said = run("pulse_pause", "--task", "shop.send", "--queue", "mail", "--reason", "down")
        assert said.startswith("task shop.send in queue mail: paused until it is resumed by ")
        assert said.endswith(": down; stops 1 waiting job\n")
        assert run_json("pulse_limits")["paused_tasks"][0]["queue"] == "mail"
        assert claimed() == 1
        resume = ("pulse_resume", "--task", "shop.send", "--queue")
        assert run(*resume, "x") == "task shop.send in queue x: was not paused\n"
        assert run(*resume, "mail") == "task shop.send in queue mail: resumed\n"
        assert claimed() == 1

    @each_of("<b>'\"%s", "task=x", "a:b", "ünï", around=on_empty_tables)
    def test_hostile_names_are_names(self, *, name: Any) -> None:
        assert f"task {name}: paused" in run("pulse_pause", "--task", name, "--force")
        assert f"task {name}: paused" in run("pulse_limits")
        run("pulse_resume", "--task", name)


def test_a_key_of_a_limit_that_nobody_knows_is_not_paused() -> None:
    with pytest.raises(CommandError, match="There is no limit 'typo'"):
        run("pulse_pause", "--limit", "typo", "--key", "4711")
    assert not Pause.objects.exists()


@each_of(
    [],
    ["--task", "x", "--queue", ""],
    ["--task", ""],
    ["--task", "x" * 201],
    ["--task", "a\nb"],
    ["--queue", ""],
    ["--queue", "x" * 201],
    ["--queue", "x", "--for", "0s"],
    around=on_empty_tables,
)
def test_what_makes_no_sense_is_refused(*, args: Any) -> None:
    with pytest.raises(CommandError):
        run("pulse_pause", *args)


NAMES = {"pauses.renamed", "pauses.old_name", "pauses.older"}


@task(name="pauses.renamed", aliases=("pauses.old_name", "pauses.older"))
def renamed() -> None: ...


@task(name="pauses.other")
def other() -> None: ...


def paused() -> set[str]:
    return set(Pause.objects.values_list("task", flat=True))


@pytest.mark.parametrize("called", [renamed, "pauses.renamed", "pauses.old_name", renamed.using(priority=3)])
def test_a_task_is_paused_by_all_of_its_names_whatever_it_is_called_by(called: Any) -> None:
    assert pause_task(called, duration=timedelta(hours=1), reason="x", by="ann")
    assert paused() == NAMES
    Job.objects.enqueue_many([NewJob(task="pauses.older"), NewJob(task="pauses.other")])
    assert [claim.task for claim in Job.objects.claim(Identity("me"), limit=9)] == ["pauses.other"]
    assert not pause_task(called, duration=timedelta(minutes=1))
    assert resume_task(called)
    assert paused() == set()
    assert not resume_task(called)


def test_a_task_that_this_process_does_not_know_is_paused_by_its_name() -> None:
    assert pause_task("gone.task")
    assert paused() == {"gone.task"}


def test_jobs_that_wait_are_set_aside_at_once_and_brought_back() -> None:
    for _ in range(3):
        renamed.enqueue()
    pause_task(renamed)
    assert Job.objects.filter(ready=None).count() == 3
    resume_task(renamed)
    assert Job.objects.filter(ready=True).count() == 3


def test_one_call_does_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "MOST_BATCHES", 2)
    Job.objects.enqueue_many([NewJob(task="pauses.renamed")] * (3 * SET_ASIDE_LIMIT))
    pause_task(renamed)
    assert Job.objects.filter(ready=None).count() == 2 * SET_ASIDE_LIMIT
    assert not Job.objects.claim(Identity("me"))
    resume_task(renamed)
    assert Job.objects.filter(ready=None).count() == 0


def test_inside_a_transaction_no_row_of_a_job_is_locked() -> None:
    job_id = int(renamed.enqueue().id)
    rival = Rival()
    with transaction.atomic():
        pause_task(renamed)
        rival.lock_row(job_id)
        rival.rollback()
    rival.close()
    assert not Job.objects.filter(ready=None).exists()
    assert not Job.objects.claim(Identity("me"))


def test_workers_are_woken_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[Any] = []
    monkeypatch.setattr(pauses, "wake_workers", lambda alias, queues: woken.append((alias, queues)))
    pause_task(renamed)
    assert not woken
    resume_task(renamed)
    assert woken == [("default", [""])]


def test_a_test_drains_no_job_of_a_paused_task_and_may_run_one() -> None:
    """As of a paused queue."""
    result = renamed.enqueue()
    other.enqueue()
    pause_task(renamed)
    assert [ran.task for ran in drain()] == ["pauses.other"]
    assert run_job(result).task == "pauses.renamed"
