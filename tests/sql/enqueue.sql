-- enqueue(): plain, weights, on Citus
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): plain, weights, on Citus
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, next_run_at, max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): limits, chunks, shares
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, lane_key, max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :lane_key, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): limits, chunks, shares
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, next_run_at, lane_key,
    max_attempts, weight, ready)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :lane_key, :max_attempts, :weight, :ready)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): unique
INSERT INTO pulse_django_job_hot AS job (task, queue, priority, args, kwargs, payload_bytes, unique_key, max_attempts,
    weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :unique_key, :max_attempts, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO NOTHING
RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue(): unique
INSERT INTO pulse_django_job_hot AS job (task, queue, priority, args, kwargs, payload_bytes, next_run_at, unique_key,
    max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :unique_key, :max_attempts, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO NOTHING
RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue(): expiry
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, expires_at, max_attempts,
    give_up_after, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :expires_at::float8 * interval
    '1 second', :max_attempts, :give_up_after, :weight)
RETURNING id, created_at, next_run_at, expires_at, true;

-- enqueue(): expiry
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, next_run_at, expires_at,
    max_attempts, give_up_after, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', clock_timestamp() + :expires_at::float8 * interval '1 second', :max_attempts, :give_up_after, :weight)
RETURNING id, created_at, next_run_at, expires_at, true;

-- enqueue(): labels
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, tags, meta, max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :tags, :meta, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): labels
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, next_run_at, tags, meta,
    max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :tags, :meta, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): search
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, search_terms, max_attempts,
    weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :search_terms, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): search
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, search_terms, next_run_at,
    max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :search_terms, clock_timestamp() +
    :next_run_at::float8 * interval '1 second', :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): encryption
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, masked, max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :masked, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): encryption
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, next_run_at, masked, max_attempts,
    weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :masked, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue()
SELECT job_id FROM pulse_django_key WHERE task::text = :task AND key::text = :key;

-- enqueue()
SELECT pulse_django_job.id, pulse_django_job.era, pulse_django_job.task, pulse_django_job.queue,
    pulse_django_job.priority, pulse_django_job.lane_key, pulse_django_job.ready, pulse_django_job.args,
    pulse_django_job.kwargs, pulse_django_job.payload_bytes, pulse_django_job.parent_id,
    pulse_django_job.idempotency_key, pulse_django_job.trace, pulse_django_job.masked, pulse_django_job.unique_key,
    pulse_django_job.unique_until_start, pulse_django_job.expires_at, pulse_django_job.give_up_after,
    pulse_django_job.tags, pulse_django_job.search_terms, pulse_django_job.meta, pulse_django_job.weight,
    pulse_django_job.batch_id, pulse_django_job.node, pulse_django_job.awaited, pulse_django_job.status,
    pulse_django_job.next_run_at, pulse_django_job.attempts, pulse_django_job.refunds, pulse_django_job.max_attempts,
    pulse_django_job.losses, pulse_django_job.max_losses, pulse_django_job.free_losses, pulse_django_job.locked_by,
    pulse_django_job.lease_until, pulse_django_job.token, pulse_django_job.lease_ttl, pulse_django_job.timeout,
    pulse_django_job.deadline, pulse_django_job.stall_after, pulse_django_job.progress, pulse_django_job.progress_at,
    pulse_django_job.cancel_requested_at, pulse_django_job.cancel_reason, pulse_django_job.last_error,
    pulse_django_job.result, pulse_django_job.completed_by, pulse_django_job.completed_token,
    pulse_django_job.created_at, pulse_django_job.started_at, pulse_django_job.finished_at
FROM pulse_django_job
WHERE pulse_django_job.id IN (:id)
ORDER BY pulse_django_job.id ASC
LIMIT 1;

-- enqueue()
INSERT INTO pulse_django_job_hot AS job (task, queue, priority, args, kwargs, payload_bytes, search_terms, unique_key,
    unique_until_start, max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :search_terms, :unique_key, :unique_until_start,
    :max_attempts, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO UPDATE
SET args = excluded.args,
    kwargs = excluded.kwargs,
    payload_bytes = excluded.payload_bytes,
    search_terms = excluded.search_terms,
    masked = excluded.masked,
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
 RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue()
INSERT INTO pulse_django_job_hot AS job (task, queue, priority, args, kwargs, payload_bytes, next_run_at, unique_key,
    unique_until_start, max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :unique_key, :unique_until_start, :max_attempts, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO UPDATE
SET unique_key = job.unique_key
WHERE false
RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue()
INSERT INTO pulse_django_job_hot AS job (task, queue, priority, args, kwargs, payload_bytes, next_run_at, unique_key,
    unique_until_start, max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :unique_key, :unique_until_start, :max_attempts, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO UPDATE
SET args = excluded.args,
    kwargs = excluded.kwargs,
    payload_bytes = excluded.payload_bytes,
    search_terms = excluded.search_terms,
    masked = excluded.masked,
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
 RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue()
INSERT INTO pulse_django_job_hot AS job (task, queue, priority, args, kwargs, payload_bytes, next_run_at, unique_key,
    unique_until_start, max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :unique_key, :unique_until_start, :max_attempts, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO UPDATE
SET args = excluded.args,
    kwargs = excluded.kwargs,
    payload_bytes = excluded.payload_bytes,
    search_terms = excluded.search_terms,
    masked = excluded.masked,
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
 RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue()
WITH taken AS (
    INSERT INTO pulse_django_window AS win (task, key, until, job_id)
    SELECT wanted.task, wanted.key, clock_timestamp() + :until::float8 * interval '1 second', wanted.job_id
    FROM (
        SELECT :task::text, :key::text, pg_catalog.nextval('pulse_django_job_id_seq'::regclass)) AS wanted (task, key,
            job_id)
    WHERE NOT EXISTS (
        SELECT 1 FROM pulse_django_window AS held
        WHERE held.task::text = wanted.task::text AND held.key::text = wanted.key::text
            AND held.until > statement_timestamp()
    )
    ON CONFLICT (task, key) DO UPDATE SET until = excluded.until, job_id = excluded.job_id
    WHERE excluded.until - win.until >= :until_2::float8 * interval '1 second'
    RETURNING job_id
)
INSERT INTO pulse_django_job_hot (id, task, queue, priority, args, kwargs, payload_bytes, next_run_at, max_attempts,
    weight)
SELECT job_id, :task_2, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 *
    interval '1 second', :max_attempts, :weight
FROM taken
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue()
DELETE FROM pulse_django_key AS key
WHERE key.task::text = :task
    AND key.key::text = :key
    AND NOT EXISTS (
    SELECT 1
    FROM pulse_django_job
    WHERE id = key.job_id)
RETURNING key.job_id;

-- enqueue()
SELECT pg_catalog.nextval('pulse_django_job_id_seq'::regclass);

-- enqueue()
WITH taken AS (
    INSERT INTO pulse_django_window AS win (task, key, until, job_id)
    SELECT wanted.task, wanted.key, clock_timestamp() + :until::float8 * interval '1 second', wanted.job_id
    FROM (SELECT :task::text, :key::text, :job_id::bigint) AS wanted (task, key, job_id)
    WHERE NOT EXISTS (
        SELECT 1 FROM pulse_django_window AS held
        WHERE held.task::text = wanted.task::text AND held.key::text = wanted.key::text
            AND held.until > statement_timestamp()
    )
    ON CONFLICT (task, key) DO UPDATE SET until = excluded.until, job_id = excluded.job_id
    WHERE excluded.until - win.until >= :until_2::float8 * interval '1 second'
    RETURNING job_id
)
INSERT INTO pulse_django_job_hot (id, task, queue, priority, args, kwargs, payload_bytes, max_attempts, weight)
SELECT job_id, :task_2, :queue, :priority, :args, :kwargs, :payload_bytes, :max_attempts, :weight
FROM taken
RETURNING id, created_at, next_run_at, NULL, true;

-- get_or_enqueue_alone(): workflows
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, batch_id, node, awaited, status,
    max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :batch_id, :node, :awaited, :status, :max_attempts,
    :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- get_or_enqueue_alone(): workflows
INSERT INTO pulse_django_job_hot (task, queue, priority, args, kwargs, payload_bytes, next_run_at, batch_id, node,
    awaited, status, max_attempts, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :batch_id, :node, :awaited, :status, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- get_or_enqueue_alone(): all
INSERT INTO pulse_django_job_hot AS job (task, queue, priority, args, kwargs, payload_bytes, search_terms, masked,
    expires_at, tags, meta, lane_key, batch_id, node, awaited, status, unique_key, max_attempts, give_up_after, weight)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :search_terms, :masked, clock_timestamp() +
    :expires_at::float8 * interval '1 second', :tags, :meta, :lane_key, :batch_id, :node, :awaited, :status,
    :unique_key, :max_attempts, :give_up_after, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO NOTHING
RETURNING id, created_at, next_run_at, expires_at, xmax = 0;

-- get_or_enqueue_alone(): all
INSERT INTO pulse_django_job_hot AS job (task, queue, priority, args, kwargs, payload_bytes, search_terms, next_run_at,
    masked, expires_at, tags, meta, lane_key, batch_id, node, awaited, status, unique_key, max_attempts, give_up_after,
    weight, ready)
VALUES (:task, :queue, :priority, :args, :kwargs, :payload_bytes, :search_terms, clock_timestamp() +
    :next_run_at::float8 * interval '1 second', :masked, clock_timestamp() + :expires_at::float8 * interval '1 second',
    :tags, :meta, :lane_key, :batch_id, :node, :awaited, :status, :unique_key, :max_attempts, :give_up_after, :weight,
    :ready)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO NOTHING
RETURNING id, created_at, next_run_at, expires_at, xmax = 0;

-- enqueue_many(): every job
SELECT pg_catalog.nextval('pulse_django_job_id_seq'::regclass) FROM pg_catalog.generate_series(1, :value);

-- enqueue_many(): plain, limits, chunks, shares, weights, on Citus
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, free_losses,
    weight, ready)
FROM STDIN;

-- enqueue_many(): workflows
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, free_losses,
    weight, ready, batch_id, node, awaited, status)
FROM STDIN;

-- enqueue_many(): expiry, all
SELECT pg_catalog.to_char(
    (clock_timestamp() + delay.seconds * interval '1 second') AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00'
)
FROM pg_catalog.unnest(:seconds::float8[]) WITH ORDINALITY AS delay (seconds, place)
ORDER BY delay.place;

-- enqueue_many(): expiry
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, free_losses,
    give_up_after, weight, ready, expires_at)
FROM STDIN;

-- enqueue_many(): labels
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, tags, meta, lane_key, max_attempts,
    free_losses, weight, ready)
FROM STDIN;

-- enqueue_many(): search
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, free_losses,
    weight, ready, search_terms)
FROM STDIN;

-- enqueue_many(): encryption
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, masked, lane_key, max_attempts,
    free_losses, weight, ready)
FROM STDIN;

-- enqueue_many()
WITH taken AS (
    INSERT INTO pulse_django_key (task, key, job_id)
    VALUES (:task, :key, pg_catalog.nextval('pulse_django_job_id_seq'::regclass))
    ON CONFLICT (task, key) DO NOTHING
    RETURNING job_id
)
INSERT INTO pulse_django_job_hot (id, task, queue, priority, args, kwargs, payload_bytes, max_attempts, idempotency_key,
    weight)
SELECT job_id, :task_2, :queue, :priority, :args, :kwargs, :payload_bytes, :max_attempts, :idempotency_key, :weight
FROM taken
RETURNING id, created_at, next_run_at, NULL, true;
