-- send_event()
INSERT INTO pulse_django_event (name, payload, sent_by)
VALUES (:name, :payload::jsonb, :sent_by)
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- send_event()
INSERT INTO pulse_django_unresolved (event) VALUES (:event) RETURNING id;

-- forget_events()
WITH old AS MATERIALIZED (
    SELECT name
    FROM pulse_django_event AS event
    WHERE sent_at < statement_timestamp() - :age::float8 * interval '1 second' AND NOT EXISTS (
        SELECT 1 FROM pulse_django_dependency AS need
        WHERE need.needs_event::text = event.name::text AND need.needs_event IS NOT NULL AND need.met_at IS NULL
    )
    ORDER BY sent_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pulse_django_event AS event USING old WHERE event.name::text = old.name::text RETURNING event.name;
