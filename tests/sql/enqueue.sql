-- enqueue(): plain, weights, on Citus
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): plain, weights, on Citus
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, next_run_at, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): limits, chunks, shares
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, :lane_key, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): limits, chunks, shares
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, next_run_at, lane_key,
    max_attempts, weight, ready)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :lane_key, :max_attempts, :weight, :ready)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): unique
INSERT INTO pulse_django_job_hot AS job (args, kwargs, payload_bytes, task, queue, priority, unique_key, max_attempts,
    weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, :unique_key, :max_attempts, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO NOTHING
RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue(): unique
INSERT INTO pulse_django_job_hot AS job (args, kwargs, payload_bytes, task, queue, priority, next_run_at, unique_key,
    max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :unique_key, :max_attempts, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO NOTHING
RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue(): expiry
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, expires_at, max_attempts,
    give_up_after, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :expires_at::float8 * interval
    '1 second', :max_attempts, :give_up_after, :weight)
RETURNING id, created_at, next_run_at, expires_at, true;

-- enqueue(): expiry
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, next_run_at, expires_at,
    max_attempts, give_up_after, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', clock_timestamp() + :expires_at::float8 * interval '1 second', :max_attempts, :give_up_after, :weight)
RETURNING id, created_at, next_run_at, expires_at, true;

-- enqueue(): labels
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, tags, meta, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, :tags, :meta, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): labels
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, next_run_at, tags, meta,
    max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :tags, :meta, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): searchable
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, search_terms, task, queue, priority, max_attempts,
    weight)
VALUES (:args, :kwargs, :payload_bytes, :search_terms, :task, :queue, :priority, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): searchable
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, search_terms, task, queue, priority, next_run_at,
    max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :search_terms, :task, :queue, :priority, clock_timestamp() +
    :next_run_at::float8 * interval '1 second', :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): encryption
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, sensitive, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, :sensitive, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): encryption
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, next_run_at, sensitive,
    max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :sensitive, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): hooks
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, on_dead, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, :on_dead, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue(): hooks
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, next_run_at, on_dead,
    max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :on_dead, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- enqueue()
INSERT INTO pulse_django_job_hot AS job (args, kwargs, payload_bytes, search_terms, task, queue, priority, unique_key,
    unique_until_start, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :search_terms, :task, :queue, :priority, :unique_key, :unique_until_start,
    :max_attempts, :weight)
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
 RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue()
INSERT INTO pulse_django_job_hot AS job (args, kwargs, payload_bytes, task, queue, priority, next_run_at, unique_key,
    unique_until_start, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :unique_key, :unique_until_start, :max_attempts, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO UPDATE
SET unique_key = job.unique_key
WHERE false
RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue()
INSERT INTO pulse_django_job_hot AS job (args, kwargs, payload_bytes, task, queue, priority, next_run_at, unique_key,
    unique_until_start, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :unique_key, :unique_until_start, :max_attempts, :weight)
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
 RETURNING id, created_at, next_run_at, NULL, xmax = 0;

-- enqueue()
INSERT INTO pulse_django_job_hot AS job (args, kwargs, payload_bytes, task, queue, priority, next_run_at, unique_key,
    unique_until_start, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :unique_key, :unique_until_start, :max_attempts, :weight)
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
INSERT INTO pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, next_run_at, max_attempts,
    weight)
SELECT job_id, :args, :kwargs, :payload_bytes, :task_2, :queue, :priority, clock_timestamp() + :next_run_at::float8 *
    interval '1 second', :max_attempts, :weight
FROM taken
RETURNING id, created_at, next_run_at, NULL, true;

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
INSERT INTO pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, max_attempts, weight)
SELECT job_id, :args, :kwargs, :payload_bytes, :task_2, :queue, :priority, :max_attempts, :weight
FROM taken
RETURNING id, created_at, next_run_at, NULL, true;

-- _add(): workflows
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, batch_id, node, awaited, status,
    max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, :batch_id, :node, :awaited, :status, :max_attempts,
    :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- _add(): workflows
INSERT INTO pulse_django_job_hot (args, kwargs, payload_bytes, task, queue, priority, next_run_at, batch_id, node,
    awaited, status, max_attempts, weight)
VALUES (:args, :kwargs, :payload_bytes, :task, :queue, :priority, clock_timestamp() + :next_run_at::float8 * interval
    '1 second', :batch_id, :node, :awaited, :status, :max_attempts, :weight)
RETURNING id, created_at, next_run_at, NULL, true;

-- _add(): all
INSERT INTO pulse_django_job_hot AS job (args, kwargs, payload_bytes, search_terms, task, queue, priority, sensitive,
    expires_at, tags, meta, lane_key, on_dead, batch_id, node, awaited, status, unique_key, max_attempts, give_up_after,
    weight)
VALUES (:args, :kwargs, :payload_bytes, :search_terms, :task, :queue, :priority, :sensitive, clock_timestamp() +
    :expires_at::float8 * interval '1 second', :tags, :meta, :lane_key, :on_dead, :batch_id, :node, :awaited, :status,
    :unique_key, :max_attempts, :give_up_after, :weight)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO NOTHING
RETURNING id, created_at, next_run_at, expires_at, xmax = 0;

-- _add(): all
INSERT INTO pulse_django_job_hot AS job (args, kwargs, payload_bytes, search_terms, task, queue, priority, next_run_at,
    sensitive, expires_at, tags, meta, lane_key, on_dead, batch_id, node, awaited, status, unique_key, max_attempts,
    give_up_after, weight, ready)
VALUES (:args, :kwargs, :payload_bytes, :search_terms, :task, :queue, :priority, clock_timestamp() +
    :next_run_at::float8 * interval '1 second', :sensitive, clock_timestamp() + :expires_at::float8 * interval
    '1 second', :tags, :meta, :lane_key, :on_dead, :batch_id, :node, :awaited, :status, :unique_key, :max_attempts,
    :give_up_after, :weight, :ready)
ON CONFLICT (task, unique_key)
WHERE finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0) DO NOTHING
RETURNING id, created_at, next_run_at, expires_at, xmax = 0;

-- enqueue_all(): every job
SELECT pg_catalog.nextval('pulse_django_job_id_seq'::regclass) FROM pg_catalog.generate_series(1, :value);

-- enqueue_all(): plain, limits, chunks, shares, weights, on Citus
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts,
    count_lost_workers, weight, ready)
FROM STDIN;

-- enqueue_all(): workflows
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts,
    count_lost_workers, weight, ready, batch_id, node, awaited, status)
FROM STDIN;

-- enqueue_all(): expiry, all
SELECT pg_catalog.to_char(
    (clock_timestamp() + delay.seconds * interval '1 second') AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00'
)
FROM pg_catalog.unnest(:seconds::float8[]) WITH ORDINALITY AS delay (seconds, place)
ORDER BY delay.place;

-- enqueue_all(): expiry
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts,
    count_lost_workers, give_up_after, weight, ready, expires_at)
FROM STDIN;

-- enqueue_all(): labels
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, tags, meta, lane_key, max_attempts,
    count_lost_workers, weight, ready)
FROM STDIN;

-- enqueue_all(): searchable
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, max_attempts,
    count_lost_workers, weight, ready, search_terms)
FROM STDIN;

-- enqueue_all(): encryption
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, sensitive, lane_key, max_attempts,
    count_lost_workers, weight, ready)
FROM STDIN;

-- enqueue_all(): hooks
COPY pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, lane_key, on_dead, max_attempts,
    count_lost_workers, weight, ready)
FROM STDIN;

-- enqueue_all()
WITH taken AS (
    INSERT INTO pulse_django_key (task, key, job_id)
    VALUES (:task, :key, pg_catalog.nextval('pulse_django_job_id_seq'::regclass))
    ON CONFLICT (task, key) DO NOTHING
    RETURNING job_id
)
INSERT INTO pulse_django_job_hot (id, args, kwargs, payload_bytes, task, queue, priority, max_attempts, idempotency_key,
    weight)
SELECT job_id, :args, :kwargs, :payload_bytes, :task_2, :queue, :priority, :max_attempts, :idempotency_key, :weight
FROM taken
RETURNING id, created_at, next_run_at, NULL, true;
