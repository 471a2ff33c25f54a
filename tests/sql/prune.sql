-- prune(): every job
WITH old (id) AS MATERIALIZED (
    SELECT pulse_django_job.id AS id
    FROM pulse_django_job
    WHERE (pulse_django_job.finished_at < (statement_timestamp() - :age)
            AND pulse_django_job.status::text = 'COMPLETED'
            AND NOT (((
    pulse_django_job.batch_id IS NOT NULL AND EXISTS (
        SELECT 1 FROM pulse_django_batch AS batch
        WHERE batch.id = pulse_django_job.batch_id AND batch.finished_at IS NULL
    )
    OR pulse_django_job.awaited AND EXISTS (
        SELECT 1 FROM pulse_django_dependency AS need
        WHERE need.needs = pulse_django_job.id AND need.needs IS NOT NULL AND need.met_at IS NULL
    )
)))) ORDER BY pulse_django_job.finished_at ASC, 1 ASC LIMIT 1000 FOR UPDATE OF pulse_django_job SKIP LOCKED),
gone AS (
    DELETE FROM pulse_django_job
    WHERE id = ANY (ARRAY(SELECT id FROM old)) AND finished_at IS NOT NULL
    RETURNING id, task, idempotency_key, era, batch_id, awaited
),over_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE 'CANCELLED' = 'COMPLETED'),
        count(*) FILTER (WHERE 'CANCELLED' <> 'COMPLETED')
    FROM (SELECT * FROM gone WHERE era = 0) AS dead
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
),
entry AS MATERIALIZED (
    SELECT id
    FROM pulse_django_attempt
    WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
    ORDER BY job_id, number
    FOR UPDATE
),
ledger AS (
    DELETE FROM pulse_django_attempt WHERE id = ANY (ARRAY(SELECT id FROM entry))
),
freed AS (
    DELETE FROM pulse_django_key AS key
    USING gone AS job
    WHERE key.task::text = job.task::text AND key.key::text = job.idempotency_key::text AND key.job_id = job.id
),
unamended AS (
    DELETE FROM pulse_django_amendment WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
),
ended AS MATERIALIZED (
    SELECT task, key
    FROM pulse_django_window
    WHERE until < statement_timestamp()
    ORDER BY until
    LIMIT 10000
    FOR UPDATE SKIP LOCKED
),
closed AS (
    DELETE FROM pulse_django_window AS win
    USING ended
    WHERE win.task::text = ended.task::text AND win.key::text = ended.key::text AND win.until < statement_timestamp()
)
SELECT id FROM gone;

-- prune()
WITH old (id) AS MATERIALIZED (
    SELECT pulse_django_job_hot.id AS id
    FROM pulse_django_job_hot
    WHERE (pulse_django_job_hot.finished_at < (statement_timestamp() - :age)
            AND pulse_django_job_hot.status::text = 'COMPLETED'
            AND NOT (((
    pulse_django_job_hot.batch_id IS NOT NULL AND EXISTS (
        SELECT 1 FROM pulse_django_batch AS batch
        WHERE batch.id = pulse_django_job_hot.batch_id AND batch.finished_at IS NULL
    )
    OR pulse_django_job_hot.awaited AND EXISTS (
        SELECT 1 FROM pulse_django_dependency AS need
        WHERE need.needs = pulse_django_job_hot.id AND need.needs IS NOT NULL AND need.met_at IS NULL
    )
)))) ORDER BY pulse_django_job_hot.finished_at ASC, 1 ASC LIMIT 1000 FOR UPDATE OF pulse_django_job_hot SKIP LOCKED),
gone AS (
    DELETE FROM pulse_django_job
    WHERE id = ANY (ARRAY(SELECT id FROM old)) AND finished_at IS NOT NULL
    RETURNING id, task, idempotency_key, era, batch_id, awaited
),over_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE 'CANCELLED' = 'COMPLETED'),
        count(*) FILTER (WHERE 'CANCELLED' <> 'COMPLETED')
    FROM (SELECT * FROM gone WHERE era = 0) AS dead
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
),
entry AS MATERIALIZED (
    SELECT id
    FROM pulse_django_attempt
    WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
    ORDER BY job_id, number
    FOR UPDATE
),
ledger AS (
    DELETE FROM pulse_django_attempt WHERE id = ANY (ARRAY(SELECT id FROM entry))
),
freed AS (
    DELETE FROM pulse_django_key AS key
    USING gone AS job
    WHERE key.task::text = job.task::text AND key.key::text = job.idempotency_key::text AND key.job_id = job.id
),
unamended AS (
    DELETE FROM pulse_django_amendment WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
),
ended AS MATERIALIZED (
    SELECT task, key
    FROM pulse_django_window
    WHERE until < statement_timestamp()
    ORDER BY until
    LIMIT 10000
    FOR UPDATE SKIP LOCKED
),
closed AS (
    DELETE FROM pulse_django_window AS win
    USING ended
    WHERE win.task::text = ended.task::text AND win.key::text = ended.key::text AND win.until < statement_timestamp()
)
SELECT id FROM gone;

-- prune_these()
WITH old (id) AS MATERIALIZED (
    SELECT pulse_django_job.id AS id
    FROM pulse_django_job
    WHERE (pulse_django_job.status::text IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELLED')
            AND pulse_django_job.id IN (:id)
            AND NOT (((
    pulse_django_job.awaited AND EXISTS (
        SELECT 1 FROM pulse_django_dependency AS need
        JOIN pulse_django_job_hot AS waiter ON waiter.id = need.job_id
        WHERE need.needs = pulse_django_job.id AND need.needs IS NOT NULL AND need.met_at IS NULL
            AND need.on_need_failed::text = 'wait' AND waiter.finished_at IS NULL
    )
    OR pulse_django_job.batch_id IS NOT NULL AND EXISTS (
        WITH RECURSIVE around AS (
            SELECT id, parent_id FROM pulse_django_batch WHERE id = pulse_django_job.batch_id
            UNION ALL
            SELECT batch.id, batch.parent_id
            FROM around
            JOIN pulse_django_batch AS batch ON batch.id = around.parent_id
        )
        SELECT 1
        FROM around
        JOIN pulse_django_dependency AS need ON need.needs_batch = around.id
        JOIN pulse_django_job_hot AS waiter ON waiter.id = need.job_id
        WHERE need.needs_batch IS NOT NULL AND need.met_at IS NULL AND need.on_need_failed::text = 'wait'
            AND waiter.finished_at IS NULL
    )
)) AND pulse_django_job.status::text = 'DEAD_LETTERED')) ORDER BY 1 ASC FOR UPDATE OF pulse_django_job SKIP LOCKED),
gone AS (
    DELETE FROM pulse_django_job
    WHERE id = ANY (ARRAY(SELECT id FROM old)) AND finished_at IS NOT NULL
    RETURNING id, task, idempotency_key, era, batch_id, awaited
),over_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE 'CANCELLED' = 'COMPLETED'),
        count(*) FILTER (WHERE 'CANCELLED' <> 'COMPLETED')
    FROM (SELECT * FROM gone WHERE era = 0) AS dead
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
),
entry AS MATERIALIZED (
    SELECT id
    FROM pulse_django_attempt
    WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
    ORDER BY job_id, number
    FOR UPDATE
),
ledger AS (
    DELETE FROM pulse_django_attempt WHERE id = ANY (ARRAY(SELECT id FROM entry))
),
freed AS (
    DELETE FROM pulse_django_key AS key
    USING gone AS job
    WHERE key.task::text = job.task::text AND key.key::text = job.idempotency_key::text AND key.job_id = job.id
),
unamended AS (
    DELETE FROM pulse_django_amendment WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
)
SELECT id FROM gone;

-- prune_these()
WITH old (id) AS MATERIALIZED (
    SELECT pulse_django_job.id AS id
    FROM pulse_django_job
    WHERE (pulse_django_job.status::text IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELLED')
            AND pulse_django_job.id IN (:id)
            AND NOT (((
    pulse_django_job.awaited AND EXISTS (
        SELECT 1 FROM pulse_django_dependency AS need
        JOIN pulse_django_job_hot AS waiter ON waiter.id = need.job_id
        WHERE need.needs = pulse_django_job.id AND need.needs IS NOT NULL AND need.met_at IS NULL
            AND need.on_need_failed::text = 'wait' AND waiter.finished_at IS NULL
    )
    OR pulse_django_job.batch_id IS NOT NULL AND EXISTS (
        WITH RECURSIVE around AS (
            SELECT id, parent_id FROM pulse_django_batch WHERE id = pulse_django_job.batch_id
            UNION ALL
            SELECT batch.id, batch.parent_id
            FROM around
            JOIN pulse_django_batch AS batch ON batch.id = around.parent_id
        )
        SELECT 1
        FROM around
        JOIN pulse_django_dependency AS need ON need.needs_batch = around.id
        JOIN pulse_django_job_hot AS waiter ON waiter.id = need.job_id
        WHERE need.needs_batch IS NOT NULL AND need.met_at IS NULL AND need.on_need_failed::text = 'wait'
            AND waiter.finished_at IS NULL
    )
))
AND pulse_django_job.status::text = 'DEAD_LETTERED')
AND pulse_django_job.finished_at <= :finished_at)
ORDER BY 1 ASC
FOR UPDATE OF pulse_django_job SKIP LOCKED),
gone AS (
    DELETE FROM pulse_django_job
    WHERE id = ANY (ARRAY(SELECT id FROM old)) AND finished_at IS NOT NULL
    RETURNING id, task, idempotency_key, era, batch_id, awaited
),over_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE 'CANCELLED' = 'COMPLETED'),
        count(*) FILTER (WHERE 'CANCELLED' <> 'COMPLETED')
    FROM (SELECT * FROM gone WHERE era = 0) AS dead
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
),
entry AS MATERIALIZED (
    SELECT id
    FROM pulse_django_attempt
    WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
    ORDER BY job_id, number
    FOR UPDATE
),
ledger AS (
    DELETE FROM pulse_django_attempt WHERE id = ANY (ARRAY(SELECT id FROM entry))
),
freed AS (
    DELETE FROM pulse_django_key AS key
    USING gone AS job
    WHERE key.task::text = job.task::text AND key.key::text = job.idempotency_key::text AND key.job_id = job.id
),
unamended AS (
    DELETE FROM pulse_django_amendment WHERE job_id = ANY (ARRAY(SELECT id FROM gone))
)
SELECT id FROM gone;

-- make_days()
SELECT
    (pg_catalog.regexp_match(pg_catalog.pg_get_expr(day.relpartbound, day.oid), '[0-9]{8}'))[1]::int AS era,
    statement_timestamp() AT TIME ZONE 'UTC'
FROM pg_class AS parent
LEFT JOIN pg_inherits AS link ON link.inhparent = parent.oid
LEFT JOIN pg_class AS day ON day.oid = link.inhrelid
WHERE parent.oid = COALESCE(pg_catalog.to_regclass('pulse_django_job_over'), 'pulse_django_job'::regclass)::oid
ORDER BY era;

-- make_days()
WITH RECURSIVE found (era) AS (
    SELECT pg_catalog.min(era) FROM pulse_django_job_other
    UNION ALL
    SELECT (SELECT pg_catalog.min(era) FROM pulse_django_job_other WHERE era > found.era) FROM found
    WHERE found.era IS NOT NULL
)
SELECT era FROM found WHERE era IS NOT NULL;

-- make_days()
SELECT pulse_django_make_day(:value::int, :value_2::int);

-- drop_days()
WITH kept AS MATERIALIZED (
    SELECT job.id
    FROM pulse_django_batch AS batch
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulse_django_job
        WHERE era = :era AND batch_id = batch.id AND batch_id IS NOT NULL
        ORDER BY id
        LIMIT :limit
    ) AS job
    WHERE batch.finished_at IS NULL
    LIMIT :limit
),
carried AS (
    DELETE FROM pulse_django_job WHERE era = :era AND id = ANY (ARRAY(SELECT id FROM kept)) RETURNING *
),
moved AS (
    INSERT INTO pulse_django_job_over (id, era, task, queue, priority, lane_key, ready, args, kwargs, payload_bytes,
        parent_id, trace, sensitive, give_up_after, tags, search_terms, meta, weight, status, next_run_at, attempts,
        refunds, max_attempts, losses, max_lost_workers, count_lost_workers, locked_by, lease_until, token, lease_ttl,
        timeout, deadline, progress_timeout, progress, progress_at, cancel_requested_at, cancel_reason, last_error,
        result, completed_by, completed_token, created_at, started_at, finished_at, expires_at, on_dead,
        idempotency_key, unique_key, unique_until_start, batch_id, node, awaited)
    SELECT id, (
        SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int), task, queue, priority,
            lane_key, ready, args, kwargs, payload_bytes, parent_id, trace, sensitive, give_up_after, tags,
            search_terms, meta, weight, status, next_run_at, attempts, refunds, max_attempts, losses, max_lost_workers,
            count_lost_workers, locked_by, lease_until, token, lease_ttl, timeout, deadline, progress_timeout, progress,
            progress_at, cancel_requested_at, cancel_reason, last_error, result, completed_by, completed_token,
            created_at, started_at, finished_at, expires_at, on_dead, idempotency_key, unique_key, unique_until_start,
            batch_id, node, awaited
    FROM carried
)
SELECT id FROM carried;

-- drop_days()
WITH cleaned AS MATERIALIZED (
    SELECT id, task, idempotency_key
    FROM pulse_django_job
    WHERE era = :era AND id > :after
            AND (attempts > 1 OR completed_by IS NULL OR idempotency_key IS NOT NULL OR id IN (
                SELECT job_id
                FROM pulse_django_amendment))
    ORDER BY id
    LIMIT :limit
),
entry AS MATERIALIZED (
    SELECT id
    FROM pulse_django_attempt
    WHERE job_id = ANY (ARRAY(SELECT id FROM cleaned))
    ORDER BY job_id, number
    FOR UPDATE
),
ledger AS (
    DELETE FROM pulse_django_attempt WHERE id = ANY (ARRAY(SELECT id FROM entry))
),
freed AS (
    DELETE FROM pulse_django_key AS key
    USING cleaned AS job
    WHERE key.task::text = job.task::text AND key.key::text = job.idempotency_key::text AND key.job_id = job.id
),
unamended AS (
    DELETE FROM pulse_django_amendment WHERE job_id = ANY (ARRAY(SELECT id FROM cleaned))
)
SELECT pg_catalog.max(id) FROM cleaned;

-- drop_days()
SELECT pulse_django_drop_day(:value::int);

-- forget_orphans()
WITH walked AS MATERIALIZED (
    SELECT DISTINCT job_id
    FROM (SELECT job_id FROM pulse_django_dependency WHERE job_id > :job_id ORDER BY job_id LIMIT :part) AS part
),
gone AS MATERIALIZED (
    SELECT job_id FROM walked WHERE NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE id = walked.job_id)
),
deleted AS (
    DELETE FROM pulse_django_dependency WHERE job_id = ANY (ARRAY(SELECT job_id FROM gone))
)
SELECT pg_catalog.max(job_id) FROM walked;

-- forget_orphans()
WITH walked AS MATERIALIZED (
    SELECT DISTINCT job_id
    FROM (SELECT job_id FROM pulse_django_step WHERE job_id > :job_id ORDER BY job_id LIMIT :part) AS part
),
gone AS MATERIALIZED (
    SELECT job_id FROM walked WHERE NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE id = walked.job_id)
),
deleted AS (
    DELETE FROM pulse_django_step WHERE job_id = ANY (ARRAY(SELECT job_id FROM gone))
)
SELECT pg_catalog.max(job_id) FROM walked;
