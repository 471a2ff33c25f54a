"""``on_dead=``: which ends enqueue a hook, and what the row and the argument of the hook are."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from pulse_django import Context, DeadJob, Discard, Limit, Unique, api, enqueue_many, task
from pulse_django.console.jobs.arguments_shown import arguments_shown
from pulse_django.encryption.values import MASK
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Job
from pulse_django.queue import settle
from pulse_django.queue.words.decisions import Cancel, Complete, DeadLetter, Decision, Retry
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.masks import EVERYTHING, Masks
from pulse_django.queue.words.outcomes import Cancelled, Failed, Outcome, Succeeded, TimedOut
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.run.registry import InvalidTask
from pulse_django.testing import drain
from pulse_django.workflows.rewind import fork
from tests.database import empty_tables
from tests.faults import all_faults
from tests.queue.steps import claim_one, expire, sql
from tests.run.test_other_backends import IMMEDIATE

pytestmark = pytest.mark.django_db
heard: list[DeadJob] = []


@task
def takes_nothing() -> None: ...


NOW = timedelta()
ME = Identity("worker")
REFUSED = "ValueError: no [test_on_dead.py:fails]"


@task(
    queue_name="hooks",
    priority=7,
    max_attempts=3,
    tags="hook",
    timeout=90,
    progress_timeout=0.00001,
    limit=Limit("hooks", max_running=2),
)
def note_death(dead: DeadJob) -> None:
    heard.append(dead)


@task(sensitive="return")
def note_masked(dead: DeadJob) -> None: ...


@task(on_dead=note_death, max_attempts=1)
def fails(*args: int, **kwargs: int) -> None:
    raise ValueError("no")


@task(on_dead=note_death, sensitive="number")
def charges(number: str) -> None:
    raise ValueError("no")


@task(on_dead=note_death)
def discards() -> None:
    raise Discard("not needed")


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()


def hooks() -> list[Job]:
    return list(Job.objects.filter(task__contains="note_").order_by("id"))


def run(outcome: Outcome, decision: Decision) -> Job:
    """Claim the job that is due, and settle it."""
    claim = claim_one(ME)
    Job.objects.settle([Report(claim.lease, outcome, decision)])
    return Job.objects.get(pk=claim.lease.job_id)


@contextmanager
def taking_too_long(times: int) -> Iterator[Callable[[int], object]]:
    """Let the end of the chosen job take longer than a statement may, so many times."""
    sql("CREATE SEQUENCE slow_ends")
    sleep = f"IF nextval('slow_ends') <= {times} THEN PERFORM pg_sleep(60); END IF"
    sql(f"CREATE FUNCTION slow_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {sleep}; RETURN NEW; END $$")
    trigger = "CREATE TRIGGER slow_end BEFORE INSERT ON pulse_django_attempt FOR EACH ROW WHEN (NEW.job_id = {})"
    try:
        sql("SET statement_timeout = '1s'")
        yield lambda job_id: sql(f"{trigger.format(job_id)} EXECUTE FUNCTION slow_end()")
    finally:
        sql("RESET statement_timeout")
        sql("DROP FUNCTION slow_end CASCADE; DROP SEQUENCE slow_ends")


FAILED = Failed(ErrorReport.of(ValueError("no")))


class TestHook:
    def test_it_gets_the_facts(self) -> None:
        dead = fails.enqueue(1, two=2)
        drain(failures="keep")
        facts = {"job_id": dead.id, "task": fails.registered_name, "queue": "default", "attempt": 1}
        assert heard == [
            {**facts, "args": [1], "kwargs": {"two": 2}, "reason": REFUSED, "last_error": "ValueError: no"}
        ]

    def test_its_row_equals_that_of_an_enqueued_job(self) -> None:
        """But for what tells when it was made, and by whom."""
        dead = fails.using(meta={"tenant": "a"}).enqueue()
        drain(failures="keep", queues=["default"])
        [hook] = hooks()
        note_death.using(meta={"tenant": "a"}).enqueue(hook.args[0])
        [plain] = Job.objects.filter(task=note_death.registered_name).exclude(pk=hook.pk)
        names = [field.attname for field in Job._meta.concrete_fields]
        differing = {name for name in names if getattr(hook, name) != getattr(plain, name)}
        assert differing == {"id", "created_at", "next_run_at", "parent_id", "payload_bytes"}
        assert hook.parent_id == int(dead.id)
        assert 0 <= hook.payload_bytes - plain.payload_bytes < 40  # spaces between the pairs

    def test_options_of_a_call_and_of_many(self) -> None:
        other = fails.using(on_dead=note_masked)
        other.enqueue(1)
        enqueue_many(other, [(2,), (3,)])
        drain(failures="keep", queues=["default"])
        found = [(hook.task, hook.args[0]["args"], hook.on_dead) for hook in hooks()]
        assert found == [(note_masked.registered_name, [number], None) for number in (1, 2, 3)]

    def test_a_retried_job_that_dies_again_has_another(self) -> None:
        dead = fails.enqueue()
        for deaths in (1, 2):
            drain(failures="keep", queues=["default"])
            assert len(hooks()) == deaths
            api.retry(dead.id)

    def test_arguments_that_are_hidden_stay_hidden(self) -> None:
        charges.enqueue("4242")
        run(FAILED, DeadLetter("no"))
        [hook] = hooks()
        assert hook.sensitive == EVERYTHING.text
        assert hook.args[0]["args"] == ["4242"]
        Job.objects.claim(ME, limit=9)
        charges.using(on_dead=note_masked).enqueue("4242")  # the mask of the hook is added
        run(FAILED, DeadLetter("no"))
        assert hooks()[1].sensitive == EVERYTHING.text
        assert arguments_shown(hooks()[1]) == ([MASK], {})
        Job.objects.claim(ME, limit=9)
        fails.using(on_dead=note_masked).enqueue(4242)  # a task that hides nothing
        run(FAILED, DeadLetter("no"))
        assert hooks()[2].sensitive == Masks(returned=True).text

    def test_a_hook_of_an_encrypted_job_gets_no_arguments(self) -> None:
        key = base64.b64encode(bytes(32)).decode()
        with override_settings(PULSE={"ENCRYPTION_KEYS": {"1": key}, "ENCRYPT_ALL": True}):
            fails.enqueue("secret")
            drain(failures="keep")
        [dead] = heard
        assert (dead["args"], dead["kwargs"]) == (None, None)
        assert "secret" not in str(sql("SELECT args, kwargs, on_dead FROM pulse_django_job"))

    @pytest.mark.django_db(transaction=True)
    def test_a_row_that_cannot_be_stored_keeps_no_run_from_ending(self) -> None:
        """As one that is older than a column of the table. The job dies without its hook, and the log says so."""
        for end in ("settled", "reaped"):
            fails.enqueue()
            sql("UPDATE pulse_django_job SET on_dead = on_dead - 'weight' WHERE status = 'PENDING'")
            if end == "settled":
                assert run(TimedOut(), DeadLetter("too long")).status == Status.DEAD_LETTERED
                assert sql("SELECT outcome FROM pulse_django_attempt") == [("TIMED_OUT",)]
            else:
                expire(Job.objects.get(pk=claim_one(ME).lease.job_id))
                [reaped] = Job.objects.reap()
                assert (reaped.status, reaped.outcome) == (Status.DEAD_LETTERED, "WORKER_LOST")
                assert Job.objects.get(pk=reaped.lease.job_id).last_error == "worker lease expired"
            assert hooks() == []

    @pytest.mark.django_db(transaction=True)
    def test_many_rows_that_cannot_be_stored_are_told_once_a_minute(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = []
        for minute in (0.0, 1.0, 59.0, 61.0):
            monkeypatch.setattr(settle, "monotonic", lambda minute=minute: 1e9 + minute)
            fails.enqueue()
            sql("UPDATE pulse_django_job SET on_dead = on_dead - 'weight' WHERE status = 'PENDING'")
            run(TimedOut(), DeadLetter("too long"))
            told.append(caplog.text.count("Storing the report on job"))
        assert told == [1, 1, 1, 2]
        assert "since the last such line: 2" in caplog.text

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.one_server("a trigger")
    def test_a_run_whose_end_takes_too_long_ends_alone_and_others_with_their_hooks(self) -> None:
        """It is halved until it is alone, sent twice after all others, and then without the hook."""
        dies, again = DeadLetter("too long"), Retry(NOW, "no")
        ends = {"settled": dies, "settled to run again": again, "reaped": dies}
        with all_faults() as about:
            for end, decision in ends.items():
                with about(end), taking_too_long(5) as choose:
                    empty_tables()
                    enqueue_many(fails, [()] * 4)
                    if decision is again:
                        sql("UPDATE pulse_django_job SET max_attempts = 2")
                    claims = Job.objects.claim(ME, limit=4)
                    choose(slow := claims[2].job_id)
                    if end == "reaped":
                        for claim in claims:
                            expire(Job.objects.get(pk=claim.lease.job_id))
                        ended = [one.lease.job_id for one in Job.objects.reap()]
                    else:
                        settled = Job.objects.settle([Report(one.lease, TimedOut(), decision) for one in claims])
                        ended = [lease.job_id for lease in settled.accepted]
                    assert sorted(ended) == [one.job_id for one in claims]
                    assert ended[-1] == slow
                    job, status = (
                        Job.objects.get(pk=slow),
                        Status.RETRYING if decision is again else Status.DEAD_LETTERED,
                    )
                    assert (job.status, len(hooks())) == (status, 0 if decision is again else 3)
                    assert "storing" not in job.last_error

    def test_a_row_that_was_written_by_hand_keeps_no_run_from_ending(self) -> None:
        fails.enqueue()
        sql("UPDATE pulse_django_job SET on_dead = '[1]'")
        assert run(FAILED, DeadLetter("no")).status == Status.DEAD_LETTERED
        assert hooks() == []


class TestEnds:
    """Each row of the table in the reference."""

    DEATHS: tuple[tuple[Outcome, Decision], ...] = (
        (FAILED, DeadLetter("no")),
        (FAILED, Retry(NOW, "no")),  # the database finds that no attempt is left
        (TimedOut(), DeadLetter("too long")),
    )
    OTHERS: tuple[tuple[Outcome, Decision], ...] = ((Succeeded(), Complete()), (Cancelled(), Cancel("no")))

    @pytest.mark.parametrize("deaths", [True, False])
    def test_settled(self, deaths: bool) -> None:
        for outcome, decision in self.DEATHS if deaths else self.OTHERS:
            fails.enqueue()
            job = run(outcome, decision)
            assert len(hooks()) == deaths, outcome
            sql("DELETE FROM pulse_django_job")
            assert (job.status == Status.DEAD_LETTERED) is deaths

    def test_reaped(self) -> None:
        for attempts, status in ((1, Status.DEAD_LETTERED), (2, Status.RETRYING)):
            job_id = fails.using(max_attempts=attempts).enqueue().id
            Job.objects.claim(ME, lanes=Job.objects.lanes(["default"]))
            expire(job := Job.objects.get(pk=job_id))
            assert [one.status for one in Job.objects.reap()] == [status]
            reasons = [hook.args[0]["reason"] for hook in hooks() if hook.parent_id == job.pk]
            assert reasons == ["worker lease expired"] * (status == Status.DEAD_LETTERED)

    def test_what_people_do(self) -> None:
        """To take the last run from its worker is a death. To cancel or to delete is none."""
        taken, cancelled = fails.enqueue().id, fails.using(queue_name="other").enqueue().id
        Job.objects.claim(ME, lanes=Job.objects.lanes(["default"]))
        api.release(taken)
        api.cancel(cancelled)
        discards.enqueue()
        drain(failures="keep", queues=["default"])
        assert [hook.parent_id for hook in hooks()] == [int(taken)]

    def test_a_lease_that_is_lost_changes_nothing(self) -> None:
        fails.using(max_attempts=2).enqueue()
        claim = claim_one(ME)
        expire(Job.objects.get(pk=claim.lease.job_id))
        Job.objects.reap()
        report = Report(claim.lease, FAILED, DeadLetter("no"))
        assert Job.objects.settle([report]).lost == {claim.lease}
        assert hooks() == []


def test_what_cannot_be_a_hook() -> None:
    cases: list[tuple[Any, str]] = [
        (len, "is not a task"),
        ("shop.tasks.note", "is not a task"),
        (takes_nothing, "takes_nothing must take one argument"),
        (note_death.using(run_after=5), "has run_after"),
        (note_death.using(idempotency_key="a"), "has idempotency_key"),
        (note_death.using(unique=Unique()), "has unique"),
        (note_death.using(expires=60), "has expires"),
        (note_death.using(database="other"), "has database"),
        (note_death.using(on_dead=note_masked), "has on_dead, which is not possible for a hook"),
    ]
    for hook, why in cases:
        with pytest.raises(InvalidTask, match=why):
            task(on_dead=hook)(takes_nothing.func)
        with pytest.raises(InvalidTask, match=why):
            takes_nothing.using(on_dead=hook)


def test_a_hook_of_another_backend_is_refused_with_the_job() -> None:
    backends = {
        "default": {"BACKEND": "pulse_django.backend.PulseBackend"},
        "now": {"BACKEND": IMMEDIATE, "QUEUES": []},
    }
    with override_settings(TASKS=backends):
        dies = fails.using(on_dead=note_death.using(backend="now"))
        with pytest.raises(InvalidJob, match="no worker of Pulse's runs jobs of the backend 'now'"):
            dies.enqueue()
        assert dies.using(backend="now").enqueue().status == "FAILED"  # it has no job, and needs no hook


@task(takes_context=True, on_dead=note_death, name="test.two_steps")
def two_steps(context: Context) -> None:
    context.step("first", int)
    context.step("second", int)


def test_a_copy_of_a_job_that_is_over_has_its_hook() -> None:
    for made in (two_steps, two_steps.using(on_dead=note_masked)):
        job = made.enqueue()
        drain()
        copy = Job.objects.get(pk=fork(job.id, "second").job_id)
        assert copy.on_dead["task"] == made.on_dead.registered_name
