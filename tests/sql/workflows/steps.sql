-- store_step()
WITH held AS MATERIALIZED (
    SELECT id, attempts, token
    FROM pulse_django_job_hot
    WHERE id = :id AND locked_by::text = :locked_by AND attempts = :attempts
    FOR NO KEY UPDATE
)
INSERT INTO pulse_django_step (job_id, name, number, attempt, token, result, seconds)
SELECT
    id, :name, 1 + (
        SELECT count(*)
        FROM pulse_django_step
        WHERE job_id = held.id), attempts, token, :result::jsonb, :seconds::float8
FROM held
RETURNING job_id;

-- begin_sleep()
WITH held AS MATERIALIZED (
    SELECT id, attempts, token
    FROM pulse_django_job_hot
    WHERE id = :id AND locked_by::text = :locked_by AND attempts = :attempts
    FOR NO KEY UPDATE
),
begun AS (
    INSERT INTO pulse_django_step (job_id, name, number, attempt, token, seconds)
    SELECT id, :name, 1 + (
        SELECT count(*)
        FROM pulse_django_step
        WHERE job_id = held.id), attempts, token, :seconds::float8
    FROM held
    ON CONFLICT (job_id, name) DO NOTHING
    RETURNING at, seconds
)
SELECT EXTRACT(epoch FROM at + seconds * interval '1 second' - clock_timestamp())::float8
FROM (
    SELECT at, seconds FROM begun
    UNION ALL
    SELECT step.at, step.seconds
    FROM held
    JOIN pulse_django_step AS step ON step.job_id = held.id AND step.name::text = :name_2
) AS sleep;

-- steps_of()
SELECT name, result::text, number, at FROM pulse_django_step WHERE job_id = :job_id ORDER BY number;

-- forget_steps()
DELETE FROM pulse_django_step WHERE job_id = :job_id AND number >= :number RETURNING name;

-- copy_steps()
INSERT INTO pulse_django_step (job_id, name, number, attempt, token, result, at, seconds)
SELECT :job_id, name, number, attempt, token, result, at, seconds
FROM pulse_django_step
WHERE job_id = :job_id_2 AND number < :number
RETURNING name;
