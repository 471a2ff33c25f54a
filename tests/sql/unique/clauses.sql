-- begin_windows_with_jobs()
WITH begun AS MATERIALIZED (
    SELECT
        id, created_at + :created_at::float8 * interval '1 second' AS until,
        created_at + :created_at_2::float8 * interval '1 second' - interval '10 ms' AS nearly_until
    FROM pulse_django_job_hot
    WHERE id = ANY (:id::bigint[])
)
UPDATE pulse_django_window AS win
SET until = begun.until
FROM begun
WHERE win.job_id = ANY (:job_id::bigint[]) AND win.job_id = begun.id AND win.until < begun.nearly_until
RETURNING win.job_id;

-- holder()
SELECT pulse_django_job.id, pulse_django_job.era, pulse_django_job.task, pulse_django_job.queue,
    pulse_django_job.priority, pulse_django_job.lane_key, pulse_django_job.ready, pulse_django_job.args,
    pulse_django_job.kwargs, pulse_django_job.payload_bytes, pulse_django_job.parent_id, pulse_django_job.trace,
    pulse_django_job.sensitive, pulse_django_job.give_up_after, pulse_django_job.tags, pulse_django_job.search_terms,
    pulse_django_job.meta, pulse_django_job.weight, pulse_django_job.status, pulse_django_job.next_run_at,
    pulse_django_job.attempts, pulse_django_job.refunds, pulse_django_job.max_attempts, pulse_django_job.losses,
    pulse_django_job.max_lost_workers, pulse_django_job.count_lost_workers, pulse_django_job.locked_by,
    pulse_django_job.lease_until, pulse_django_job.token, pulse_django_job.lease_ttl, pulse_django_job.timeout,
    pulse_django_job.deadline, pulse_django_job.progress_timeout, pulse_django_job.progress,
    pulse_django_job.progress_at, pulse_django_job.cancel_requested_at, pulse_django_job.cancel_reason,
    pulse_django_job.last_error, pulse_django_job.result, pulse_django_job.completed_by,
    pulse_django_job.completed_token, pulse_django_job.created_at, pulse_django_job.started_at,
    pulse_django_job.finished_at, pulse_django_job.expires_at, pulse_django_job.on_dead,
    pulse_django_job.idempotency_key, pulse_django_job.unique_key, pulse_django_job.unique_until_start,
    pulse_django_job.batch_id, pulse_django_job.node, pulse_django_job.awaited
FROM pulse_django_job
WHERE pulse_django_job.id = :id
ORDER BY pulse_django_job.id ASC
LIMIT 1;

-- holder()
DELETE FROM pulse_django_window AS win
USING ROWS FROM (pg_catalog.unnest(:task::text[]), pg_catalog.unnest(:key::text[])) AS wanted (task, key)
WHERE win.task::text = wanted.task AND win.key::text = wanted.key
    AND NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE id = win.job_id)
RETURNING win.job_id;

-- holder()
WITH started AS MATERIALIZED (
    SELECT job.id
    FROM ROWS FROM (pg_catalog.unnest(:task::text[]), pg_catalog.unnest(:key::text[])) AS wanted (task, key)
    JOIN pulse_django_job_hot AS job ON job.task::text = wanted.task AND job.unique_key::text = wanted.key
    WHERE job.finished_at IS NULL AND job.unique_key IS NOT NULL AND NOT job.unique_until_start AND job.attempts > 0
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
)
UPDATE pulse_django_job_hot AS job
SET unique_until_start = true
FROM started
WHERE job.id = started.id AND job.attempts > 0
RETURNING job.id;

-- changed()
SELECT pulse_django_job.id, pulse_django_job.era, pulse_django_job.task, pulse_django_job.queue,
    pulse_django_job.priority, pulse_django_job.lane_key, pulse_django_job.ready, pulse_django_job.args,
    pulse_django_job.kwargs, pulse_django_job.payload_bytes, pulse_django_job.parent_id, pulse_django_job.trace,
    pulse_django_job.sensitive, pulse_django_job.give_up_after, pulse_django_job.tags, pulse_django_job.search_terms,
    pulse_django_job.meta, pulse_django_job.weight, pulse_django_job.status, pulse_django_job.next_run_at,
    pulse_django_job.attempts, pulse_django_job.refunds, pulse_django_job.max_attempts, pulse_django_job.losses,
    pulse_django_job.max_lost_workers, pulse_django_job.count_lost_workers, pulse_django_job.locked_by,
    pulse_django_job.lease_until, pulse_django_job.token, pulse_django_job.lease_ttl, pulse_django_job.timeout,
    pulse_django_job.deadline, pulse_django_job.progress_timeout, pulse_django_job.progress,
    pulse_django_job.progress_at, pulse_django_job.cancel_requested_at, pulse_django_job.cancel_reason,
    pulse_django_job.last_error, pulse_django_job.result, pulse_django_job.completed_by,
    pulse_django_job.completed_token, pulse_django_job.created_at, pulse_django_job.started_at,
    pulse_django_job.finished_at, pulse_django_job.expires_at, pulse_django_job.on_dead,
    pulse_django_job.idempotency_key, pulse_django_job.unique_key, pulse_django_job.unique_until_start,
    pulse_django_job.batch_id, pulse_django_job.node, pulse_django_job.awaited
FROM pulse_django_job
WHERE (pulse_django_job.id = :id
        AND pulse_django_job.era = :era)
ORDER BY pulse_django_job.id ASC
LIMIT 1;

-- insert(): unique
WITH new AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_populate_recordset(NULL::pulse_django_job_hot, :job::json)
)
INSERT INTO pulse_django_job_hot AS job (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts,
    count_lost_workers, weight, ready, unique_key, unique_until_start)
SELECT id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, count_lost_workers, weight,
    ready, unique_key, unique_until_start
FROM new
ORDER BY task COLLATE "C", unique_key COLLATE "C"
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO NOTHING
RETURNING id, task, unique_key;

-- insert(): all
WITH new AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_populate_recordset(NULL::pulse_django_job_hot, :job::json)
)
INSERT INTO pulse_django_job_hot AS job (id, args, kwargs, payload_bytes, task, queue, priority, sensitive, tags, meta,
    lane_key, on_dead, max_attempts, count_lost_workers, give_up_after, weight, ready, batch_id, node, awaited, status,
    expires_at, search_terms, unique_key, unique_until_start)
SELECT id, args, kwargs, payload_bytes, task, queue, priority, sensitive, tags, meta, lane_key, on_dead, max_attempts,
    count_lost_workers, give_up_after, weight, ready, batch_id, node, awaited, status, expires_at, search_terms,
    unique_key, unique_until_start
FROM new
ORDER BY task COLLATE "C", unique_key COLLATE "C"
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO NOTHING
RETURNING id, task, unique_key;

-- insert()
SELECT wanted.task, wanted.key, holder.id, holder.is_expired
FROM ROWS FROM (pg_catalog.unnest(:task::text[]), pg_catalog.unnest(:key::text[])) AS wanted (task, key)
CROSS JOIN LATERAL (
    SELECT id, attempts = 0
        AND expires_at IS NOT NULL
        AND status::text = 'PENDING'
        AND expires_at <= statement_timestamp() AS is_expired
    FROM pulse_django_job_hot
    WHERE task::text = wanted.task
        AND unique_key::text = wanted.key
        AND finished_at IS NULL
        AND unique_key IS NOT NULL
        AND (NOT unique_until_start OR attempts = 0)
    LIMIT 1
) AS holder;

-- insert()
WITH new AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_populate_recordset(NULL::pulse_django_job_hot, :job::json)
)
INSERT INTO pulse_django_job_hot AS job (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts,
    count_lost_workers, weight, ready, search_terms, unique_key, unique_until_start)
SELECT id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, count_lost_workers, weight,
    ready, search_terms, unique_key, unique_until_start
FROM new
ORDER BY task COLLATE "C", unique_key COLLATE "C"
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO UPDATE
SET args = excluded.args,
    kwargs = excluded.kwargs,
    payload_bytes = excluded.payload_bytes,
    search_terms = excluded.search_terms,
    sensitive = excluded.sensitive,
    trace = excluded.trace,
    tags = excluded.tags,
    meta = excluded.meta,
    expires_at = excluded.expires_at,
    give_up_after = excluded.give_up_after,
    lane_key = excluded.lane_key,
    weight = excluded.weight,
    ready = excluded.lane_key::text = '',
    next_run_at = excluded.next_run_at
WHERE job.attempts = 0
    AND NOT (job.attempts = 0
        AND job.expires_at IS NOT NULL
        AND job.status::text = 'PENDING'
        AND job.expires_at <= excluded.created_at)
 RETURNING id, task, unique_key;

-- insert()
WITH new AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_populate_recordset(NULL::pulse_django_job_hot, :job::json)
)
INSERT INTO pulse_django_job_hot AS job (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts,
    count_lost_workers, weight, ready, next_run_at, unique_key, unique_until_start)
SELECT id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, count_lost_workers, weight,
    ready, next_run_at, unique_key, unique_until_start
FROM new
ORDER BY task COLLATE "C", unique_key COLLATE "C"
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO UPDATE
SET unique_key = job.unique_key
WHERE false
RETURNING id, task, unique_key;

-- insert()
SELECT wanted.task, wanted.key, holder.id, holder.is_expired
FROM ROWS FROM (pg_catalog.unnest(:task::text[]), pg_catalog.unnest(:key::text[])) AS wanted (task, key)
CROSS JOIN LATERAL (
    SELECT id, attempts = 0
        AND expires_at IS NOT NULL
        AND status::text = 'PENDING'
        AND expires_at <= statement_timestamp() AS is_expired
    FROM pulse_django_job_hot
    WHERE task::text = wanted.task
        AND unique_key::text = wanted.key
        AND finished_at IS NULL
        AND unique_key IS NOT NULL
        AND (NOT unique_until_start OR attempts = 0)
        AND attempts = 0
    LIMIT 1
) AS holder;

-- insert()
WITH new AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_populate_recordset(NULL::pulse_django_job_hot, :job::json)
)
INSERT INTO pulse_django_job_hot AS job (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts,
    count_lost_workers, weight, ready, next_run_at, unique_key, unique_until_start)
SELECT id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, count_lost_workers, weight,
    ready, next_run_at, unique_key, unique_until_start
FROM new
ORDER BY task COLLATE "C", unique_key COLLATE "C"
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO UPDATE
SET args = excluded.args,
    kwargs = excluded.kwargs,
    payload_bytes = excluded.payload_bytes,
    search_terms = excluded.search_terms,
    sensitive = excluded.sensitive,
    trace = excluded.trace,
    tags = excluded.tags,
    meta = excluded.meta,
    expires_at = excluded.expires_at,
    give_up_after = excluded.give_up_after,
    lane_key = excluded.lane_key,
    weight = excluded.weight,
    ready = excluded.lane_key::text = '',
    next_run_at = GREATEST(job.next_run_at, excluded.next_run_at)
WHERE job.attempts = 0
    AND NOT (job.attempts = 0
        AND job.expires_at IS NOT NULL
        AND job.status::text = 'PENDING'
        AND job.expires_at <= excluded.created_at)
 RETURNING id, task, unique_key;

-- insert()
WITH new AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_populate_recordset(NULL::pulse_django_job_hot, :job::json)
)
INSERT INTO pulse_django_job_hot AS job (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts,
    count_lost_workers, weight, ready, next_run_at, unique_key, unique_until_start)
SELECT id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, count_lost_workers, weight,
    ready, next_run_at, unique_key, unique_until_start
FROM new
ORDER BY task COLLATE "C", unique_key COLLATE "C"
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO UPDATE
SET args = excluded.args,
    kwargs = excluded.kwargs,
    payload_bytes = excluded.payload_bytes,
    search_terms = excluded.search_terms,
    sensitive = excluded.sensitive,
    trace = excluded.trace,
    tags = excluded.tags,
    meta = excluded.meta,
    expires_at = excluded.expires_at,
    give_up_after = excluded.give_up_after,
    lane_key = excluded.lane_key,
    weight = excluded.weight,
    ready = excluded.lane_key::text = '',
    next_run_at = GREATEST(job.next_run_at, LEAST(excluded.next_run_at, (job.created_at AT TIME ZONE 'UTC' +
        :value::float8 * interval '1 second') AT TIME ZONE 'UTC'))
WHERE job.attempts = 0
    AND NOT (job.attempts = 0
        AND job.expires_at IS NOT NULL
        AND job.status::text = 'PENDING'
        AND job.expires_at <= excluded.created_at)
 RETURNING id, task, unique_key;

-- insert()
WITH new AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_populate_recordset(NULL::pulse_django_job_hot, :win::json)
),
taken AS (
    INSERT INTO pulse_django_window AS win (task, key, until, job_id)
    SELECT wanted.task, wanted.key, clock_timestamp() + :until::float8 * interval '1 second', wanted.job_id
    FROM (
        SELECT task, unique_key, id
        FROM new
        ORDER BY task COLLATE "C", unique_key COLLATE "C") AS wanted (task, key, job_id)
    WHERE NOT EXISTS (
        SELECT 1 FROM pulse_django_window AS held
        WHERE held.task::text = wanted.task::text AND held.key::text = wanted.key::text
            AND held.until > statement_timestamp()
    )
    ON CONFLICT (task, key) DO UPDATE SET until = excluded.until, job_id = excluded.job_id
    WHERE excluded.until - win.until >= :until_2::float8 * interval '1 second'
    RETURNING job_id
)
INSERT INTO pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts,
    count_lost_workers, weight, ready, next_run_at)
SELECT id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, count_lost_workers, weight,
    ready, next_run_at
FROM new
WHERE id = ANY (ARRAY(
        SELECT job_id
        FROM taken))
ORDER BY task COLLATE "C", unique_key COLLATE "C"
RETURNING id, task, unique_key;

-- insert()
SELECT win.task, win.key, win.job_id
FROM ROWS FROM (pg_catalog.unnest(:task::text[]), pg_catalog.unnest(:key::text[])) AS wanted (task, key)
JOIN pulse_django_window AS win ON win.task::text = wanted.task AND win.key::text = wanted.key
WHERE win.until > statement_timestamp();

-- insert()
SELECT pulse_django_job.id AS pk FROM pulse_django_job WHERE pulse_django_job.id IN (:id, ...);
