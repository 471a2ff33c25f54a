-- depart()
WITH picked AS MATERIALIZED (
    SELECT pulse_django_job_hot.id AS id
    FROM pulse_django_job_hot
    WHERE (pulse_django_job_hot.id = :id
            AND pulse_django_job_hot.status::text IN ('PENDING', 'RETRYING')
            AND (pulse_django_job_hot.lane_key::text = :lane_key OR (pulse_django_job_hot.lane_key::text >= :lane_key_2
                    AND pulse_django_job_hot.lane_key::text < :lane_key_3))
            AND NOT EXISTS(
            SELECT :a AS a
            FROM pulse_django_job_hot "U0"
            WHERE ("U0".id = (pulse_django_job_hot.parent_id)
                    AND NOT ("U0".status::text IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELLED')))
            LIMIT 1)
            AND (NOT EXISTS (
                SELECT 1
                FROM pulse_django_dependency AS other
                WHERE other.job_id = pulse_django_job_hot.id))
            AND (NOT EXISTS (
                SELECT 1
                FROM pulse_django_step AS other
                WHERE other.job_id = pulse_django_job_hot.id))
            AND NOT pulse_django_job_hot.awaited
            AND pulse_django_job_hot.batch_id IS NULL)
    ORDER BY 1 ASC
    FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED),
gone AS (
    DELETE FROM pulse_django_job_hot WHERE id = ANY (ARRAY(SELECT id FROM picked)) AND locked_by IS NULL RETURNING *
),
taken_attempts AS (
    DELETE FROM pulse_django_attempt WHERE job_id = ANY (ARRAY(SELECT id FROM gone)) RETURNING *
),
taken_keys AS (
    DELETE FROM pulse_django_key WHERE job_id = ANY (ARRAY(SELECT id FROM gone)) RETURNING *
),
taken_windows AS (
    DELETE FROM pulse_django_window WHERE job_id = ANY (ARRAY(SELECT id FROM gone)) RETURNING *
),
taken_amendments AS (
    DELETE FROM pulse_django_amendment WHERE job_id = ANY (ARRAY(SELECT id FROM gone)) RETURNING *
)
INSERT INTO pulse_django_departure (job_id, to_shard, rows)
SELECT gone.id, :to_shard, pg_catalog.json_build_object('job'::text, pg_catalog.to_json(gone), 'attempts'::text,
    COALESCE(
    (SELECT pg_catalog.json_agg(one) FROM taken_attempts AS one WHERE one.job_id = gone.id), '[]'::json
), 'keys'::text, COALESCE(
    (SELECT pg_catalog.json_agg(one) FROM taken_keys AS one WHERE one.job_id = gone.id), '[]'::json
), 'windows'::text, COALESCE(
    (SELECT pg_catalog.json_agg(one) FROM taken_windows AS one WHERE one.job_id = gone.id), '[]'::json
), 'amendments'::text, COALESCE(
    (SELECT pg_catalog.json_agg(one) FROM taken_amendments AS one WHERE one.job_id = gone.id), '[]'::json
))::jsonb
FROM gone
ORDER BY gone.id
RETURNING job_id;

-- departures()
SELECT id, job_id, to_shard, rows::text
FROM pulse_django_departure
WHERE job_id = ANY (:job_id)
ORDER BY id
LIMIT :limit;

-- departures()
SELECT id, job_id, to_shard, rows::text FROM pulse_django_departure WHERE true ORDER BY id LIMIT :limit;

-- deadline()
SELECT (clock_timestamp() + :value::interval)::text;

-- arrive()
WITH sent AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_to_recordset(:sent::json) AS sent (id bigint, rows jsonb)
    WHERE clock_timestamp() < :value::timestamptz
),
arrived AS (
    INSERT INTO pulse_django_arrival (departure_id) SELECT id FROM sent ON CONFLICT DO NOTHING RETURNING departure_id
),
fresh AS MATERIALIZED (SELECT sent.* FROM sent JOIN arrived ON arrived.departure_id = sent.id),
put_job AS (
    INSERT INTO pulse_django_job_hot
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_populate_record(NULL::pulse_django_job_hot, fresh.rows->'job'::text) AS row
    RETURNING queue
),
put_attempts AS (
    INSERT INTO pulse_django_attempt
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_array_elements(fresh.rows->'attempts'::text) AS one,
        pg_catalog.jsonb_populate_record(NULL::pulse_django_attempt, one.value) AS row
),
put_keys AS (
    INSERT INTO pulse_django_key
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_array_elements(fresh.rows->'keys'::text) AS one,
        pg_catalog.jsonb_populate_record(NULL::pulse_django_key, one.value) AS row
),
put_windows AS (
    INSERT INTO pulse_django_window
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_array_elements(fresh.rows->'windows'::text) AS one,
        pg_catalog.jsonb_populate_record(NULL::pulse_django_window, one.value) AS row
),
put_amendments AS (
    INSERT INTO pulse_django_amendment
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_array_elements(fresh.rows->'amendments'::text) AS one,
        pg_catalog.jsonb_populate_record(NULL::pulse_django_amendment, one.value) AS row
)
SELECT queue, NULL::bigint, false FROM put_job GROUP BY queue
UNION ALL
SELECT NULL::text, departure_id, false FROM arrived
UNION ALL
SELECT NULL::text, departure_id, is_refused FROM pulse_django_arrival JOIN sent ON sent.id = departure_id;

-- refuse()
INSERT INTO pulse_django_arrival (departure_id, is_refused) VALUES (:departure_id, true)
ON CONFLICT (departure_id) DO UPDATE SET is_refused = pulse_django_arrival.is_refused
RETURNING is_refused;

-- go_back()
WITH fresh AS (DELETE FROM pulse_django_departure WHERE id = ANY (:id) RETURNING id, rows),
put_job AS (
    INSERT INTO pulse_django_job_hot
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_populate_record(NULL::pulse_django_job_hot, fresh.rows->'job'::text) AS row
    RETURNING id
),
put_attempts AS (
    INSERT INTO pulse_django_attempt
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_array_elements(fresh.rows->'attempts'::text) AS one,
        pg_catalog.jsonb_populate_record(NULL::pulse_django_attempt, one.value) AS row
),
put_keys AS (
    INSERT INTO pulse_django_key
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_array_elements(fresh.rows->'keys'::text) AS one,
        pg_catalog.jsonb_populate_record(NULL::pulse_django_key, one.value) AS row
),
put_windows AS (
    INSERT INTO pulse_django_window
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_array_elements(fresh.rows->'windows'::text) AS one,
        pg_catalog.jsonb_populate_record(NULL::pulse_django_window, one.value) AS row
),
put_amendments AS (
    INSERT INTO pulse_django_amendment
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_array_elements(fresh.rows->'amendments'::text) AS one,
        pg_catalog.jsonb_populate_record(NULL::pulse_django_amendment, one.value) AS row
)
SELECT id FROM put_job;

-- forget_departures()
DELETE FROM pulse_django_departure WHERE id = ANY (:id) RETURNING id;

-- forget_arrivals()
WITH locked AS MATERIALIZED (
    SELECT departure_id
    FROM pulse_django_arrival
    WHERE departure_id = ANY (:departure_id)
    ORDER BY departure_id
    FOR NO KEY UPDATE
),
forgotten AS MATERIALIZED (SELECT departure_id, clock_timestamp() AS at FROM locked),
noted AS (
    UPDATE pulse_django_arrival AS arrival
    SET forgotten_at = forgotten.at
    FROM forgotten
    WHERE arrival.departure_id = forgotten.departure_id
    RETURNING arrival.departure_id
)
SELECT departure_id FROM noted;

-- forget_arrivals()
DELETE FROM pulse_django_arrival WHERE forgotten_at < statement_timestamp() - :age::interval RETURNING departure_id;
