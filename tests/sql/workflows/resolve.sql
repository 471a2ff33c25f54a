-- resolve(): every job
SELECT id, job_id, batch_id, event
FROM pulse_django_unresolved
WHERE id > :id
ORDER BY id
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- resolve(): workflows, all
SELECT id
FROM pulse_django_job_hot
WHERE status::text = 'WAITING' AND (
    id = ANY (:jobs::bigint[]) OR id = ANY (ARRAY(SELECT job_id FROM (
SELECT * FROM pulse_django_dependency WHERE needs = ANY (:jobs::bigint[]) AND needs IS NOT NULL AND met_at IS NULL
UNION
SELECT * FROM pulse_django_dependency WHERE job_id = ANY (:jobs::bigint[]) AND met_at IS NULL
UNION
SELECT * FROM pulse_django_dependency
WHERE needs_batch = ANY (:batches::bigint[]) AND needs_batch IS NOT NULL AND met_at IS NULL
UNION
SELECT * FROM pulse_django_dependency
WHERE needs_event::text = ANY (:events::text[]) AND needs_event IS NOT NULL AND met_at IS NULL
UNION
(
    SELECT * FROM pulse_django_dependency
    WHERE until <= statement_timestamp() AND until IS NOT NULL AND met_at IS NULL
    ORDER BY until
    LIMIT :limit
)
) AS unmet))
)
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED;

-- resolve(): workflows, all
WITH unmet AS MATERIALIZED (
SELECT * FROM pulse_django_dependency WHERE needs = ANY (:jobs::bigint[]) AND needs IS NOT NULL AND met_at IS NULL
UNION
SELECT * FROM pulse_django_dependency WHERE job_id = ANY (:jobs::bigint[]) AND met_at IS NULL
UNION
SELECT * FROM pulse_django_dependency
WHERE needs_batch = ANY (:batches::bigint[]) AND needs_batch IS NOT NULL AND met_at IS NULL
UNION
SELECT * FROM pulse_django_dependency
WHERE needs_event::text = ANY (:events::text[]) AND needs_event IS NOT NULL AND met_at IS NULL
UNION
(
    SELECT * FROM pulse_django_dependency
    WHERE until <= statement_timestamp() AND until IS NOT NULL AND met_at IS NULL
    ORDER BY until
    LIMIT :limit
)
),
judged AS MATERIALIZED (
    SELECT unmet.id, unmet.job_id,
CASE
    WHEN unmet.needs IS NOT NULL THEN CASE
        WHEN hot.status IS NULL THEN CASE WHEN over.status::text = 'CANCELLED' THEN 'cancelled' ELSE 'done' END
        WHEN hot.status::text = 'DEAD_LETTERED' AND unmet.on_need_failed::text <> 'wait' THEN 'dead'
    END
    WHEN unmet.needs_batch IS NOT NULL THEN CASE
        WHEN batch.id IS NULL THEN 'done'
        WHEN unmet.moment::text = 'ended' THEN CASE WHEN batch.ended_at IS NOT NULL THEN 'done' END
        WHEN unmet.moment::text = 'dead' THEN CASE
            WHEN batch.died_at IS NOT NULL AND batch.sealed_at IS NOT NULL AND batch.cancelled_at IS NULL THEN 'done'
            WHEN batch.finished_at IS NOT NULL THEN 'cancelled'
        END
        WHEN batch.finished_at IS NOT NULL THEN CASE WHEN batch.cancelled_at IS NULL THEN 'done' ELSE 'cancelled' END
        WHEN unmet.on_need_failed::text = 'continue' AND batch.ended_at IS NOT NULL THEN 'dead'
        WHEN unmet.on_need_failed::text = 'cancel' AND batch.died_at IS NOT NULL AND batch.sealed_at IS NOT NULL
            THEN 'dead'
    END
    WHEN event.name IS NOT NULL THEN 'done'
    WHEN unmet.until <= statement_timestamp() THEN 'timed out'
END
 AS met
    FROM unmet
    LEFT JOIN pulse_django_job_hot AS hot ON hot.id = unmet.needs
    LEFT JOIN LATERAL (
        SELECT status FROM pulse_django_job WHERE id = unmet.needs AND era <> 0 AND hot.id IS NULL LIMIT 1
    ) AS over ON true
    LEFT JOIN pulse_django_batch AS batch ON batch.id = unmet.needs_batch
    LEFT JOIN pulse_django_event AS event ON event.name::text = unmet.needs_event::text
),
locked AS MATERIALIZED (
    SELECT id FROM pulse_django_dependency
    WHERE id = ANY (ARRAY(SELECT id FROM judged WHERE met IS NOT NULL)) AND met_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
),
how AS MATERIALIZED (
    SELECT judged.id, judged.job_id, judged.met, clock_timestamp() AS met_at
    FROM judged
    JOIN locked ON locked.id = judged.id
),
marked AS (
    UPDATE pulse_django_dependency AS dependency
    SET met_at = how.met_at, met = how.met
    FROM how
    WHERE dependency.id = how.id
),
left_over AS (
    INSERT INTO pulse_django_unresolved (job_id)
    SELECT DISTINCT how.job_id
    FROM how
    JOIN pulse_django_job_hot AS job ON job.id = how.job_id
    WHERE job.finished_at IS NULL AND how.job_id <> ALL (:locked::bigint[])
    RETURNING job_id
)
SELECT job_id FROM left_over;

-- resolve(): workflows, all
WITH change AS MATERIALIZED (
    SELECT
        id,
        batch_id IS NOT NULL AND batch_id <> ALL (:batches::bigint[])
            AND EXISTS (SELECT 1 FROM pulse_django_batch AS batch WHERE batch.id = one.batch_id) AS has_batch,
        job_id IS NOT NULL AND job_id <> ALL (:waiting::bigint[]) AND EXISTS (
            SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = one.job_id AND job.status::text = 'WAITING'
        ) AS has_job
    FROM pulse_django_unresolved AS one
    WHERE id = ANY (:rows::bigint[])
),
counted AS (
    UPDATE pulse_django_unresolved AS counted
    SET batch_id = NULL, added = 0, completed = 0, cancelled = 0, died = false
    FROM change
    WHERE counted.id = change.id AND change.has_job AND NOT change.has_batch AND counted.batch_id IS NOT NULL
)
DELETE FROM pulse_django_unresolved AS done
USING change
WHERE done.id = change.id AND NOT change.has_batch AND NOT change.has_job
RETURNING done.id;

-- resolve()
WITH paused AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch
    WHERE id = ANY (ARRAY(SELECT batch_id FROM pulse_django_job_hot WHERE id = ANY (:waiting::bigint[])))
        AND paused_at IS NOT NULL
    ORDER BY id
    FOR SHARE SKIP LOCKED
),
waiter AS MATERIALIZED (
    SELECT
        job.id, job.task, job.queue, job.attempts,
        GREATEST(job.next_run_at, clock_timestamp()) AS run_at,
        job.lane_key::text = '' OR job.next_run_at <= clock_timestamp() AS is_ready,
        CASE
            WHEN lost.needs IS NOT NULL AND lost.met::text = 'dead'
            THEN pg_catalog.format('job %%s, which it needs, is a dead letter', lost.needs)
            WHEN lost.needs IS NOT NULL THEN pg_catalog.format('job %%s, which it needs, was cancelled', lost.needs)
            WHEN lost.moment::text = 'dead' THEN 'no job of the batch became a dead letter'
            WHEN lost.met::text = 'dead'
            THEN pg_catalog.format('batch %%s, which it needs, has dead letters', lost.needs_batch)
            WHEN lost.id IS NOT NULL
            THEN pg_catalog.format('batch %%s, which it needs, was cancelled', lost.needs_batch)
        END AS reason,
        batch.paused_at IS NULL AND NOT EXISTS (
            SELECT 1 FROM pulse_django_dependency WHERE job_id = job.id AND met_at IS NULL
        ) AS is_free,
        batch.paused_at IS NOT NULL AND batch.id <> ALL (ARRAY(SELECT id FROM paused)) AS is_resumed
    FROM pulse_django_job_hot AS job
    LEFT JOIN pulse_django_batch AS batch ON batch.id = job.batch_id
    LEFT JOIN LATERAL (
        SELECT id, needs, needs_batch, moment, met
        FROM pulse_django_dependency
        WHERE job_id = job.id AND met::text IN ('dead', 'cancelled') AND on_need_failed::text <> 'continue'
        ORDER BY id
        LIMIT 1
    ) AS lost ON true
    WHERE job.id = ANY (:waiting::bigint[]) AND job.status::text = 'WAITING'
),
resumed AS (
    INSERT INTO pulse_django_unresolved (job_id) SELECT id FROM waiter WHERE is_resumed
),
lost AS MATERIALIZED (SELECT id, reason FROM waiter WHERE reason IS NOT NULL),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    USING lost
    WHERE job.id = ANY (ARRAY[lost.id]) AND job.status::text = 'WAITING'
    RETURNING job.id, job.task, job.queue, job.priority, job.args, job.kwargs, job.payload_bytes, job.parent_id,
        job.trace, job.sensitive, job.next_run_at, job.attempts, job.refunds, job.losses, job.progress, job.progress_at,
        job.cancel_requested_at, job.cancel_reason, job.last_error, job.created_at, job.started_at, job.tags,
        job.search_terms, job.meta, job.max_attempts, job.timeout, job.lease_ttl, job.progress_timeout,
        job.max_lost_workers, job.count_lost_workers, job.idempotency_key, job.give_up_after, job.weight,
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, lost.reason AS source_reason
),
history AS (
    INSERT INTO pulse_django_job_over (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace,
        sensitive, next_run_at, attempts, refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason,
        last_error, created_at, started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl,
        progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight, expires_at,
        on_dead, batch_id, node, awaited, era, finished_at, status)
    SELECT id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive, next_run_at, attempts,
        refunds, losses, progress, progress_at, cancel_requested_at, source_reason, last_error, created_at, started_at,
        tags, search_terms, meta, max_attempts, timeout, lease_ttl, progress_timeout, max_lost_workers,
        count_lost_workers, idempotency_key, give_up_after, weight, expires_at, CASE WHEN
        pg_catalog.pg_column_size(on_dead) <= 1000 THEN on_dead END, batch_id, node, awaited, (
        SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int), clock_timestamp(),
            'CANCELLED'
    FROM gone
),
over_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE 'CANCELLED' = 'COMPLETED'),
        count(*) FILTER (WHERE 'CANCELLED' <> 'COMPLETED')
    FROM gone
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
),
freed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'PENDING', next_run_at = waiter.run_at, ready = waiter.is_ready
    FROM waiter
    WHERE job.id = waiter.id AND job.status::text = 'WAITING' AND waiter.is_free AND waiter.reason IS NULL
    RETURNING job.id, job.queue
)
SELECT id, queue, NULL AS task, 0 AS attempts, NULL AS reason FROM freed
UNION ALL
SELECT waiter.id, waiter.queue, waiter.task, waiter.attempts, waiter.reason FROM waiter WHERE reason IS NOT NULL;
