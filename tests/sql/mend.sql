-- mend()
WITH wrong AS MATERIALIZED (
    SELECT id, locked_by, token, started_at, attempts, refunds, max_attempts, lease_until, lease_ttl
    FROM pulse_django_job_hot
    WHERE id = ANY (:id::bigint[]) AND status::text = 'RUNNING' AND (
        locked_by IS NULL OR token IS NULL OR started_at IS NULL OR lease_until IS NULL
        OR lease_until > statement_timestamp() + COALESCE(lease_ttl, :lease_ttl) + interval '1 second'
        OR attempts <= refunds OR attempts - refunds > max_attempts
    )
    ORDER BY id
    FOR NO KEY UPDATE
),
mended AS MATERIALIZED (
    SELECT
        id,
        COALESCE(token, pg_catalog.nextval('pulse_django_token')) AS token,
        COALESCE(started_at, clock_timestamp()) AS started_at,
        GREATEST(attempts, refunds + 1) AS attempts,
        GREATEST(max_attempts, attempts - refunds, 1) AS max_attempts,
        LEAST(lease_until, clock_timestamp() + COALESCE(lease_ttl, :lease_ttl_2)) AS lease_until
    FROM wrong
),
written AS (
    UPDATE pulse_django_job_hot AS job
    SET locked_by = COALESCE(job.locked_by, 'nobody'),
        token = mended.token,
        started_at = mended.started_at,
        attempts = mended.attempts,
        max_attempts = mended.max_attempts,
        lease_until = mended.lease_until
    FROM mended
    WHERE job.id = mended.id AND job.status::text = 'RUNNING'
    RETURNING job.id
)
SELECT id FROM written;

-- shorten_leases()
WITH long AS MATERIALIZED (
    SELECT id, lease_until, lease_ttl
    FROM pulse_django_job_hot
    WHERE status::text = 'RUNNING'
        AND lease_until > statement_timestamp() + COALESCE(lease_ttl, :longest) + interval '1 second'
    ORDER BY id
    LIMIT :limit
    FOR NO KEY UPDATE
),
short AS MATERIALIZED (
    SELECT id, GREATEST(lease_until - :step, clock_timestamp() + COALESCE(lease_ttl, :ttl)) AS lease_until
    FROM long
),
written AS (
    UPDATE pulse_django_job_hot AS job
    SET lease_until = short.lease_until
    FROM short
    WHERE job.id = short.id AND job.status::text = 'RUNNING'
    RETURNING job.id
)
SELECT id FROM written;
