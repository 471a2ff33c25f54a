-- LaneReader.lanes(): plain, unique, chunks, workflows, expiry, labels, searchable, encryption, shares, weights, hooks, on Citus
WITH RECURSIVE pair AS (
    SELECT first.*, 1 AS place
    FROM (
        SELECT queue, priority
        FROM pulse_django_job_hot
        WHERE status::text IN ('PENDING', 'RETRYING')
        ORDER BY queue, priority DESC
        LIMIT 1) AS first
    UNION ALL
    SELECT following.*, pair.place + 1
    FROM pair
    CROSS JOIN LATERAL ((
            SELECT queue, priority
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND queue::text = pair.queue::text
                AND priority < pair.priority
            ORDER BY queue, priority DESC
            LIMIT 1)
        UNION ALL (
            SELECT queue, priority
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND queue::text > pair.queue::text
            ORDER BY queue, priority DESC
            LIMIT 1)
        LIMIT 1) AS following
),
lane AS MATERIALIZED (
    SELECT queue, priority, ''::varchar AS lane_key FROM pair
    UNION ALL
    SELECT pair.queue, pair.priority, keyed.lane_key
    FROM pair
    CROSS JOIN LATERAL (
        WITH RECURSIVE met AS (
            (
                SELECT lane_key, next_run_at, 1 AS place FROM pulse_django_job_hot
                WHERE status::text IN ('PENDING', 'RETRYING')
                    AND queue::text = pair.queue::text
                    AND priority = pair.priority
                    AND ready
                    AND lane_key::text > ''
                ORDER BY lane_key, next_run_at, id
                LIMIT 1
            )
            UNION ALL
            SELECT following.lane_key, following.next_run_at, met.place + 1
            FROM met
            CROSS JOIN LATERAL (
                SELECT lane_key, next_run_at FROM pulse_django_job_hot
                WHERE status::text IN ('PENDING', 'RETRYING')
                    AND queue::text = pair.queue::text
                    AND priority = pair.priority
                    AND ready
                    AND lane_key::text > met.lane_key::text
                ORDER BY lane_key, next_run_at, id
                LIMIT 1
            ) AS following
            WHERE met.place < 256
        )
        SELECT lane_key, next_run_at FROM met
    ) AS keyed
)
SELECT queue, priority, lane_key FROM lane
WHERE EXISTS (
    SELECT 1
    FROM pulse_django_job_hot
    WHERE status::text IN ('PENDING', 'RETRYING')
        AND queue::text = lane.queue::text
        AND priority = lane.priority
        AND ready
        AND lane_key::text = lane.lane_key::text);

-- LaneReader.waiting(): every job
WITH RECURSIVE pair AS (
    SELECT first.*, 1 AS place
    FROM (
        SELECT queue, priority
        FROM pulse_django_job_hot
        WHERE status::text IN ('PENDING', 'RETRYING')
        ORDER BY queue, priority DESC
        LIMIT 1) AS first
    UNION ALL
    SELECT following.*, pair.place + 1
    FROM pair
    CROSS JOIN LATERAL ((
            SELECT queue, priority
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND queue::text = pair.queue::text
                AND priority < pair.priority
            ORDER BY queue, priority DESC
            LIMIT 1)
        UNION ALL (
            SELECT queue, priority
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND queue::text > pair.queue::text
            ORDER BY queue, priority DESC
            LIMIT 1)
        LIMIT 1) AS following
),
known AS MATERIALIZED (
    SELECT queue, priority, lane_key
    FROM ROWS FROM (
        pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:priority::smallint[]),
            pg_catalog.unnest(:lane_key::text[])
    ) AS known (queue, priority, lane_key)
),
behind AS MATERIALIZED (
    SELECT pair.queue, pair.priority, COALESCE(known.lane_key, '') AS cursor
    FROM pair
    LEFT JOIN known ON known.queue = pair.queue::text AND known.priority = pair.priority
)
SELECT
    pair.queue, pair.priority, part.lane_key,
    EXTRACT(epoch FROM part.next_run_at - statement_timestamp())::float8, true
FROM (
    SELECT ARRAY(
        SELECT pg_catalog.concat(task, pg_catalog.chr(10), queue)
        FROM pulse_django_pause
        WHERE lane_key::text = ''
            AND (paused_until IS NULL OR paused_until > statement_timestamp())) AS names OFFSET 0) AS pauses
    CROSS JOIN behind AS pair
CROSS JOIN LATERAL (
    (
        SELECT lane_key, next_run_at FROM pulse_django_job_hot
        WHERE status::text IN ('PENDING', 'RETRYING')
            AND queue::text = pair.queue::text
            AND priority = pair.priority
            AND ready
            AND lane_key::text = ''
            AND (pg_catalog.cardinality(pauses.names) = 0 OR NOT ARRAY[pg_catalog.concat(pulse_django_job_hot.task,
                pg_catalog.chr(10)), pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10),
                pulse_django_job_hot.queue)] OPERATOR(pg_catalog.&&) pauses.names)
        ORDER BY next_run_at, id
        LIMIT 1
    )
    UNION ALL
    (
        (SELECT * FROM (
        WITH RECURSIVE met AS (
            (
                SELECT lane_key, next_run_at, 1 AS place FROM pulse_django_job_hot
                WHERE status::text IN ('PENDING', 'RETRYING')
                    AND queue::text = pair.queue::text
                    AND priority = pair.priority
                    AND ready
                    AND lane_key::text > pair.cursor
                    AND (pg_catalog.cardinality(pauses.names) = 0 OR NOT
                        ARRAY[pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10)),
                        pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10), pulse_django_job_hot.queue)]
                        OPERATOR(pg_catalog.&&) pauses.names)
                ORDER BY lane_key, next_run_at, id
                LIMIT 1
            )
            UNION ALL
            SELECT following.lane_key, following.next_run_at, met.place + 1
            FROM met
            CROSS JOIN LATERAL (
                SELECT lane_key, next_run_at FROM pulse_django_job_hot
                WHERE status::text IN ('PENDING', 'RETRYING')
                    AND queue::text = pair.queue::text
                    AND priority = pair.priority
                    AND ready
                    AND lane_key::text > met.lane_key::text
                    AND (pg_catalog.cardinality(pauses.names) = 0 OR NOT
                        ARRAY[pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10)),
                        pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10), pulse_django_job_hot.queue)]
                        OPERATOR(pg_catalog.&&) pauses.names)
                ORDER BY lane_key, next_run_at, id
                LIMIT 1
            ) AS following
            WHERE met.place < 256
        )
        SELECT lane_key, next_run_at FROM met) AS ahead)
        UNION ALL
        (
            SELECT * FROM (
        WITH RECURSIVE met AS (
            (
                SELECT lane_key, next_run_at, 1 AS place FROM pulse_django_job_hot
                WHERE status::text IN ('PENDING', 'RETRYING')
                    AND queue::text = pair.queue::text
                    AND priority = pair.priority
                    AND ready
                    AND lane_key::text > ''
                    AND lane_key::text <= pair.cursor
                    AND (pg_catalog.cardinality(pauses.names) = 0 OR NOT
                        ARRAY[pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10)),
                        pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10), pulse_django_job_hot.queue)]
                        OPERATOR(pg_catalog.&&) pauses.names)
                ORDER BY lane_key, next_run_at, id
                LIMIT 1
            )
            UNION ALL
            SELECT following.lane_key, following.next_run_at, met.place + 1
            FROM met
            CROSS JOIN LATERAL (
                SELECT lane_key, next_run_at FROM pulse_django_job_hot
                WHERE status::text IN ('PENDING', 'RETRYING')
                    AND queue::text = pair.queue::text
                    AND priority = pair.priority
                    AND ready
                    AND lane_key::text > met.lane_key::text
                    AND lane_key::text <= pair.cursor
                    AND (pg_catalog.cardinality(pauses.names) = 0 OR NOT
                        ARRAY[pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10)),
                        pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10), pulse_django_job_hot.queue)]
                        OPERATOR(pg_catalog.&&) pauses.names)
                ORDER BY lane_key, next_run_at, id
                LIMIT 1
            ) AS following
            WHERE met.place < 256
        )
        SELECT lane_key, next_run_at FROM met) AS behind
            WHERE pair.cursor <> ''
        )
        LIMIT 256
    )
) AS part
WHERE (pg_catalog.cardinality(pauses.names) = 0 OR pg_catalog.concat(pg_catalog.chr(10), pair.queue) <> ALL
    (pauses.names))
UNION ALL
(
    SELECT queue, priority, lane_key, EXTRACT(epoch FROM next_run_at - statement_timestamp())::float8, false
    FROM pulse_django_job_hot
    WHERE status::text IN ('PENDING', 'RETRYING') AND NOT ready
    ORDER BY next_run_at, id
    LIMIT 1
);

-- LaneReader.use()
SELECT
    CASE
        WHEN lane.key = '' THEN (
            SELECT COALESCE(pg_catalog.sum(weight), 0) FROM pulse_django_job_hot
            WHERE status::text = 'RUNNING' AND queue::text = lane.queue AND lane_key::text = ''
        )
        ELSE (
            SELECT COALESCE(pg_catalog.sum(weight), 0) FROM pulse_django_job_hot
            WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '') AND lane_key::text = lane.key
        )
    END,
    (pg_catalog.cardinality(pauses.names) = 0 OR pg_catalog.concat(pg_catalog.chr(10), lane.queue) <> ALL
        (pauses.names))
        AND COALESCE((
        SELECT false FROM pulse_django_pause
        WHERE lane_key::text = lane.key
            AND lane_key::text <> ''
            AND (paused_until IS NULL OR paused_until > statement_timestamp())
        LIMIT 1
    ), true),
    CASE WHEN NOT ((pg_catalog.cardinality(pauses.names) = 0 OR pg_catalog.concat(pg_catalog.chr(10), lane.queue) <> ALL
        (pauses.names))
            AND COALESCE((
        SELECT false FROM pulse_django_pause
        WHERE lane_key::text = lane.key
            AND lane_key::text <> ''
            AND (paused_until IS NULL OR paused_until > statement_timestamp())
        LIMIT 1
    ), true)) THEN (
        SELECT EXTRACT(epoch FROM pg_catalog.min(opens_at) - statement_timestamp())::float8
        FROM (SELECT facts.opens_at FROM (SELECT paused_until AS opens_at, reason, paused_by AS shut_by
        FROM pulse_django_pause
        WHERE lane_key::text = ''
            AND task::text = ''
            AND queue::text = lane.queue
            AND (paused_until IS NULL OR paused_until > statement_timestamp())
        ORDER BY paused_until DESC NULLS FIRST
        LIMIT 1) AS facts
    WHERE ((pg_catalog.cardinality(pauses.names) = 0 OR pg_catalog.concat(pg_catalog.chr(10), lane.queue) <> ALL
        (pauses.names))) IS NOT TRUE
        UNION ALL SELECT facts.opens_at FROM (SELECT paused_until AS opens_at, reason, paused_by AS shut_by
        FROM pulse_django_pause
        WHERE lane_key::text <> ''
            AND lane_key::text = lane.key
            AND (paused_until IS NULL OR paused_until > statement_timestamp())
        ORDER BY paused_until DESC NULLS FIRST
        LIMIT 1) AS facts WHERE (COALESCE((
        SELECT false FROM pulse_django_pause
        WHERE lane_key::text = lane.key
            AND lane_key::text <> ''
            AND (paused_until IS NULL OR paused_until > statement_timestamp())
        LIMIT 1
    ), true)) IS NOT TRUE) AS opening
    ) END
FROM (
    SELECT ARRAY(
        SELECT pg_catalog.concat(task, pg_catalog.chr(10), queue)
        FROM pulse_django_pause
        WHERE lane_key::text = ''
            AND (paused_until IS NULL OR paused_until > statement_timestamp())) AS names OFFSET 0) AS pauses
    CROSS JOIN ROWS FROM (
    pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:key::text[])
) WITH ORDINALITY AS lane (queue, key, place)
ORDER BY lane.place;
