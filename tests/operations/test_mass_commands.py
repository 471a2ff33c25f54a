from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from pulse_django.managers import JobManager
from pulse_django.models import Attempt, Job
from pulse_django.operations import batches, mass_command
from pulse_django.operations.mass_command import MassCommand
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.run import notify
from tests.factories import AttemptFactory, make_job, now
from tests.operations.steps import Terminal, Time, before, run, run_json, status_of
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("pulse_db")

COMMANDS = ["pulse_retry", "pulse_cancel", "pulse_prune"]


def time_of(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Give commands a time of our own."""
    time = Time()
    monkeypatch.setattr(MassCommand, "clock", time)
    monkeypatch.setattr(MassCommand, "signals", lambda self: time.signals())
    return time


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return time_of(monkeypatch)


def a_match_for(command: str, **fields: Any) -> Job:
    """A job that the command would act on."""
    match command:
        case "pulse_retry":
            return make_job(Status.DEAD_LETTERED, **fields)
        case "pulse_cancel":
            return make_job(**fields)
    return make_job(Status.COMPLETED, finished_at=now(timedelta(days=-9)), **fields)


@pytest.mark.parametrize("command", COMMANDS)
class TestEveryCommand:
    def test_changes_nothing_without_yes(self, command: str) -> None:
        job = a_match_for(command, queue="mail")
        untouched = Job.objects.values().get()
        said = run(command, "--queue", "mail")
        assert Job.objects.values().get() == untouched
        assert said.startswith("1 ")
        assert f"{job.status}" in said
        assert said.endswith("Nothing was changed. Add --yes to apply it.\n")

    def test_acts_on_everything_only_with_all(self, command: str) -> None:
        job = a_match_for(command)
        with pytest.raises(CommandError, match="or with --all"):
            run(command, "--yes")
        with pytest.raises(CommandError, match="or with --all"):
            run(command, "--yes", "--limit", 1)  # a limit chooses nothing
        assert status_of(job) == job.status
        run(command, "--yes", "--all")
        assert not Job.objects.filter(status=job.status).exists()

    def test_says_when_nothing_matches(self, command: str) -> None:
        a_match_for(command)
        assert run(command, "--queue", "other").startswith("No ")
        assert run(command, "--queue", "other", "--yes").startswith("No ")
        assert run_json(command, "--queue", "other", "--yes")["met"] == 0

    def test_says_which_task_or_queue_was_meant(self, command: str) -> None:
        make_job(task="app.tasks.bomb", queue="mail")
        for flag, name, meant in (("--task", "app.tasks.bom", "app.tasks.bomb"), ("--queue", "mial", "mail")):
            said = f"No {flag[2:]} is called {name!r}. Did you mean {meant!r}?"
            assert said in run(command, flag, name)
            assert said not in run(command, flag, meant)

    def test_previews_as_one_json_object(self, command: str) -> None:
        job = a_match_for(command)
        facts = run_json(command, job.pk, 10**12, "--per-minute", 60)
        assert (facts["command"], facts["preview"], facts["matches"]) == (command, True, 1)
        assert facts["unmatched"] == {str(10**12): None}
        assert [group["task"] for group in facts["groups"]] == ["tests.add"]
        assert (facts["pace"], facts["seconds"]) == ({"batch": 500, "per_minute": 60}, 1.0)
        assert facts["oldest_age"] > 0

    def test_reports_as_one_json_object(self, command: str) -> None:
        a_match_for(command)
        facts = run_json(command, "--all", "--yes", "--batch", 1)
        assert (facts["preview"], facts["met"], facts["interrupted"], facts["error"]) == (
            False,
            1,
            False,
            None,
        )

    def test_shows_hostile_names_inert(self, command: str) -> None:
        a_match_for(command, task="a\x1b[2J\nb", queue="q\u202e", last_error="E: \x1b]0;x\x07\nrest")
        for args in (["--all"], ["--all", "--yes"]):
            said = run(command, *args)
            assert all(char.isprintable() for char in said.replace("\n", ""))
            assert "a\\x1b[2J\\nb" in said

    def test_spreads_its_work(self, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
        time = time_of(monkeypatch)
        for _ in range(3):
            a_match_for(command)
        run(command, "--all", "--yes", "--per-minute", 30)
        assert time.waits == [0, 2, 2]

    def test_stops_after_the_batch_at_hand(self, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
        time = time_of(monkeypatch)
        jobs = [a_match_for(command) for _ in range(3)]
        time._stops_after = 2
        out = StringIO()
        with pytest.raises(SystemExit) as stopped:
            call_command(command, "--all", "--yes", "--batch", "1", stdout=out, stderr=StringIO())
        assert stopped.value.code == 130
        assert Job.objects.filter(status=jobs[0].status).count() == 1
        assert "Stopped early: about 1 of 3 were not processed." in out.getvalue()

    def test_keeps_to_its_limit(self, command: str) -> None:
        jobs = [a_match_for(command) for _ in range(3)]
        assert run_json(command, "--all", "--limit", 2)["matches"] == 2
        assert run_json(command, "--all", "--limit", 2, "--yes")["met"] == 2
        assert status_of(jobs[2]) == jobs[2].status

    def test_shows_a_bar_on_a_terminal(self, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
        time_of(monkeypatch)
        a_match_for(command)
        errors = Terminal()
        call_command(command, "--all", "--yes", stdout=StringIO(), stderr=errors)
        assert "████ 1 of 1" in errors.getvalue()

    def test_tells_when_the_database_fails_before_anything_is_done(
        self, command: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:

        def fail(*args: Any, **kwargs: Any) -> Any:
            raise OperationalError("gone")

        monkeypatch.setattr(mass_command, "look", fail)
        with pytest.raises(CommandError, match="Nothing was changed: gone"):
            run(command, "--all", "--yes")


class TestRetry:
    def test_revives_dead_letters_and_nothing_else(self) -> None:
        jobs = {status: make_job(status) for status in Status}
        said = run("pulse_retry", *(job.pk for job in jobs.values()), "--yes")
        assert "1 retried." in said
        assert f"{jobs[Status.RUNNING].pk} (RUNNING)" in said
        assert status_of(jobs.pop(Status.DEAD_LETTERED)) == Status.PENDING
        for status, job in jobs.items():
            assert status_of(job) == status

    def test_grants_runs_and_may_be_delayed(self) -> None:
        job = make_job(Status.DEAD_LETTERED, attempts=10, max_attempts=10)
        run("pulse_retry", job.pk, "--yes", "--runs", 3, "--delay", "1h")
        job.refresh_from_db()
        assert job.max_attempts - (job.attempts - job.refunds) == 3
        assert Job.objects.claim(Identity("me")) == []

    def test_chooses_by_a_part_of_the_error(self) -> None:
        chosen = make_job(Status.DEAD_LETTERED, last_error="OSError: SMTP is down")
        other = make_job(Status.DEAD_LETTERED)
        run("pulse_retry", "--error", "smtp", "--yes")
        assert (status_of(chosen), status_of(other)) == (Status.PENDING, Status.DEAD_LETTERED)

    def test_counts_who_moved_on_between_the_look_and_the_act(self, monkeypatch: pytest.MonkeyPatch) -> None:
        jobs = [make_job(Status.DEAD_LETTERED) for _ in range(3)]
        revive = JobManager.retry
        moved = before(revive, lambda: revive(Job.objects, [jobs[1].pk]))
        monkeypatch.setattr(JobManager, "retry", moved)
        facts = run_json("pulse_retry", "--all", "--yes")
        assert (facts["revived"], facts["moved_on"]) == (2, 1)

    @pytest.mark.parametrize(("args", "notified"), [([], [""]), (["--delay", "5m"], [])])
    def test_wakes_workers_for_what_is_due(
        self, args: list[str], notified: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        woken: list[str] = []
        monkeypatch.setattr(notify, "_notify", lambda alias, queues: woken.extend(queues))
        run("pulse_retry", make_job(Status.DEAD_LETTERED).pk, "--yes", *args)
        assert woken == notified

    def test_reports_what_it_did_when_the_database_fails_midway(self, monkeypatch: pytest.MonkeyPatch) -> None:
        jobs = [make_job(Status.DEAD_LETTERED) for _ in range(4)]
        revive = JobManager.retry

        def fail_later(manager: Any, ids: Any, **options: Any) -> Any:
            if jobs[1].pk in ids:
                raise OperationalError("server closed\nthe connection")
            return revive(manager, ids, **options)

        monkeypatch.setattr(JobManager, "retry", fail_later)
        out = StringIO()
        with pytest.raises(CommandError, match=r"^server closed the connection$"):
            call_command("pulse_retry", "--all", "--yes", "--batch", "1", stdout=out, stderr=StringIO())
        said = out.getvalue()
        assert "1 retried." in said
        assert f"The result of 1 more, ids {jobs[1].pk} to {jobs[1].pk}, is unknown" in said
        assert "about 2 of 4 were not processed" in said
        out = StringIO()
        with pytest.raises(CommandError):
            call_command("pulse_retry", "--all", "--yes", "--json", stdout=out, stderr=StringIO())
        assert json.loads(out.getvalue())["error"] == "server closed the connection"

    def test_reports_after_a_second_ctrl_c(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job = make_job(Status.DEAD_LETTERED)

        def break_off(*args: Any, **kwargs: Any) -> Any:
            raise KeyboardInterrupt

        monkeypatch.setattr(JobManager, "retry", break_off)
        out = StringIO()
        with pytest.raises(SystemExit) as stopped:
            call_command("pulse_retry", "--all", "--yes", "--json", stdout=out, stderr=StringIO())
        facts = json.loads(out.getvalue())
        assert stopped.value.code == 130
        assert (facts["unsure"], facts["interrupted"]) == ([job.pk], True)

    def test_ends_although_what_it_revives_dies_again_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for _ in range(5):
            make_job(Status.DEAD_LETTERED)
        revive = JobManager.retry

        def and_another_dies(manager: Any, ids: Any, **options: Any) -> Any:
            make_job(Status.DEAD_LETTERED)
            return revive(manager, ids, **options)

        monkeypatch.setattr(JobManager, "retry", and_another_dies)
        assert run_json("pulse_retry", "--all", "--yes", "--batch", 2)["met"] == 5


class TestCancel:
    def test_cancels_what_waits_asks_what_runs_and_leaves_what_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        waiting, running, ending = make_job(), make_job(Status.RUNNING), make_job()
        cancel = JobManager.request_cancel
        moved = before(cancel, lambda: cancel(Job.objects, [ending.pk], reason="somebody else"))
        monkeypatch.setattr(JobManager, "request_cancel", moved)
        said = run("pulse_cancel", "--all", "--yes", "--reason", "no longer needed")
        assert "1 cancelled, 1 no longer matched. 1 asked to stop." in said
        assert (status_of(waiting), waiting.cancel_reason) == (Status.CANCELLED, "no longer needed")
        assert (status_of(running), running.cancel_reason) == (Status.RUNNING, "no longer needed")
        ending.refresh_from_db()
        assert ending.cancel_reason == "somebody else"

    def test_previews_both_kinds(self) -> None:
        make_job(), make_job(Status.RETRYING), make_job(Status.RUNNING)
        assert "Would cancel 2 waiting and ask 1 running to stop" in run("pulse_cancel", "--all")

    def test_takes_the_children_along(self) -> None:
        root = make_job(Status.COMPLETED)
        child, stranger = make_job(parent=root), make_job()
        facts = run_json("pulse_cancel", root.pk, "--children", "--yes")
        assert (facts["matches"], facts["cancelled"]) == (1, 1)
        assert (status_of(child), status_of(stranger)) == (Status.CANCELLED, Status.PENDING)

    @pytest.mark.parametrize("ahead", [1, 20])
    def test_finds_the_children_also_after_their_parents_were_cancelled(
        self, ahead: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batches, "AHEAD", ahead)
        root = make_job(queue="imports")
        child = make_job(parent=root)
        make_job(parent=child), make_job(parent=root), make_job()
        facts = run_json("pulse_cancel", "--queue", "imports", "--children", "--batch", 1, "--yes")
        assert (facts["matches"], facts["cancelled"]) == (4, 4)

    def test_chooses_by_status(self) -> None:
        waiting, retrying = make_job(), make_job(Status.RETRYING)
        run("pulse_cancel", "--status", "retrying", "--yes")
        assert (status_of(waiting), status_of(retrying)) == (Status.PENDING, Status.CANCELLED)
        with pytest.raises(CommandError, match="not one of WAITING, PENDING, RETRYING, RUNNING"):
            run("pulse_cancel", "--status", "completed")


class TestPrune:
    def test_deletes_with_the_attempts(self) -> None:
        old, young = a_match_for("pulse_prune"), make_job(Status.COMPLETED)
        for job in (old, young):
            AttemptFactory(job=job)
        assert "1 deleted." in run("pulse_prune", "--all", "--yes")
        assert Job.objects.get() == young
        assert Attempt.objects.get().job_id == young.pk

    def test_says_what_the_settings_keep(self) -> None:
        make_job(Status.DEAD_LETTERED)
        said = run("pulse_prune", "--status", "dead-lettered", "--status", "completed", "--yes")
        assert "Your settings keep DEAD_LETTERED for ever, COMPLETED for 7d." in said
        assert Job.objects.count() == 1

    def test_deletes_dead_letters_only_when_they_are_named(self) -> None:
        make_job(Status.DEAD_LETTERED)
        assert run_json("pulse_prune", "--older-than", "0s", "--yes")["deleted"] == 0
        named = ("--status", "DEAD_LETTERED", "--older-than", "0s", "--yes")
        assert run_json("pulse_prune", *named)["deleted"] == 1

    def test_never_deletes_a_job_that_has_not_ended(self) -> None:
        jobs = [make_job(status) for status in Status if status not in TERMINAL]
        ids = [job.pk for job in jobs]
        assert run_json("pulse_prune", *ids, "--older-than", "0s", "--yes")["met"] == 0
        with pytest.raises(CommandError, match="not one of COMPLETED"):
            run("pulse_prune", "--status", "RUNNING", "--older-than", "0s", "--yes")
        assert Job.objects.count() == len(jobs)

    def test_skips_what_somebody_has_locked(self, rival: Rival) -> None:
        locked, _ = a_match_for("pulse_prune"), a_match_for("pulse_prune")
        rival.lock_row(locked.pk)
        said = run("pulse_prune", "--all", "--yes")
        rival.rollback()
        assert "1 deleted, 1 no longer matched or locked." in said
        assert Job.objects.get() == locked

    def test_a_dead_letter_that_is_revived_meanwhile_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job = make_job(Status.DEAD_LETTERED)
        prune = JobManager.prune_these
        monkeypatch.setattr(JobManager, "prune_these", before(prune, lambda: Job.objects.retry([job.pk])))
        facts = run_json("pulse_prune", "--status", "DEAD_LETTERED", "--older-than", "0s", "--yes")
        assert (facts["deleted"], facts["left"]) == (0, 1)
        assert status_of(job) == Status.PENDING


def test_the_preview_groups_what_is_alike_and_counts_the_rest() -> None:
    for number in range(12):
        for _ in range(2 if number == 5 else 1):
            make_job(Status.DEAD_LETTERED, task=f"tests.t{number:02}", last_error=f"E{number}: no\nline 2")
    said = run("pulse_retry", "--all").splitlines()
    assert said[2].split() == ["2", "DEAD_LETTERED", "default", "tests.t05", "E5:", "no"]
    assert "  and 2 more" in said


def test_signals_reach_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real handlers are installed while it works, and gone afterwards."""
    jobs = [make_job(Status.DEAD_LETTERED) for _ in range(2)]
    revive, handler = JobManager.retry, signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(JobManager, "retry", before(revive, lambda: os.kill(os.getpid(), signal.SIGINT)))
    with pytest.raises(SystemExit) as stopped:  # the pause of a minute is broken off
        call_command("pulse_retry", "--all", "--yes", "--per-minute", "1", stdout=StringIO(), stderr=StringIO())
    assert stopped.value.code == 130
    assert [status_of(job) for job in jobs] == [Status.PENDING, Status.DEAD_LETTERED]
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_retry_says_whom_more_runs_will_not_help() -> None:
    make_job(Status.DEAD_LETTERED, losses=5)
    make_job(Status.DEAD_LETTERED, losses=1, max_lost_workers=1)
    make_job(Status.DEAD_LETTERED, losses=4)
    said = run("pulse_retry", "--all", "--runs", 9)
    assert "2 of them reached the limit of lost workers: one more ends the job, regardless of --runs." in said
    assert "reached the limit" not in run("pulse_retry", "--all", "--limit", 1, "--task", "no.such")
