-- in_batches()
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
            WHERE met.place < 10000
        )
        SELECT lane_key, next_run_at FROM met
    ) AS keyed
),
share (most) AS MATERIALIZED (SELECT GREATEST(20, 20000 / GREATEST(count(*), 1)) FROM lane),
hit AS MATERIALIZED (
    SELECT lane.queue, lane.priority, lane.lane_key
    FROM (
        SELECT ARRAY(
            SELECT pg_catalog.concat(task, pg_catalog.chr(10), queue)
            FROM pulse_django_pause
            WHERE lane_key::text = ''
                AND (paused_until IS NULL OR paused_until > statement_timestamp())) AS names OFFSET 0) AS pauses
    CROSS JOIN lane
    CROSS JOIN share
    WHERE EXISTS (
        SELECT 1
        FROM (
            SELECT task, queue
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND queue::text = lane.queue::text
                AND priority = lane.priority
                AND ready
                AND lane_key::text = lane.lane_key::text
            ORDER BY next_run_at, id
            LIMIT share.most
        ) AS head
        WHERE ((pg_catalog.cardinality(pauses.names) = 0 OR NOT ARRAY[pg_catalog.concat(head.task, pg_catalog.chr(10)),
            pg_catalog.concat(head.task, pg_catalog.chr(10), head.queue)] OPERATOR(pg_catalog.&&) pauses.names)) IS NOT
            TRUE
    )
),
found AS MATERIALIZED (
    SELECT head.id
    FROM (
        SELECT ARRAY(
            SELECT pg_catalog.concat(task, pg_catalog.chr(10), queue)
            FROM pulse_django_pause
            WHERE lane_key::text = ''
                AND (paused_until IS NULL OR paused_until > statement_timestamp())) AS names OFFSET 0) AS pauses
    CROSS JOIN hit AS lane
    CROSS JOIN LATERAL (
        SELECT id, task, queue
        FROM pulse_django_job_hot
        WHERE status::text IN ('PENDING', 'RETRYING')
            AND queue::text = lane.queue::text
            AND priority = lane.priority
            AND ready
            AND lane_key::text = lane.lane_key::text
        ORDER BY next_run_at, id
        LIMIT 5000
    ) AS head
    WHERE ((pg_catalog.cardinality(pauses.names) = 0 OR NOT ARRAY[pg_catalog.concat(head.task, pg_catalog.chr(10)),
        pg_catalog.concat(head.task, pg_catalog.chr(10), head.queue)] OPERATOR(pg_catalog.&&) pauses.names)) IS NOT TRUE
    LIMIT :limit
),
aside AS (
    UPDATE pulse_django_job_hot AS job
    SET ready = NULL
    WHERE job.id = ANY (ARRAY(
        SELECT id FROM pulse_django_job_hot
        WHERE id = ANY (ARRAY(SELECT id FROM found)) AND status::text IN ('PENDING', 'RETRYING') AND ready
        ORDER BY id
        FOR NO KEY UPDATE SKIP LOCKED
    )) AND job.ready
    RETURNING job.queue
)
SELECT queue FROM aside;

-- in_batches()
WITH RECURSIVE met AS (
    SELECT first.*, 1 AS place
    FROM (
        SELECT task, queue
        FROM pulse_django_job_hot
        WHERE status::text IN ('PENDING', 'RETRYING')
            AND ready IS NULL
        ORDER BY task, queue
        LIMIT 1) AS first
    UNION ALL
    SELECT following.*, met.place + 1
    FROM met
    CROSS JOIN LATERAL ((
            SELECT task, queue
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND ready IS NULL
                AND task::text = met.task::text
                AND queue::text > met.queue::text
            ORDER BY task, queue
            LIMIT 1)
        UNION ALL (
            SELECT task, queue
            FROM pulse_django_job_hot
            WHERE status::text IN ('PENDING', 'RETRYING')
                AND ready IS NULL
                AND task::text > met.task::text
            ORDER BY task, queue
            LIMIT 1)
        LIMIT 1) AS following
),
locked AS MATERIALIZED (
    SELECT back.id, back.lane_key, back.next_run_at
    FROM (
        SELECT ARRAY(
            SELECT pg_catalog.concat(task, pg_catalog.chr(10), queue)
            FROM pulse_django_pause
            WHERE lane_key::text = ''
                AND (paused_until IS NULL OR paused_until > statement_timestamp())) AS names OFFSET 0) AS pauses
    CROSS JOIN met
    CROSS JOIN LATERAL (
        SELECT id, lane_key, next_run_at FROM pulse_django_job_hot
        WHERE status::text IN ('PENDING', 'RETRYING')
            AND ready IS NULL
            AND task::text = met.task::text
            AND queue::text = met.queue::text
                AND (pg_catalog.cardinality(pauses.names) = 0 OR NOT ARRAY[pg_catalog.concat(met.task,
                    pg_catalog.chr(10)), pg_catalog.concat(met.task, pg_catalog.chr(10), met.queue)]
                    OPERATOR(pg_catalog.&&) pauses.names)
        ORDER BY id
        LIMIT 1000
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS back
    LIMIT :limit
),
back AS MATERIALIZED (
    SELECT id, lane_key::text = '' OR next_run_at <= clock_timestamp() AS ready FROM locked
),
written AS (
    UPDATE pulse_django_job_hot AS job
    SET ready = back.ready
    FROM back
    WHERE job.id = ANY (ARRAY[back.id]) AND job.ready IS NULL
    RETURNING job.queue
)
SELECT queue FROM written;

-- promote(): every job
UPDATE pulse_django_job_hot AS job
SET ready = true
WHERE job.id = ANY (ARRAY(
    SELECT id FROM pulse_django_job_hot
    WHERE status::text IN ('PENDING', 'RETRYING') AND NOT ready AND next_run_at <= statement_timestamp()
    ORDER BY next_run_at, id
    LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)) AND NOT job.ready
RETURNING job.queue;
