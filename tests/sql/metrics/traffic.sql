-- write()
SELECT DISTINCT pg_catalog.date_bin(:length::float8 * interval '1 min', began_at, 'epoch'::timestamptz)
FROM pulse_django_traffic
WHERE kind::text = ANY (:kinds::text[]) AND length = :finer
    AND began_at < pg_catalog.date_bin(
        :length::float8 * interval '1 min', :until::timestamptz, 'epoch'::timestamptz
    )
    AND began_at >= COALESCE(
        (
            SELECT pg_catalog.max(began_at) FROM pulse_django_traffic
            WHERE kind::text = ANY (:kinds::text[]) AND length = :length AND began_at <= :until::timestamptz
        ) + :length::float8 * interval '1 min',
        '-infinity'::timestamptz
    )
ORDER BY 1;

-- write()
INSERT INTO pulse_django_traffic (kind, length, began_at, name, enqueued, started, succeeded, failed, died, ran_seconds,
    ran, waited_seconds, waited)
SELECT kind, :length, :began_at, name, enqueued, started, succeeded, failed, died, ran_seconds, ran, waited_seconds,
    waited
FROM pg_catalog.json_to_recordset(:said::json) AS said (
    kind text, name text, enqueued int, started int, succeeded int, failed int, died int, ran_seconds float8,
    ran int[], waited_seconds float8, waited int[]
)
ON CONFLICT (kind, length, began_at, name) DO NOTHING
RETURNING name;

-- write()
SELECT kind, name, began_at, length, enqueued, started, succeeded, failed, died, ran_seconds, ran, waited_seconds,
    waited
FROM pulse_django_traffic
WHERE kind::text = ANY (:kind::text[]) AND length = :length AND began_at >= :began_at AND began_at < :began_at_2;

-- forget()
DELETE FROM pulse_django_traffic
WHERE kind::text = ANY (:kind::text[]) AND length = :length
    AND (began_at < statement_timestamp() - :age::interval OR began_at > statement_timestamp() + interval '1 h')
RETURNING name;
