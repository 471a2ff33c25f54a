-- retry(): every job
WITH dead AS MATERIALIZED (
    SELECT
        id, attempts, max_attempts, refunds, lane_key, unique_key IS NOT NULL AND NOT unique_until_start AS is_keyed,
        NOT :cancelled_too AND batch_id IS NOT NULL AND EXISTS (
            SELECT 1 FROM pulse_django_batch WHERE id = job.batch_id AND cancelled_at IS NOT NULL
        ) AS is_cancelled
    FROM pulse_django_job_hot AS job
    WHERE id = ANY (:ids::bigint[]) AND status::text = 'DEAD_LETTERED'
            AND attempts = COALESCE(:attempt::int, attempts)
            AND task::text NOT IN ('pulse_django.find_matching_jobs', 'pulse_django.act_on_jobs')
    ORDER BY id
    FOR NO KEY UPDATE
),
in_line AS (
    SELECT
        id, attempts, max_attempts, refunds, lane_key, is_keyed, row_number() OVER (ORDER BY id) - 1 AS place
    FROM dead
    WHERE NOT is_cancelled
),
reviving AS MATERIALIZED (
    SELECT
        id,
        LEAST(attempts, refunds + GREATEST(0, :runs - (max_attempts - attempts + refunds))) AS refunds,
        clock_timestamp() + (:delay::float8 + place::float8 * :gap::float8) * interval '1 second' AS next_run_at,
        lane_key::text = '' AS ready
    FROM in_line
    WHERE NOT is_keyed
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
SELECT id, NULL, false FROM revived
UNION ALL
SELECT id, place, false FROM in_line WHERE is_keyed
UNION ALL
SELECT id, NULL, true FROM dead WHERE is_cancelled;

-- retry(): unique, all
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
        ) AS has_twin
    FROM dead
),
reviving AS MATERIALIZED (
    SELECT
        id,
        LEAST(attempts, refunds + GREATEST(0, :runs - (max_attempts - attempts + refunds))) AS refunds,
        clock_timestamp() + (:delay::float8 + place::float8 * :gap::float8) * interval '1 second' AS next_run_at,
        lane_key::text = '' AS ready
    FROM in_line
    WHERE NOT has_twin
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
SELECT id, true FROM in_line WHERE has_twin;

-- retry()
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
