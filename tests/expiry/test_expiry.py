"""A job that has not started in time does not start, and gets an end like that of a cancelled job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from pulse_django.exceptions import AlreadyEnqueued, InvalidJob
from pulse_django.expiry import expire as expire_verb
from pulse_django.models import Duty, Job
from pulse_django.queue.database import job_queries
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.ending import HISTORY
from pulse_django.queue.retry import retry as retry_verb
from pulse_django.queue.words.job_options import NewJob, Payload
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import NOT_STARTED_IN_TIME, EndedBy, Ending, Status
from pulse_django.signals import job_finished
from pulse_django.unique.rule import Unique, UniqueKey
from tests.database import on_empty_tables
from tests.factories import make_job, now, today
from tests.faults import each_of
from tests.queue.steps import claim_one, sql
from tests.rival import Rival, backend_pid

pytestmark = pytest.mark.usefixtures("pulse_db")

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
RULES = {
    "keep": Unique(),
    "replace": Unique(on_conflict="replace"),
    "follow": Unique(on_conflict="follow"),
    "debounce": Unique(on_conflict="debounce"),
    "raise": Unique(on_conflict="raise"),
}


def expired_job(**columns: Any) -> Job:
    return make_job(expires_at=now(-SECOND), **columns)


def unique_job(rule: Unique, *, args: tuple[int, ...] = (), **more: Any) -> NewJob:
    if rule.on_conflict == "debounce":
        more = {"run_after": HOUR} | more
    return NewJob(task="tests.add", args=args, unique=UniqueKey.of("k", rule), **more)


def endings_of(act: Any, capture: Any) -> list[Ending]:
    """Return the endings that are sent for the jobs that ``act`` ends, once its transaction is committed."""
    endings: list[Ending] = []

    def receiver(ending: Ending, **_: Any) -> None:
        endings.append(ending)

    job_finished.connect(receiver)
    try:
        with capture(execute=True):
            act()
    finally:
        job_finished.disconnect(receiver)
    return endings


class TestTheClaim:
    def test_an_expired_job_is_not_claimed_and_others_are(self) -> None:
        expired = expired_job()
        assert Job.objects.claim_these(Identity("me"), [expired.pk]) == []
        later, without = make_job(expires_at=now(HOUR)), make_job()
        claims = Job.objects.claim(Identity("me"), limit=10)
        assert {claim.job_id for claim in claims} == {later.pk, without.pk}

    @each_of(Status.RETRYING, Status.PENDING, around=on_empty_tables)
    def test_a_job_that_was_claimed_before_does_not_expire(self, *, status: Any) -> None:
        """A retry, a snooze or a job that was handed back is not "not started"."""
        job = expired_job(attempts=1, refunds=1 if status is Status.PENDING else 0, status=status.value)
        assert Job.objects.expire() == []
        assert [claim.job_id for claim in Job.objects.claim(Identity("me"))] == [job.pk]

    def test_a_run_goes_on_and_ends_as_usual_when_its_job_would_have_expired(self) -> None:
        job = make_job(expires_at=now(HOUR))
        claim = claim_one(Identity("me"))
        Job.objects.filter(pk=job.pk).update(expires_at=now(-SECOND))
        assert Job.objects.expire() == []
        assert claim.lease in Job.objects.heartbeat([claim.lease]).alive


class TestTheSweep:
    def test_it_cancels_what_has_expired_and_leaves_the_rest(self) -> None:
        job, later, without = expired_job(), make_job(expires_at=now(HOUR)), make_job()
        [ending] = Job.objects.expire()
        assert (ending.job_id, ending.status, ending.by) == (job.pk, Status.CANCELLED, EndedBy.WATCHDOG)
        assert (ending.expired, ending.reason, ending.attempt) == (True, NOT_STARTED_IN_TIME, 0)
        over = Job.objects.get(pk=job.pk)
        assert (over.status, over.cancel_reason, over.era) == (Status.CANCELLED, NOT_STARTED_IN_TIME, today())
        assert over.expires_at == job.expires_at
        assert over.cancel_requested_at is None
        assert set(Job.objects.filter(status=Status.PENDING).values_list("pk", flat=True)) == {later.pk, without.pk}

    def test_it_is_bounded_and_begins_with_what_expired_first(self) -> None:
        jobs = [make_job(expires_at=now(-SECOND * place)) for place in range(1, 6)]
        assert {one.job_id for one in Job.objects.expire(limit=2)} == {jobs[4].pk, jobs[3].pk}
        assert len(Job.objects.expire()) == 3

    def test_it_skips_what_another_transaction_has_locked(self, rival: Rival) -> None:
        locked, free = expired_job(), expired_job()
        rival.lock_row(locked.pk)
        assert [one.job_id for one in Job.objects.expire()] == [free.pk]
        rival.rollback()
        assert [one.job_id for one in Job.objects.expire()] == [locked.pk]

    @pytest.mark.alters_statements
    @pytest.mark.one_server("Citus reports an error of INSERT ... SELECT without its SQLSTATE")
    def test_one_job_that_cannot_be_ended_does_not_keep_the_others_from_their_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bad, good = expired_job(queue="bad"), expired_job()
        refuse = "CASE WHEN queue::text = 'bad' THEN 'WRONG' ELSE 'CANCELLED' END"
        expire_sql = expire_verb.expire_sql

        def refusing(pick: str) -> str:
            insert, rest = expire_sql(pick).split("FROM gone\n", 1)
            assert insert.count("'CANCELLED'") == 1
            return insert.replace("'CANCELLED'", refuse) + "FROM gone\n" + rest

        monkeypatch.setattr(expire_verb, "expire_sql", refusing)
        assert [one.job_id for one in Job.objects.expire()] == [good.pk]
        assert Job.objects.get(pk=bad.pk).status == Status.PENDING

    def test_watchdogs_ask_whether_there_are_any_in_a_statement_that_they_send_anyway(self) -> None:
        make_job(expires_at=now(HOUR))
        assert not Duty.objects.take({}).with_work
        expired_job(attempts=1, refunds=1)
        assert not Duty.objects.take({}).with_work
        expired_job()
        assert Duty.objects.take({}).with_work == {"expiry"}

    def test_a_job_that_expired_is_neither_made_due_nor_moved_nor_retried_by_hand(self) -> None:
        """A retry is for dead letters. Who wants such a job to run enqueues it again."""
        job = expired_job()
        assert Job.objects.reschedule([job.pk]).moved_on == {job.pk}
        assert Job.objects.move([job.pk], queue="other").moved_on == {job.pk}
        Job.objects.expire()
        assert retry_verb(Job.objects, [job.pk]).moved_on == {job.pk}


class TestRaces:
    def test_a_claim_that_comes_first_wins(self, rival: Rival) -> None:
        """The worker has locked the row and looked at the clock; the sweep comes before its commit."""
        job = make_job(expires_at=now(HOUR))
        rival.begin()
        rival.run(_mark_claimed, job.pk)
        Job.objects.filter(pk__in=[]).count()
        assert Job.objects.expire() == []  # its row is locked
        rival.commit()
        sql("UPDATE pulse_django_job SET expires_at = statement_timestamp() - interval '1 hour'")
        assert Job.objects.expire() == []  # and now it has started
        assert Job.objects.get(pk=job.pk).status == Status.RUNNING

    def test_a_sweep_that_comes_first_wins(self, rival: Rival) -> None:
        job = expired_job()
        rival.begin()
        rival.run(run_joined, "default", _SWEPT_BY_HAND, {})
        assert Job.objects.claim(Identity("me")) == []
        rival.commit()
        assert Job.objects.claim(Identity("me")) == []
        assert Job.objects.get(pk=job.pk).status == Status.CANCELLED

    def test_a_call_waits_for_a_sweep_of_the_same_job_and_is_enqueued_anew(self) -> None:
        job = Job.objects.enqueue(unique_job(RULES["keep"], expires=HOUR))
        Job.objects.filter(pk=job.pk).update(expires_at=now(-SECOND))
        rival, caller = Rival(), Rival()
        try:
            rival.begin()
            rival.run(run_joined, "default", _SWEPT_BY_HAND, {})
            pid = rival.run(backend_pid)
            waiting = caller.start(Job.objects.get_or_enqueue, unique_job(RULES["keep"]))
            rival.wait_until_blocked(by=pid)
            rival.commit()
            found, is_new = waiting.result(20)
            assert is_new
            assert found.pk != job.pk
        finally:
            rival.close()
            caller.close()


# Into the table of all jobs, which leads to the history in every layout.
_SWEPT_BY_HAND = (
    expire_verb.expire_sql(expire_verb.SWEEP_PICK)
    .replace("LIMIT %s", "LIMIT 1000")
    .replace(HISTORY, "pulse_django_job")
)


def _mark_claimed(job_id: int) -> None:
    sql(
        "UPDATE pulse_django_job_hot SET status = 'RUNNING', attempts = 1, locked_by = 'w', token = 1,"
        " lease_until = statement_timestamp() + interval '1 minute', started_at = statement_timestamp() WHERE id = %s",
        job_id,
    )


class TestUniqueKeys:
    def enqueue_over_an_expired_job(self, rule: Unique, django_capture_on_commit_callbacks: Any) -> None:
        before = Job.objects.enqueue(unique_job(rule, args=(1,)))
        Job.objects.filter(pk=before.pk).update(expires_at=now(-SECOND))
        enqueued: list[tuple[Job, bool]] = []
        endings = endings_of(
            lambda: enqueued.append(Job.objects.get_or_enqueue(unique_job(rule, args=(2,)))),
            django_capture_on_commit_callbacks,
        )
        [(found, is_new)] = enqueued
        assert is_new
        assert found.args == [2]
        over = Job.objects.get(pk=before.pk)
        assert (over.status, over.cancel_reason, over.args) == (Status.CANCELLED, NOT_STARTED_IN_TIME, [1])
        assert [(one.job_id, one.by, one.expired) for one in endings] == [(before.pk, EndedBy.CALLER, True)]

    @each_of(*RULES.items(), around=on_empty_tables)
    def test_an_expired_job_does_not_hold_its_key_against_a_call(
        self, django_capture_on_commit_callbacks: Any, *, case: Any, rule: Any
    ) -> None:
        self.enqueue_over_an_expired_job(rule, django_capture_on_commit_callbacks)

    @each_of(*RULES.items(), around=on_empty_tables)
    def test_nor_against_a_list(self, *, case: Any, rule: Any) -> None:
        before = Job.objects.enqueue(unique_job(rule))
        Job.objects.filter(pk=before.pk).update(expires_at=now(-SECOND))
        [job_id] = Job.objects.enqueue_many([unique_job(rule)])
        assert job_id != before.pk
        assert Job.objects.get(pk=before.pk).status == Status.CANCELLED

    def test_nor_against_a_retry(self) -> None:
        dead, other = (
            make_job(Status.DEAD_LETTERED, task="tests.add", unique_key=key, last_error="no") for key in ("a", "b")
        )
        expired = make_job(task="tests.add", unique_key="a", expires_at=now(-SECOND))
        twin = make_job(task="tests.add", unique_key="b", expires_at=now(HOUR))
        answer = Job.objects.retry([dead.pk, other.pk])
        assert (answer.revived, answer.key_taken) == ({dead.pk}, {other.pk})
        assert Job.objects.get(pk=expired.pk).status == Status.CANCELLED
        assert Job.objects.get(pk=twin.pk).status == Status.PENDING

    def test_nor_against_an_amendment(self) -> None:
        job = make_job(task="tests.add", unique_key="a")
        expired = make_job(task="tests.add", unique_key="b", expires_at=now(-SECOND))
        assert Job.objects.amend(job.pk, Payload("[2]", "{}"), unique_key="b")
        assert Job.objects.get(pk=expired.pk).status == Status.CANCELLED

    def test_what_a_rolled_back_call_ended_is_not_ended(self) -> None:
        before = Job.objects.enqueue(unique_job(RULES["keep"]))
        Job.objects.filter(pk=before.pk).update(expires_at=now(-SECOND))
        with transaction.atomic():
            assert Job.objects.get_or_enqueue(unique_job(RULES["keep"]))[1]
            transaction.set_rollback(True)
        assert list(Job.objects.values_list("pk", "status")) == [(before.pk, Status.PENDING)]

    def test_a_job_that_has_not_expired_or_that_runs_holds_its_key(self) -> None:
        before = Job.objects.enqueue(unique_job(RULES["keep"], expires=HOUR))
        assert Job.objects.get_or_enqueue(unique_job(RULES["keep"]))[0].pk == before.pk
        with pytest.raises(AlreadyEnqueued):
            Job.objects.enqueue(unique_job(RULES["raise"]))
        claim = claim_one(Identity("me"))
        Job.objects.filter(pk=before.pk).update(expires_at=now(-SECOND))
        assert Job.objects.get_or_enqueue(unique_job(RULES["keep"]))[0].pk == before.pk
        assert claim.lease in Job.objects.heartbeat([claim.lease]).alive

    @each_of("replace", "debounce", around=on_empty_tables)
    def test_the_newest_call_says_when_it_expires_and_how_it_is_labelled(self, *, on_conflict: Any) -> None:
        rule = Unique(on_conflict=on_conflict)
        old = unique_job(rule, expires=2 * HOUR, tags=("a",), meta='{"by": 1}', give_up_after=HOUR)
        new = unique_job(rule, expires=5 * HOUR, tags=("b", "c"), meta='{"by": 2}', give_up_after=2 * HOUR)
        before = Job.objects.enqueue(old)
        after, is_new = Job.objects.get_or_enqueue(new)
        assert (after.pk, is_new) == (before.pk, False)
        assert (after.tags, after.meta, after.give_up_after) == (["b", "c"], {"by": 2}, 2 * HOUR)
        assert after.expires_at - before.expires_at > 2.9 * HOUR
        Job.objects.enqueue_many([unique_job(rule)])
        last = Job.objects.get()
        assert (last.tags, last.meta, last.give_up_after, last.expires_at) == ([], None, None, None)


class TestEnqueueing:
    def store_by_every_way(self, rule: Unique | None) -> None:
        facts: dict[str, Any] = {
            "expires": 2 * HOUR,
            "give_up_after": HOUR,
            "tags": ("plain", 'quo"te\\d', "shop.order:7", "ü{},NULL"),
            "meta": '{"a": [1, "\\u00fc\\t\\\\"], "b": 1000000000000000000000.0}',
        }

        def made(key: str) -> NewJob:
            unique = None if rule is None else UniqueKey.of(key, rule)
            run_after = HOUR if rule is not None and rule.on_conflict == "debounce" else None
            return NewJob(task="tests.add", unique=unique, run_after=run_after, **facts)

        def plain(key: str) -> NewJob:
            return NewJob(
                task="tests.add", idempotency_key=None, run_after=made(key).run_after, unique=made(key).unique
            )

        alone = Job.objects.enqueue(made("1"))
        ids = Job.objects.enqueue_many([made("2"), plain("3"), made("4")])
        stored = [Job.objects.get(pk=job_id) for job_id in (alone.pk, ids[0], ids[2])]
        for job in stored:
            assert job.tags == list(facts["tags"])
            assert job.meta == {"a": [1, "ü\t\\"], "b": 1e21}
            assert isinstance(job.meta["b"], float)
            assert job.give_up_after == HOUR
            assert abs(job.expires_at - job.created_at - 2 * HOUR) < timedelta(seconds=30)
        assert (alone.tags, alone.meta, alone.expires_at) == (stored[0].tags, stored[0].meta, stored[0].expires_at)
        other = Job.objects.get(pk=ids[1])
        assert (other.tags, other.meta, other.expires_at, other.give_up_after) == ([], None, None, None)

    @each_of(*{"plain": None, **RULES}.items(), around=on_empty_tables)
    def test_every_way_stores_the_same(self, *, case: Any, rule: Any) -> None:
        self.store_by_every_way(rule)

    def test_an_instant_is_stored_as_it_was_given(self) -> None:
        instant = datetime(2050, 6, 1, 12, tzinfo=UTC)
        job = Job.objects.enqueue(NewJob(task="tests.add", expires=instant))
        [many] = Job.objects.enqueue_many([NewJob(task="tests.add", expires=instant)])
        assert job.expires_at == instant
        assert Job.objects.get(pk=many).expires_at == instant

    def test_an_instant_in_the_past_is_the_databases_to_judge(self) -> None:
        job = Job.objects.enqueue(NewJob(task="tests.add", expires=datetime(2020, 1, 1, tzinfo=UTC)))
        assert [one.job_id for one in Job.objects.expire()] == [job.pk]

    @each_of((HOUR, datetime(2020, 1, 1, tzinfo=UTC)), (datetime(2050, 1, 1, tzinfo=UTC), HOUR), around=on_empty_tables)
    def test_a_delay_and_an_instant_are_not_compared(self, *, run_after: Any, expires: Any) -> None:
        """That would take this host's clock. The job is cancelled by the database's, and says why."""
        job = Job.objects.enqueue(NewJob(task="tests.add", run_after=run_after, expires=expires))
        Job.objects.filter(pk=job.pk, expires_at__gt=now()).update(expires_at=now(-SECOND))
        assert [(one.job_id, one.expired) for one in Job.objects.expire()] == [(job.pk, True)]

    @each_of(
        ({"expires": timedelta()}, "a job that expires at once would never start"),
        ({"expires": -SECOND}, "expires: -1 day, 23:59:59 is not between 0 and 365000 days"),
        ({"expires": datetime(2030, 1, 1)}, "naive; use an aware datetime"),  # noqa: DTZ001 - what is refused
        ({"expires": 5}, "expires: 5 is neither a datetime nor a number of seconds or a timedelta"),
        ({"expires": HOUR, "run_after": HOUR}, "the job would expire before it is due"),
        (
            {"expires": datetime(2030, 1, 1, tzinfo=UTC), "run_after": datetime(2031, 1, 1, tzinfo=UTC)},
            "the job would expire before it is due",
        ),
        ({"tags": ("a b",)}, "contains spaces or unprintable characters"),
        around=on_empty_tables,
    )
    def test_what_could_never_start_is_refused(self, *, options: Any, message: Any) -> None:
        with pytest.raises(InvalidJob, match=message):
            NewJob(task="tests.add", **options)


@each_of(
    ({}, False),
    ({"expires_in": HOUR}, False),
    ({"expires_in": -SECOND}, True),
    ({"expires_in": -SECOND, "attempts": 1, "refunds": 1}, False),
    ({"expires_in": -SECOND, "attempts": 1, "status": "RETRYING"}, False),
    ({"expires_in": HOUR, "attempts": 1, "status": "RETRYING"}, False),
    around=on_empty_tables,
)
def test_every_form_of_the_rule_answers_alike(*, columns: Any, is_expired: Any) -> None:
    """The ORM's, that of the statements, and that of a call which changes the job that has its key."""
    more = {name: value for name, value in columns.items() if name != "expires_in"}
    expires_at = now(columns["expires_in"]) if "expires_in" in columns else None
    key = UniqueKey.of("k", RULES["replace"]).key
    job = make_job(task="tests.add", expires_at=expires_at, unique_key=key, **more)
    assert Job.objects.claimable().startable().exists() is not is_expired
    [(found,)] = sql(f"SELECT {job_queries.IS_EXPIRED} FROM pulse_django_job_hot")
    assert found is is_expired
    changes = f"SELECT {job_queries.is_expired('job.')} FROM pulse_django_job_hot AS job"
    assert sql(changes) == [(is_expired,)]
    if not job.attempts:
        Job.objects.get_or_enqueue(unique_job(RULES["replace"], args=(7,)))
        job.refresh_from_db()
        assert (job.args == [7]) is not is_expired
        assert (job.status == Status.CANCELLED) is is_expired
