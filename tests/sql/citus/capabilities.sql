-- ExpiringOnCitus.expire(): on Citus
-- the whole: 8b1b5b68
-- 7 lines of expiry/expire.sql: WITH expired AS MATERIALIZED (
SELECT pg_catalog.json_strip_nulls(pg_catalog.json_build_object('id'::text, id, 'written_at'::text, clock_timestamp(),
    'today'::text, (
            SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int)))::text
FROM expired;

-- ExpiringOnCitus.expire()
-- the whole: 84190fe7
INSERT INTO pulse_django_job (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive,
    next_run_at, attempts, refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason, last_error,
    created_at, started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl, progress_timeout,
    max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight, expires_at, on_dead, batch_id, node,
    awaited, era, finished_at, status)
-- 4 lines of expiry/expire.sql: SELECT id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive, next_run_at, attempts
        pg_catalog.octet_length(on_dead::text) <= 1000 THEN on_dead END, batch_id, node, awaited, source_today,
        source_written_at, 'CANCELLED'
    FROM (
    SELECT job.id, job.task, job.queue, job.priority, job.args, job.kwargs, job.payload_bytes, job.parent_id, job.trace,
        job.sensitive, job.next_run_at, job.attempts, job.refunds, job.losses, job.progress, job.progress_at,
-- 3 lines of cancel.sql: job.cancel_requested_at, job.cancel_reason, job.last_error, job.created_at, job.started_at, job.tags
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, expired.written_at AS source_written_at,
        expired.today AS source_today
    FROM pulse_django_job_hot AS job
    CROSS JOIN (
        SELECT id, written_at, today
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:written_at::timestamptz[]),
            pg_catalog.unnest(:today::int[])) AS given (id, written_at, today)) AS expired
    WHERE job.id = ANY (ARRAY[expired.id]) AND job.attempts = 0
) AS gone;

-- ExpiringOnCitus.expire()
-- the whole: 82c0aa86
-- 4 lines of cancel.sql: INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
-- 15 lines of citus/capabilities.sql: FROM (
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2;

-- ExpiringOnCitus.expire()
-- the whole: e9f3f01e
DELETE FROM pulse_django_job_hot AS job
    USING (SELECT id FROM ROWS FROM (pg_catalog.unnest(:id::bigint[])) AS given (id)) AS expired
    WHERE job.id = ANY (ARRAY[expired.id]) AND job.attempts = 0
    RETURNING job.id, job.task, job.queue;

-- TakingWindowOnCitus.clauses()
-- the whole: 755c7270
SELECT pg_catalog.nextval('pulse_django_job_id_seq'::regclass);

-- LimitedClaimingOnCitus.send()
-- the whole: 66e32363
-- 65 lines of limits/claim_limited.sql: WITH;

-- LimitedClaimingOnCitus.send()
-- the whole: ed2443d0
-- 51 lines of limits/claim_limited.sql: WITH
clock AS MATERIALIZED (SELECT clock_timestamp() AS at, :said::text::int[] AS got),
-- 159 lines of limits/claim_limited.sql: held AS MATERIALIZED (;

-- LimitedClaimingOnCitus.send()
-- the whole: 2aeb70be
-- 10 lines of limits/claim_limited.sql: WITH picked AS MATERIALIZED (
        pg_catalog.unnest(:said::text::int[]), pg_catalog.unnest(:since::float8[])
-- 24 lines of limits/claim_limited.sql: ) WITH ORDINALITY AS lane (queue, priority, key, take, since, place)
                AND pulse_django_job_hot.weight <= (:said::text::int))
-- 13 lines of limits/claim_limited.sql: ORDER BY pulse_django_job_hot.next_run_at ASC, 1 ASC
    LIMIT :said::text::int
-- 4 lines of limits/claim_limited.sql: )
        weighs <= (:said::text::int[])[lane] AS fits_key
-- 27 lines of limits/claim_limited.sql: FROM (
        fits_key AND weighs <= :said::text::int AS has_room, lane
-- 8 lines of claim.sql: FROM in_line
        :said::text::timestamptz AS started_at
-- 23 lines of claim.sql: FROM fitting
    lane_key, :said::text::boolean, timeout, progress_timeout, max_lost_workers, count_lost_workers, give_up_after,
        weight, line.is_left, line.lanes
-- 8 lines of limits/claim_limited.sql: FROM (;

-- LimitedClaimingOnCitus.send()
-- the whole: e07277d7
WITH claimed AS MATERIALIZED (SELECT pg_catalog.unnest(:lane_key::text[]) AS lane_key),
-- 51 lines of limits/claim_limited.sql: limiter AS MATERIALIZED (
-- 3 lines of limits/claim_limited.sql: taken.scope
            CASE WHEN EXTRACT(epoch FROM old.at - :said::text::timestamptz)::float8 <= taken.per THEN
                old.tokens + (taken.n - taken.burst + 1::float8) / taken.per
                    * EXTRACT(epoch FROM :said::text::timestamptz - old.at)::float8
            END
        ) - taken.starts,
        :said::text::timestamptz
-- 22 lines of limits/claim_limited.sql: FROM (;

-- LimitedClaimingOnCitus.send()
-- the whole: 6f48b665
INSERT INTO pulse_django_bucket AS bucket (scope, tokens, at)
SELECT *
FROM ROWS FROM (
    pg_catalog.unnest(:scope::text[]), pg_catalog.unnest(:tokens::float8[]), pg_catalog.unnest(:at::timestamptz[])
) AS taken (scope, tokens, at)
ON CONFLICT (scope) DO UPDATE SET tokens = excluded.tokens, at = excluded.at
RETURNING scope;

-- SleepingOnCitus.begin()
-- the whole: fa3fbf4e
-- 6 lines of workflows/steps.sql: WITH held AS MATERIALIZED (
SELECT pg_catalog.json_strip_nulls(pg_catalog.json_build_object('id'::text, id, 'attempts'::text, attempts,
    'token'::text, token, 'written_at'::text, clock_timestamp(), 'today'::text, (
            SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int)))::text
FROM held;

-- SleepingOnCitus.begin()
-- the whole: 20eb149d
-- 5 lines of workflows/steps.sql: INSERT INTO pulse_django_step (job_id, name, number, attempt, token, seconds)
    FROM (
        SELECT id, attempts, token
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:attempts::int[]),
            pg_catalog.unnest(:token::bigint[])) AS given (id, attempts, token)) AS held
    ON CONFLICT (job_id, name) DO NOTHING
    RETURNING at, seconds;

-- SleepingOnCitus.begin()
-- the whole: 25b57b4f
SELECT EXTRACT(epoch FROM at + seconds * interval '1 second' - clock_timestamp())::float8
FROM pulse_django_step
WHERE job_id = :job_id AND name::text = :name;

-- WalkingOnCitus.note()
-- the whole: 73e645ad
-- 35 lines of workflows/needs.sql: WITH walked AS MATERIALIZED (
SELECT pg_catalog.max(id), (SELECT count(*) FROM overlooked), ARRAY(SELECT id FROM overlooked) FROM walked;

-- WalkingOnCitus.note()
-- the whole: 5a7483f8
-- 25 lines of workflows/needs.sql: WITH walked AS MATERIALIZED (
SELECT pg_catalog.max(id), (SELECT count(*) FROM overlooked), ARRAY(SELECT id FROM overlooked) FROM walked;

-- SealingOnCitus.seal()
-- the whole: 1b3e6603
-- 12 lines of workflows/batch_verbs.sql: WITH found AS MATERIALIZED (
SELECT is_open OR is_cancelled FROM found;

-- JudgingOnCitus.judge()
-- the whole: c4af9cae
-- 77 lines of workflows/batch_verbs.sql: WITH news AS MATERIALIZED (
again (batch_id, died) AS MATERIALIZED (
-- 7 lines of workflows/batch_verbs.sql: SELECT parent_id, dies_at IS DISTINCT FROM died_at
)
SELECT id, finishes_at IS NOT NULL, has_wanted, ARRAY(SELECT batch_id FROM again), ARRAY(SELECT died FROM again)
FROM verdict;

-- JudgingOnCitus.judge()
-- the whole: ef95e2af
INSERT INTO pulse_django_unresolved (batch_id, died)
SELECT *
FROM ROWS FROM (pg_catalog.unnest(:batch_id::bigint[]), pg_catalog.unnest(:died::boolean[])) AS again (batch_id, died)
RETURNING id;

-- ResolvingOnCitus.mark()
-- the whole: efe9780c
-- 60 lines of workflows/resolve.sql: WITH unmet AS MATERIALIZED (
SELECT pg_catalog.json_strip_nulls(pg_catalog.json_build_object('id'::text, id, 'job_id'::text, job_id, 'met'::text,
    met, 'met_at'::text, met_at, 'written_at'::text, clock_timestamp(), 'today'::text, (
            SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int)))::text
FROM how;

-- ResolvingOnCitus.mark()
-- the whole: ec6c081f
UPDATE pulse_django_dependency AS dependency
    SET met_at = how.met_at, met = how.met
    FROM (
        SELECT id, met, met_at
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:met::text[]),
            pg_catalog.unnest(:met_at::timestamptz[])) AS given (id, met, met_at)) AS how
    WHERE dependency.id = how.id;

-- ResolvingOnCitus.mark()
-- the whole: df4cb334
INSERT INTO pulse_django_unresolved (job_id)
    SELECT DISTINCT how.job_id
    FROM (
        SELECT id, job_id
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:job_id::bigint[])) AS given (id,
            job_id)) AS how
    JOIN pulse_django_job_hot AS job ON job.id = how.job_id
    WHERE job.finished_at IS NULL AND how.job_id <> ALL (:job_id_2::bigint[])
    RETURNING job_id;

-- ResolvingOnCitus.free()
-- the whole: f266f68d
-- 38 lines of workflows/resolve.sql: WITH paused AS MATERIALIZED (
SELECT pg_catalog.json_strip_nulls(pg_catalog.json_build_object('id'::text, id, 'task'::text, task, 'queue'::text,
    queue, 'attempts'::text, attempts, 'run_at'::text, run_at, 'is_ready'::text, is_ready, 'reason'::text, reason,
    'is_free'::text, is_free, 'is_resumed'::text, is_resumed, 'written_at'::text, clock_timestamp(), 'today'::text, (
            SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int)))::text
FROM waiter;

-- ResolvingOnCitus.free()
-- the whole: 63f948ab
-- 6 lines of citus/capabilities.sql: INSERT INTO pulse_django_job (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive
-- 3 lines of workflows/resolve.sql: refunds, losses, progress, progress_at, cancel_requested_at, source_reason, last_error, created_at, started_at
-- 8 lines of citus/capabilities.sql: pg_catalog.octet_length(on_dead::text) <= 1000 THEN on_dead END, batch_id, node, awaited, source_today
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, lost.reason AS source_reason,
        lost.written_at AS source_written_at, lost.today AS source_today
    FROM pulse_django_job_hot AS job
    CROSS JOIN (
        SELECT id, task, queue, attempts, reason, written_at, today
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:task::text[]),
            pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:attempts::int[]), pg_catalog.unnest(:reason::text[]),
            pg_catalog.unnest(:written_at::timestamptz[]), pg_catalog.unnest(:today::int[])) AS given (id, task, queue,
            attempts, reason, written_at, today)) AS lost
    WHERE job.id = ANY (ARRAY[lost.id]) AND job.status::text = 'WAITING'
) AS gone;

-- ResolvingOnCitus.free()
-- the whole: 4df98794
-- 10 lines of citus/capabilities.sql: INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
-- 11 lines of citus/capabilities.sql: job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, lost.reason AS source_reason
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2;

-- ResolvingOnCitus.free()
-- the whole: 0c84e6a7
DELETE FROM pulse_django_job_hot AS job
    USING (
        SELECT id, task, queue
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:task::text[]),
            pg_catalog.unnest(:queue::text[])) AS given (id, task, queue)) AS lost
    WHERE job.id = ANY (ARRAY[lost.id]) AND job.status::text = 'WAITING'
    RETURNING job.id, job.task, job.queue;

-- ResolvingOnCitus.free()
-- the whole: 78e24792
WITH
-- 3 lines of workflows/resolve.sql: freed AS (
    FROM (
        SELECT id, task, queue, attempts, run_at, is_ready, reason, is_free
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:task::text[]),
            pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:attempts::int[]),
            pg_catalog.unnest(:run_at::timestamptz[]), pg_catalog.unnest(:is_ready::boolean[]),
            pg_catalog.unnest(:reason::text[]), pg_catalog.unnest(:is_free::boolean[])) AS given (id, task, queue,
            attempts, run_at, is_ready, reason, is_free)) AS waiter
-- 4 lines of workflows/resolve.sql: WHERE job.id = waiter.id AND job.status::text = 'WAITING' AND waiter.is_free AND waiter.reason IS NULL;
