"""Jobs with unique keys: which job is admitted, how the other is treated, and what two transactions see."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from pulse_django.exceptions import AlreadyEnqueued
from pulse_django.models import Job, Window
from pulse_django.queue.words.decisions import Retry
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Failed
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.queue.words.verb_results import Report, Retried
from pulse_django.unique.rule import Unique, UniqueKey
from tests.citus import is_on_citus
from tests.database import empty_tables, on_empty_tables
from tests.factories import make_job
from tests.faults import combined, each_of
from tests.queue.moves import MOVES
from tests.queue.steps import claim_one, expire, sql, success
from tests.queue.test_transitions import ACTS, VARIANTS
from tests.rival import Rival, backend_pid

pytestmark = pytest.mark.usefixtures("pulse_db")

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
KEEP, REPLACE, FOLLOW = Unique(), Unique(on_conflict="replace"), Unique(on_conflict="follow")
RAISE = Unique(on_conflict="raise")
DEBOUNCE = Unique(on_conflict="debounce", max_delay=10 * MINUTE)
HOURLY = Unique(per=HOUR)
RULES = {"keep": KEEP, "replace": REPLACE, "follow": FOLLOW, "debounce": DEBOUNCE, "per": HOURLY}


def new(rule: Unique, *args: Any, key: str = "k", **options: Any) -> NewJob:
    if rule.on_conflict == "debounce":
        options = {"run_after": MINUTE} | options
    return NewJob(task="tests.add", args=args, unique=UniqueKey.of(key, rule), **options)


def enqueue(rule: Unique, *args: Any, **options: Any) -> tuple[Job, bool]:
    found: tuple[Job, bool] = Job.objects.get_or_enqueue(new(rule, *args, **options))
    return found


def alone(rule: Unique, *args: Any, **options: Any) -> Job:
    """Enqueue a job that has to be new."""
    job, is_new = enqueue(rule, *args, **options)
    assert is_new
    return job


def one_by_one(news: list[NewJob]) -> list[int]:
    return [Job.objects.enqueue(one).pk for one in news]


def as_a_list(news: list[NewJob]) -> list[int]:
    ids: list[int] = Job.objects.enqueue_many(news)
    return ids


WAYS = [one_by_one, as_a_list]


def enqueued_earlier(by: str) -> None:
    """Move the instant of each job. Citus refuses to reckon with a column in an UPDATE."""
    sql(
        "WITH earlier AS MATERIALIZED (SELECT id, created_at - %s::interval AS at FROM pulse_django_job)"
        " UPDATE pulse_django_job AS job SET created_at = earlier.at FROM earlier WHERE job.id = earlier.id",
        by,
    )


class TestOneKey:
    @each_of(*RULES.items(), around=on_empty_tables)
    def test_the_job_that_is_returned_is_the_job_that_is_stored(self, *, name: Any, rule: Any) -> None:
        enqueued = alone(rule, 1, queue="mail", priority=3, timeout=HOUR)
        stored = Job.objects.get()
        for field in Job._meta.concrete_fields:
            assert getattr(enqueued, field.attname) == getattr(stored, field.attname), field.attname

    @each_of(*combined(RULES.items(), WAYS), around=on_empty_tables)
    def test_a_second_job_with_the_key_is_not_added(self, *, name: Any, rule: Any, way: Any) -> None:
        first = alone(rule, 1)
        assert way([new(rule, 2)]) == [first.pk]
        assert Job.objects.count() == 1

    @each_of(*combined(RULES.items(), WAYS), around=on_empty_tables)
    def test_other_keys_and_other_tasks_are_not_held_up(self, *, name: Any, rule: Any, way: Any) -> None:
        alone(rule, 1)
        other_task = NewJob(task="tests.other", unique=UniqueKey.of("k", rule), run_after=MINUTE)
        assert len({*way([new(rule, 1, key="l"), other_task])}) == 2
        assert Job.objects.count() == 3

    @each_of(*WAYS, around=on_empty_tables)
    def test_keep_leaves_the_first_as_it_is(self, *, way: Any) -> None:
        first = alone(KEEP, 1)
        way([new(KEEP, 2, priority=9, run_after=HOUR)])
        stored = Job.objects.get()
        assert (stored.args, stored.priority, stored.next_run_at) == ([1], 0, first.next_run_at)
        claim_one(Identity("me"))
        kept, is_new = enqueue(KEEP, 2)
        assert (kept.pk, kept.status, kept.args, is_new) == (first.pk, Status.RUNNING, [1], False)

    @each_of(*WAYS, around=on_empty_tables)
    def test_replace_changes_arguments_and_time_and_nothing_else(self, *, way: Any) -> None:
        first = alone(REPLACE, 1_000, priority=2, run_after=2 * HOUR)
        way([new(REPLACE, 2, priority=9, run_after=HOUR, sensitive="{}", trace="t")])
        stored = Job.objects.get()
        assert (stored.pk, stored.args, stored.priority, stored.sensitive, stored.trace) == (
            first.pk,
            [2],
            2,
            "{}",
            "t",
        )
        assert stored.payload_bytes == len("[2]{}")
        assert HOUR - MINUTE < stored.next_run_at - stored.created_at < HOUR + MINUTE
        job, is_new = enqueue(REPLACE, 3)
        assert (job.args, is_new) == ([3], False)

    @each_of(
        *combined(
            [
                (DEBOUNCE, MINUTE, "0 minutes", 5 * MINUTE, 5 * MINUTE),
                (DEBOUNCE, MINUTE, "8 minutes", 5 * MINUTE, 2 * MINUTE),  # not beyond the longest
                (DEBOUNCE, 9 * MINUTE, "0 minutes", MINUTE, 9 * MINUTE),  # it brings no run forward
                (Unique(on_conflict="debounce"), MINUTE, "8 hours", HOUR, HOUR),  # without a longest, without end
                (Unique(on_conflict="debounce"), 9 * MINUTE, "0 minutes", MINUTE, 9 * MINUTE),
            ],
            WAYS,
        ),
        around=on_empty_tables,
    )
    def test_debounce_postpones(
        self, *, rule: Any, first_after: Any, earlier: Any, second_after: Any, due: Any, way: Any
    ) -> None:
        """``due`` is counted from the first call."""
        first = alone(rule, 1, run_after=first_after)
        enqueued_earlier(earlier)
        way([new(rule, 2, run_after=second_after)])
        stored = Job.objects.get()
        assert stored.args == [2]
        late = stored.next_run_at - first.created_at - due
        assert timedelta(milliseconds=-1) <= late < (MINUTE if due == second_after else timedelta(milliseconds=1))

    @each_of(*combined([RAISE, Unique(per=HOUR, on_conflict="raise")], WAYS), around=on_empty_tables)
    def test_raise_names_the_other_job_and_the_transaction_goes_on(self, *, rule: Any, way: Any) -> None:
        first = alone(rule, 1)
        with transaction.atomic():
            with pytest.raises(AlreadyEnqueued, match=f"tests.add: job {first.pk} has the same") as refused:
                way([new(rule, 2)])
            other = Job.objects.enqueue(NewJob(task="tests.other"))
        assert (refused.value.task, refused.value.job_id) == ("tests.add", first.pk)
        assert set(Job.objects.values_list("pk", flat=True)) == {first.pk, other.pk}

    def test_a_list_of_which_one_is_refused_adds_none(self) -> None:
        alone(RAISE, key="b")
        with transaction.atomic(), pytest.raises(AlreadyEnqueued):
            Job.objects.enqueue_many([new(RAISE, key=key) for key in "abc"])
        assert Job.objects.count() == 1

    def test_where_autocommit_is_off_what_came_before_stays(self) -> None:
        alone(RAISE, key="b")
        transaction.set_autocommit(False)
        try:
            Job.objects.enqueue(NewJob(task="tests.other"))
            with pytest.raises(AlreadyEnqueued):
                Job.objects.enqueue_many([new(RAISE, key=key) for key in "abc"])
            transaction.commit()
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        assert list(Job.objects.order_by("id").values_list("task", flat=True)) == ["tests.add", "tests.other"]


class TestLists:
    def test_ids_come_back_in_order_those_of_kept_jobs_too(self) -> None:
        held = alone(KEEP, 0, key="b")
        plain = NewJob(task="tests.other")
        ids = Job.objects.enqueue_many(
            [new(KEEP, 1, key="c"), plain, new(KEEP, 2, key="b"), new(KEEP, 3, key="a"), plain]
        )
        assert ids[2] == held.pk
        stored = {job.pk: job for job in Job.objects.all()}
        assert [(stored[one].task, stored[one].args) for one in ids] == [
            ("tests.add", [1]), ("tests.other", []), ("tests.add", [0]), ("tests.add", [3]), ("tests.other", []),
        ]  # fmt: skip
        assert len(set(ids)) == 5

    @each_of((KEEP, 1), (FOLLOW, 1), (HOURLY, 1), (REPLACE, 3), (DEBOUNCE, 3), around=on_empty_tables)
    def test_a_key_that_stands_twice_becomes_one_job(self, *, rule: Any, wins: Any) -> None:
        ids = Job.objects.enqueue_many([new(rule, 1), new(rule, 2, key="l"), new(rule, 3)])
        assert ids[0] == ids[2] != ids[1]
        assert Job.objects.get(pk=ids[0]).args == [wins]

    def test_a_key_that_stands_twice_is_refused_where_a_second_one_is(self) -> None:
        with pytest.raises(AlreadyEnqueued, match="another job of the list"):
            Job.objects.enqueue_many([new(RAISE, 1), new(RAISE, 2)])
        assert not Job.objects.exists()

    @each_of(*RULES.items(), around=on_empty_tables)
    def test_a_list_of_one_rule_is_one_statement_beside_that_for_the_ids(
        self, django_assert_num_queries: Any, *, name: Any, rule: Any
    ) -> None:
        extra = {"debounce": 1, "per": 1}.get("per" if rule.per else rule.on_conflict, 0)  # instants, beginnings
        with transaction.atomic(), django_assert_num_queries(2 + extra):
            Job.objects.enqueue_many([new(rule, n, key=str(n)) for n in range(50)])
        assert Job.objects.count() == 50

    def test_all_that_a_job_has_is_stored_as_if_it_were_alone(self) -> None:
        options = {
            "queue": "mail",
            "priority": 5,
            "lease": timedelta(seconds=5),
            "max_lost_workers": 2,
            "count_lost_workers": False,
        }
        text = {"ünï😀\\\"'": [1.5, None, {"%s": "a\tb\n"}]}
        one = NewJob(task="t\\", args=[text], kwargs=text, run_after=HOUR, unique=UniqueKey.of("a", FOLLOW), **options)
        other = NewJob(
            task="t\\", args=[text], kwargs=text, run_after=HOUR, unique=UniqueKey.of("b", FOLLOW), **options
        )
        [many], single = Job.objects.enqueue_many([one]), Job.objects.enqueue(other)
        stored = Job.objects.get(pk=many)
        for field in Job._meta.concrete_fields:
            if field.name not in ("id", "created_at", "next_run_at", "unique_key"):
                assert getattr(stored, field.attname) == getattr(single, field.attname), field.attname

    def test_one_key_for_all_of_many_arguments_is_refused(self) -> None:
        with pytest.raises(ValueError, match="unique: one key cannot be used for many jobs"):
            Job.objects.enqueue_alike(new(KEEP), [((1,), {})])


class TestWhenTheKeyIsFree:
    """Held until the end, or until the start."""

    def end_in(self, status: Status) -> Job:
        job = alone(KEEP, 1)
        claim = claim_one(Identity("me"))
        if status == Status.COMPLETED:
            Job.objects.settle([success(claim)])
        elif status == Status.CANCELLED:
            Job.objects.request_cancel([job.pk])
            Job.objects.release([claim.lease])
        else:
            sql("UPDATE pulse_django_job SET max_attempts = 1")
            expire(job)
            Job.objects.reap()
        job.refresh_from_db()
        assert job.status == status
        return job

    @each_of(*[one for one in Status if one in TERMINAL], around=on_empty_tables)
    def test_any_end_frees_the_key_and_history_keeps_none(self, *, status: Any) -> None:
        assert (self.end_in(status).unique_key is None) is (status != Status.DEAD_LETTERED)
        alone(KEEP, 2)

    @each_of(Status.PENDING, Status.RUNNING, Status.RETRYING, around=on_empty_tables)
    def test_what_is_not_over_holds_it(self, *, status: Any) -> None:
        key = UniqueKey.of("k", KEEP).key
        job = make_job(status, unique_key=key)
        assert enqueue(KEEP)[0].pk == job.pk
        assert Job.objects.count() == 1

    def test_a_hand_made_end_frees_it_too(self) -> None:
        alone(KEEP, 1)
        sql("UPDATE pulse_django_job_hot SET finished_at = now(), status = 'DEAD_LETTERED', last_error = 'x'")
        alone(KEEP, 2)
        sql("DELETE FROM pulse_django_job")
        alone(KEEP, 3)

    @each_of(*combined([FOLLOW, REPLACE, DEBOUNCE, Unique(until="start")], [False, True]), around=on_empty_tables)
    def test_the_claim_frees_what_is_held_until_the_start(self, *, rule: Any, by_id: Any) -> None:
        job = alone(rule, 1, run_after=timedelta())
        [claim] = Job.objects.claim_these(Identity("me"), [job.pk]) if by_id else Job.objects.claim(Identity("me"))
        second = alone(rule, 2)
        assert enqueue(rule, 3)[0].pk == second.pk
        Job.objects.settle([Report(claim.lease, Failed(ErrorReport.of(ValueError())), Retry(timedelta(), "no"))])
        assert Job.objects.get(pk=job.pk).status == Status.RETRYING, "and its retry meets no other job with the key"
        assert Job.objects.count() == 2

    def test_a_job_that_was_handed_back_does_not_hold_it_again(self) -> None:
        job = alone(FOLLOW)
        Job.objects.release([claim_one(Identity("me")).lease])
        alone(FOLLOW)
        job.refresh_from_db()
        assert job.status == Status.PENDING

    @each_of(*combined([FOLLOW, REPLACE, Unique(until="start", on_conflict="raise")], WAYS), around=on_empty_tables)
    def test_a_job_that_has_started_loses_a_key_that_its_task_used_to_hold_until_the_end(
        self, *, rule: Any, way: Any
    ) -> None:
        started = alone(KEEP, 1)
        claim = claim_one(Identity("me"))
        [second] = way([new(rule, 2)])
        assert second != started.pk
        assert Job.objects.get(pk=second).args == [2]
        assert Job.objects.settle([success(claim)]).accepted


class TestEveryVerb:
    """Whatever a verb makes of a job, its key is held by a job that is not over, and by no other."""

    @each_of(*combined(MOVES, Status), around=on_empty_tables)
    def test_the_key_is_held_while_the_job_is_not_over(self, *, verb: Any, status: Any) -> None:
        for act in ACTS[verb]:
            for variant in VARIANTS[status]:
                before = make_job(status, unique_key=UniqueKey.of("k", KEEP).key, **variant)
                act(before)
                after = Job.objects.filter(pk=before.pk).first()
                is_over = after is None or Status(after.status) in TERMINAL
                found, is_new = enqueue(KEEP)
                assert is_new == is_over, (verb, status, variant)
                assert is_over or found.pk == before.pk
                sql("DELETE FROM pulse_django_job")

    @each_of(*combined(MOVES, Status), around=on_empty_tables)
    def test_a_key_until_the_start_is_held_by_what_was_never_claimed(self, *, verb: Any, status: Any) -> None:
        for act in ACTS[verb]:
            for variant in VARIANTS[status]:
                key = UniqueKey.of("k", FOLLOW).key
                before = make_job(status, unique_key=key, unique_until_start=True, **variant)
                act(before)
                after = Job.objects.filter(pk=before.pk).first()
                holds = after is not None and Status(after.status) not in TERMINAL and after.attempts == 0
                assert enqueue(FOLLOW)[1] == (not holds), (verb, status, variant)
                sql("DELETE FROM pulse_django_job")


class TestPeriods:
    def test_a_period_outlives_its_job(self) -> None:
        job = alone(HOURLY, 1)
        assert job.unique_key is None, "it holds no key otherwise"
        Job.objects.settle([success(claim_one(Identity("me")))])
        kept, is_new = enqueue(HOURLY, 2)
        assert (kept.pk, kept.status, is_new) == (job.pk, Status.COMPLETED, False)

    @each_of(*WAYS, around=on_empty_tables)
    def test_it_ends_by_the_servers_clock_and_the_next_begins(self, *, way: Any) -> None:
        first = alone(HOURLY, 1)
        sql("UPDATE pulse_django_window SET until = statement_timestamp()")
        [second] = way([new(HOURLY, 2)])
        assert second != first.pk
        window = Window.objects.get()
        assert window.job_id == second
        assert HOUR - MINUTE < window.until - Job.objects.get(pk=second).created_at <= HOUR

    def test_what_counts_is_the_period_and_not_the_age_of_the_job(self) -> None:
        first = alone(HOURLY, 1)
        enqueued_earlier("2 hours")
        assert enqueue(HOURLY, 2)[0].pk == first.pk

    @each_of(*WAYS, around=on_empty_tables)
    def test_a_period_whose_job_was_deleted_is_over(self, *, way: Any) -> None:
        alone(HOURLY, 1)
        sql("DELETE FROM pulse_django_job")
        [second] = way([new(HOURLY, 2)])
        assert Window.objects.get().job_id == second

    def test_pruning_deletes_periods_that_are_over(self) -> None:
        alone(HOURLY, key="over")
        goes_on = alone(HOURLY, key="goes on")
        sql("UPDATE pulse_django_window SET until = now() WHERE job_id <> %s", goes_on.pk)
        Job.objects.prune(Status.CANCELLED, older_than=HOUR)
        assert Window.objects.get().job_id == goes_on.pk

    def test_a_kept_call_locks_nothing(self, rival: Rival) -> None:
        first = alone(HOURLY)
        with transaction.atomic():
            enqueue(HOURLY)
            assert rival.run(enqueue, HOURLY)[0].pk == first.pk

    def enqueue_behind_a_rival(self, rival: Rival, way: Any) -> None:
        rule = Unique(per=timedelta(seconds=0.2))
        rival.begin()
        rival.run(enqueue, rule)
        pid, helper = rival.pid, Rival()
        try:
            helper.start(lambda: (helper.wait_until_blocked(pid), sql("SELECT pg_sleep(0.3)"), rival.rollback()))
            [job_id] = way([new(rule)])
        finally:
            helper.close()
        window, job = Window.objects.get(), Job.objects.get(pk=job_id)
        assert window.until - job.created_at >= timedelta(seconds=0.19)

    @each_of(*WAYS, around=on_empty_tables)
    def test_a_period_begins_after_the_wait_for_a_rival(self, rival: Rival, *, way: Any) -> None:
        """Or two jobs could be enqueued in one period: it would be over when the first of them is written."""
        self.enqueue_behind_a_rival(rival, way)


class TestTwoTransactions:
    @each_of(*combined(RULES.items(), WAYS), around=on_empty_tables)
    def test_a_rival_that_has_not_committed_is_waited_for(
        self, rival: Rival, *, name: Any, rule: Any, way: Any
    ) -> None:
        with transaction.atomic():
            mine = backend_pid()  # behind a pooler it is another one after each transaction
            first = alone(rule, 1)
            waiting = rival.start(way, [new(rule, 2)])
            rival.wait_until_blocked(by=mine)
        assert waiting.result(20) == [first.pk]
        assert Job.objects.count() == 1

    @each_of(*combined(RULES.items(), WAYS), around=on_empty_tables)
    def test_if_it_rolls_back_the_job_is_enqueued(self, rival: Rival, *, name: Any, rule: Any, way: Any) -> None:
        with transaction.atomic():
            mine = backend_pid()  # behind a pooler it is another one after each transaction
            alone(rule, 1)
            waiting = rival.start(way, [new(rule, 2)])
            rival.wait_until_blocked(by=mine)
            transaction.set_rollback(True)
        assert [job.args for job in Job.objects.filter(pk__in=waiting.result(20))] == [[2]]
        assert Job.objects.count() == 1

    @each_of(*combined([FOLLOW, REPLACE, DEBOUNCE], WAYS), around=on_empty_tables)
    def test_no_worker_claims_the_other_job_before_the_caller_commits(
        self, rival: Rival, *, rule: Any, way: Any
    ) -> None:
        """Its run would not see what the caller writes, and no other job would follow."""
        job = alone(rule, 1, run_after=timedelta())
        with transaction.atomic():
            assert way([new(rule, 2, run_after=timedelta())]) == [job.pk]
            assert rival.run(Job.objects.claim, Identity("me")) == []
        [claim] = Job.objects.claim(Identity("me"))
        assert claim.lease.job_id == job.pk

    def enqueue_behind_a_claim(self, rule: Unique, rival: Rival) -> None:
        job = alone(rule, 1, run_after=timedelta())
        rival.begin()
        rival.run(
            sql,
            "UPDATE pulse_django_job_hot SET status = 'RUNNING', attempts = 1, locked_by = 'x', token = 1,"
            " lease_until = now() + interval '1 minute', started_at = now() WHERE id = %s",
            job.pk,
        )
        pid = rival.pid
        with closing(Rival()) as helper:
            helper.start(lambda: (helper.wait_until_blocked(pid), rival.commit()))
            second = alone(rule, 2)
        assert second.pk != job.pk

    @each_of(FOLLOW, REPLACE, DEBOUNCE, around=on_empty_tables)
    def test_a_job_that_is_claimed_meanwhile_is_followed(self, rival: Rival, *, rule: Any) -> None:
        """The call waits for a claim that has not committed, and then finds the key free."""
        self.enqueue_behind_a_claim(rule, rival)

    def test_two_lists_in_another_order_do_not_deadlock(self, rival: Rival) -> None:
        keys = [str(n) for n in range(200)]
        for _ in range(5):
            theirs = rival.start(as_a_list, [new(REPLACE, 1, key=key) for key in reversed(keys)])
            as_a_list([new(REPLACE, 2, key=key) for key in keys])
            theirs.result(20)
        assert Job.objects.count() == 200

    @pytest.mark.one_server("a node of Citus reads committed rows in transactions of each isolation level")
    @each_of("keep", "replace", "per")
    def test_repeatable_read_answers_with_40001_what_it_cannot_see(self, rival: Rival, *, name: Any) -> None:
        """As for any write conflict at that level: the transaction has to be tried again."""
        rule = RULES[name]
        empty_tables()
        with pytest.raises(OperationalError) as refused, transaction.atomic():
            sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            sql("SELECT 1")
            rival.run(alone, rule, 1)
            enqueue(rule, 2)
        assert getattr(refused.value.__cause__, "sqlstate", "") == "40001"
        job, is_new = enqueue(rule, 2)
        assert not is_new
        assert Job.objects.get() == job

    @each_of(*combined(RULES.items(), WAYS), around=on_empty_tables)
    def test_repeatable_read_keeps_what_it_can_see(self, *, name: Any, rule: Any, way: Any) -> None:
        first = alone(rule, 1)
        with transaction.atomic():
            sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            assert way([new(rule, 2)]) == [first.pk]
            assert way([new(rule, 3, key="other")]) != [first.pk]
        assert Job.objects.count() == 2


def dead_letter(key: str = "k", **values: Any) -> Job:
    return make_job(Status.DEAD_LETTERED, unique_key=UniqueKey.of(key, KEEP).key, **values)


class TestDeadLetters:
    """Only a retry makes a job alive again whose key another one may hold by now."""

    def test_one_whose_key_is_free_is_retried_and_of_two_the_older(self) -> None:
        dead, younger = dead_letter(), dead_letter()
        assert Job.objects.retry([dead.pk], attempt=3).moved_on == {dead.pk}, "it had another attempt"
        answer = Job.objects.retry([younger.pk, dead.pk], attempt=dead.attempts)
        assert answer == Retried(revived=frozenset({dead.pk}), key_taken=frozenset({younger.pk}), moved_on=frozenset())
        assert enqueue(KEEP)[0].pk == dead.pk

    def test_one_whose_key_is_taken_is_left_and_named_and_the_others_are_retried(self) -> None:
        dead, other, plain = dead_letter(), dead_letter("other"), make_job(Status.DEAD_LETTERED)
        alone(KEEP)
        assert Job.objects.retry([dead.pk, other.pk, plain.pk, 10**9]) == Retried(
            revived=frozenset({other.pk, plain.pk}), key_taken=frozenset({dead.pk}), moved_on=frozenset({10**9})
        )
        dead.refresh_from_db()
        assert dead.status == Status.DEAD_LETTERED

    def test_the_line_keeps_its_gaps(self) -> None:
        line = [dead_letter("a"), make_job(Status.DEAD_LETTERED), dead_letter("b")]
        Job.objects.retry([job.pk for job in line], delay=HOUR, gap=MINUTE)
        dues = [job.next_run_at for job in Job.objects.order_by("id")]
        assert [round((due - dues[0]) / MINUTE) for due in dues] == [0, 1, 2]

    def retry_behind_a_twin(self, count: int, rival: Rival) -> None:
        dead = [dead_letter(key).pk for key in "klm"[:count]]
        rival.begin()
        rival.run(alone, KEEP)
        helper, pid = Rival(), rival.pid
        try:
            with transaction.atomic():
                helper.start(lambda: (helper.wait_until_blocked(pid), rival.commit()))
                answer = Job.objects.retry(dead)
                make_job()  # the transaction goes on
        finally:
            helper.close()
        assert (answer.revived, answer.key_taken) == (set(dead[1:]), {dead[0]})

    @each_of(1, 3, around=on_empty_tables)
    def test_a_twin_that_commits_during_the_retry_refuses_itself_alone(self, rival: Rival, *, count: Any) -> None:
        self.retry_behind_a_twin(count, rival)

    def test_twins_that_are_there_already_cost_no_statement_each(self) -> None:
        dead = [dead_letter(key) for key in "abcdef"]
        for key in "abc":
            alone(KEEP, key=key)
        with CaptureQueriesContext(connection) as sent:
            assert len(Job.objects.retry([job.pk for job in dead]).key_taken) == 3
        assert len(sent) == 3  # two, and one look for those that have expired

    @each_of(FOLLOW, REPLACE, around=on_empty_tables)
    def test_a_key_held_until_the_start_cannot_conflict_on_retry(self, *, rule: Any) -> None:
        dead = dead_letter(unique_until_start=True)
        alone(rule)
        assert len(sent_by(lambda: Job.objects.retry([dead.pk]).revived)) == 1

    def test_a_move_cannot_conflict(self) -> None:
        job = alone(KEEP)
        assert Job.objects.move([job.pk], queue="other").changed == {job.pk}


def sent_by(*steps: Callable[[], Any]) -> list[str]:
    """The statements of these steps, without those that only begin and end transactions."""
    with CaptureQueriesContext(connection) as sent:
        for step in steps:
            assert step()
    return [one["sql"] for one in sent.captured_queries if one["sql"].strip() not in ("BEGIN", "COMMIT")]


class TestProjectsWithoutIt:
    """They send not one statement more, and those of a job's life say nothing of unique keys."""

    def test_enqueueing_is_as_it_was(self) -> None:
        plain = NewJob(task="tests.add")
        alone = sent_by(lambda: Job.objects.enqueue(plain))
        keyed = sent_by(lambda: Job.objects.enqueue(NewJob(task="tests.add", idempotency_key="k")))
        many = sent_by(lambda: Job.objects.enqueue_many([plain, plain]))
        assert (len(alone), len(keyed), len(many)) == (1, 1, 4)  # of the list: two settings, the ids, COPY
        assert not [text for text in alone + keyed + many if "unique" in text or "window" in text]

    @each_of(*RULES.items(), around=on_empty_tables)
    def test_with_it_a_job_takes_one_statement_too(self, *, name: Any, rule: Any) -> None:
        """And for a period one more, which sees to it that it begins with the job. On Citus its id is drawn before."""
        assert len(sent_by(lambda: alone(rule))) == (2 + is_on_citus() if rule.per else 1)
