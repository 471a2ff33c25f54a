-- LimiterManager.declare_new(): every job
INSERT INTO pulse_django_limiter AS limiter (name, numbers, declared_at, declared_in)
SELECT name, numbers, clock_timestamp(), :declared_in
FROM ROWS FROM (pg_catalog.unnest(:name::text[]), pg_catalog.unnest(:numbers::jsonb[])) AS declared (name, numbers)
ORDER BY name
ON CONFLICT (name) DO UPDATE
SET numbers = excluded.numbers, declared_at = excluded.declared_at, declared_in = excluded.declared_in
WHERE limiter.declared_at IS NULL
RETURNING name;

-- LimiterManager.declare()
SELECT pulse_django_limiter.name AS name, pulse_django_limiter.declared_in AS declared_in,
    pulse_django_limiter.numbers AS numbers
FROM pulse_django_limiter
WHERE (pulse_django_limiter.declared_at IS NOT NULL
        AND pulse_django_limiter.name::text IN (:name)
        AND NOT (pulse_django_limiter.declared_in::text = :declared_in));

-- LimiterManager.declare()
INSERT INTO pulse_django_limiter AS limiter (name, numbers, declared_at, declared_in)
SELECT name, numbers, clock_timestamp(), :declared_in
FROM ROWS FROM (pg_catalog.unnest(:name::text[]), pg_catalog.unnest(:numbers::jsonb[])) AS declared (name, numbers)
ORDER BY name
ON CONFLICT (name) DO UPDATE
SET numbers = excluded.numbers, declared_at = excluded.declared_at, declared_in = excluded.declared_in
WHERE limiter.declared_at IS NULL OR limiter.numbers <> excluded.numbers OR limiter.declared_in::text <>
    excluded.declared_in::text
RETURNING name;

-- LimiterManager.declare()
UPDATE pulse_django_limiter SET numbers = '{}', declared_at = NULL
WHERE declared_in::text = :declared_in AND declared_at IS NOT NULL AND name::text <> ALL (:name::text[])
RETURNING name;

-- LimiterManager.override()
INSERT INTO pulse_django_limiter (name, numbers, override, override_until, overridden_by, override_reason)
VALUES (
    :name, '{}', :override::jsonb, clock_timestamp() + :seconds::float8 * interval '1 second', :by,
    :reason
)
ON CONFLICT (name) DO UPDATE SET
    override = excluded.override, override_until = excluded.override_until,
    overridden_by = excluded.overridden_by, override_reason = excluded.override_reason
RETURNING name;

-- LimiterManager.pause()
INSERT INTO pulse_django_limiter AS limiter (name, numbers, paused_until, pause_reason)
VALUES (:name, '{}', clock_timestamp() + :seconds::float8 * interval '1 second', :reason)
ON CONFLICT (name) DO UPDATE SET paused_until = excluded.paused_until, pause_reason = excluded.pause_reason
WHERE limiter.paused_until IS NULL OR limiter.paused_until < excluded.paused_until
RETURNING name;

-- LimiterManager.failed()
WITH locked AS MATERIALIZED (
    SELECT name, failures, failures_since, paused_until, pause_reason, half_open
    FROM pulse_django_limiter
    WHERE name::text = :name
    FOR NO KEY UPDATE
),
counted AS MATERIALIZED (
    SELECT
        *, clock_timestamp() AS now,
        CASE
            WHEN failures > 0 AND failures_since > clock_timestamp() - :within::float8 * interval '1 second'
            THEN failures + 1
            ELSE 1
        END AS n
    FROM locked
),
judged AS MATERIALIZED (
    SELECT
        *, half_open OR n >= :most AS opens,
        CASE WHEN n = 1 THEN now ELSE failures_since END AS since,
        now + :seconds::float8 * interval '1 second' AS pauses_until
    FROM counted
    WHERE paused_until IS NULL OR paused_until <= now
),
written AS (
    UPDATE pulse_django_limiter AS limiter
    SET failures_since = judged.since,
        failures = CASE WHEN judged.opens THEN 0 ELSE judged.n END,
        paused_until = CASE WHEN judged.opens THEN judged.pauses_until ELSE judged.paused_until END,
        pause_reason = CASE WHEN judged.opens THEN :reason ELSE judged.pause_reason END,
        half_open = judged.opens
    FROM judged
    WHERE limiter.name::text = judged.name::text
    RETURNING limiter.half_open
)
SELECT half_open FROM written;

-- LimiterManager.resume()
UPDATE pulse_django_limiter SET paused_until = NULL, pause_reason = '', half_open = false, failures = 0
WHERE name::text = :name AND (paused_until IS NOT NULL OR half_open)
RETURNING name;

-- LimiterManager.forget_full_buckets()
DELETE FROM pulse_django_bucket AS bucket
WHERE NOT EXISTS (
    SELECT 1 FROM (
        SELECT CASE WHEN bucket.scope::text = name::text THEN 'rate' ELSE 'key_rate' END AS rate, (
    numbers || CASE
        WHEN override IS NOT NULL AND (override_until IS NULL OR override_until > statement_timestamp()) THEN override
        ELSE '{}'::jsonb
    END
) AS n
        FROM pulse_django_limiter
        WHERE name::text = pg_catalog.split_part(bucket.scope::text, ':', 1)
    ) AS limiter
    WHERE EXTRACT(epoch FROM statement_timestamp() - bucket.at)::float8
        < (n ->> (rate || '_per'))::float8 * (n ->> rate)::float8
)
RETURNING scope;
