"""The statements at scale: what they read, not how long they take.

One table of a million claimable jobs is built once with generate_series; each test rolls its own changes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.expiry import expire
from pulse_django.health.conditions import Limits, known
from pulse_django.health.conditions.catalogue import as_json
from pulse_django.health.conditions.shared_queries import with_shared_queries
from pulse_django.limits import claim_limited
from pulse_django.models import Job, Limiter, Minute, Pause
from pulse_django.queue import claim, prune, reap, set_aside, settle
from pulse_django.queue.database import job_queries, lane_queries
from pulse_django.queue.words.decisions import Complete, Postpone
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lanes import Lane, rotation
from pulse_django.queue.words.leases import Identity, Lease
from pulse_django.queue.words.outcomes import Snoozed, Succeeded
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.unique import clauses as unique
from pulse_django.unique.rule import Unique, UniqueKey
from tests.crash.workers import wait_until
from tests.faults import combined, each_of
from tests.plans.fleet import ERA, past_days, tables
from tests.plans.fleet import explain as plan_of
from tests.queue.steps import sql
from tests.undoing import undone as undone_case

QUEUES, PRIORITIES = 100, 10
MILLION = 1_000_000


def vacuum(table: str = "pulse_django_job") -> None:
    """Vacuum until every page is known to be visible to all: a snapshot of another session holds it up."""

    def is_visible() -> bool:
        sql(f"VACUUM ANALYZE {table}")
        [(pages,)] = sql(
            "SELECT sum(relpages - relallvisible) FROM pg_partition_tree(%s) JOIN pg_class ON oid = relid WHERE isleaf",
            table,
        )
        return not pages

    wait_until(is_visible)


@contextmanager
def indexes_built_afterwards() -> Iterator[None]:
    """Fill the table as its migration would have left it, in half the time."""
    built = sql(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'pulse_django_job_hot'"
        " AND indexname NOT IN (SELECT conname FROM pg_constraint WHERE conrelid = 'pulse_django_job_hot'::regclass)"
    )
    for name, _ in built:
        sql(f'DROP INDEX "{name}"')
    try:
        yield
    finally:
        for _, definition in built:
            sql(definition)


@pytest.fixture(scope="class")
def backlog(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A million claimable jobs in 100 queues of 10 priorities."""
    with tables(django_db_blocker):
        with indexes_built_afterwards():
            sql(
                "INSERT INTO pulse_django_job (task, queue, priority, args)"
                " SELECT 'tests.add', 'queue-' || (n %% %s), n / %s %% %s, jsonb_build_array(n)"
                " FROM generate_series(1, %s) AS n",
                QUEUES,
                QUEUES,
                PRIORITIES,
                MILLION,
            )
        vacuum()
        yield


@pytest.fixture
def undone(django_db_blocker: Any) -> Iterator[None]:
    """What the test changes is rolled back: building the table again would take longer than all these tests."""
    with django_db_blocker.unblock():
        with transaction.atomic():
            yield
            transaction.set_rollback(True)
        connection.close()


def explain(statement: str, *params: Any) -> dict[str, Any]:
    return plan_of(statement, params)


def read_by_conditions() -> dict[str, int]:
    """How many buffers each question job_queries."""
    params = Limits().params()
    read = {}
    for one in known():
        if one.sql:
            read[one.name] = buffers(plan_of(with_shared_queries(as_json(one.sql)), params))
    return read


def read_by_page(name: str) -> tuple[int, int]:
    """How many queries a page of the admin takes, with those for its user, and how many buffers they read."""
    client = Client()
    client.force_login(User.objects.create_superuser("operator"))
    with CaptureQueriesContext(connection) as queries:
        assert client.get(reverse(name)).status_code == 200
    asked = [query["sql"] for query in queries if query["sql"].lstrip().startswith(("SELECT", "WITH", "(SELECT"))]
    asked = [one for one in asked if "set_config" not in one]
    assert len(asked) >= 5, "what was not seen was not measured"
    return len(asked), sum(buffers(explain(one.replace("%", "%%"))) for one in asked)


def read_by_minute() -> int:
    """How many buffers it takes to write a minute down, other than counting what waits."""
    with CaptureQueriesContext(connection) as queries:
        minute = Minute.objects.unwritten()[0]  # ten minutes ago: the table was being built in the last
        Minute.objects.write(minute, is_latest=False)
    asked = [query["sql"] for query in queries if query["sql"].lstrip().startswith(("SELECT", "WITH"))]
    assert len(asked) >= 5, "what was not seen was not measured"
    return sum(buffers(explain(one.replace("%", "%%"))) for one in asked)


def buffers(plan: dict[str, Any]) -> int:
    """Return how many were read, but not from the catalogue: it grows with each table that another test drops."""
    return _total(plan["Plan"]) - _of_catalogue(plan["Plan"])


def _total(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def _of_catalogue(node: dict[str, Any]) -> int:
    below = node.get("Plans", [])
    own = _total(node) - sum(map(_total, below)) if node.get("Relation Name", "").startswith("pg_") else 0
    return own + sum(map(_of_catalogue, below))


def explain_claim(limit: int, lanes: list[Lane], since: float = claim.FROM_THE_FIRST) -> dict[str, Any]:
    picked, pick_params = claim.pick_from_lanes(
        claim._PICK_FROM_LANES, Job, "default", keyed=any(lane.key for lane in lanes)
    )
    queues, priorities = [lane.queue for lane in lanes], [lane.priority for lane in lanes]
    keys, bounds = [lane.key for lane in lanes], [since] * len(lanes)
    params = [queues, priorities, keys, [limit] * len(lanes), bounds, *pick_params, limit]
    sql, values = claim.claiming("default", picked, params, "plan:boot:1", claim.Slots(100, 100))
    return explain(sql, *values)


def claimed(plan: dict[str, Any]) -> int:
    return int(plan["Plan"]["Actual Rows"])


@pytest.fixture
def reader(django_db_setup: None, django_db_blocker: Any) -> Iterator[psycopg.Connection[Any]]:
    """Another session, beside empty tables. What is deleted while it holds a snapshot stays in the indexes."""
    settings = connection.settings_dict
    where = {"host": settings["HOST"], "port": settings["PORT"], "user": settings["USER"]}
    given = {name: value for name, value in where.items() if value}
    given |= {"dbname": settings["NAME"], "password": settings["PASSWORD"] or None}
    with tables(django_db_blocker), psycopg.connect(**given) as reader:
        yield reader
        reader.rollback()


def hold_a_snapshot(reader: psycopg.Connection[Any]) -> None:
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT count(*) FROM pulse_django_job")


@pytest.fixture
def held_snapshot(reader: psycopg.Connection[Any]) -> float:
    """Run 100,000 jobs of a lane while another session holds a snapshot. Return when the last of them was due."""
    sql(
        "INSERT INTO pulse_django_job (task, queue, next_run_at)"
        " SELECT 'tests.add', 'churned', clock_timestamp() - interval '1 hour' + n * interval '1 ms'"
        " FROM generate_series(1, 100500) AS n"
    )
    sql("VACUUM ANALYZE pulse_django_job")
    hold_a_snapshot(reader)
    [[last]] = sql(
        "WITH run AS ("
        "  UPDATE pulse_django_job SET status = 'COMPLETED', attempts = 1, finished_at = clock_timestamp()"
        "  WHERE id IN (SELECT id FROM pulse_django_job ORDER BY next_run_at LIMIT 100000)"
        "  RETURNING next_run_at"
        ") SELECT date_part('epoch', max(next_run_at)) FROM run"
    )
    return float(last)


def test_a_claim_with_a_bound_reads_no_dead_entries(held_snapshot: float) -> None:
    lane = Lane("churned", 0)
    with transaction.atomic():
        bounded = explain_claim(100, [lane], since=held_snapshot)
        transaction.set_rollback(True)
    with transaction.atomic():
        unbounded = explain_claim(100, [lane])
        transaction.set_rollback(True)
    assert claimed(bounded) == claimed(unbounded) == 100
    assert buffers(bounded) < 2_000
    assert buffers(unbounded) > 3 * buffers(bounded), "otherwise the bound is not what saved it"


def test_leases_of_a_limit_are_counted_without_reading_those_that_ended_under_a_snapshot(
    reader: psycopg.Connection[Any],
) -> None:
    """Tokens of a limit rise. A claim counts from the smallest that still runs, which the claim before has told."""
    ended, running, key = 20_000, 5, "api:0000a"
    hold_a_snapshot(reader)
    lease = (
        "INSERT INTO pulse_django_job"
        " (task, lane_key, status, attempts, locked_by, lease_until, started_at, token)"
        " SELECT 'tests.add', %s, 'RUNNING', 1, 'w:b:1', clock_timestamp() + interval '1 h', clock_timestamp(), n"
        " FROM generate_series(%s::int, %s::int) AS n"
    )
    sql(lease, key, 1, ended)
    sql("DELETE FROM pulse_django_job_hot")
    sql(lease, key, ended + 1, ended + running)
    sql("VACUUM ANALYZE pulse_django_job_hot")
    Limiter.objects.override("api", {"max_running": 500, "max_running_per_key": 100})
    with transaction.atomic():
        sql("SELECT set_config('pulse.got', '{1,2}', true)")
        marked, unmarked = (
            explain(claim_limited.COUNT, "api", "", "api", mark, "", 0, [key], [10], [mark], 100, 100)
            for mark in (ended + 1, 0)
        )
    Limiter.objects.all().delete()
    assert buffers(marked) < 100
    assert buffers(unmarked) > 3 * buffers(marked), "otherwise the mark is not what saved it"


def expired_head(jobs: int) -> None:
    """Put jobs that have not started in time in front of all others."""
    sql(
        "INSERT INTO pulse_django_job (task, queue, priority, expires_at)"
        " SELECT 'tests.add', 'queue-0', 100, clock_timestamp() - interval '1 s' FROM generate_series(1, %s)",
        jobs,
    )


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    found = [plan["Plan"]]
    for node in found:
        found += node.get("Plans", [])
        yield node


def paused_head(jobs: int, *, ready: str = "true") -> None:
    """Put jobs of a paused task in front of all others."""
    sql(
        "INSERT INTO pulse_django_job (task, queue, priority, next_run_at, ready)"
        f" SELECT 'tests.paused', 'queue-0', 9, clock_timestamp() - interval '1 h', {ready}"
        " FROM generate_series(1, %s)",
        jobs,
    )
    Pause.objects.pause("tests.paused")


@pytest.mark.usefixtures("backlog", "undone")
class TestAMillionClaimableJobs:
    def test_the_lanes_are_found_without_reading_the_jobs(self) -> None:
        plan = explain(lane_queries._LANES)
        assert claimed(plan) == QUEUES * PRIORITIES
        assert buffers(plan) < 10 * QUEUES * PRIORITIES  # a handful of index pages per lane

    def test_a_claim_of_100_reads_fewer_than_3000_buffers(self) -> None:
        plan = explain_claim(100, rotation(Job.objects.lanes(), turn=0))
        assert claimed(plan) == 100
        assert buffers(plan) < 3_000

    def test_a_lane_with_nothing_due_costs_a_few_buffers(self) -> None:
        sql(
            "INSERT INTO pulse_django_job (task, queue, priority, next_run_at)"
            " SELECT 'tests.add', 'idle-' || n, 100, clock_timestamp() + interval '1 day'"
            " FROM generate_series(1, 1000) AS n"
        )
        lanes = rotation(Job.objects.lanes(), turn=0)
        assert lanes[999].queue.startswith("idle-")
        plan = explain_claim(1, lanes)
        assert claimed(plan) == 1
        assert buffers(plan) < 6 * 1_000

    def test_also_behind_100000_jobs_of_the_top_priority_that_are_not_due(self) -> None:
        sql(
            "INSERT INTO pulse_django_job (task, queue, priority, next_run_at)"
            " SELECT 'tests.add', 'queue-0', 100, clock_timestamp() + interval '1 day'"
            " FROM generate_series(1, 100000)"
        )
        lanes = rotation(Job.objects.lanes(), turn=0)
        assert lanes[0] == Lane("queue-0", 100)
        plan = explain_claim(100, lanes)
        assert claimed(plan) == 100
        assert buffers(plan) < 3_000

    @each_of(*combined([Unique(), Unique(on_conflict="replace"), Unique(per=timedelta(hours=1))], [1, 100]))
    def test_a_unique_job_reads_a_few_buffers_whether_its_key_is_held_or_free(self, *, rule: Any, many: Any) -> None:
        """With the statistics of a table that has no unique jobs."""
        with undone_case():
            news = [NewJob(task="tests.add", args=[n], unique=UniqueKey.of(str(n), rule)) for n in range(many)]
            for _ in range(2):  # free, then held
                with CaptureQueriesContext(connection) as queries:
                    Job.objects.enqueue_many(news) if many > 1 else Job.objects.enqueue(news[0])
                asked = [one["sql"].replace("%", "%%") for one in queries if one["sql"].lstrip().startswith("SELECT")]
                assert all(buffers(explain(one)) < 50 + 20 * many for one in asked)
            assert "Seq Scan on pulse_django_job_hot" not in str([explain(one) for one in asked])
            statement = unique._HOLDERS.format(also="")
            params = [["tests.add"] * many, [new.unique.key for new in news]]
            assert buffers(explain(statement, *params)) < 20 + 10 * many

    def test_expired_jobs_are_found_by_their_index_whether_there_are_any_or_not(self) -> None:
        asked = f"SELECT {job_queries.ARE_EXPIRED}"
        assert buffers(explain(asked)) < 10
        expired_head(5_000)
        assert buffers(explain(asked)) < 10
        swept = explain(expire.expire_sql(expire.SWEEP_PICK), 1_000)
        assert claimed(swept) == 1_000
        assert "pulse_job_expiry" in str(swept)
        assert "Seq Scan on pulse_django_job_hot" not in str(swept)
        assert buffers(swept) < 60_000  # a thousand rows are deleted here, and inserted in history

    def test_a_claim_steps_over_an_expired_head_by_the_same_index_as_ever(self) -> None:
        expired_head(5_000)
        lanes = rotation(Job.objects.lanes(), turn=0)
        assert lanes[0] == Lane("queue-0", 100)
        plan = explain_claim(100, lanes)
        assert claimed(plan) == 100
        assert "pulse_job_lane" in str(plan)
        assert "pulse_job_expiry" not in str(plan)
        assert "Seq Scan on pulse_django_job_hot" not in str(plan)
        assert buffers(plan) < 3_000 + 3 * 5_000

    def test_a_look_reads_256_keys_however_many_there_are(self) -> None:
        sql(
            "INSERT INTO pulse_django_job (task, queue, priority, lane_key)"
            " SELECT 'tests.add', 'tenants', 100, ':' || pg_catalog.left(pg_catalog.md5(n::text), 4) || n"
            " FROM generate_series(1, 20000) AS n"
        )
        plan = explain(lane_queries.waiting_sql(), [], [], [])
        assert claimed(plan) == QUEUES * PRIORITIES + lane_queries.MOST_KEYS
        assert "Seq Scan on pulse_django_job_hot" not in str(plan)
        assert buffers(plan) < 14 * (QUEUES * PRIORITIES + lane_queries.MOST_KEYS)

    def test_blocked_jobs_at_the_head_are_not_read(self) -> None:
        sql(
            "INSERT INTO pulse_django_job (task, queue, priority, lane_key, next_run_at)"
            " SELECT 'tests.add', 'queue-0', 100, CASE WHEN n > 50 THEN 'api:0000full' ELSE 'api:1111free' END,"
            " clock_timestamp() - n * interval '1 s' FROM generate_series(1, 20050) AS n"
        )
        plan = explain_claim(100, [Lane("queue-0", 100, "api:1111free"), Lane("queue-0", 9)])
        assert claimed(plan) == 100
        assert buffers(plan) < 3_000

    def test_the_jobs_of_an_object_are_found_without_reading_the_others(self) -> None:
        sql(
            "INSERT INTO pulse_django_job (task, tags)"
            " SELECT 'tests.add', ARRAY['shop.order:' || n %% 250, 'billing'] FROM generate_series(1, 5000) AS n"
        )
        sql("ANALYZE pulse_django_job")
        jobs = Job.objects.tagged("shop.order:7")
        with CaptureQueriesContext(connection) as queries:
            assert len(jobs.order_by((F("pk") + 0).desc())) == 20
        [asked] = [one["sql"].replace("%", "%%") for one in queries]
        plan = explain(asked)
        assert "pulse_job_tags" in str(plan)
        assert "Seq Scan on pulse_django_job_hot" not in str(plan)
        assert buffers(plan) < 100

    def test_the_board_takes_12_queries_and_counts_a_share_of_each_lane(self) -> None:
        queries, read = read_by_page("admin:pulse_django_board_changelist")
        assert queries <= 12
        # A thousand lanes, some ten pages of the index for each, and the conditions of queues, which look for keys.
        assert read < 60_000

    def test_a_minute_is_written_without_reading_the_backlog(self) -> None:
        assert read_by_minute() < 2_500

    def test_no_condition_reads_the_backlog(self) -> None:
        # A lane takes some four buffers to find, and there are a thousand.
        too_many = {name: read for name, read in read_by_conditions().items() if read > 20_000}
        assert too_many == {}

    def test_a_pause_that_does_nothing_is_found_out_without_reading_the_lanes(self) -> None:
        asked = f"SELECT {lane_queries.ARE_SET_ASIDE}"
        assert buffers(explain(asked)) < 10
        Pause.objects.pause("tests.paused")
        plan = explain(set_aside.set_aside_sql(), 1_000)
        assert claimed(plan) == 0
        # A share of 20 jobs of each lane.
        assert buffers(plan) < 40 * QUEUES * PRIORITIES
        assert buffers(explain(set_aside.bring_back_sql(), 1_000)) < 20

    def test_a_hundred_thousand_jobs_that_are_set_aside_at_the_head_cost_a_claim_nothing(self) -> None:
        lanes = [Lane("queue-0", 9)]
        paused_head(100_000, ready="NULL")
        assert buffers(explain(f"SELECT {lane_queries.ARE_SET_ASIDE}")) < 10
        assert buffers(explain(set_aside.bring_back_sql(), 1_000)) < 20
        Pause.objects.resume("tests.paused")
        Pause.objects.pause("tests.paused", queue="queue-0")
        assert buffers(explain(set_aside.bring_back_sql(), 1_000)) < 20
        behind_them = explain_claim(100, lanes)
        sql("DELETE FROM pulse_django_job_hot WHERE ready IS NULL")
        Pause.objects.all().delete()
        sql(
            "UPDATE pulse_django_job_hot SET status = 'PENDING', locked_by = NULL, lease_until = NULL, token = NULL,"
            " started_at = NULL WHERE status::text = 'RUNNING'"
        )
        without = explain_claim(100, lanes)
        assert claimed(behind_them) == claimed(without) == 100
        assert buffers(behind_them) < 3_000
        assert buffers(behind_them) < 1.1 * buffers(without) + 100

    def test_nor_a_look(self) -> None:
        before = buffers(explain(lane_queries.waiting_sql(), [], [], []))
        paused_head(100_000, ready="NULL")
        plan = explain(lane_queries.waiting_sql(), [], [], [])
        assert claimed(plan) == QUEUES * PRIORITIES
        assert buffers(plan) < 1.1 * before + 100

    def test_a_claim_steps_over_jobs_of_a_paused_task_by_the_same_index_as_ever(self) -> None:
        paused_head(5_000)
        plan = explain_claim(100, rotation(Job.objects.lanes(), turn=0))
        assert claimed(plan) == 100
        assert "pulse_job_lane" in str(plan)
        assert "pulse_job_aside" not in str(plan)
        assert "'Node Type': 'Sort'" not in str(plan["Plan"]["Plans"][0]), "a lane would be read whole"
        assert "Seq Scan on pulse_django_job_hot" not in str(plan)
        assert buffers(plan) < 3_000 + 3 * 5_000
        [asked] = [node for node in nodes(plan) if node.get("Relation Name") == "pulse_django_pause"]
        assert asked["Actual Loops"] == 1, "and not for each lane or job"

    def test_a_thousand_jobs_are_set_aside_and_brought_back_without_reading_the_others(self) -> None:
        paused_head(20_000)
        plan = explain(set_aside.set_aside_sql(), 1_000)
        assert claimed(plan) == 1_000
        assert "Seq Scan on pulse_django_job_hot" not in str(plan)
        assert buffers(plan) < 40 * QUEUES * PRIORITIES + 60_000
        sql("UPDATE pulse_django_job_hot SET ready = NULL WHERE task = 'tests.paused'")
        Pause.objects.all().delete()
        plan = explain(set_aside.bring_back_sql(), 1_000)
        assert claimed(plan) == 1_000
        assert "pulse_job_aside" in str(plan)
        assert "Seq Scan on pulse_django_job_hot" not in str(plan)
        assert buffers(plan) < 60_000

    def test_neither_a_condition_nor_the_board_reads_what_is_set_aside(self) -> None:
        paused_head(50_000, ready="NULL")
        assert {name: read for name, read in read_by_conditions().items() if read > 20_000} == {}
        _, read = read_by_page("admin:pulse_django_board_changelist")
        assert read < 60_000 + 60_000, "it counts 50,000 of them"

    # The last one: dead index entries of its many changes stay after the rollback.
    def test_leases_of_a_limit_and_of_a_key_are_counted_from_the_index_of_leases(self) -> None:
        sql(
            "UPDATE pulse_django_job_hot SET status = 'RUNNING', attempts = 1, locked_by = 'w:b:1', token = id,"
            " lease_until = clock_timestamp() + interval '1 h', started_at = clock_timestamp(),"
            " lane_key = CASE WHEN queue = 'queue-0' THEN 'api:' ELSE 'other:' END || (id / 100 %% 10)"
            " WHERE id IN (SELECT id FROM pulse_django_job_hot ORDER BY id LIMIT 20000)"
        )
        sql("ANALYZE pulse_django_job_hot")
        Limiter.objects.override("api", {"max_running": 500, "max_running_per_key": 100})
        keys = [f"api:{key}" for key in range(10)]
        sql("SELECT set_config('pulse.got', '{1}', true)")
        count = ["api", "", "api", 0, "", 0, keys, [10] * 10, [0] * 10, 100, 100]
        plan = explain(claim_limited.COUNT, *count)
        assert "pulse_job_held_limit" in str(plan)
        assert "pulse_job_held_key" in str(plan)
        assert "Seq Scan on pulse_django_job_hot" not in str(plan)
        assert buffers(plan) < 1_000


@pytest.mark.usefixtures("pulse_db")
class TestPoisonedStatistics:
    """Thousands of finished rows analysed, then a few claimable ones: planners then re-run what they think is tiny."""

    def fill(self) -> None:
        sql("TRUNCATE pulse_django_job")
        sql(
            "INSERT INTO pulse_django_job (task, status, attempts, finished_at)"
            " SELECT 'tests.add', 'COMPLETED', 1, clock_timestamp() FROM generate_series(1, 5000)"
        )
        sql("ANALYZE pulse_django_job")
        Job.objects.enqueue_many([NewJob(task="tests.add")] * 50)

    @each_of("", "hashjoin", "nestloop", "mergejoin", "indexscan", "seqscan", "material")
    def test_a_claim_takes_its_limit_and_no_more(self, *, discouraged: Any) -> None:
        self.fill()
        if discouraged:
            sql(f"SET enable_{discouraged} = off")
        try:
            assert len(Job.objects.claim(Identity("me"), limit=3)) == 3
            assert Job.objects.running().count() == 3
            sql(
                "UPDATE pulse_django_job SET lease_until = clock_timestamp() - interval '1 s'"
                " WHERE locked_by IS NOT NULL"
            )
            assert len(Job.objects.reap(limit=2)) == 2
            assert Job.objects.prune(Status.COMPLETED, older_than=timedelta(), limit=4) == 4
            assert Job.objects.filter(status=Status.COMPLETED).count() == 4996
        finally:
            if discouraged:
                sql(f"RESET enable_{discouraged}")

    def test_the_naive_claim_takes_more_than_its_limit(self) -> None:
        """The trap is real. Should a release of PostgreSQL close it, this test is where we learn of it."""
        self.fill()
        taken = sql(
            "UPDATE pulse_django_job SET status = 'RUNNING', attempts = attempts + 1, locked_by = 'naive',"
            " lease_until = clock_timestamp(), token = 1, started_at = clock_timestamp()"
            " WHERE status = 'PENDING' AND id IN (SELECT id FROM pulse_django_job WHERE status = 'PENDING'"
            " LIMIT 3 FOR UPDATE SKIP LOCKED) RETURNING id"
        )
        assert len(taken) > 3


@pytest.mark.usefixtures("pulse_db")
class TestHeartbeats:
    @pytest.mark.parametrize("rule", [None, Unique(), Unique(until="start")], ids=["plain", "unique", "until start"])
    def test_beats_of_1000_leases_are_hot_updates(self, rule: Unique | None) -> None:
        sql("TRUNCATE pulse_django_job")
        # An ANALYZE of its own accord would look at old versions meanwhile, and they could not be pruned.
        sql("ALTER TABLE pulse_django_job_hot SET (autovacuum_enabled = off)")
        Job.objects.enqueue_many(
            NewJob(
                task="tests.add",
                args=[n, "customer@example.com"],
                unique=None if rule is None else UniqueKey.of(str(n), rule),
            )
            for n in range(20_000)
        )
        sql("VACUUM ANALYZE pulse_django_job")
        me = Identity("me")
        leases: list[Lease] = []
        while len(leases) < 1_000:
            leases += [claim.lease for claim in Job.objects.claim(me, limit=100)]

        updates, hot = update_counts()
        for _ in range(5):
            wait_until(nothing_keeps_dead_rows)
            assert len(Job.objects.heartbeat(leases).alive) == 1_000
        after, hot_after = update_counts()
        sql("ALTER TABLE pulse_django_job_hot RESET (autovacuum_enabled)")

        assert after - updates == 5_000
        assert (hot_after - hot) / (after - updates) >= 0.95


def nothing_keeps_dead_rows() -> bool:
    """Return whether dead rows can be pruned. Every snapshot is as old as the oldest writer, of any database."""
    [(free,)] = sql(
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND (backend_xid IS NOT NULL OR datname = current_database() AND backend_xmin IS NOT NULL))"
    )
    return bool(free)


def update_counts() -> tuple[int, int]:
    sql("SELECT pg_stat_force_next_flush()")
    [(updates, hot)] = sql(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'pulse_django_job_hot'"
    )
    return updates, hot


@pytest.fixture(scope="class")
def history(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A million finished jobs, half of them dead letters that are kept for ever."""
    with tables(django_db_blocker), past_days():
        with indexes_built_afterwards():
            sql(
                "INSERT INTO pulse_django_job (era, task, status, attempts, last_error, finished_at)"
                f" SELECT CASE WHEN n %% 2 = 0 THEN {ERA} ELSE 0 END, 'tests.add',"
                " CASE WHEN n %% 2 = 0 THEN 'COMPLETED' ELSE 'DEAD_LETTERED' END, 1, 'ValueError', at FROM ("
                "SELECT n, clock_timestamp() - n * interval '1 second' - (n %% 2) * interval '30 days'"
                " FROM generate_series(1, %s) AS n) AS made (n, at)",
                MILLION,
            )
        vacuum()
        yield


@pytest.mark.usefixtures("history", "undone")
class TestAMillionFinishedJobs:
    def test_an_empty_reap_reads_fewer_than_20_buffers(self) -> None:
        pick, params = reap._reap_pick(Job, "default", 1_000)
        assert (
            buffers(
                explain(reap._reap_sql().format(pick=pick), 5, 3600.0, 1.0, 0.9, 0.2, timedelta(seconds=30), *params)
            )
            < 20
        )

    def test_an_idle_poll_reads_next_to_nothing(self) -> None:
        assert Job.objects.lanes() == []
        assert buffers(explain_claim(100, [Lane("default", 0)])) < 20

    def test_the_board_takes_12_queries_and_reads_little(self) -> None:
        queries, read = read_by_page("admin:pulse_django_board_changelist")
        assert queries <= 12
        assert read < 1_000  # 389 to 412 were measured

    def test_a_minute_is_written_from_what_ended_in_it(self) -> None:
        assert read_by_minute() < 3_500  # of it 2,000 to find where the minute begins and ends among 18 partitions

    def test_no_condition_reads_the_history(self) -> None:
        # Those that look at the latest 2,000 rows of a kind find each of them, and its row in the ledger.
        too_many = {name: read for name, read in read_by_conditions().items() if read > 20_000}
        assert too_many == {}

    def test_pruning_does_not_wade_through_what_is_kept(self) -> None:
        # Every dead letter is older than every completed job.
        pick, params = prune._prune_pick(Job, "default", Status.COMPLETED, timedelta(days=7), 100, True)
        plan = explain(f"SELECT * FROM ({pick}) AS pick", *params)
        assert claimed(plan) == 100
        assert buffers(plan) < 500

    def test_the_newest_dead_letters_are_read_from_their_index(self) -> None:
        newest = Job.objects.dead_letters().order_by("-finished_at", "-id").values("id")[:50]
        statement, params = newest.query.get_compiler("default").as_sql()
        assert buffers(explain(statement, *params)) < 50  # two or so for each partition0

    def test_a_settle_is_one_index_probe_per_job(self) -> None:
        job_id = Job.objects.order_by("id").values_list("id", flat=True)[0]
        lease = Lease(job_id, "nobody", 1)
        completed = Report(lease, Succeeded(), Complete())
        snoozed = Report(lease, Snoozed(timedelta()), Postpone(timedelta()))
        for reports in ([completed], [snoozed]):
            completes = reports == [completed]
            source, params = settle.completions(reports) if completes else settle.reported(reports)
            statement = settle.statement_of(source, completes, wait=True)
            assert buffers(explain(statement, *params)) < 20

    def test_a_large_batch_of_completions_is_still_one_index_probe_per_job(self) -> None:
        ids = Job.objects.order_by("-id").values_list("id", flat=True)[:400]
        source, params = settle.completions([Report(Lease(pk, "nobody", 1), Succeeded(), Complete()) for pk in ids])
        plan = explain(settle.statement_of(source, True, wait=False), *params)
        assert buffers(plan) < 400 * 5

    def test_the_children_of_a_job_are_read_from_their_index(self) -> None:
        children = Job.objects.filter(parent_id=5).values("id")
        statement, params = children.query.get_compiler("default").as_sql()
        assert buffers(explain(statement, *params)) < 50  # two for each partition
