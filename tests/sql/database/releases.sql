-- note_release()
SELECT
    versions::text,
    CASE WHEN started_at < last.seen_at THEN statement_timestamp() ELSE started_at END,
    last.version
FROM pulse_django_worker
LEFT JOIN (SELECT version, seen_at FROM pulse_django_release ORDER BY seen_at DESC, id DESC LIMIT 1) AS last ON true
WHERE stopped_at IS NULL AND started_at <= statement_timestamp()
ORDER BY started_at DESC, pulse_django_worker.id DESC
LIMIT 1;

-- note_release()
INSERT INTO pulse_django_release (version, seen_at) VALUES (:version, :seen_at) RETURNING id;

-- forget()
DELETE FROM pulse_django_release WHERE seen_at < statement_timestamp() - :age::interval RETURNING id;
