-- claim(): plain, unique, workflows, expiry, labels, searchable, encryption, weights, hooks
WITH picked AS MATERIALIZED (
    SELECT pick.id, pick.bytes, pick.weight, pick.lease_ttl, pick.timeout, pick.max_lost_workers
    FROM (
        SELECT ARRAY(
            SELECT pg_catalog.concat(task, pg_catalog.chr(10), queue)
            FROM pulse_django_pause
            WHERE lane_key::text = ''
                AND (paused_until IS NULL OR paused_until > statement_timestamp())) AS names OFFSET 0) AS pauses
    CROSS JOIN ROWS FROM (
        pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:priority::smallint[]), pg_catalog.unnest(:key::text[]),
        pg_catalog.unnest(:take::int[]), pg_catalog.unnest(:since::float8[])
    ) AS lane (queue, priority, key, take, since)
    CROSS JOIN LATERAL (
        SELECT pulse_django_job_hot.id AS id, pulse_django_job_hot.weight AS weight,
            pulse_django_job_hot.lease_ttl AS lease_ttl, pulse_django_job_hot.timeout AS timeout,
            pulse_django_job_hot.max_lost_workers AS max_lost_workers, (COALESCE(pulse_django_job_hot.payload_bytes,
            (pg_catalog.octet_length((pulse_django_job_hot.args)::text) +
            pg_catalog.octet_length((pulse_django_job_hot.kwargs)::text))) +
            COALESCE(pg_catalog.octet_length((pulse_django_job_hot.progress)::text), :bytes)) AS bytes
        FROM pulse_django_job_hot
        WHERE (pulse_django_job_hot.status::text IN ('PENDING', 'RETRYING')
                AND pulse_django_job_hot.next_run_at <= (statement_timestamp())
                AND (NOT (pulse_django_job_hot.attempts = 0
                        AND pulse_django_job_hot.expires_at IS NOT NULL
                        AND pulse_django_job_hot.status::text = 'PENDING'
                        AND pulse_django_job_hot.expires_at <= statement_timestamp())
                    AND (pg_catalog.cardinality(pauses.names) = 0 OR NOT
                        ARRAY[pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10)),
                        pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10), pulse_django_job_hot.queue)]
                        OPERATOR(pg_catalog.&&) pauses.names))
                AND pulse_django_job_hot.lane_key::text = (lane.key)
                AND pulse_django_job_hot.next_run_at >= (pg_catalog.to_timestamp(lane.since))
                AND pulse_django_job_hot.priority = (lane.priority)
                AND pulse_django_job_hot.queue::text = (lane.queue)
                AND pulse_django_job_hot.ready)
        ORDER BY pulse_django_job_hot.next_run_at ASC, 1 ASC
        FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED
        LIMIT lane.take) AS pick
    WHERE (pg_catalog.cardinality(pauses.names) = 0 OR pg_catalog.concat(pg_catalog.chr(10), lane.queue) <> ALL
        (pauses.names))
    LIMIT :limit
),
in_line AS (
    SELECT
        id, lease_ttl, timeout, bytes, pg_catalog.sum(bytes) OVER line AS so_far,
        pg_catalog.sum(LEAST(weight, :weight::int)) OVER line AS slots,
        pg_catalog.count(*) FILTER (WHERE max_lost_workers IS DISTINCT FROM 0) OVER line AS place
    FROM picked
    WINDOW line AS (ROWS UNBOUNDED PRECEDING)
),
fitting AS (
    SELECT
        id, lease_ttl, timeout,
        (so_far <= :so_far OR so_far = bytes) AS is_small,
        slots = place OR slots <= :slots::int AS has_slots,
        true AS has_room
    FROM in_line
),
claimed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'RUNNING',
        attempts = job.attempts + 1,
        lease_until = clock_timestamp() + COALESCE(job.lease_ttl, :lease_ttl),
        locked_by = :locked_by,
        token = pg_catalog.nextval('pulse_django_token'),
        deadline = clock_timestamp() + job.timeout,
        started_at = clock_timestamp()
    WHERE job.id = ANY (ARRAY(SELECT id FROM fitting WHERE is_small AND has_slots AND has_room))
        AND job.locked_by IS NULL
    RETURNING job.id, job.attempts, job.token, job.task, job.queue, job.priority, job.args, job.kwargs, job.progress,
        job.refunds, job.max_attempts, job.losses, job.parent_id, job.created_at, job.started_at, job.next_run_at,
        job.trace, job.sensitive, job.meta, job.lane_key, job.timeout, job.progress_timeout, job.max_lost_workers,
        job.count_lost_workers, job.give_up_after, job.weight, COALESCE(job.lease_ttl, :lease_ttl_2) AS ttl
)
SELECT
    id, attempts, token, task, queue, priority, args::text, kwargs::text, progress::text, refunds, max_attempts, losses,
    pg_catalog.date_part('epoch', ttl), parent_id, pg_catalog.date_part('epoch', created_at),
    pg_catalog.date_part('epoch', started_at), pg_catalog.date_part('epoch', next_run_at), trace, sensitive, meta::text,
    lane_key, false, timeout, progress_timeout, max_lost_workers, count_lost_workers, give_up_after, weight
FROM claimed
ORDER BY priority DESC, next_run_at, id;

-- claim(): chunks, shares
WITH picked AS MATERIALIZED (
    SELECT pick.id, pick.bytes, pick.weight, pick.lease_ttl, pick.timeout, pick.max_lost_workers
    FROM (
        SELECT ARRAY(
            SELECT pg_catalog.concat(task, pg_catalog.chr(10), queue)
            FROM pulse_django_pause
            WHERE lane_key::text = ''
                AND (paused_until IS NULL OR paused_until > statement_timestamp())) AS names OFFSET 0) AS pauses
    CROSS JOIN ROWS FROM (
        pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:priority::smallint[]), pg_catalog.unnest(:key::text[]),
        pg_catalog.unnest(:take::int[]), pg_catalog.unnest(:since::float8[])
    ) AS lane (queue, priority, key, take, since)
    CROSS JOIN LATERAL (
        SELECT pulse_django_job_hot.id AS id, pulse_django_job_hot.weight AS weight,
            pulse_django_job_hot.lease_ttl AS lease_ttl, pulse_django_job_hot.timeout AS timeout,
            pulse_django_job_hot.max_lost_workers AS max_lost_workers, (COALESCE(pulse_django_job_hot.payload_bytes,
            (pg_catalog.octet_length((pulse_django_job_hot.args)::text) +
            pg_catalog.octet_length((pulse_django_job_hot.kwargs)::text))) +
            COALESCE(pg_catalog.octet_length((pulse_django_job_hot.progress)::text), :bytes)) AS bytes
        FROM pulse_django_job_hot
        WHERE (pulse_django_job_hot.status::text IN ('PENDING', 'RETRYING')
                AND pulse_django_job_hot.next_run_at <= (statement_timestamp())
                AND (NOT (pulse_django_job_hot.attempts = 0
                        AND pulse_django_job_hot.expires_at IS NOT NULL
                        AND pulse_django_job_hot.status::text = 'PENDING'
                        AND pulse_django_job_hot.expires_at <= statement_timestamp())
                    AND (pg_catalog.cardinality(pauses.names) = 0 OR NOT
                        ARRAY[pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10)),
                        pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10), pulse_django_job_hot.queue)]
                        OPERATOR(pg_catalog.&&) pauses.names))
                AND pulse_django_job_hot.lane_key::text = (lane.key)
                AND pulse_django_job_hot.next_run_at >= (pg_catalog.to_timestamp(lane.since))
                AND pulse_django_job_hot.priority = (lane.priority)
                AND pulse_django_job_hot.queue::text = (lane.queue)
                AND pulse_django_job_hot.ready)
        ORDER BY pulse_django_job_hot.next_run_at ASC, 1 ASC
        FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED
        LIMIT lane.take) AS pick
    WHERE (pg_catalog.cardinality(pauses.names) = 0 OR pg_catalog.concat(pg_catalog.chr(10), lane.queue) <> ALL
        (pauses.names))
        AND COALESCE((
        SELECT false FROM pulse_django_pause
        WHERE lane_key::text = lane.key
            AND lane_key::text <> ''
            AND (paused_until IS NULL OR paused_until > statement_timestamp())
        LIMIT 1
    ), true)
    LIMIT :limit
),
in_line AS (
    SELECT
        id, lease_ttl, timeout, bytes, pg_catalog.sum(bytes) OVER line AS so_far,
        pg_catalog.sum(LEAST(weight, :weight::int)) OVER line AS slots,
        pg_catalog.count(*) FILTER (WHERE max_lost_workers IS DISTINCT FROM 0) OVER line AS place
    FROM picked
    WINDOW line AS (ROWS UNBOUNDED PRECEDING)
),
fitting AS (
    SELECT
        id, lease_ttl, timeout,
        (so_far <= :so_far OR so_far = bytes) AS is_small,
        slots = place OR slots <= :slots::int AS has_slots,
        true AS has_room
    FROM in_line
),
claimed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'RUNNING',
        attempts = job.attempts + 1,
        lease_until = clock_timestamp() + COALESCE(job.lease_ttl, :lease_ttl),
        locked_by = :locked_by,
        token = pg_catalog.nextval('pulse_django_token'),
        deadline = clock_timestamp() + job.timeout,
        started_at = clock_timestamp()
    WHERE job.id = ANY (ARRAY(SELECT id FROM fitting WHERE is_small AND has_slots AND has_room))
        AND job.locked_by IS NULL
    RETURNING job.id, job.attempts, job.token, job.task, job.queue, job.priority, job.args, job.kwargs, job.progress,
        job.refunds, job.max_attempts, job.losses, job.parent_id, job.created_at, job.started_at, job.next_run_at,
        job.trace, job.sensitive, job.meta, job.lane_key, job.timeout, job.progress_timeout, job.max_lost_workers,
        job.count_lost_workers, job.give_up_after, job.weight, COALESCE(job.lease_ttl, :lease_ttl_2) AS ttl
)
SELECT
    id, attempts, token, task, queue, priority, args::text, kwargs::text, progress::text, refunds, max_attempts, losses,
    pg_catalog.date_part('epoch', ttl), parent_id, pg_catalog.date_part('epoch', created_at),
    pg_catalog.date_part('epoch', started_at), pg_catalog.date_part('epoch', next_run_at), trace, sensitive, meta::text,
    lane_key, false, timeout, progress_timeout, max_lost_workers, count_lost_workers, give_up_after, weight,
        line.is_left
FROM (SELECT pg_catalog.bool_or(has_room AND NOT has_slots) AS is_left FROM fitting) AS line
LEFT JOIN claimed ON true
ORDER BY priority DESC, next_run_at, id;

-- claim(): on Citus
WITH picked AS MATERIALIZED (
    SELECT pick.id, pick.bytes, pick.weight, pick.lease_ttl, pick.timeout, pick.max_lost_workers
    FROM (
        SELECT ARRAY(
            SELECT pg_catalog.concat(task, pg_catalog.chr(10), queue)
            FROM pulse_django_pause
            WHERE lane_key::text = ''
                AND (paused_until IS NULL OR paused_until > statement_timestamp())) AS names OFFSET 0) AS pauses
    CROSS JOIN ROWS FROM (
        pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:priority::smallint[]), pg_catalog.unnest(:key::text[]),
        pg_catalog.unnest(:take::int[]), pg_catalog.unnest(:since::float8[])
    ) AS lane (queue, priority, key, take, since)
    CROSS JOIN LATERAL (
        SELECT pulse_django_job_hot.id AS id, pulse_django_job_hot.weight AS weight,
            pulse_django_job_hot.lease_ttl AS lease_ttl, pulse_django_job_hot.timeout AS timeout,
            pulse_django_job_hot.max_lost_workers AS max_lost_workers, (COALESCE(pulse_django_job_hot.payload_bytes,
            (pg_catalog.octet_length((pulse_django_job_hot.args)::text) +
            pg_catalog.octet_length((pulse_django_job_hot.kwargs)::text))) +
            COALESCE(pg_catalog.octet_length((pulse_django_job_hot.progress)::text), :bytes)) AS bytes
        FROM pulse_django_job_hot
        WHERE (pulse_django_job_hot.status::text IN ('PENDING', 'RETRYING')
                AND pulse_django_job_hot.next_run_at <= (statement_timestamp())
                AND (NOT (pulse_django_job_hot.attempts = 0
                        AND pulse_django_job_hot.expires_at IS NOT NULL
                        AND pulse_django_job_hot.status::text = 'PENDING'
                        AND pulse_django_job_hot.expires_at <= statement_timestamp())
                    AND (pg_catalog.cardinality(pauses.names) = 0 OR NOT
                        ARRAY[pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10)),
                        pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10), pulse_django_job_hot.queue)]
                        OPERATOR(pg_catalog.&&) pauses.names))
                AND pulse_django_job_hot.lane_key::text = (lane.key)
                AND pulse_django_job_hot.next_run_at >= (pg_catalog.to_timestamp(lane.since))
                AND pulse_django_job_hot.priority = (lane.priority)
                AND pulse_django_job_hot.queue::text = (lane.queue)
                AND pulse_django_job_hot.ready)
        ORDER BY pulse_django_job_hot.next_run_at ASC, 1 ASC
        FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED
        LIMIT lane.take) AS pick
    WHERE (pg_catalog.cardinality(pauses.names) = 0 OR pg_catalog.concat(pg_catalog.chr(10), lane.queue) <> ALL
        (pauses.names))
    LIMIT :limit
),
in_line AS (
    SELECT
        id, lease_ttl, timeout, bytes, pg_catalog.sum(bytes) OVER line AS so_far,
        pg_catalog.sum(LEAST(weight, :weight::int)) OVER line AS slots,
        pg_catalog.count(*) FILTER (WHERE max_lost_workers IS DISTINCT FROM 0) OVER line AS place
    FROM picked
    WINDOW line AS (ROWS UNBOUNDED PRECEDING)
),
fitting AS (
    SELECT
        id, lease_ttl, timeout,
        (so_far <= :so_far OR so_far = bytes) AS is_small,
        slots = place OR slots <= :slots::int AS has_slots,
        true AS has_room
    FROM in_line
),
granted AS MATERIALIZED (
    SELECT
        id,
        clock_timestamp() + COALESCE(lease_ttl, :lease_ttl) AS lease_until,
        pg_catalog.nextval('pulse_django_token') AS token,
        clock_timestamp() + timeout AS deadline,
        clock_timestamp() AS started_at
    FROM fitting
    WHERE is_small AND has_slots AND has_room
),
claimed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'RUNNING',
        attempts = job.attempts + 1,
        locked_by = :locked_by,
        lease_until = granted.lease_until,
        token = granted.token,
        deadline = granted.deadline,
        started_at = granted.started_at
    FROM granted
    WHERE job.id = ANY (ARRAY[granted.id]) AND job.locked_by IS NULL
    RETURNING job.id, job.attempts, job.token, job.task, job.queue, job.priority, job.args, job.kwargs, job.progress,
        job.refunds, job.max_attempts, job.losses, job.parent_id, job.created_at, job.started_at, job.next_run_at,
        job.trace, job.sensitive, job.meta, job.lane_key, job.timeout, job.progress_timeout, job.max_lost_workers,
        job.count_lost_workers, job.give_up_after, job.weight, COALESCE(job.lease_ttl, :lease_ttl_2) AS ttl
)
SELECT
    id, attempts, token, task, queue, priority, args::text, kwargs::text, progress::text, refunds, max_attempts, losses,
    pg_catalog.date_part('epoch', ttl), parent_id, pg_catalog.date_part('epoch', created_at),
    pg_catalog.date_part('epoch', started_at), pg_catalog.date_part('epoch', next_run_at), trace, sensitive, meta::text,
    lane_key, false, timeout, progress_timeout, max_lost_workers, count_lost_workers, give_up_after, weight
FROM claimed
ORDER BY priority DESC, next_run_at, id;

-- claim_these()
WITH picked AS MATERIALIZED (
    SELECT pulse_django_job_hot.id AS id, pulse_django_job_hot.weight AS weight,
        pulse_django_job_hot.lease_ttl AS lease_ttl, pulse_django_job_hot.timeout AS timeout,
        pulse_django_job_hot.max_lost_workers AS max_lost_workers, (COALESCE(pulse_django_job_hot.payload_bytes,
        (pg_catalog.octet_length((pulse_django_job_hot.args)::text) +
        pg_catalog.octet_length((pulse_django_job_hot.kwargs)::text))) +
        COALESCE(pg_catalog.octet_length((pulse_django_job_hot.progress)::text), :bytes)) AS bytes
    FROM pulse_django_job_hot
    WHERE (pulse_django_job_hot.status::text IN ('PENDING', 'RETRYING')
            AND pulse_django_job_hot.next_run_at <= (statement_timestamp())
            AND (NOT (pulse_django_job_hot.attempts = 0
                    AND pulse_django_job_hot.expires_at IS NOT NULL
                    AND pulse_django_job_hot.status::text = 'PENDING'
                    AND pulse_django_job_hot.expires_at <= statement_timestamp()))
            AND pulse_django_job_hot.id IN (:id))
    ORDER BY 1 ASC
    FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED),
in_line AS (
    SELECT
        id, lease_ttl, timeout, bytes, pg_catalog.sum(bytes) OVER line AS so_far,
        pg_catalog.sum(LEAST(weight, :weight::int)) OVER line AS slots,
        pg_catalog.count(*) FILTER (WHERE max_lost_workers IS DISTINCT FROM 0) OVER line AS place
    FROM picked
    WINDOW line AS (ROWS UNBOUNDED PRECEDING)
),
fitting AS (
    SELECT
        id, lease_ttl, timeout,
        (so_far <= :so_far OR so_far = bytes) AS is_small,
        slots = place OR slots <= :slots::int AS has_slots,
        true AS has_room
    FROM in_line
),
claimed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'RUNNING',
        attempts = job.attempts + 1,
        lease_until = clock_timestamp() + COALESCE(job.lease_ttl, :lease_ttl),
        locked_by = :locked_by,
        token = pg_catalog.nextval('pulse_django_token'),
        deadline = clock_timestamp() + job.timeout,
        started_at = clock_timestamp()
    WHERE job.id = ANY (ARRAY(SELECT id FROM fitting WHERE is_small AND has_slots AND has_room))
        AND job.locked_by IS NULL
    RETURNING job.id, job.attempts, job.token, job.task, job.queue, job.priority, job.args, job.kwargs, job.progress,
        job.refunds, job.max_attempts, job.losses, job.parent_id, job.created_at, job.started_at, job.next_run_at,
        job.trace, job.sensitive, job.meta, job.lane_key, job.timeout, job.progress_timeout, job.max_lost_workers,
        job.count_lost_workers, job.give_up_after, job.weight, COALESCE(job.lease_ttl, :lease_ttl_2) AS ttl
)
SELECT
    id, attempts, token, task, queue, priority, args::text, kwargs::text, progress::text, refunds, max_attempts, losses,
    pg_catalog.date_part('epoch', ttl), parent_id, pg_catalog.date_part('epoch', created_at),
    pg_catalog.date_part('epoch', started_at), pg_catalog.date_part('epoch', next_run_at), trace, sensitive, meta::text,
    lane_key, false, timeout, progress_timeout, max_lost_workers, count_lost_workers, give_up_after, weight
FROM claimed
ORDER BY priority DESC, next_run_at, id;
