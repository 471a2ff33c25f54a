"""The peers, and how each is set: as its own documentation has it for throughput, its defaults where that is silent.

Poll intervals are the defaults: shorter ones trade latency for idle load. Recovery is always measured at the defaults.
"""

from __future__ import annotations

from benchmarks.peers.peer import ASYNC, ORM, ORM_ASYNC, REDIS, SYNC, Peer

OURS = "pulse"
FLOOR = "floor"
FLOOR_TITLE = "the floor"
FLOOR_SETTINGS = (
    "drain: pgbench with this project's claim and settle, batches of 100, one connection for each process; "
    "enqueue: COPY of the same rows; pickup: a bare NOTIFY from one session to another"
)

PEERS = (
    Peer(
        name=OURS,
        title="this project",
        settings="defaults: pulse_worker, LISTEN/NOTIFY, finished jobs and their attempts are kept",
        left="SELECT count(*) FROM pulse_django_job WHERE status <> 'COMPLETED'",
        done="SELECT count(*) FROM pulse_django_job WHERE status = 'COMPLETED' AND attempts = 1",
        writes=(ORM, ORM_ASYNC),
    ),
    Peer(
        name="pgqueuer",
        title="PgQueuer",
        requirements=("pgqueuer", "asyncpg", "uvloop", "django", "psycopg[binary]"),
        settings="asyncpg, one connection, uvloop, batch_size 500, 8 threads; finished jobs are deleted and logged",
        left="SELECT count(*) FROM pgqueuer",
        done="SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'",
        writes=(ORM, ORM_ASYNC),
        starts_processes=False,
    ),
    Peer(
        name="procrastinate",
        title="Procrastinate",
        requirements=("procrastinate", "psycopg[binary]"),
        settings="psycopg, concurrency 10, LISTEN/NOTIFY, finished jobs are kept (its default)",
        left="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        done="SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
        starts_processes=False,
    ),
    Peer(
        name="django-tasks-db",
        title="django-tasks-db",
        requirements=("django-tasks-db[compat]; python_version < '3.12'", "django-tasks-db", "psycopg[binary]"),
        settings="db_worker, one task at a time as it always is, CONN_MAX_AGE None, polls every second",
        left="SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status <> 'SUCCESSFUL'",
        done="SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status = 'SUCCESSFUL'",
        writes=(ORM,),
        has_bulk=False,
        starts_processes=False,
        gap=0.7,
    ),
    Peer(
        name="chancy",
        title="Chancy",
        requirements=("chancy", "psycopg[binary]"),
        settings="thread and async executors, concurrency 100, eager_polling, notifications",
        left="SELECT count(*) FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed')",
        done="SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'",
        starts_processes=False,
    ),
    Peer(
        name="django-q2",
        title="django-q2",
        requirements=("django-q2", "psycopg[binary]"),
        settings="ORM broker, bulk 100, queue_limit 200, save_limit 0, recycling after 1,000,000, polls every 0.2 s",
        left="SELECT count(*) FROM django_q_ormq",
        done="SELECT count(*) FROM django_q_task WHERE success",
        modes=(SYNC,),
        has_bulk=False,
        gap=0.3,
    ),
    Peer(
        name="django-ox",
        title="django-ox",
        requirements=("django-ox", "psycopg[binary]", "django>=6.0"),
        settings="ox_worker, concurrency 10, CONN_MAX_AGE None, polls every second",
        left="SELECT count(*) FROM django_ox_oxtask WHERE status <> 'SUCCESSFUL'",
        done="SELECT count(*) FROM django_ox_oxtask WHERE status = 'SUCCESSFUL'",
        gap=0.7,
        writes=(ORM,),
    ),
    Peer(
        name="oban",
        title="Oban for Python",
        requirements=("oban",),
        settings="uvloop and orjson, a queue limit of 100, without Pro",
        left="SELECT count(*) FROM oban_jobs WHERE state <> 'completed'",
        done="SELECT count(*) FROM oban_jobs WHERE state = 'completed'",
        modes=(ASYNC,),
        starts_processes=False,
    ),
    Peer(
        name="awa",
        title="awa",
        requirements=("awa-pg",),
        settings="100 workers on the queue, 24 connections, COPY for bulk, its default queue storage",
        left="SELECT count(*) FROM awa.jobs WHERE state::text NOT IN ('completed')",
        done="SELECT count(*) FROM awa.jobs WHERE state::text = 'completed'",
        modes=(ASYNC,),
        starts_processes=False,
    ),
    Peer(
        name="celery",
        title="Celery (Redis)",
        requirements=("celery[redis]",),
        settings="prefork, worker_prefetch_multiplier 16, task_ignore_result, without gossip and mingle",
        store=REDIS,
        modes=(SYNC,),
        has_bulk=False,
    ),
    Peer(
        name="dramatiq",
        title="Dramatiq (Redis)",
        requirements=("dramatiq[redis]",),
        settings="defaults: eight threads in each process, no results; AsyncIO middleware",
        store=REDIS,
        has_bulk=False,
    ),
    Peer(
        name="rq",
        title="RQ (Redis)",
        requirements=("rq", "hiredis"),
        settings="worker-pool of SimpleWorker, which does not fork for each job; result_ttl 0",
        store=REDIS,
    ),
    Peer(
        name="huey",
        title="Huey (Redis)",
        requirements=("huey", "redis", "hiredis"),
        settings="process workers, results=False, blocking read",
        store=REDIS,
        modes=(SYNC,),
        has_bulk=False,
    ),
    Peer(
        name="graphile",
        title="graphile-worker (Node)",
        requirements=("graphile-worker",),
        settings="concurrentJobs 24, localQueue 500, completeJobBatchDelay 0, maxPoolSize 25; jobs are deleted",
        left="SELECT count(*) FROM graphile_worker._private_jobs",
        modes=(ASYNC,),
        starts_processes=False,
        is_node=True,
    ),
)
BY_NAME = {peer.name: peer for peer in PEERS}
