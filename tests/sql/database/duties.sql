-- DutyManager.take()
WITH wanted (name, seconds) AS (
    SELECT *
    FROM ROWS FROM (pg_catalog.unnest(:name::text[]), pg_catalog.unnest(:seconds::float8[])) AS wanted (name, seconds)
),
due AS MATERIALIZED (
    SELECT duty.name, duty.taken_at, duty.done_at
    FROM pulse_django_duty AS duty
    JOIN wanted ON duty.name::text = wanted.name
    WHERE NOT (duty.taken_at BETWEEN
        clock_timestamp() - wanted.seconds * interval '1 second' AND clock_timestamp() + interval '1 second')
    ORDER BY duty.name
    FOR NO KEY UPDATE OF duty SKIP LOCKED
),
taking AS MATERIALIZED (
    SELECT name, clock_timestamp() AS now FROM due
),
taken AS (
    UPDATE pulse_django_duty AS duty
    SET taken_at = taking.now
    FROM taking
    WHERE duty.name::text = taking.name::text
    RETURNING duty.name
),
server AS (
SELECT EXTRACT(epoch FROM start)::float8, EXTRACT(epoch FROM clock_timestamp() - start)::float8
FROM pg_postmaster_start_time() AS start
)
SELECT
    server.*,
    ARRAY(SELECT name::text FROM taken),
    ARRAY(
        SELECT name FROM wanted
        WHERE NOT EXISTS (SELECT 1 FROM pulse_django_duty AS duty WHERE duty.name::text = wanted.name)
    ),
    ARRAY(SELECT name::text FROM pulse_django_duty WHERE done_at < taken_at),
    ARRAY(
        SELECT duty.name::text
        FROM pulse_django_duty AS duty
        JOIN wanted ON duty.name::text = wanted.name
        WHERE duty.taken_at < clock_timestamp() - wanted.seconds * interval '4 seconds'
    ),
    pg_catalog.array_remove(ARRAY[CASE WHEN EXISTS (
            SELECT 1
            FROM pulse_django_pause
            WHERE lane_key::text = ''
                AND task::text <> '') OR EXISTS (
            SELECT 1
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND ready IS NULL) THEN 'set aside' END, CASE WHEN EXISTS (
            SELECT 1
            FROM pulse_django_job_hot
            WHERE attempts = 0
                AND expires_at IS NOT NULL
                AND status::text = 'PENDING'
                AND expires_at <= statement_timestamp()) THEN 'expiry' END, CASE WHEN EXISTS (
            SELECT 1
            FROM pulse_django_limiter) THEN 'limits' END, CASE WHEN EXISTS (
            SELECT 1
            FROM pulse_django_schedule) THEN 'schedules' END, CASE WHEN EXISTS (
            SELECT 1
            FROM pulse_django_batch) OR EXISTS (
            SELECT 1
            FROM pulse_django_dependency) OR EXISTS (
            SELECT 1
            FROM pulse_django_step) OR EXISTS (
            SELECT 1
            FROM pulse_django_event) THEN 'workflows' END, CASE WHEN EXISTS (
            SELECT 1
            FROM pulse_django_batch
            WHERE paused_at IS NOT NULL
                AND finished_at IS NULL) THEN 'paused batches' END, CASE WHEN EXISTS (
            SELECT 1
            FROM pulse_django_unresolved) OR EXISTS (
        SELECT 1 FROM pulse_django_dependency
        WHERE until <= statement_timestamp() AND until IS NOT NULL AND met_at IS NULL
    ) THEN 'unresolved' END], NULL)
FROM server;

-- DutyManager.take()
INSERT INTO pulse_django_duty (name, taken_at, done_at)
SELECT name, clock_timestamp(), clock_timestamp() FROM pg_catalog.unnest(:name::text[]) AS wanted (name)
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- DutyManager.done()
WITH taken AS MATERIALIZED (
    SELECT name FROM pulse_django_duty WHERE name::text = ANY (:name::text[]) ORDER BY name FOR NO KEY UPDATE
),
done AS MATERIALIZED (
    SELECT name, clock_timestamp() AS now FROM taken
),
written AS (
    UPDATE pulse_django_duty AS duty
    SET done_at = done.now
    FROM done
    WHERE duty.name::text = done.name::text
    RETURNING duty.name
)
SELECT name FROM written;
