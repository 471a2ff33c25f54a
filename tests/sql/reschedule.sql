-- reschedule(): every job
WITH waiting AS MATERIALIZED (
    SELECT id, queue, lane_key, ready
    FROM pulse_django_job_hot
    WHERE id = ANY (:id::bigint[]) AND status::text IN ('PENDING', 'RETRYING')
            AND attempts = COALESCE(:attempts::int, attempts)
            AND NOT (attempts = 0
                AND expires_at IS NOT NULL
                AND status::text = 'PENDING'
                AND expires_at <= statement_timestamp())
    ORDER BY id
    FOR NO KEY UPDATE
),
changed AS MATERIALIZED (
    SELECT id, clock_timestamp() + :next_run_at::float8 * interval '1 second' AS next_run_at, lane_key::text =
        '' AS ready
    FROM waiting
),
written AS (
    UPDATE pulse_django_job_hot AS job
    SET next_run_at = changed.next_run_at, ready = changed.ready
    FROM changed
    WHERE job.id = changed.id AND job.status::text IN ('PENDING', 'RETRYING')
    RETURNING job.id
)
SELECT id FROM written;

-- move(): every job
WITH waiting AS MATERIALIZED (
    SELECT id, queue, lane_key, ready
    FROM pulse_django_job_hot
    WHERE id = ANY (:id::bigint[]) AND status::text IN ('PENDING', 'RETRYING')
            AND attempts = COALESCE(:attempts::int, attempts)
            AND NOT (attempts = 0
                AND expires_at IS NOT NULL
                AND status::text = 'PENDING'
                AND expires_at <= statement_timestamp())
    ORDER BY id
    FOR NO KEY UPDATE
),
changed AS MATERIALIZED (
    SELECT id,
    CASE
        WHEN :value::text IS NOT NULL
            AND pg_catalog.split_part(lane_key::text, ':', 1) IN ('', pg_catalog.concat('queue=', queue)) THEN
                pg_catalog.concat(
            :lane_key::text, pg_catalog.substr(lane_key::text, pg_catalog.strpos(lane_key::text || ':', ':'))
        )
        ELSE lane_key::text
    END AS lane_key, ready AND (
    CASE
        WHEN :value_2::text IS NOT NULL
            AND pg_catalog.split_part(lane_key::text, ':', 1) IN ('', pg_catalog.concat('queue=', queue)) THEN
                pg_catalog.concat(
            :ready::text, pg_catalog.substr(lane_key::text, pg_catalog.strpos(lane_key::text || ':', ':'))
        )
        ELSE lane_key::text
    END) = lane_key::text AS ready FROM waiting
),
written AS (
    UPDATE pulse_django_job_hot AS job
    SET queue = COALESCE(:queue, job.queue), priority = COALESCE(:priority, job.priority), lane_key = changed.lane_key,
        ready = changed.ready
    FROM changed
    WHERE job.id = changed.id AND job.status::text IN ('PENDING', 'RETRYING')
    RETURNING job.id
)
SELECT id FROM written;
