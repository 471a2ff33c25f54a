-- heartbeat(): every job
WITH held AS MATERIALIZED (
    SELECT id, holder, attempt, progress::jsonb
    FROM pg_catalog.json_to_recordset(:held::json) AS held (id bigint, holder text, attempt int, progress text)
),
locked AS MATERIALIZED (
    SELECT job.id, job.lease_until, job.lease_ttl, job.progress_at, held.progress
    FROM held
    JOIN pulse_django_job_hot AS job
        ON job.id = held.id AND job.locked_by::text = held.holder AND job.attempts = held.attempt
    ORDER BY job.id
    FOR NO KEY UPDATE OF job SKIP LOCKED
),
beat AS MATERIALIZED (
    SELECT
        id, progress,
        GREATEST(lease_until, clock_timestamp() + COALESCE(lease_ttl, :lease_ttl)) AS lease_until,
        CASE WHEN progress IS NULL THEN progress_at ELSE clock_timestamp() END AS progress_at
    FROM locked
),
beaten AS (
    UPDATE pulse_django_job_hot AS job
    SET lease_until = beat.lease_until,
        progress = COALESCE(beat.progress, job.progress),
        progress_at = beat.progress_at
    FROM beat
    WHERE job.id = beat.id AND job.locked_by IS NOT NULL
    RETURNING job.id, job.locked_by, job.attempts, job.cancel_requested_at
)
SELECT id, locked_by, attempts, cancel_requested_at IS NOT NULL FROM beaten;

-- heartbeat()
SELECT job.id, job.locked_by, job.attempts
FROM pg_catalog.json_to_recordset(:held::json) AS held (id bigint, holder text, attempt int)
JOIN pulse_django_job_hot AS job
    ON job.id = held.id AND job.locked_by::text = held.holder AND job.attempts = held.attempt;
