-- UniqueAdmission.kept()
SELECT job_id FROM pulse_django_key WHERE task::text = :task AND key::text = :key;

-- UniqueAdmission.kept()
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
WHERE pulse_django_job.id IN (:id)
ORDER BY pulse_django_job.id ASC
LIMIT 1;

-- UniqueAdmission.kept()
DELETE FROM pulse_django_key AS key
WHERE key.task::text = :task
    AND key.key::text = :key
    AND NOT EXISTS (
    SELECT 1
    FROM pulse_django_job
    WHERE id = key.job_id)
RETURNING key.job_id;

-- UniqueRetry.retry(): unique, all
WITH dead AS MATERIALIZED (
    SELECT
        job.id, job.attempts, job.max_attempts, job.refunds, job.lane_key, job.task, job.unique_key, asked.place
    FROM ROWS FROM (pg_catalog.unnest(:ids::bigint[]), pg_catalog.unnest(:places::bigint[])) AS asked (id, place)
    JOIN pulse_django_job_hot AS job ON job.id = asked.id
    WHERE job.status::text = 'DEAD_LETTERED' AND job.attempts = COALESCE(:attempt::int, job.attempts)
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
),
in_line AS (
    SELECT
        id, attempts, max_attempts, refunds, lane_key, place,
        row_number() OVER (PARTITION BY task, unique_key ORDER BY id) > 1 OR EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE task::text = dead.task::text
                AND unique_key::text = dead.unique_key::text
                AND finished_at IS NULL
                AND unique_key IS NOT NULL
                AND (NOT unique_until_start OR attempts = 0)
        ) AS is_taken
    FROM dead
),
reviving AS MATERIALIZED (
    SELECT
        id,
        LEAST(attempts, refunds + GREATEST(0, :runs - (max_attempts - attempts + refunds))) AS refunds,
        clock_timestamp() + (:delay::float8 + place::float8 * :gap::float8) * interval '1 second' AS next_run_at,
        lane_key::text = '' AS ready
    FROM in_line
    WHERE NOT is_taken
),
revived AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'PENDING',
        refunds = reviving.refunds,
        next_run_at = reviving.next_run_at,
        ready = reviving.ready,
        finished_at = NULL,
        cancel_requested_at = NULL,
        cancel_reason = ''
    FROM reviving
    WHERE job.id = reviving.id AND job.status::text = 'DEAD_LETTERED'
    RETURNING job.id
)
SELECT id, false FROM revived
UNION ALL
SELECT id, true FROM in_line WHERE is_taken;

-- UniqueRetry.retry()
SELECT id
FROM pulse_django_job_hot
WHERE attempts = 0
    AND expires_at IS NOT NULL
    AND status::text = 'PENDING'
    AND expires_at <= statement_timestamp()
    AND unique_key IS NOT NULL
    AND EXISTS (
    SELECT 1 FROM pulse_django_job_hot AS dead
    WHERE dead.id = ANY (:id::bigint[]) AND dead.task::text = pulse_django_job_hot.task::text
        AND dead.unique_key::text = pulse_django_job_hot.unique_key::text
);
