-- retry(): every job
WITH dead AS MATERIALIZED (
    SELECT
        id, attempts, max_attempts, refunds, lane_key, unique_key IS NOT NULL AND NOT unique_until_start AS is_keyed,
        NOT :cancelled_too AND (job.batch_id IS NOT NULL AND EXISTS (
            SELECT 1 FROM pulse_django_batch WHERE id = job.batch_id AND cancelled_at IS NOT NULL
        )) AS is_cancelled
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
