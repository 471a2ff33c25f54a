-- declare_once()
INSERT INTO pulse_django_declaration (scope, worker, booted_at, fingerprint)
VALUES (:scope, '', 'epoch', '') ON CONFLICT (scope) DO NOTHING RETURNING scope;

-- declare_once()
SELECT declaration.fingerprint, declaration.booted_at, declaration.worker::text = :worker,
    declaration.declared_at > statement_timestamp() - :age::interval
    OR EXISTS (
        SELECT 1 FROM pulse_django_worker AS worker
        WHERE worker.stopped_at IS NULL AND worker.last_beat_at > statement_timestamp() - :age_2::interval
            AND pg_catalog.concat(worker.name, ':', worker.boot_id) = declaration.worker::text
    )
FROM pulse_django_declaration AS declaration
WHERE declaration.scope::text = :scope
FOR NO KEY UPDATE;

-- declare_once()
WITH now AS MATERIALIZED (
    SELECT clock_timestamp() AS declared_at
),
written AS (
    UPDATE pulse_django_declaration AS declaration
    SET worker = :worker, booted_at = :booted_at, fingerprint = :fingerprint, declared_at = now.declared_at
    FROM now
    WHERE declaration.scope::text = :scope
    RETURNING declaration.scope
)
SELECT scope FROM written;

-- declare_once()
SELECT COUNT(*) AS __count FROM pulse_django_declared_task WHERE pulse_django_declared_task.name::text IN (:name);

-- declare_once()
SELECT COUNT(*) AS __count
FROM pulse_django_limiter
WHERE (pulse_django_limiter.declared_at IS NOT NULL
        AND pulse_django_limiter.name::text IN (:name));
