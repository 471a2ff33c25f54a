-- settle(): every job, not on Citus
WITH report AS MATERIALIZED (SELECT * FROM (
    SELECT * FROM pg_catalog.json_to_recordset(:report::json) AS report (
        id bigint, holder text, attempt int, outcome text, status text, delay float8, refund int, loss int,
        error text, cancel_reason text, result text, progress text, error_class text, message text, traceback text
    )
) AS report ORDER BY id),
ending AS MATERIALIZED (
    SELECT
        report.*, job.token, job.started_at, job.next_run_at AS due_at, NULL::timestamptz AS last_seen_at,
        job.batch_id, job.awaited, late.too_late, job.refunds AS had_refunds, job.losses AS had_losses, job.lane_key,
            CASE
            WHEN report.status IN ('COMPLETED', 'CANCELLED') THEN report.status
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN report.status = 'RETRYING'
                AND (job.attempts - job.refunds - COALESCE(report.refund, 0) >= job.max_attempts OR late.too_late)
            THEN 'DEAD_LETTERED'
            ELSE report.status
        END AS verdict
    FROM report
    CROSS JOIN LATERAL (
        SELECT token, started_at, next_run_at, cancel_requested_at, attempts, refunds, max_attempts, batch_id, awaited,
            created_at, give_up_after, losses, lane_key
        FROM pulse_django_job_hot AS job
        WHERE job.id = report.id AND job.locked_by::text = report.holder AND job.attempts = report.attempt
        FOR NO KEY UPDATE
    ) AS job
    CROSS JOIN LATERAL (
        SELECT clock_timestamp() + report.delay * interval '1 second' > job.created_at + job.give_up_after
    ) AS late (too_late)
),
staying AS MATERIALIZED (
    SELECT
        id, holder, attempt, token, due_at, started_at, last_seen_at, outcome, verdict, error_class, message, traceback,
        batch_id, awaited, error,
        had_refunds + COALESCE(refund, 0) AS refunds,
        had_losses + COALESCE(loss, 0) AS losses,
        CASE
            WHEN verdict IN ('PENDING', 'RETRYING') THEN clock_timestamp() + delay * interval '1 second'
        END AS next_run_at,
        lane_key::text = '' OR delay IS NULL OR delay <= 0::float8 AS ready,
        CASE WHEN verdict = 'DEAD_LETTERED' THEN clock_timestamp() END AS finished_at,
        COALESCE(CASE WHEN ending.too_late
                AND ending.status = 'RETRYING' THEN 'give_up_after reached: ' || ending.error END,
                    ending.error) AS last_error,
        progress::jsonb AS progress
    FROM ending
    WHERE NOT ending.verdict IN ('COMPLETED', 'CANCELLED')
),
stayed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = staying.verdict,
        locked_by = NULL,
        lease_until = NULL,
        token = NULL,
        deadline = NULL,
        refunds = staying.refunds,
        losses = staying.losses,
        next_run_at = COALESCE(staying.next_run_at, job.next_run_at),
        ready = staying.ready,
        finished_at = staying.finished_at,
        last_error = COALESCE(staying.last_error, job.last_error),
        progress = COALESCE(staying.progress, job.progress)
    FROM staying
    WHERE job.id = ANY (ARRAY[staying.id]) AND job.locked_by::text = staying.holder AND job.attempts = staying.attempt
    RETURNING
        job.id, staying.holder, staying.attempt, staying.token, staying.due_at, staying.started_at,
        staying.last_seen_at, staying.outcome, staying.verdict, staying.error_class, staying.message,
        staying.traceback, staying.batch_id, staying.awaited, job.task, job.queue, job.last_error AS error
),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    USING ending
    WHERE job.id = ANY (ARRAY[ending.id])
        AND job.locked_by::text = ending.holder
        AND job.attempts = ending.attempt
        AND ending.verdict IN ('COMPLETED', 'CANCELLED')
    RETURNING job.id, job.task, job.queue, job.priority, job.args, job.kwargs, job.payload_bytes, job.parent_id,
        job.trace, job.sensitive, job.next_run_at, job.attempts, job.refunds, job.losses, job.progress, job.progress_at,
        job.cancel_requested_at, job.cancel_reason, job.last_error, job.created_at, job.started_at, job.tags,
        job.search_terms, job.meta, job.max_attempts, job.timeout, job.lease_ttl, job.progress_timeout,
        job.max_lost_workers, job.count_lost_workers, job.idempotency_key, job.give_up_after, job.weight,
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, ending.holder AS source_holder,
        ending.token AS source_token, ending.last_seen_at AS source_last_seen_at, ending.outcome AS source_outcome,
        ending.verdict AS source_verdict, ending.error_class AS source_error_class, ending.message AS source_message,
        ending.traceback AS source_traceback, ending.error AS source_error, ending.refund AS source_refund,
        ending.loss AS source_loss, ending.cancel_reason AS source_cancel_reason, ending.progress AS source_progress,
        ending.result AS source_result
),
history AS (
    INSERT INTO pulse_django_job_over (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace,
        sensitive, next_run_at, attempts, refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason,
        last_error, created_at, started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl,
        progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight, expires_at,
        on_dead, batch_id, node, awaited, era, finished_at, status, result, completed_by, completed_token)
    SELECT id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive, next_run_at, attempts,
        refunds + COALESCE(source_refund, 0), losses + COALESCE(source_loss, 0), COALESCE(source_progress::jsonb,
        progress), progress_at, cancel_requested_at, COALESCE(source_cancel_reason, cancel_reason),
        COALESCE(source_error, last_error), created_at, started_at, tags, search_terms, meta, max_attempts, timeout,
        lease_ttl, progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight,
        expires_at, CASE WHEN pg_catalog.pg_column_size(on_dead) <= 1000 THEN on_dead END, batch_id, node, awaited, (
        SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int), clock_timestamp(),
            source_verdict, source_result::jsonb, CASE WHEN source_outcome = 'SUCCEEDED' THEN source_holder END, CASE
            WHEN source_outcome = 'SUCCEEDED' THEN source_token END
    FROM gone
),
over_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE source_verdict = 'COMPLETED'),
        count(*) FILTER (WHERE source_verdict <> 'COMPLETED')
    FROM gone
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
),
stayed_for_on_dead AS (
    INSERT INTO pulse_django_job_hot (task, queue, priority, tags, lane_key, max_attempts, timeout, lease_ttl,
        progress_timeout, max_lost_workers, count_lost_workers, give_up_after, weight, sensitive, meta, parent_id,
        trace, args, payload_bytes)
    SELECT
        hook.task, hook.queue, hook.priority, hook.tags, hook.lane_key, hook.max_attempts, hook.timeout, hook.lease_ttl,
            hook.progress_timeout, hook.max_lost_workers, hook.count_lost_workers, hook.give_up_after, hook.weight,
        hook.sensitive, COALESCE(hook.meta, dead.meta), dead.id, dead.trace, dead.facts,
        pg_catalog.octet_length(dead.facts::text) + 2
    FROM (
        SELECT
            job.id, job.on_dead, job.meta, job.trace,
            pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
                'job_id', job.id::text, 'task', job.task, 'queue', job.queue, 'attempt', job.attempts,
                'args', CASE WHEN (job.on_dead ->> 'gets_arguments'::text)::boolean THEN job.args END,
                'kwargs', CASE WHEN (job.on_dead ->> 'gets_arguments'::text)::boolean THEN job.kwargs END,
                'reason', ended.reason, 'last_error', ended.last_error
            )) AS facts
        FROM (
            SELECT
                id AS dead_id, error AS reason,
                pg_catalog.concat_ws(
                    ': ', NULLIF(pg_catalog.replace(error_class, 'builtins.', ''), ''), NULLIF(message, '')
                ) AS last_error
            FROM stayed
            WHERE verdict = 'DEAD_LETTERED'
        ) AS ended
        JOIN pulse_django_job_hot AS job ON job.id = ended.dead_id AND pg_catalog.jsonb_typeof(job.on_dead) = 'object'
    ) AS dead
    CROSS JOIN LATERAL pg_catalog.jsonb_to_record(dead.on_dead) AS hook (
        task text, queue text, priority int, tags text[], lane_key text, max_attempts int, timeout interval, lease_ttl
            interval, progress_timeout interval, max_lost_workers int, count_lost_workers boolean, give_up_after
            interval, weight int, sensitive text, meta jsonb
    )
),
stayed_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, died)
    SELECT id, NULL::bigint, false FROM stayed WHERE verdict = 'WAITING' OR awaited AND verdict = 'DEAD_LETTERED'
    UNION ALL
    SELECT DISTINCT NULL::bigint, batch_id, true FROM stayed WHERE batch_id IS NOT NULL AND verdict = 'DEAD_LETTERED'
),
ended AS MATERIALIZED (
    SELECT
        id, source_holder AS holder, attempts AS attempt, source_token AS token, next_run_at AS due_at, started_at,
        source_last_seen_at AS last_seen_at, source_outcome AS outcome, source_verdict AS verdict,
        source_error_class AS error_class, source_message AS message, source_traceback AS traceback,
        batch_id, awaited, task, queue, source_error AS error
    FROM gone
    UNION ALL
    SELECT * FROM stayed
),
ledger AS (
    INSERT INTO pulse_django_attempt (
        job_id, number, token, worker, due_at, started_at, finished_at, last_seen_at, outcome, error_class, message,
        traceback
    )
    SELECT
        id, attempt, token, holder, due_at, started_at, clock_timestamp(), last_seen_at, outcome,
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, '')
    FROM ended
    WHERE outcome <> 'SUCCEEDED'
    ON CONFLICT (job_id, number) DO NOTHING
)
SELECT id, holder, attempt, verdict, verdict = 'DEAD_LETTERED' OR awaited OR batch_id IS NOT NULL OR verdict = 'WAITING'
FROM ended;

-- settle(): every job, not on Citus
WITH report AS MATERIALIZED (SELECT * FROM (
    SELECT
        id, holder, attempt, result, 'SUCCEEDED' AS outcome, 'COMPLETED' AS status, NULL::float8 AS delay,
        NULL::int AS refund, NULL::int AS loss, NULL AS error, NULL AS cancel_reason, NULL AS progress,
        NULL AS error_class, NULL AS message, NULL AS traceback
    FROM ROWS FROM (
        pg_catalog.unnest((SELECT :id::bigint[])), pg_catalog.unnest((SELECT :holder::text[])),
        pg_catalog.unnest((SELECT :attempt::int[])), pg_catalog.unnest((SELECT :result::text[]))
    ) AS report (id, holder, attempt, result)
) AS report ORDER BY id),
ending AS MATERIALIZED (
    SELECT
        report.*, job.token, job.started_at, job.next_run_at AS due_at, NULL::timestamptz AS last_seen_at,
        CASE
            WHEN report.status IN ('COMPLETED', 'CANCELLED') THEN report.status
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN report.status = 'RETRYING'
                AND (job.attempts - job.refunds - COALESCE(report.refund, 0) >= job.max_attempts)
            THEN 'DEAD_LETTERED'
            ELSE report.status
        END AS verdict
    FROM report
    CROSS JOIN LATERAL (
        SELECT token, started_at, next_run_at, cancel_requested_at, attempts, refunds, max_attempts
        FROM pulse_django_job_hot AS job
        WHERE job.id = report.id AND job.locked_by::text = report.holder AND job.attempts = report.attempt
        FOR NO KEY UPDATE
    ) AS job
),
results AS MATERIALIZED (
    SELECT
        pg_catalog.array_agg(id) AS ids, pg_catalog.array_agg(result) AS results,
        pg_catalog.bool_or(result IS NOT NULL) AS are_some
    FROM ending
),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM ending)) AND job.locked_by IS NOT NULL
    RETURNING job.id, job.task, job.queue, job.priority, job.args, job.kwargs, job.payload_bytes, job.parent_id,
        job.trace, job.sensitive, job.next_run_at, job.attempts, job.refunds, job.losses, job.progress, job.progress_at,
        job.cancel_requested_at, job.cancel_reason, job.last_error, job.created_at, job.started_at, job.tags,
        job.search_terms, job.meta, job.max_attempts, job.timeout, job.lease_ttl, job.progress_timeout,
        job.max_lost_workers, job.count_lost_workers, job.idempotency_key, job.give_up_after, job.weight,
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, job.locked_by, job.token
),
history AS (
    INSERT INTO pulse_django_job_over (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace,
        sensitive, next_run_at, attempts, refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason,
        last_error, created_at, started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl,
        progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight, expires_at,
        on_dead, batch_id, node, awaited, era, finished_at, status, result, completed_by, completed_token)
    SELECT id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive, next_run_at, attempts,
        refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason, last_error, created_at, started_at,
        tags, search_terms, meta, max_attempts, timeout, lease_ttl, progress_timeout, max_lost_workers,
        count_lost_workers, idempotency_key, give_up_after, weight, expires_at, CASE WHEN
        pg_catalog.pg_column_size(on_dead) <= 1000 THEN on_dead END, batch_id, node, awaited, (
        SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int), clock_timestamp(),
            'COMPLETED', CASE WHEN are_some THEN results[pg_catalog.array_position(ids, id)]::jsonb END, locked_by,
            token
    FROM gone
    CROSS JOIN results
),
over_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE 'COMPLETED' = 'COMPLETED'),
        count(*) FILTER (WHERE 'COMPLETED' <> 'COMPLETED')
    FROM gone
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
),
ended AS (
    SELECT
        batch_id, awaited, id, locked_by::text AS holder, attempts AS attempt, 'COMPLETED' AS verdict
    FROM gone
)
SELECT id, holder, attempt, verdict, verdict = 'DEAD_LETTERED' OR awaited OR batch_id IS NOT NULL OR verdict = 'WAITING'
FROM ended;

-- settle(): every job, not on Citus
WITH report AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_to_recordset(:report::json) AS report (
        id bigint, holder text, attempt int, outcome text, error_class text, message text, traceback text
    )
),
locked AS MATERIALIZED (
    SELECT id, completed_by, attempts, completed_token, next_run_at, started_at, finished_at
    FROM pulse_django_job
    WHERE id = ANY (ARRAY(SELECT id FROM report)) AND completed_by::text = ANY (ARRAY(SELECT holder FROM report))
    ORDER BY id
    FOR NO KEY UPDATE
),
completed AS MATERIALIZED (
    SELECT
        job.*, report.outcome, report.error_class, report.message, report.traceback,
        report.outcome = 'SUCCEEDED' AS repeated
    FROM report
    JOIN locked AS job
        ON job.id = report.id AND job.attempts = report.attempt AND job.completed_by::text = report.holder
),
cleared AS (
    UPDATE pulse_django_job AS job
    SET completed_by = NULL, completed_token = NULL
    FROM completed
    WHERE job.id = completed.id AND NOT completed.repeated AND job.locked_by IS NULL
),
stored AS (
    INSERT INTO pulse_django_attempt (
        job_id, number, token, worker, due_at, started_at, finished_at, outcome, error_class, message, traceback,
        late_outcome, late_at
    )
    SELECT
        id, attempts, completed_token, completed_by, next_run_at, started_at, finished_at, 'SUCCEEDED',
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, ''), outcome, clock_timestamp()
    FROM completed
    WHERE NOT repeated
    ON CONFLICT (job_id, number) DO NOTHING
)
SELECT id, completed_by, attempts, repeated FROM completed;

-- settle(): every job
WITH report AS MATERIALIZED (
    SELECT *
    FROM pg_catalog.json_to_recordset(:report::json) AS report (id bigint, holder text, attempt int, outcome text)
),
entry AS MATERIALIZED (
    SELECT
        attempt.id, attempt.job_id, attempt.worker, attempt.number, report.outcome,
        attempt.outcome::text = report.outcome AS repeated
    FROM report
    JOIN pulse_django_attempt AS attempt
        ON attempt.job_id = report.id AND attempt.number = report.attempt AND attempt.worker::text = report.holder
    ORDER BY attempt.job_id, attempt.number
    FOR NO KEY UPDATE OF attempt
),
late AS MATERIALIZED (
    SELECT id, outcome, clock_timestamp() AS late_at FROM entry WHERE NOT repeated
),
kept AS (
    UPDATE pulse_django_attempt AS attempt
    SET late_outcome = late.outcome, late_at = late.late_at
    FROM late
    WHERE attempt.id = late.id AND attempt.late_outcome::text = ''
)
SELECT job_id, worker, number, repeated FROM entry;

-- settle(): hooks, all
WITH report AS MATERIALIZED (SELECT * FROM (
    SELECT * FROM pg_catalog.json_to_recordset(:report::json) AS report (
        id bigint, holder text, attempt int, outcome text, status text, delay float8, refund int, loss int,
        error text, cancel_reason text, result text, progress text, error_class text, message text, traceback text
    )
) AS report ORDER BY id),
ending AS MATERIALIZED (
    SELECT
        report.*, job.token, job.started_at, job.next_run_at AS due_at, NULL::timestamptz AS last_seen_at,
        job.batch_id, job.awaited, late.too_late, job.refunds AS had_refunds, job.losses AS had_losses, job.lane_key,
            CASE
            WHEN report.status IN ('COMPLETED', 'CANCELLED') THEN report.status
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN report.status = 'RETRYING'
                AND (job.attempts - job.refunds - COALESCE(report.refund, 0) >= job.max_attempts OR late.too_late)
            THEN 'DEAD_LETTERED'
            ELSE report.status
        END AS verdict
    FROM report
    CROSS JOIN LATERAL (
        SELECT token, started_at, next_run_at, cancel_requested_at, attempts, refunds, max_attempts, batch_id, awaited,
            created_at, give_up_after, losses, lane_key
        FROM pulse_django_job_hot AS job
        WHERE job.id = report.id AND job.locked_by::text = report.holder AND job.attempts = report.attempt
        FOR NO KEY UPDATE
    ) AS job
    CROSS JOIN LATERAL (
        SELECT clock_timestamp() + report.delay * interval '1 second' > job.created_at + job.give_up_after
    ) AS late (too_late)
),
staying AS MATERIALIZED (
    SELECT
        id, holder, attempt, token, due_at, started_at, last_seen_at, outcome, verdict, error_class, message, traceback,
        batch_id, awaited, error,
        had_refunds + COALESCE(refund, 0) AS refunds,
        had_losses + COALESCE(loss, 0) AS losses,
        CASE
            WHEN verdict IN ('PENDING', 'RETRYING') THEN clock_timestamp() + delay * interval '1 second'
        END AS next_run_at,
        lane_key::text = '' OR delay IS NULL OR delay <= 0::float8 AS ready,
        CASE WHEN verdict = 'DEAD_LETTERED' THEN clock_timestamp() END AS finished_at,
        COALESCE(CASE WHEN ending.too_late
                AND ending.status = 'RETRYING' THEN 'give_up_after reached: ' || ending.error END,
                    ending.error) AS last_error,
        progress::jsonb AS progress
    FROM ending
    WHERE NOT ending.verdict IN ('COMPLETED', 'CANCELLED')
),
stayed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = staying.verdict,
        locked_by = NULL,
        lease_until = NULL,
        token = NULL,
        deadline = NULL,
        refunds = staying.refunds,
        losses = staying.losses,
        next_run_at = COALESCE(staying.next_run_at, job.next_run_at),
        ready = staying.ready,
        finished_at = staying.finished_at,
        last_error = COALESCE(staying.last_error, job.last_error),
        progress = COALESCE(staying.progress, job.progress)
    FROM staying
    WHERE job.id = ANY (ARRAY[staying.id]) AND job.locked_by::text = staying.holder AND job.attempts = staying.attempt
    RETURNING
        job.id, staying.holder, staying.attempt, staying.token, staying.due_at, staying.started_at,
        staying.last_seen_at, staying.outcome, staying.verdict, staying.error_class, staying.message,
        staying.traceback, staying.batch_id, staying.awaited, job.task, job.queue, job.last_error AS error
),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    USING ending
    WHERE job.id = ANY (ARRAY[ending.id])
        AND job.locked_by::text = ending.holder
        AND job.attempts = ending.attempt
        AND ending.verdict IN ('COMPLETED', 'CANCELLED')
    RETURNING job.id, job.task, job.queue, job.priority, job.args, job.kwargs, job.payload_bytes, job.parent_id,
        job.trace, job.sensitive, job.next_run_at, job.attempts, job.refunds, job.losses, job.progress, job.progress_at,
        job.cancel_requested_at, job.cancel_reason, job.last_error, job.created_at, job.started_at, job.tags,
        job.search_terms, job.meta, job.max_attempts, job.timeout, job.lease_ttl, job.progress_timeout,
        job.max_lost_workers, job.count_lost_workers, job.idempotency_key, job.give_up_after, job.weight,
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, ending.holder AS source_holder,
        ending.token AS source_token, ending.last_seen_at AS source_last_seen_at, ending.outcome AS source_outcome,
        ending.verdict AS source_verdict, ending.error_class AS source_error_class, ending.message AS source_message,
        ending.traceback AS source_traceback, ending.error AS source_error, ending.refund AS source_refund,
        ending.loss AS source_loss, ending.cancel_reason AS source_cancel_reason, ending.progress AS source_progress,
        ending.result AS source_result
),
history AS (
    INSERT INTO pulse_django_job_over (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace,
        sensitive, next_run_at, attempts, refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason,
        last_error, created_at, started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl,
        progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight, expires_at,
        on_dead, batch_id, node, awaited, era, finished_at, status, result, completed_by, completed_token)
    SELECT id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive, next_run_at, attempts,
        refunds + COALESCE(source_refund, 0), losses + COALESCE(source_loss, 0), COALESCE(source_progress::jsonb,
        progress), progress_at, cancel_requested_at, COALESCE(source_cancel_reason, cancel_reason),
        COALESCE(source_error, last_error), created_at, started_at, tags, search_terms, meta, max_attempts, timeout,
        lease_ttl, progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight,
        expires_at, CASE WHEN pg_catalog.pg_column_size(on_dead) <= 1000 THEN on_dead END, batch_id, node, awaited, (
        SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int), clock_timestamp(),
            source_verdict, source_result::jsonb, CASE WHEN source_outcome = 'SUCCEEDED' THEN source_holder END, CASE
            WHEN source_outcome = 'SUCCEEDED' THEN source_token END
    FROM gone
),
over_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE source_verdict = 'COMPLETED'),
        count(*) FILTER (WHERE source_verdict <> 'COMPLETED')
    FROM gone
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
),
stayed_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, died)
    SELECT id, NULL::bigint, false FROM stayed WHERE verdict = 'WAITING' OR awaited AND verdict = 'DEAD_LETTERED'
    UNION ALL
    SELECT DISTINCT NULL::bigint, batch_id, true FROM stayed WHERE batch_id IS NOT NULL AND verdict = 'DEAD_LETTERED'
),
ended AS MATERIALIZED (
    SELECT
        id, source_holder AS holder, attempts AS attempt, source_token AS token, next_run_at AS due_at, started_at,
        source_last_seen_at AS last_seen_at, source_outcome AS outcome, source_verdict AS verdict,
        source_error_class AS error_class, source_message AS message, source_traceback AS traceback,
        batch_id, awaited, task, queue, source_error AS error
    FROM gone
    UNION ALL
    SELECT * FROM stayed
),
ledger AS (
    INSERT INTO pulse_django_attempt (
        job_id, number, token, worker, due_at, started_at, finished_at, last_seen_at, outcome, error_class, message,
        traceback
    )
    SELECT
        id, attempt, token, holder, due_at, started_at, clock_timestamp(), last_seen_at, outcome,
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, '')
    FROM ended
    WHERE outcome <> 'SUCCEEDED'
    ON CONFLICT (job_id, number) DO NOTHING
)
SELECT id, holder, attempt, verdict, verdict = 'DEAD_LETTERED' OR awaited OR batch_id IS NOT NULL OR verdict = 'WAITING'
FROM ended;

-- settle()
WITH report AS MATERIALIZED (SELECT * FROM (
    SELECT * FROM pg_catalog.json_to_recordset(:report::json) AS report (
        id bigint, holder text, attempt int, outcome text, status text, delay float8, refund int, loss int,
        error text, cancel_reason text, result text, progress text, error_class text, message text, traceback text
    )
) AS report ORDER BY id),
ending AS MATERIALIZED (
    SELECT
        report.*, job.token, job.started_at, job.next_run_at AS due_at, NULL::timestamptz AS last_seen_at,
        job.batch_id, job.awaited, late.too_late, job.refunds AS had_refunds, job.losses AS had_losses, job.lane_key,
            CASE
            WHEN report.status IN ('COMPLETED', 'CANCELLED') THEN report.status
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN report.status = 'RETRYING'
                AND (job.attempts - job.refunds - COALESCE(report.refund, 0) >= job.max_attempts OR late.too_late)
            THEN 'DEAD_LETTERED'
            ELSE report.status
        END AS verdict
    FROM report
    CROSS JOIN LATERAL (
        SELECT token, started_at, next_run_at, cancel_requested_at, attempts, refunds, max_attempts, batch_id, awaited,
            created_at, give_up_after, losses, lane_key
        FROM pulse_django_job_hot AS job
        WHERE job.id = report.id AND job.locked_by::text = report.holder AND job.attempts = report.attempt
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
    CROSS JOIN LATERAL (
        SELECT clock_timestamp() + report.delay * interval '1 second' > job.created_at + job.give_up_after
    ) AS late (too_late)
),
staying AS MATERIALIZED (
    SELECT
        id, holder, attempt, token, due_at, started_at, last_seen_at, outcome, verdict, error_class, message, traceback,
        batch_id, awaited, error,
        had_refunds + COALESCE(refund, 0) AS refunds,
        had_losses + COALESCE(loss, 0) AS losses,
        CASE
            WHEN verdict IN ('PENDING', 'RETRYING') THEN clock_timestamp() + delay * interval '1 second'
        END AS next_run_at,
        lane_key::text = '' OR delay IS NULL OR delay <= 0::float8 AS ready,
        CASE WHEN verdict = 'DEAD_LETTERED' THEN clock_timestamp() END AS finished_at,
        COALESCE(CASE WHEN ending.too_late
                AND ending.status = 'RETRYING' THEN 'give_up_after reached: ' || ending.error END,
                    ending.error) AS last_error,
        progress::jsonb AS progress
    FROM ending
    WHERE NOT ending.verdict IN ('COMPLETED', 'CANCELLED')
),
stayed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = staying.verdict,
        locked_by = NULL,
        lease_until = NULL,
        token = NULL,
        deadline = NULL,
        refunds = staying.refunds,
        losses = staying.losses,
        next_run_at = COALESCE(staying.next_run_at, job.next_run_at),
        ready = staying.ready,
        finished_at = staying.finished_at,
        last_error = COALESCE(staying.last_error, job.last_error),
        progress = COALESCE(staying.progress, job.progress)
    FROM staying
    WHERE job.id = ANY (ARRAY[staying.id]) AND job.locked_by::text = staying.holder AND job.attempts = staying.attempt
    RETURNING
        job.id, staying.holder, staying.attempt, staying.token, staying.due_at, staying.started_at,
        staying.last_seen_at, staying.outcome, staying.verdict, staying.error_class, staying.message,
        staying.traceback, staying.batch_id, staying.awaited, job.task, job.queue, job.last_error AS error
),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    USING ending
    WHERE job.id = ANY (ARRAY[ending.id])
        AND job.locked_by::text = ending.holder
        AND job.attempts = ending.attempt
        AND ending.verdict IN ('COMPLETED', 'CANCELLED')
    RETURNING job.id, job.task, job.queue, job.priority, job.args, job.kwargs, job.payload_bytes, job.parent_id,
        job.trace, job.sensitive, job.next_run_at, job.attempts, job.refunds, job.losses, job.progress, job.progress_at,
        job.cancel_requested_at, job.cancel_reason, job.last_error, job.created_at, job.started_at, job.tags,
        job.search_terms, job.meta, job.max_attempts, job.timeout, job.lease_ttl, job.progress_timeout,
        job.max_lost_workers, job.count_lost_workers, job.idempotency_key, job.give_up_after, job.weight,
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, ending.holder AS source_holder,
        ending.token AS source_token, ending.last_seen_at AS source_last_seen_at, ending.outcome AS source_outcome,
        ending.verdict AS source_verdict, ending.error_class AS source_error_class, ending.message AS source_message,
        ending.traceback AS source_traceback, ending.error AS source_error, ending.refund AS source_refund,
        ending.loss AS source_loss, ending.cancel_reason AS source_cancel_reason, ending.progress AS source_progress,
        ending.result AS source_result
),
history AS (
    INSERT INTO pulse_django_job_over (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace,
        sensitive, next_run_at, attempts, refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason,
        last_error, created_at, started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl,
        progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight, expires_at,
        on_dead, batch_id, node, awaited, era, finished_at, status, result, completed_by, completed_token)
    SELECT id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive, next_run_at, attempts,
        refunds + COALESCE(source_refund, 0), losses + COALESCE(source_loss, 0), COALESCE(source_progress::jsonb,
        progress), progress_at, cancel_requested_at, COALESCE(source_cancel_reason, cancel_reason),
        COALESCE(source_error, last_error), created_at, started_at, tags, search_terms, meta, max_attempts, timeout,
        lease_ttl, progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight,
        expires_at, CASE WHEN pg_catalog.pg_column_size(on_dead) <= 1000 THEN on_dead END, batch_id, node, awaited, (
        SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int), clock_timestamp(),
            source_verdict, source_result::jsonb, CASE WHEN source_outcome = 'SUCCEEDED' THEN source_holder END, CASE
            WHEN source_outcome = 'SUCCEEDED' THEN source_token END
    FROM gone
),
over_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE source_verdict = 'COMPLETED'),
        count(*) FILTER (WHERE source_verdict <> 'COMPLETED')
    FROM gone
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
),
stayed_for_on_dead AS (
    INSERT INTO pulse_django_job_hot (task, queue, priority, tags, lane_key, max_attempts, timeout, lease_ttl,
        progress_timeout, max_lost_workers, count_lost_workers, give_up_after, weight, sensitive, meta, parent_id,
        trace, args, payload_bytes)
    SELECT
        hook.task, hook.queue, hook.priority, hook.tags, hook.lane_key, hook.max_attempts, hook.timeout, hook.lease_ttl,
            hook.progress_timeout, hook.max_lost_workers, hook.count_lost_workers, hook.give_up_after, hook.weight,
        hook.sensitive, COALESCE(hook.meta, dead.meta), dead.id, dead.trace, dead.facts,
        pg_catalog.octet_length(dead.facts::text) + 2
    FROM (
        SELECT
            job.id, job.on_dead, job.meta, job.trace,
            pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
                'job_id', job.id::text, 'task', job.task, 'queue', job.queue, 'attempt', job.attempts,
                'args', CASE WHEN (job.on_dead ->> 'gets_arguments'::text)::boolean THEN job.args END,
                'kwargs', CASE WHEN (job.on_dead ->> 'gets_arguments'::text)::boolean THEN job.kwargs END,
                'reason', ended.reason, 'last_error', ended.last_error
            )) AS facts
        FROM (
            SELECT
                id AS dead_id, error AS reason,
                pg_catalog.concat_ws(
                    ': ', NULLIF(pg_catalog.replace(error_class, 'builtins.', ''), ''), NULLIF(message, '')
                ) AS last_error
            FROM stayed
            WHERE verdict = 'DEAD_LETTERED'
        ) AS ended
        JOIN pulse_django_job_hot AS job ON job.id = ended.dead_id AND pg_catalog.jsonb_typeof(job.on_dead) = 'object'
    ) AS dead
    CROSS JOIN LATERAL pg_catalog.jsonb_to_record(dead.on_dead) AS hook (
        task text, queue text, priority int, tags text[], lane_key text, max_attempts int, timeout interval, lease_ttl
            interval, progress_timeout interval, max_lost_workers int, count_lost_workers boolean, give_up_after
            interval, weight int, sensitive text, meta jsonb
    )
),
stayed_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, died)
    SELECT id, NULL::bigint, false FROM stayed WHERE verdict = 'WAITING' OR awaited AND verdict = 'DEAD_LETTERED'
    UNION ALL
    SELECT DISTINCT NULL::bigint, batch_id, true FROM stayed WHERE batch_id IS NOT NULL AND verdict = 'DEAD_LETTERED'
),
ended AS MATERIALIZED (
    SELECT
        id, source_holder AS holder, attempts AS attempt, source_token AS token, next_run_at AS due_at, started_at,
        source_last_seen_at AS last_seen_at, source_outcome AS outcome, source_verdict AS verdict,
        source_error_class AS error_class, source_message AS message, source_traceback AS traceback,
        batch_id, awaited, task, queue, source_error AS error
    FROM gone
    UNION ALL
    SELECT * FROM stayed
),
ledger AS (
    INSERT INTO pulse_django_attempt (
        job_id, number, token, worker, due_at, started_at, finished_at, last_seen_at, outcome, error_class, message,
        traceback
    )
    SELECT
        id, attempt, token, holder, due_at, started_at, clock_timestamp(), last_seen_at, outcome,
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, '')
    FROM ended
    WHERE outcome <> 'SUCCEEDED'
    ON CONFLICT (job_id, number) DO NOTHING
)
SELECT id, holder, attempt, verdict, verdict = 'DEAD_LETTERED' OR awaited OR batch_id IS NOT NULL OR verdict = 'WAITING'
FROM ended;

-- settle()
WITH report AS MATERIALIZED (SELECT * FROM (
    SELECT
        id, holder, attempt, result, 'SUCCEEDED' AS outcome, 'COMPLETED' AS status, NULL::float8 AS delay,
        NULL::int AS refund, NULL::int AS loss, NULL AS error, NULL AS cancel_reason, NULL AS progress,
        NULL AS error_class, NULL AS message, NULL AS traceback
    FROM ROWS FROM (
        pg_catalog.unnest((SELECT :id::bigint[])), pg_catalog.unnest((SELECT :holder::text[])),
        pg_catalog.unnest((SELECT :attempt::int[])), pg_catalog.unnest((SELECT :result::text[]))
    ) AS report (id, holder, attempt, result)
) AS report ORDER BY id),
ending AS MATERIALIZED (
    SELECT
        report.*, job.token, job.started_at, job.next_run_at AS due_at, NULL::timestamptz AS last_seen_at,
        CASE
            WHEN report.status IN ('COMPLETED', 'CANCELLED') THEN report.status
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN report.status = 'RETRYING'
                AND (job.attempts - job.refunds - COALESCE(report.refund, 0) >= job.max_attempts)
            THEN 'DEAD_LETTERED'
            ELSE report.status
        END AS verdict
    FROM report
    CROSS JOIN LATERAL (
        SELECT token, started_at, next_run_at, cancel_requested_at, attempts, refunds, max_attempts
        FROM pulse_django_job_hot AS job
        WHERE job.id = report.id AND job.locked_by::text = report.holder AND job.attempts = report.attempt
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
),
results AS MATERIALIZED (
    SELECT
        pg_catalog.array_agg(id) AS ids, pg_catalog.array_agg(result) AS results,
        pg_catalog.bool_or(result IS NOT NULL) AS are_some
    FROM ending
),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM ending)) AND job.locked_by IS NOT NULL
    RETURNING job.id, job.task, job.queue, job.priority, job.args, job.kwargs, job.payload_bytes, job.parent_id,
        job.trace, job.sensitive, job.next_run_at, job.attempts, job.refunds, job.losses, job.progress, job.progress_at,
        job.cancel_requested_at, job.cancel_reason, job.last_error, job.created_at, job.started_at, job.tags,
        job.search_terms, job.meta, job.max_attempts, job.timeout, job.lease_ttl, job.progress_timeout,
        job.max_lost_workers, job.count_lost_workers, job.idempotency_key, job.give_up_after, job.weight,
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, job.locked_by, job.token
),
history AS (
    INSERT INTO pulse_django_job_over (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace,
        sensitive, next_run_at, attempts, refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason,
        last_error, created_at, started_at, tags, search_terms, meta, max_attempts, timeout, lease_ttl,
        progress_timeout, max_lost_workers, count_lost_workers, idempotency_key, give_up_after, weight, expires_at,
        on_dead, batch_id, node, awaited, era, finished_at, status, result, completed_by, completed_token)
    SELECT id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive, next_run_at, attempts,
        refunds, losses, progress, progress_at, cancel_requested_at, cancel_reason, last_error, created_at, started_at,
        tags, search_terms, meta, max_attempts, timeout, lease_ttl, progress_timeout, max_lost_workers,
        count_lost_workers, idempotency_key, give_up_after, weight, expires_at, CASE WHEN
        pg_catalog.pg_column_size(on_dead) <= 1000 THEN on_dead END, batch_id, node, awaited, (
        SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int), clock_timestamp(),
            'COMPLETED', CASE WHEN are_some THEN results[pg_catalog.array_position(ids, id)]::jsonb END, locked_by,
            token
    FROM gone
    CROSS JOIN results
),
over_for_workflows AS (
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE 'COMPLETED' = 'COMPLETED'),
        count(*) FILTER (WHERE 'COMPLETED' <> 'COMPLETED')
    FROM gone
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
),
ended AS (
    SELECT
        batch_id, awaited, id, locked_by::text AS holder, attempts AS attempt, 'COMPLETED' AS verdict
    FROM gone
)
SELECT id, holder, attempt, verdict, verdict = 'DEAD_LETTERED' OR awaited OR batch_id IS NOT NULL OR verdict = 'WAITING'
FROM ended;
