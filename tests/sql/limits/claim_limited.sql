-- claim_limited(): limits, all
WITH
limiter AS MATERIALIZED (
    SELECT
        asked.name, CASE WHEN half_open THEN COALESCE((n ->> 'max_running'::text)::int, 2147483647)
            ELSE (n ->> 'max_running'::text)::int
        END AS running,
        (n ->> 'max_running_per_key'::text)::int AS per_key,
        (n ->> 'rate'::text)::float8 AS rate, (n ->> 'rate_per'::text)::float8 AS rate_per,
        CASE WHEN n ->> 'rate'::text IS NOT NULL THEN
            LEAST((n ->> 'rate'::text)::float8, COALESCE((n ->> 'rate_burst'::text)::float8, 1))
        END AS rate_burst,
        (n ->> 'key_rate'::text)::float8 AS key_rate, (n ->> 'key_rate_per'::text)::float8 AS key_rate_per,
        CASE WHEN n ->> 'key_rate'::text IS NOT NULL THEN
            LEAST((n ->> 'key_rate'::text)::float8, COALESCE((n ->> 'key_rate_burst'::text)::float8, 1))
        END AS key_rate_burst,
        row.paused_until, COALESCE(row.half_open, false) AS half_open, row.version
    FROM (SELECT :name::text AS name) AS asked
    LEFT JOIN (
        SELECT name, (
    numbers || CASE
        WHEN override IS NOT NULL AND (override_until IS NULL OR override_until > statement_timestamp()) THEN override
        ELSE '{}'::jsonb
    END
) AS n, paused_until, half_open, xmin::text AS version FROM pulse_django_limiter
    ) AS row ON row.name::text = asked.name
),
queue_limit AS MATERIALIZED (
    SELECT
        asked.name, CASE WHEN half_open THEN COALESCE((n ->> 'max_running'::text)::int, 2147483647)
            ELSE (n ->> 'max_running'::text)::int
        END AS running,
        (n ->> 'max_running_per_key'::text)::int AS per_key,
        (n ->> 'rate'::text)::float8 AS rate, (n ->> 'rate_per'::text)::float8 AS rate_per,
        CASE WHEN n ->> 'rate'::text IS NOT NULL THEN
            LEAST((n ->> 'rate'::text)::float8, COALESCE((n ->> 'rate_burst'::text)::float8, 1))
        END AS rate_burst,
        (n ->> 'key_rate'::text)::float8 AS key_rate, (n ->> 'key_rate_per'::text)::float8 AS key_rate_per,
        CASE WHEN n ->> 'key_rate'::text IS NOT NULL THEN
            LEAST((n ->> 'key_rate'::text)::float8, COALESCE((n ->> 'key_rate_burst'::text)::float8, 1))
        END AS key_rate_burst,
        row.paused_until, COALESCE(row.half_open, false) AS half_open, row.version
    FROM (SELECT :name_2::text AS name) AS asked
    LEFT JOIN (
        SELECT name, (
    numbers || CASE
        WHEN override IS NOT NULL AND (override_until IS NULL OR override_until > statement_timestamp()) THEN override
        ELSE '{}'::jsonb
    END
) AS n, paused_until, half_open, xmin::text AS version FROM pulse_django_limiter
    ) AS row ON row.name::text = asked.name
)
SELECT
    pg_catalog.set_config('pulse.got', COALESCE(pg_catalog.array_agg(scope.place)::text, '{}'), true),
    COALESCE(pg_catalog.array_agg(scope.name), '{}'::text[])
FROM limiter
CROSS JOIN queue_limit
CROSS JOIN (
    SELECT name, place - 1 AS place FROM pg_catalog.unnest(:name_3::text[]) WITH ORDINALITY AS listed (name, place)
) AS scope
WHERE CASE
    WHEN scope.place = 0 AND queue_limit.running IS NULL AND queue_limit.rate IS NULL THEN false
    WHEN scope.place = 1 AND limiter.running IS NULL AND limiter.rate IS NULL THEN false
    WHEN scope.place > 1 AND limiter.per_key IS NULL AND limiter.key_rate IS NULL THEN false
    ELSE pg_catalog.pg_try_advisory_xact_lock(1886547059, pg_catalog.hashtext(scope.name))
END;

-- claim_limited(): limits, all
WITH
limiter AS MATERIALIZED (
    SELECT
        asked.name, CASE WHEN half_open THEN COALESCE((n ->> 'max_running'::text)::int, 2147483647)
            ELSE (n ->> 'max_running'::text)::int
        END AS running,
        (n ->> 'max_running_per_key'::text)::int AS per_key,
        (n ->> 'rate'::text)::float8 AS rate, (n ->> 'rate_per'::text)::float8 AS rate_per,
        CASE WHEN n ->> 'rate'::text IS NOT NULL THEN
            LEAST((n ->> 'rate'::text)::float8, COALESCE((n ->> 'rate_burst'::text)::float8, 1))
        END AS rate_burst,
        (n ->> 'key_rate'::text)::float8 AS key_rate, (n ->> 'key_rate_per'::text)::float8 AS key_rate_per,
        CASE WHEN n ->> 'key_rate'::text IS NOT NULL THEN
            LEAST((n ->> 'key_rate'::text)::float8, COALESCE((n ->> 'key_rate_burst'::text)::float8, 1))
        END AS key_rate_burst,
        row.paused_until, COALESCE(row.half_open, false) AS half_open, row.version
    FROM (SELECT :name::text AS name) AS asked
    LEFT JOIN (
        SELECT name, (
    numbers || CASE
        WHEN override IS NOT NULL AND (override_until IS NULL OR override_until > statement_timestamp()) THEN override
        ELSE '{}'::jsonb
    END
) AS n, paused_until, half_open, xmin::text AS version FROM pulse_django_limiter
    ) AS row ON row.name::text = asked.name
),
queue_limit AS MATERIALIZED (
    SELECT
        asked.name, CASE WHEN half_open THEN COALESCE((n ->> 'max_running'::text)::int, 2147483647)
            ELSE (n ->> 'max_running'::text)::int
        END AS running,
        (n ->> 'max_running_per_key'::text)::int AS per_key,
        (n ->> 'rate'::text)::float8 AS rate, (n ->> 'rate_per'::text)::float8 AS rate_per,
        CASE WHEN n ->> 'rate'::text IS NOT NULL THEN
            LEAST((n ->> 'rate'::text)::float8, COALESCE((n ->> 'rate_burst'::text)::float8, 1))
        END AS rate_burst,
        (n ->> 'key_rate'::text)::float8 AS key_rate, (n ->> 'key_rate_per'::text)::float8 AS key_rate_per,
        CASE WHEN n ->> 'key_rate'::text IS NOT NULL THEN
            LEAST((n ->> 'key_rate'::text)::float8, COALESCE((n ->> 'key_rate_burst'::text)::float8, 1))
        END AS key_rate_burst,
        row.paused_until, COALESCE(row.half_open, false) AS half_open, row.version
    FROM (SELECT :name_2::text AS name) AS asked
    LEFT JOIN (
        SELECT name, (
    numbers || CASE
        WHEN override IS NOT NULL AND (override_until IS NULL OR override_until > statement_timestamp()) THEN override
        ELSE '{}'::jsonb
    END
) AS n, paused_until, half_open, xmin::text AS version FROM pulse_django_limiter
    ) AS row ON row.name::text = asked.name
),
clock AS MATERIALIZED (SELECT clock_timestamp() AS at, pg_catalog.current_setting('pulse.got')::int[] AS got),
held AS MATERIALIZED (
    SELECT
        pg_catalog.count(*) AS n, COALESCE(pg_catalog.sum(weight), 0) AS weight, pg_catalog.min(token) AS low
    FROM pulse_django_job_hot
    WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '')
        AND (pg_catalog.split_part((lane_key)::text, ':', 1) COLLATE "C") = :value::text AND token >= :token
),
held_of_queue AS MATERIALIZED (
    SELECT COALESCE(pg_catalog.sum(weight), 0) AS weight, pg_catalog.min(token) AS low
    FROM pulse_django_job_hot
    WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '') AND queue::text = :queue::text AND token >= :token_2
),
of_queue AS MATERIALIZED (
    SELECT
        (queue_limit.running IS NULL AND queue_limit.rate IS NULL) OR 0 = ANY (clock.got) AS is_mine,
        CASE
            WHEN queue_limit.running IS NOT NULL THEN queue_limit.running - (SELECT weight FROM held_of_queue)
        END AS slots,
        NULL::bigint AS probes,
        CASE WHEN queue_limit.running IS NOT NULL THEN (SELECT low FROM held_of_queue) END AS low,
        LEAST(
            queue_limit.rate_burst,
            CASE WHEN EXTRACT(epoch FROM bucket.at - clock.at)::float8 <= queue_limit.rate_per THEN
                bucket.tokens + (queue_limit.rate - queue_limit.rate_burst + 1::float8) / queue_limit.rate_per
                    * EXTRACT(epoch FROM clock.at - bucket.at)::float8
            END
        ) AS tokens
    FROM queue_limit
    CROSS JOIN clock
    LEFT JOIN pulse_django_bucket AS bucket ON queue_limit.rate IS NOT NULL AND bucket.scope::text = queue_limit.name
),
overall AS MATERIALIZED (
    SELECT
        (limiter.running IS NULL AND limiter.rate IS NULL) OR 1 = ANY (clock.got) AS is_mine,
        CASE WHEN limiter.running IS NOT NULL THEN limiter.running - (SELECT weight FROM held) END AS slots,
        CASE WHEN limiter.half_open THEN 1 - (SELECT n FROM held) END AS probes,
        CASE WHEN limiter.running IS NOT NULL THEN (SELECT low FROM held) END AS low,
        LEAST(
            limiter.rate_burst,
            CASE WHEN EXTRACT(epoch FROM bucket.at - clock.at)::float8 <= limiter.rate_per THEN
                bucket.tokens + (limiter.rate - limiter.rate_burst + 1::float8) / limiter.rate_per
                    * EXTRACT(epoch FROM clock.at - bucket.at)::float8
            END
        ) AS tokens
    FROM limiter
    CROSS JOIN clock
    LEFT JOIN pulse_django_bucket AS bucket ON limiter.rate IS NOT NULL AND bucket.scope::text = limiter.name
),
keyed AS MATERIALIZED (
    SELECT
        lane.place, lane.take, count.low,
        CASE
            WHEN limiter.per_key IS NULL AND limiter.key_rate IS NULL THEN true
            ELSE lane.place + 1 = ANY (clock.got)
        END AS is_mine,
        CASE WHEN limiter.per_key IS NOT NULL THEN limiter.per_key - count.weight END AS slots,
        CASE WHEN lane.key <> limiter.name THEN LEAST(
            limiter.key_rate_burst,
            CASE WHEN EXTRACT(epoch FROM bucket.at - clock.at)::float8 <= limiter.key_rate_per THEN
                bucket.tokens + (limiter.key_rate - limiter.key_rate_burst + 1::float8) / limiter.key_rate_per
                    * EXTRACT(epoch FROM clock.at - bucket.at)::float8
            END
        ) END AS tokens
    FROM limiter
    CROSS JOIN clock
    CROSS JOIN ROWS FROM (
        pg_catalog.unnest(:key::text[]), pg_catalog.unnest(:take::int[]), pg_catalog.unnest(:mark::bigint[])
    ) WITH ORDINALITY AS lane (key, take, mark, place)
    LEFT JOIN LATERAL (
        SELECT COALESCE(pg_catalog.sum(weight), 0) AS weight, pg_catalog.min(token) AS low
        FROM pulse_django_job_hot
        WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '') AND lane_key::text = lane.key
            AND token >= lane.mark
    ) AS count ON limiter.per_key IS NOT NULL
    LEFT JOIN pulse_django_bucket AS bucket ON limiter.key_rate IS NOT NULL AND bucket.scope::text = lane.key
)
SELECT
    pg_catalog.set_config(
        'pulse.at', pg_catalog.to_char(clock.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00'), true
    ),
    pg_catalog.set_config('pulse.most', (CASE
        WHEN NOT (overall.is_mine AND of_queue.is_mine) THEN 0
        WHEN GREATEST(limiter.paused_until, queue_limit.paused_until) > clock.at THEN 0
        ELSE GREATEST(0, LEAST(
            :value_2, CASE WHEN (
        COALESCE(limiter.rate, limiter.key_rate, queue_limit.rate) IS NOT NULL
        OR COALESCE(limiter.paused_until, queue_limit.paused_until) IS NOT NULL
    ) THEN :value_3::int END, overall.slots, overall.probes,
            pg_catalog.floor(overall.tokens), of_queue.slots, pg_catalog.floor(of_queue.tokens)
        ))
    END)::int::text, true),
    pg_catalog.set_config('pulse.takes', (
        SELECT pg_catalog.array_agg(
            CASE
                WHEN keyed.is_mine THEN GREATEST(0, LEAST(keyed.take, keyed.slots, pg_catalog.floor(keyed.tokens)))
                ELSE 0
            END::int ORDER BY keyed.place
        )::text
        FROM keyed
    ), true),
    pg_catalog.set_config(
        'pulse.slots', COALESCE(LEAST(overall.slots, of_queue.slots), 2147483647)::int::text, true
    ),
    pg_catalog.set_config(
        'pulse.heaviest', COALESCE(LEAST(limiter.running, queue_limit.running), 2147483647)::text, true
    ),
    pg_catalog.set_config('pulse.key_slots', (
        SELECT pg_catalog.array_agg(COALESCE(keyed.slots, 2147483647)::int ORDER BY keyed.place)::text FROM keyed
    ), true),
    pg_catalog.set_config('pulse.probe', limiter.half_open::text, true),
    pg_catalog.concat(limiter.version, ' ', queue_limit.version),
    pg_catalog.jsonb_build_object(
        'limiter', limiter.running, 'key', limiter.per_key, 'queue', queue_limit.running
    )::text,
    overall.is_mine AND of_queue.is_mine AND (SELECT pg_catalog.bool_and(keyed.is_mine) FROM keyed),
    overall.low,
    of_queue.low,
    (SELECT pg_catalog.array_agg(keyed.low ORDER BY keyed.place) FROM keyed),
    GREATEST(
        CASE WHEN GREATEST(limiter.paused_until, queue_limit.paused_until) > clock.at THEN
            EXTRACT(epoch FROM GREATEST(limiter.paused_until, queue_limit.paused_until) - clock.at)::float8
        END,
        CASE WHEN of_queue.tokens < 1::float8 THEN (1::float8 - of_queue.tokens) * queue_limit.rate_per /
            (queue_limit.rate - queue_limit.rate_burst + 1::float8) END,
        CASE WHEN overall.tokens < 1::float8 THEN (1::float8 - overall.tokens) * limiter.rate_per / (limiter.rate -
            limiter.rate_burst + 1::float8) END,
        (
            SELECT pg_catalog.min((1::float8 - keyed.tokens) * limiter.key_rate_per / (limiter.key_rate -
                limiter.key_rate_burst + 1::float8))
            FROM keyed
            HAVING pg_catalog.max(keyed.tokens) < 1::float8
        )
    ),
    CASE
        WHEN queue_limit.paused_until > clock.at THEN 'paused'
        WHEN NOT of_queue.is_mine THEN 'contended'
        WHEN LEAST(of_queue.slots, of_queue.probes) <= 0::bigint THEN 'full'
        WHEN of_queue.tokens < 1::float8 THEN 'rate'
    END,
    COALESCE(CASE
        WHEN limiter.paused_until > clock.at THEN 'paused'
        WHEN NOT overall.is_mine THEN 'contended'
        WHEN LEAST(overall.slots, overall.probes) <= 0::bigint THEN 'full'
        WHEN overall.tokens < 1::float8 THEN 'rate'
    END, (SELECT CASE
            WHEN pg_catalog.bool_or(NOT keyed.is_mine) THEN 'contended'
            WHEN pg_catalog.bool_or(keyed.slots <= 0::bigint) THEN 'full'
            WHEN pg_catalog.bool_or(keyed.tokens < 1::float8) THEN 'rate'
        END
        FROM keyed)),
    (
        COALESCE(limiter.rate, limiter.key_rate, queue_limit.rate) IS NOT NULL
        OR COALESCE(limiter.paused_until, queue_limit.paused_until) IS NOT NULL
    )
FROM limiter
CROSS JOIN queue_limit
CROSS JOIN clock
CROSS JOIN overall
CROSS JOIN of_queue;

-- claim_limited(): limits, all
WITH picked AS MATERIALIZED (
    SELECT pick.id, pick.bytes, pick.weight, pick.lease_ttl, pick.timeout, pick.max_lost_workers, lane.place
    FROM (
        SELECT ARRAY(
            SELECT pg_catalog.concat(task, pg_catalog.chr(10), queue)
            FROM pulse_django_pause
            WHERE lane_key::text = ''
                AND (paused_until IS NULL OR paused_until > statement_timestamp())) AS names OFFSET 0) AS pauses
    CROSS JOIN ROWS FROM (
        pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:priority::smallint[]), pg_catalog.unnest(:key::text[]),
        pg_catalog.unnest(pg_catalog.current_setting('pulse.takes')::int[]), pg_catalog.unnest(:since::float8[])
    ) WITH ORDINALITY AS lane (queue, priority, key, take, since, place)
    CROSS JOIN LATERAL (
        SELECT pulse_django_job_hot.id AS id, pulse_django_job_hot.weight AS weight,
            pulse_django_job_hot.lease_ttl AS lease_ttl, pulse_django_job_hot.timeout AS timeout,
            pulse_django_job_hot.max_lost_workers AS max_lost_workers, (COALESCE(pulse_django_job_hot.payload_bytes,
            (pg_catalog.octet_length((pulse_django_job_hot.args)::text) +
            pg_catalog.octet_length((pulse_django_job_hot.kwargs)::text))) +
            COALESCE(pg_catalog.octet_length((pulse_django_job_hot.progress)::text), :bytes)) AS bytes
        FROM pulse_django_job_hot
        WHERE (pulse_django_job_hot.status::text IN ('PENDING', 'RETRYING')
                AND pulse_django_job_hot.next_run_at <= (statement_timestamp())
                AND (NOT (pulse_django_job_hot.attempts = 0
                        AND pulse_django_job_hot.expires_at IS NOT NULL
                        AND pulse_django_job_hot.status::text = 'PENDING'
                        AND pulse_django_job_hot.expires_at <= statement_timestamp())
                    AND (pg_catalog.cardinality(pauses.names) = 0 OR NOT
                        ARRAY[pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10)),
                        pg_catalog.concat(pulse_django_job_hot.task, pg_catalog.chr(10), pulse_django_job_hot.queue)]
                        OPERATOR(pg_catalog.&&) pauses.names))
                AND pulse_django_job_hot.lane_key::text = (lane.key)
                AND pulse_django_job_hot.next_run_at >= (pg_catalog.to_timestamp(lane.since))
                AND pulse_django_job_hot.priority = (lane.priority)
                AND pulse_django_job_hot.queue::text = (lane.queue)
                AND pulse_django_job_hot.ready
                AND pulse_django_job_hot.weight <= (pg_catalog.current_setting('pulse.heaviest')::int))
        ORDER BY pulse_django_job_hot.next_run_at ASC, 1 ASC
        FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED
        LIMIT lane.take) AS pick
    WHERE lane.take > 0
        AND (pg_catalog.cardinality(pauses.names) = 0 OR pg_catalog.concat(pg_catalog.chr(10), lane.queue) <> ALL
            (pauses.names))
        AND COALESCE((
        SELECT false FROM pulse_django_pause
        WHERE lane_key::text = lane.key
            AND lane_key::text <> ''
            AND (paused_until IS NULL OR paused_until > statement_timestamp())
        LIMIT 1
    ), true)
    LIMIT pg_catalog.current_setting('pulse.most')::int
),
of_lanes AS (
    SELECT
        id, bytes, weight, lease_ttl, timeout, max_lost_workers, lane, line_place,
        weighs <= (pg_catalog.current_setting('pulse.key_slots')::int[])[lane] AS fits_key
    FROM (
        SELECT
            id, bytes, weight, lease_ttl, timeout, max_lost_workers, lane, line_place,
            pg_catalog.sum(weight) OVER (PARTITION BY lane ORDER BY line_place) AS weighs
        FROM (
            SELECT
                id, bytes, weight, lease_ttl, timeout, max_lost_workers, place AS lane,
                row_number() OVER () AS line_place
            FROM picked
        ) AS numbered
    ) AS summed
),
in_line AS (
    SELECT
        id, lease_ttl, timeout, bytes, lane, fits_key,
        pg_catalog.sum(CASE WHEN fits_key THEN bytes ELSE 0 END) OVER line AS so_far,
        pg_catalog.sum(CASE WHEN fits_key THEN LEAST(weight, :weight::int) ELSE 0 END) OVER line AS slots,
        pg_catalog.sum(CASE WHEN fits_key THEN weight ELSE 0 END) OVER line AS weighs,
        pg_catalog.count(*) FILTER (WHERE fits_key AND max_lost_workers IS DISTINCT FROM 0) OVER line AS place
    FROM of_lanes
    WINDOW line AS (ORDER BY line_place)
),
fitting AS (
    SELECT
        id, lease_ttl, timeout,
        (so_far <= :so_far OR so_far = bytes) AS is_small,
        slots = place OR slots <= :slots::int AS has_slots,
        fits_key AND weighs <= pg_catalog.current_setting('pulse.slots')::int AS has_room, lane
    FROM in_line
),
claimed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'RUNNING',
        attempts = job.attempts + 1,
        lease_until = clock_timestamp() + COALESCE(job.lease_ttl, :lease_ttl),
        locked_by = :locked_by,
        token = pg_catalog.nextval('pulse_django_token'),
        deadline = clock_timestamp() + job.timeout,
        started_at = pg_catalog.current_setting('pulse.at')::timestamptz
    WHERE job.id = ANY (ARRAY(SELECT id FROM fitting WHERE is_small AND has_slots AND has_room))
        AND job.locked_by IS NULL
    RETURNING job.id, job.attempts, job.token, job.task, job.queue, job.priority, job.args, job.kwargs, job.progress,
        job.refunds, job.max_attempts, job.losses, job.parent_id, job.created_at, job.started_at, job.next_run_at,
        job.trace, job.sensitive, job.meta, job.lane_key, job.timeout, job.progress_timeout, job.max_lost_workers,
        job.count_lost_workers, job.give_up_after, job.weight, COALESCE(job.lease_ttl, :lease_ttl_2) AS ttl
),
limiter AS MATERIALIZED (
    SELECT
        asked.name, CASE WHEN half_open THEN COALESCE((n ->> 'max_running'::text)::int, 2147483647)
            ELSE (n ->> 'max_running'::text)::int
        END AS running,
        (n ->> 'max_running_per_key'::text)::int AS per_key,
        (n ->> 'rate'::text)::float8 AS rate, (n ->> 'rate_per'::text)::float8 AS rate_per,
        CASE WHEN n ->> 'rate'::text IS NOT NULL THEN
            LEAST((n ->> 'rate'::text)::float8, COALESCE((n ->> 'rate_burst'::text)::float8, 1))
        END AS rate_burst,
        (n ->> 'key_rate'::text)::float8 AS key_rate, (n ->> 'key_rate_per'::text)::float8 AS key_rate_per,
        CASE WHEN n ->> 'key_rate'::text IS NOT NULL THEN
            LEAST((n ->> 'key_rate'::text)::float8, COALESCE((n ->> 'key_rate_burst'::text)::float8, 1))
        END AS key_rate_burst,
        row.paused_until, COALESCE(row.half_open, false) AS half_open, row.version
    FROM (SELECT :name::text AS name) AS asked
    LEFT JOIN (
        SELECT name, (
    numbers || CASE
        WHEN override IS NOT NULL AND (override_until IS NULL OR override_until > statement_timestamp()) THEN override
        ELSE '{}'::jsonb
    END
) AS n, paused_until, half_open, xmin::text AS version FROM pulse_django_limiter
    ) AS row ON row.name::text = asked.name
),
queue_limit AS MATERIALIZED (
    SELECT
        asked.name, CASE WHEN half_open THEN COALESCE((n ->> 'max_running'::text)::int, 2147483647)
            ELSE (n ->> 'max_running'::text)::int
        END AS running,
        (n ->> 'max_running_per_key'::text)::int AS per_key,
        (n ->> 'rate'::text)::float8 AS rate, (n ->> 'rate_per'::text)::float8 AS rate_per,
        CASE WHEN n ->> 'rate'::text IS NOT NULL THEN
            LEAST((n ->> 'rate'::text)::float8, COALESCE((n ->> 'rate_burst'::text)::float8, 1))
        END AS rate_burst,
        (n ->> 'key_rate'::text)::float8 AS key_rate, (n ->> 'key_rate_per'::text)::float8 AS key_rate_per,
        CASE WHEN n ->> 'key_rate'::text IS NOT NULL THEN
            LEAST((n ->> 'key_rate'::text)::float8, COALESCE((n ->> 'key_rate_burst'::text)::float8, 1))
        END AS key_rate_burst,
        row.paused_until, COALESCE(row.half_open, false) AS half_open, row.version
    FROM (SELECT :name_2::text AS name) AS asked
    LEFT JOIN (
        SELECT name, (
    numbers || CASE
        WHEN override IS NOT NULL AND (override_until IS NULL OR override_until > statement_timestamp()) THEN override
        ELSE '{}'::jsonb
    END
) AS n, paused_until, half_open, xmin::text AS version FROM pulse_django_limiter
    ) AS row ON row.name::text = asked.name
),
spent AS (
    INSERT INTO pulse_django_bucket AS bucket (scope, tokens, at)
    SELECT
        taken.scope,
        LEAST(
            taken.burst,
            CASE WHEN EXTRACT(epoch
                FROM old.at - pg_catalog.current_setting('pulse.at')::timestamptz)::float8 <= taken.per THEN
                old.tokens + (taken.n - taken.burst + 1::float8) / taken.per
                    * EXTRACT(epoch FROM pg_catalog.current_setting('pulse.at')::timestamptz - old.at)::float8
            END
        ) - taken.starts,
        pg_catalog.current_setting('pulse.at')::timestamptz
    FROM (
        SELECT
            limiter.name AS scope, rate AS n, rate_per AS per, rate_burst AS burst,
            pg_catalog.count(*)::float8 AS starts
        FROM claimed
        CROSS JOIN limiter
        WHERE rate IS NOT NULL
        GROUP BY 1, 2, 3, 4
        UNION ALL
        SELECT queue_limit.name, rate, rate_per, rate_burst, pg_catalog.count(*)::float8
        FROM claimed
        CROSS JOIN queue_limit
        WHERE rate IS NOT NULL
        GROUP BY 1, 2, 3, 4
        UNION ALL
        SELECT claimed.lane_key, key_rate, key_rate_per, key_rate_burst, pg_catalog.count(*)::float8
        FROM claimed
        CROSS JOIN limiter
        WHERE key_rate IS NOT NULL AND claimed.lane_key::text <> limiter.name
        GROUP BY 1, 2, 3, 4
    ) AS taken
    LEFT JOIN pulse_django_bucket AS old ON old.scope::text = taken.scope
    ON CONFLICT (scope) DO UPDATE SET tokens = excluded.tokens, at = excluded.at
)
SELECT
    id, attempts, token, task, queue, priority, args::text, kwargs::text, progress::text, refunds, max_attempts, losses,
    pg_catalog.date_part('epoch', ttl), parent_id, pg_catalog.date_part('epoch', created_at),
    pg_catalog.date_part('epoch', started_at), pg_catalog.date_part('epoch', next_run_at), trace, sensitive, meta::text,
    lane_key, pg_catalog.current_setting('pulse.probe')::boolean, timeout, progress_timeout, max_lost_workers,
        count_lost_workers, give_up_after, weight, line.is_left, line.lanes
FROM (
    SELECT pg_catalog.bool_or(has_room
            AND NOT has_slots) AS is_left, pg_catalog.array_agg(DISTINCT lane) FILTER (
        WHERE NOT (has_slots
                AND has_room)) AS lanes
    FROM fitting) AS line
LEFT JOIN claimed ON true
ORDER BY priority DESC, next_run_at, id;
