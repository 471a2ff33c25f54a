-- DeclaredTaskManager.declare()
INSERT INTO pulse_django_declared_task AS task (name, options, declared_in)
SELECT name, options, :declared_in
FROM ROWS FROM (pg_catalog.unnest(:name::text[]), pg_catalog.unnest(:options::jsonb[])) AS declared (name, options)
ORDER BY name
ON CONFLICT (name) DO UPDATE SET options = excluded.options, declared_in = excluded.declared_in
RETURNING name;

-- DeclaredTaskManager.declare()
DELETE FROM pulse_django_declared_task
WHERE declared_in::text = :declared_in AND name::text <> ALL (:name::text[])
RETURNING name;
