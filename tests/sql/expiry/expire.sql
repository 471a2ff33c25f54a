-- expire(): every job, not on Citus
WITH expired AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job_hot
    WHERE attempts = 0 AND expires_at IS NOT NULL AND status::text = 'PENDING' AND expires_at <= statement_timestamp()
    ORDER BY expires_at
    LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    USING expired
    WHERE job.id = ANY (ARRAY[expired.id]) AND job.attempts = 0
    RETURNING job.id, job.task, job.queue, job.priority, job.args, job.kwargs, job.payload_bytes, job.parent_id,
        job.trace, job.sensitive, job.next_run_at, job.attempts, job.refunds, job.losses, job.progress, job.progress_at,
        job.cancel_requested_at, job.cancel_reason, job.last_error, job.created_at, job.started_at, job.tags,
        job.search_terms, job.meta, job.max_attempts, job.timeout, job.lease_ttl, job.progress_timeout,
        job.max_lost_workers, job.count_lost_workers, job.idempotency_key, job.give_up_after, job.weight,
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited
),
history AS (
    INSERT INTO pulse_django_job_over (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace,
        sensitive, next_run_at, attempts, refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason,
        last_error, created_at, started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl,
        progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight, expires_at,
        on_dead, batch_id, node, awaited, era, finished_at, status)
    SELECT id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive, next_run_at, attempts,
        refunds, losses, progress, progress_at, cancel_requested_at, 'not started in time', last_error, created_at,
        started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl, progress_timeout, max_lost_workers,
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
)
SELECT id, task, queue FROM gone;

-- _expire_one()
WITH expired AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job_hot
    WHERE id = ANY (:id::bigint[])
        AND attempts = 0
        AND expires_at IS NOT NULL
        AND status::text = 'PENDING'
        AND expires_at <= statement_timestamp()
    ORDER BY id
    FOR NO KEY UPDATE),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    USING expired
    WHERE job.id = ANY (ARRAY[expired.id]) AND job.attempts = 0
    RETURNING job.id, job.task, job.queue, job.priority, job.args, job.kwargs, job.payload_bytes, job.parent_id,
        job.trace, job.sensitive, job.next_run_at, job.attempts, job.refunds, job.losses, job.progress, job.progress_at,
        job.cancel_requested_at, job.cancel_reason, job.last_error, job.created_at, job.started_at, job.tags,
        job.search_terms, job.meta, job.max_attempts, job.timeout, job.lease_ttl, job.progress_timeout,
        job.max_lost_workers, job.count_lost_workers, job.idempotency_key, job.give_up_after, job.weight,
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited
),
history AS (
    INSERT INTO pulse_django_job_over (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace,
        sensitive, next_run_at, attempts, refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason,
        last_error, created_at, started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl,
        progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight, expires_at,
        on_dead, batch_id, node, awaited, era, finished_at, status)
    SELECT id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive, next_run_at, attempts,
        refunds, losses, progress, progress_at, cancel_requested_at, 'not started in time', last_error, created_at,
        started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl, progress_timeout, max_lost_workers,
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
)
SELECT id, task, queue FROM gone;
