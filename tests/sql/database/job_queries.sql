-- JobReader.held_by()
SELECT pulse_django_job.id, pulse_django_job.era, pulse_django_job.task, pulse_django_job.queue,
    pulse_django_job.priority, pulse_django_job.lane_key, pulse_django_job.ready, pulse_django_job.payload_bytes,
    pulse_django_job.parent_id, pulse_django_job.trace, pulse_django_job.sensitive, pulse_django_job.give_up_after,
    pulse_django_job.tags, pulse_django_job.search_terms, pulse_django_job.meta, pulse_django_job.weight,
    pulse_django_job.status, pulse_django_job.next_run_at, pulse_django_job.attempts, pulse_django_job.refunds,
    pulse_django_job.max_attempts, pulse_django_job.losses, pulse_django_job.max_lost_workers,
    pulse_django_job.count_lost_workers, pulse_django_job.locked_by, pulse_django_job.lease_until,
    pulse_django_job.token, pulse_django_job.lease_ttl, pulse_django_job.timeout, pulse_django_job.deadline,
    pulse_django_job.progress_timeout, pulse_django_job.progress_at, pulse_django_job.cancel_requested_at,
    pulse_django_job.cancel_reason, pulse_django_job.last_error, pulse_django_job.result, pulse_django_job.completed_by,
    pulse_django_job.completed_token, pulse_django_job.created_at, pulse_django_job.started_at,
    pulse_django_job.finished_at, pulse_django_job.expires_at, pulse_django_job.idempotency_key,
    pulse_django_job.unique_key, pulse_django_job.unique_until_start, pulse_django_job.batch_id, pulse_django_job.node,
    pulse_django_job.awaited
FROM pulse_django_job
WHERE (pulse_django_job.status::text = :status
        AND pulse_django_job.locked_by::text LIKE :locked_by)
ORDER BY pulse_django_job.id ASC;

-- JobReader.leases_of()
SELECT pulse_django_job.id AS id, pulse_django_job.attempts AS attempts
FROM pulse_django_job
WHERE (pulse_django_job.status::text = :status
        AND pulse_django_job.locked_by::text = :locked_by)
ORDER BY 1 ASC;

-- JobReader.server_clock()
SELECT EXTRACT(epoch FROM start)::float8, EXTRACT(epoch FROM clock_timestamp() - start)::float8
FROM pg_postmaster_start_time() AS start;

-- JobReader.family()
WITH RECURSIVE family (id) AS (
    SELECT pg_catalog.unnest(:id::bigint[])
    UNION
    SELECT job.id FROM family JOIN pulse_django_job AS job ON job.parent_id = family.id
)
SELECT id FROM family;

-- JobReader.put_back_for()
SELECT clock_timestamp() - met.first FROM (
SELECT pg_catalog.min(started_at) AS first
FROM pulse_django_attempt
WHERE job_id = :job AND number > COALESCE((
    SELECT pg_catalog.max(number)
    FROM pulse_django_attempt
    WHERE job_id = :job AND NOT (outcome::text = 'RELEASED' AND pg_catalog.starts_with(message, :unknown))
), 0)
) AS met;

-- JobReader.id_at()
WITH RECURSIVE search (low, high) AS (
    SELECT pg_catalog.min(id), pg_catalog.max(id) + 1 FROM pulse_django_job
    UNION ALL
    SELECT
        CASE WHEN probe.is_before THEN probe.id + 1 ELSE search.low END,
        CASE WHEN probe.is_before THEN search.high ELSE half.id END
    FROM search
    CROSS JOIN LATERAL (SELECT (search.low + search.high) / 2) AS half (id)
    CROSS JOIN LATERAL (
        SELECT id, id < search.high
            AND created_at < :created_at AS is_before
        FROM pulse_django_job
        WHERE id >= half.id
        ORDER BY id
        LIMIT 1
    ) AS probe
    WHERE search.low < search.high
)
SELECT pg_catalog.min(high) FROM search;

-- depths()
WITH RECURSIVE pair AS (
    SELECT first.*, 1 AS place
    FROM (
        SELECT queue, priority
        FROM pulse_django_job_hot
        WHERE status::text IN ('PENDING', 'RETRYING')
        ORDER BY queue, priority DESC
        LIMIT 1) AS first
    UNION ALL
    SELECT following.*, pair.place + 1
    FROM pair
    CROSS JOIN LATERAL ((
            SELECT queue, priority
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND queue::text = pair.queue::text
                AND priority < pair.priority
            ORDER BY queue, priority DESC
            LIMIT 1)
        UNION ALL (
            SELECT queue, priority
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND queue::text > pair.queue::text
            ORDER BY queue, priority DESC
            LIMIT 1)
        LIMIT 1) AS following
),
lane AS MATERIALIZED (
    SELECT queue, priority, ''::varchar AS lane_key FROM pair
    UNION ALL
    SELECT pair.queue, pair.priority, keyed.lane_key
    FROM pair
    CROSS JOIN LATERAL (
        WITH RECURSIVE met AS (
            (
                SELECT lane_key, next_run_at, 1 AS place FROM pulse_django_job_hot
                WHERE status::text IN ('PENDING', 'RETRYING')
                    AND queue::text = pair.queue::text
                    AND priority = pair.priority
                    AND ready
                    AND lane_key::text > ''
                ORDER BY lane_key, next_run_at, id
                LIMIT 1
            )
            UNION ALL
            SELECT following.lane_key, following.next_run_at, met.place + 1
            FROM met
            CROSS JOIN LATERAL (
                SELECT lane_key, next_run_at FROM pulse_django_job_hot
                WHERE status::text IN ('PENDING', 'RETRYING')
                    AND queue::text = pair.queue::text
                    AND priority = pair.priority
                    AND ready
                    AND lane_key::text > met.lane_key::text
                ORDER BY lane_key, next_run_at, id
                LIMIT 1
            ) AS following
            WHERE met.place < 256
        )
        SELECT lane_key, next_run_at FROM met
    ) AS keyed
),
share (most) AS MATERIALIZED (SELECT GREATEST(10, :in_all / GREATEST(count(*), 1)) FROM lane),
aside AS MATERIALIZED (
    SELECT queue, count(*) AS jobs
    FROM (
        SELECT queue
        FROM pulse_django_job_hot
        WHERE status::text IN ('PENDING', 'RETRYING')
            AND ready IS NULL
        ORDER BY task, queue, id
        LIMIT :in_all + 1
    ) AS first
    GROUP BY queue
)
SELECT
    lane.queue, pg_catalog.sum(due.jobs)::bigint,
    pg_catalog.sum(later.jobs)::bigint
        + COALESCE((SELECT jobs FROM aside WHERE aside.queue::text = lane.queue::text), 0),
    EXTRACT(epoch FROM statement_timestamp() - pg_catalog.min(due.since))::float8,
    pg_catalog.bool_or(GREATEST(due.jobs, later.jobs) > share.most)
        OR COALESCE((SELECT pg_catalog.sum(jobs)::bigint FROM aside) > :in_all, false)
FROM lane
CROSS JOIN share
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, pg_catalog.min(next_run_at) AS since
    FROM (
        SELECT next_run_at
        FROM pulse_django_job_hot
        WHERE status::text IN ('PENDING', 'RETRYING')
            AND queue::text = lane.queue::text
            AND priority = lane.priority
            AND ready
            AND lane_key::text = lane.lane_key::text
            AND next_run_at <= statement_timestamp()
        ORDER BY next_run_at
        LIMIT (SELECT most + 1 FROM share)
    ) AS first
) AS due
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs
    FROM (
        (
            SELECT 1
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND queue::text = lane.queue::text
                AND priority = lane.priority
                AND ready
                AND lane_key::text = lane.lane_key::text
                AND next_run_at > statement_timestamp()
            ORDER BY next_run_at
            LIMIT (SELECT most + 1 FROM share)
        )
        UNION ALL
        (
            SELECT 1
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND queue::text = lane.queue::text
                AND priority = lane.priority
                AND NOT ready
                AND lane.lane_key::text = ''
            LIMIT (SELECT most + 1 FROM share)
        )
    ) AS first
) AS later
GROUP BY lane.queue
ORDER BY lane.queue;

-- id_at()
WITH RECURSIVE search (low, high) AS (
    SELECT pg_catalog.min(id), pg_catalog.max(id) + 1 FROM pulse_django_job WHERE id >= :id AND id < :id_2
    UNION ALL
    SELECT
        CASE WHEN probe.is_before THEN probe.id + 1 ELSE search.low END,
        CASE WHEN probe.is_before THEN search.high ELSE half.id END
    FROM search
    CROSS JOIN LATERAL (SELECT (search.low + search.high) / 2) AS half (id)
    CROSS JOIN LATERAL (
        SELECT id, id < search.high
            AND created_at < :created_at AS is_before
        FROM pulse_django_job
        WHERE id >= half.id
        ORDER BY id
        LIMIT 1
    ) AS probe
    WHERE search.low < search.high
)
SELECT pg_catalog.min(high) FROM search;

-- id_at()
WITH RECURSIVE search (low, high) AS (
    SELECT pg_catalog.min(id), pg_catalog.max(id) + 1 FROM pulse_django_attempt WHERE id >= :id AND id < :id_2
    UNION ALL
    SELECT
        CASE WHEN probe.is_before THEN probe.id + 1 ELSE search.low END,
        CASE WHEN probe.is_before THEN search.high ELSE half.id END
    FROM search
    CROSS JOIN LATERAL (SELECT (search.low + search.high) / 2) AS half (id)
    CROSS JOIN LATERAL (
        SELECT id, id < search.high
            AND finished_at < :finished_at AS is_before
        FROM pulse_django_attempt
        WHERE id >= half.id
        ORDER BY id
        LIMIT 1
    ) AS probe
    WHERE search.low < search.high
)
SELECT pg_catalog.min(high) FROM search;
