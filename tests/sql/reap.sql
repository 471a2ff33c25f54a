-- reap(): every job, not on Citus
WITH over AS MATERIALIZED (
    SELECT
        pick.*, lost.free,
        pick.attempts - pick.refunds >= pick.max_attempts AND NOT lost.free AS spent,
        lost.lost AND pick.losses + 1 >= COALESCE(pick.max_lost_workers, :max_lost_workers) AS killer,
        LEAST(
            :delay::float8,
            pg_catalog.power(CASE WHEN lost.free THEN pick.losses + 1 ELSE pick.attempts - pick.refunds END, 2)
                * :delay_2::float8
        ) * (:delay_3::float8 + :delay_4::float8 * random()) AS delay,
        CASE WHEN lost.lost THEN pick.lease_until - COALESCE(pick.lease_ttl, :lease_ttl) END AS last_seen_at,
        CASE
            WHEN pick.lease_until < statement_timestamp() THEN 'WORKER_LOST'
            WHEN pick.deadline < statement_timestamp() THEN 'TIMED_OUT'
            ELSE 'STALLED'
        END AS outcome
    FROM (
        SELECT pulse_django_job_hot.id AS id, pulse_django_job_hot.locked_by AS locked_by,
            pulse_django_job_hot.attempts AS attempts, pulse_django_job_hot.token AS token,
            pulse_django_job_hot.next_run_at AS next_run_at, pulse_django_job_hot.started_at AS started_at,
            pulse_django_job_hot.refunds AS refunds, pulse_django_job_hot.max_attempts AS max_attempts,
            pulse_django_job_hot.losses AS losses, pulse_django_job_hot.lease_until AS lease_until,
            pulse_django_job_hot.lease_ttl AS lease_ttl, pulse_django_job_hot.deadline AS deadline,
            pulse_django_job_hot.max_lost_workers AS max_lost_workers,
            pulse_django_job_hot.count_lost_workers AS count_lost_workers,
            pulse_django_job_hot.cancel_requested_at AS cancel_requested_at, pulse_django_job_hot.task AS task,
            pulse_django_job_hot.queue AS queue, pulse_django_job_hot.created_at AS created_at,
            pulse_django_job_hot.give_up_after AS give_up_after, pulse_django_job_hot.lane_key AS lane_key,
            pulse_django_job_hot.batch_id AS batch_id, pulse_django_job_hot.awaited AS awaited
        FROM pulse_django_job_hot
        WHERE (pulse_django_job_hot.status::text = 'RUNNING'
                AND (pulse_django_job_hot.lease_until < (statement_timestamp()) OR pulse_django_job_hot.deadline <
                    (statement_timestamp()) OR pulse_django_job_hot.progress_timeout < (statement_timestamp() -
                    GREATEST(pulse_django_job_hot.started_at, pulse_django_job_hot.progress_at))))
        ORDER BY 1 ASC
        LIMIT 1000
        FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED) AS pick
    CROSS JOIN LATERAL (
        SELECT
            pick.lease_until < statement_timestamp(),
            pick.lease_until < statement_timestamp() AND NOT pick.count_lost_workers
    ) AS lost (lost, free)
),
judged AS MATERIALIZED (
    SELECT
        job.*,
        CASE
            WHEN CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END IN ('COMPLETED', 'CANCELLED') THEN CASE
                WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END = 'RETRYING'
                AND (job.attempts - job.refunds - job.free::int >= job.max_attempts OR clock_timestamp() + job.delay *
                    interval '1 second' > job.created_at + job.give_up_after)
            THEN 'DEAD_LETTERED'
            ELSE CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END
        END
        AS verdict,
        CASE job.outcome
            WHEN 'WORKER_LOST' THEN 'worker lease expired'
            WHEN 'TIMED_OUT' THEN 'run exceeded its time limit'
            ELSE 'run made no progress'
        END AS message
    FROM over AS job
),
ending AS MATERIALIZED (
    SELECT
        id, locked_by::text AS holder, attempts AS attempt, token, next_run_at AS due_at, started_at, last_seen_at,
        outcome, verdict, message, task, queue,
        batch_id, awaited, (free AND verdict = 'RETRYING')::int AS refund, (outcome = 'WORKER_LOST')::int AS loss,
        delay, refunds AS had_refunds, losses AS had_losses, lane_key,
        CASE
            WHEN spent OR verdict <> 'DEAD_LETTERED' THEN message
            WHEN killer
            THEN pg_catalog.format('lost %%s worker%%s: %%s', losses + 1, CASE WHEN losses > 0 THEN 's' END, message)
            ELSE 'give_up_after reached: ' || message
        END AS error,
        NULL::text AS cancel_reason, NULL::text AS result, NULL::text AS progress, NULL::text AS error_class,
        NULL::text AS traceback
    FROM judged
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
        COALESCE(ending.error) AS last_error,
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
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.progress_timeout < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        )
    RETURNING
        job.id, staying.holder, staying.attempt, staying.token, staying.due_at, staying.started_at,
        staying.last_seen_at, staying.outcome, staying.verdict, staying.error_class, staying.message,
        staying.traceback, staying.batch_id, staying.awaited, job.task, job.queue, job.last_error AS error
),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    USING ending
    WHERE job.id = ANY (ARRAY[ending.id]) AND job.locked_by::text = ending.holder AND job.attempts = ending.attempt
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.progress_timeout < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        ) AND ending.verdict IN ('COMPLETED', 'CANCELLED')
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
SELECT id, holder, attempt, token, outcome, verdict, task, queue, error FROM ended;

-- reap()
WITH over AS MATERIALIZED (
    SELECT
        pick.*, lost.free,
        pick.attempts - pick.refunds >= pick.max_attempts AND NOT lost.free AS spent,
        lost.lost AND pick.losses + 1 >= COALESCE(pick.max_lost_workers, :max_lost_workers) AS killer,
        LEAST(
            :delay::float8,
            pg_catalog.power(CASE WHEN lost.free THEN pick.losses + 1 ELSE pick.attempts - pick.refunds END, 2)
                * :delay_2::float8
        ) * (:delay_3::float8 + :delay_4::float8 * random()) AS delay,
        CASE WHEN lost.lost THEN pick.lease_until - COALESCE(pick.lease_ttl, :lease_ttl) END AS last_seen_at,
        CASE
            WHEN pick.lease_until < statement_timestamp() THEN 'WORKER_LOST'
            WHEN pick.deadline < statement_timestamp() THEN 'TIMED_OUT'
            ELSE 'STALLED'
        END AS outcome
    FROM (
        SELECT pulse_django_job_hot.id AS id, pulse_django_job_hot.locked_by AS locked_by,
            pulse_django_job_hot.attempts AS attempts, pulse_django_job_hot.token AS token,
            pulse_django_job_hot.next_run_at AS next_run_at, pulse_django_job_hot.started_at AS started_at,
            pulse_django_job_hot.refunds AS refunds, pulse_django_job_hot.max_attempts AS max_attempts,
            pulse_django_job_hot.losses AS losses, pulse_django_job_hot.lease_until AS lease_until,
            pulse_django_job_hot.lease_ttl AS lease_ttl, pulse_django_job_hot.deadline AS deadline,
            pulse_django_job_hot.max_lost_workers AS max_lost_workers,
            pulse_django_job_hot.count_lost_workers AS count_lost_workers,
            pulse_django_job_hot.cancel_requested_at AS cancel_requested_at, pulse_django_job_hot.task AS task,
            pulse_django_job_hot.queue AS queue, pulse_django_job_hot.created_at AS created_at,
            pulse_django_job_hot.give_up_after AS give_up_after, pulse_django_job_hot.lane_key AS lane_key,
            pulse_django_job_hot.batch_id AS batch_id, pulse_django_job_hot.awaited AS awaited
        FROM pulse_django_job_hot
        WHERE (pulse_django_job_hot.status::text = 'RUNNING'
                AND (pulse_django_job_hot.lease_until < (statement_timestamp()) OR pulse_django_job_hot.deadline <
                    (statement_timestamp()) OR pulse_django_job_hot.progress_timeout < (statement_timestamp() -
                    GREATEST(pulse_django_job_hot.started_at, pulse_django_job_hot.progress_at)))
                AND pulse_django_job_hot.lease_until >= (statement_timestamp() - :age))
        ORDER BY 1 ASC
        LIMIT 1000
        FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED) AS pick
    CROSS JOIN LATERAL (
        SELECT
            pick.lease_until < statement_timestamp(),
            pick.lease_until < statement_timestamp() AND NOT pick.count_lost_workers
    ) AS lost (lost, free)
),
judged AS MATERIALIZED (
    SELECT
        job.*,
        CASE
            WHEN CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END IN ('COMPLETED', 'CANCELLED') THEN CASE
                WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END = 'RETRYING'
                AND (job.attempts - job.refunds - job.free::int >= job.max_attempts OR clock_timestamp() + job.delay *
                    interval '1 second' > job.created_at + job.give_up_after)
            THEN 'DEAD_LETTERED'
            ELSE CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END
        END
        AS verdict,
        CASE job.outcome
            WHEN 'WORKER_LOST' THEN 'worker lease expired'
            WHEN 'TIMED_OUT' THEN 'run exceeded its time limit'
            ELSE 'run made no progress'
        END AS message
    FROM over AS job
),
ending AS MATERIALIZED (
    SELECT
        id, locked_by::text AS holder, attempts AS attempt, token, next_run_at AS due_at, started_at, last_seen_at,
        outcome, verdict, message, task, queue,
        batch_id, awaited, (free AND verdict = 'RETRYING')::int AS refund, (outcome = 'WORKER_LOST')::int AS loss,
        delay, refunds AS had_refunds, losses AS had_losses, lane_key,
        CASE
            WHEN spent OR verdict <> 'DEAD_LETTERED' THEN message
            WHEN killer
            THEN pg_catalog.format('lost %%s worker%%s: %%s', losses + 1, CASE WHEN losses > 0 THEN 's' END, message)
            ELSE 'give_up_after reached: ' || message
        END AS error,
        NULL::text AS cancel_reason, NULL::text AS result, NULL::text AS progress, NULL::text AS error_class,
        NULL::text AS traceback
    FROM judged
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
        COALESCE(ending.error) AS last_error,
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
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.progress_timeout < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        )
    RETURNING
        job.id, staying.holder, staying.attempt, staying.token, staying.due_at, staying.started_at,
        staying.last_seen_at, staying.outcome, staying.verdict, staying.error_class, staying.message,
        staying.traceback, staying.batch_id, staying.awaited, job.task, job.queue, job.last_error AS error
),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    USING ending
    WHERE job.id = ANY (ARRAY[ending.id]) AND job.locked_by::text = ending.holder AND job.attempts = ending.attempt
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.progress_timeout < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        ) AND ending.verdict IN ('COMPLETED', 'CANCELLED')
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
SELECT id, holder, attempt, token, outcome, verdict, task, queue, error FROM ended;

-- reap()
SELECT pulse_django_job.id AS id
FROM pulse_django_job
WHERE (pulse_django_job.status::text = :status
        AND (pulse_django_job.lease_until < (statement_timestamp()) OR pulse_django_job.deadline <
            (statement_timestamp()) OR pulse_django_job.progress_timeout < (statement_timestamp() -
            GREATEST(pulse_django_job.started_at, pulse_django_job.progress_at))))
ORDER BY 1 ASC
LIMIT 1000;

-- reap()
SELECT pulse_django_job.id AS id
FROM pulse_django_job
WHERE (pulse_django_job.status::text = :status
        AND (pulse_django_job.lease_until < (statement_timestamp()) OR pulse_django_job.deadline <
            (statement_timestamp()) OR pulse_django_job.progress_timeout < (statement_timestamp() -
            GREATEST(pulse_django_job.started_at, pulse_django_job.progress_at)))
        AND pulse_django_job.lease_until >= (statement_timestamp() - :age))
ORDER BY 1 ASC
LIMIT 1000;

-- reap_these()
WITH over AS MATERIALIZED (
    SELECT
        pick.*, lost.free,
        pick.attempts - pick.refunds >= pick.max_attempts AND NOT lost.free AS spent,
        lost.lost AND pick.losses + 1 >= COALESCE(pick.max_lost_workers, :max_lost_workers) AS killer,
        LEAST(
            :delay::float8,
            pg_catalog.power(CASE WHEN lost.free THEN pick.losses + 1 ELSE pick.attempts - pick.refunds END, 2)
                * :delay_2::float8
        ) * (:delay_3::float8 + :delay_4::float8 * random()) AS delay,
        CASE WHEN lost.lost THEN pick.lease_until - COALESCE(pick.lease_ttl, :lease_ttl) END AS last_seen_at,
        CASE
            WHEN pick.lease_until < statement_timestamp() THEN 'WORKER_LOST'
            WHEN pick.deadline < statement_timestamp() THEN 'TIMED_OUT'
            ELSE 'STALLED'
        END AS outcome
    FROM (
        SELECT pulse_django_job_hot.id AS id, pulse_django_job_hot.locked_by AS locked_by,
            pulse_django_job_hot.attempts AS attempts, pulse_django_job_hot.token AS token,
            pulse_django_job_hot.next_run_at AS next_run_at, pulse_django_job_hot.started_at AS started_at,
            pulse_django_job_hot.refunds AS refunds, pulse_django_job_hot.max_attempts AS max_attempts,
            pulse_django_job_hot.losses AS losses, pulse_django_job_hot.lease_until AS lease_until,
            pulse_django_job_hot.lease_ttl AS lease_ttl, pulse_django_job_hot.deadline AS deadline,
            pulse_django_job_hot.max_lost_workers AS max_lost_workers,
            pulse_django_job_hot.count_lost_workers AS count_lost_workers,
            pulse_django_job_hot.cancel_requested_at AS cancel_requested_at, pulse_django_job_hot.task AS task,
            pulse_django_job_hot.queue AS queue, pulse_django_job_hot.created_at AS created_at,
            pulse_django_job_hot.give_up_after AS give_up_after, pulse_django_job_hot.lane_key AS lane_key,
            pulse_django_job_hot.batch_id AS batch_id, pulse_django_job_hot.awaited AS awaited
        FROM pulse_django_job_hot
        WHERE (pulse_django_job_hot.status::text = 'RUNNING'
                AND (pulse_django_job_hot.lease_until < (statement_timestamp()) OR pulse_django_job_hot.deadline <
                    (statement_timestamp()) OR pulse_django_job_hot.progress_timeout < (statement_timestamp() -
                    GREATEST(pulse_django_job_hot.started_at, pulse_django_job_hot.progress_at)))
                AND pulse_django_job_hot.id IN (:id))
        ORDER BY 1 ASC
        LIMIT 1
        FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED) AS pick
    CROSS JOIN LATERAL (
        SELECT
            pick.lease_until < statement_timestamp(),
            pick.lease_until < statement_timestamp() AND NOT pick.count_lost_workers
    ) AS lost (lost, free)
),
judged AS MATERIALIZED (
    SELECT
        job.*,
        CASE
            WHEN CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END IN ('COMPLETED', 'CANCELLED') THEN CASE
                WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END = 'RETRYING'
                AND (job.attempts - job.refunds - job.free::int >= job.max_attempts OR clock_timestamp() + job.delay *
                    interval '1 second' > job.created_at + job.give_up_after)
            THEN 'DEAD_LETTERED'
            ELSE CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END
        END
        AS verdict,
        CASE job.outcome
            WHEN 'WORKER_LOST' THEN 'worker lease expired'
            WHEN 'TIMED_OUT' THEN 'run exceeded its time limit'
            ELSE 'run made no progress'
        END AS message
    FROM over AS job
),
ending AS MATERIALIZED (
    SELECT
        id, locked_by::text AS holder, attempts AS attempt, token, next_run_at AS due_at, started_at, last_seen_at,
        outcome, verdict, message, task, queue,
        batch_id, awaited, (free AND verdict = 'RETRYING')::int AS refund, (outcome = 'WORKER_LOST')::int AS loss,
        delay, refunds AS had_refunds, losses AS had_losses, lane_key,
        CASE
            WHEN spent OR verdict <> 'DEAD_LETTERED' THEN message
            WHEN killer
            THEN pg_catalog.format('lost %%s worker%%s: %%s', losses + 1, CASE WHEN losses > 0 THEN 's' END, message)
            ELSE 'give_up_after reached: ' || message
        END AS error,
        NULL::text AS cancel_reason, NULL::text AS result, NULL::text AS progress, NULL::text AS error_class,
        NULL::text AS traceback
    FROM judged
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
        COALESCE(ending.error) AS last_error,
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
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.progress_timeout < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        )
    RETURNING
        job.id, staying.holder, staying.attempt, staying.token, staying.due_at, staying.started_at,
        staying.last_seen_at, staying.outcome, staying.verdict, staying.error_class, staying.message,
        staying.traceback, staying.batch_id, staying.awaited, job.task, job.queue, job.last_error AS error
),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    USING ending
    WHERE job.id = ANY (ARRAY[ending.id]) AND job.locked_by::text = ending.holder AND job.attempts = ending.attempt
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.progress_timeout < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        ) AND ending.verdict IN ('COMPLETED', 'CANCELLED')
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
SELECT id, holder, attempt, token, outcome, verdict, task, queue, error FROM ended;

-- _reap_these()
WITH over AS MATERIALIZED (
    SELECT
        pick.*, lost.free,
        pick.attempts - pick.refunds >= pick.max_attempts AND NOT lost.free AS spent,
        lost.lost AND pick.losses + 1 >= COALESCE(pick.max_lost_workers, :max_lost_workers) AS killer,
        LEAST(
            :delay::float8,
            pg_catalog.power(CASE WHEN lost.free THEN pick.losses + 1 ELSE pick.attempts - pick.refunds END, 2)
                * :delay_2::float8
        ) * (:delay_3::float8 + :delay_4::float8 * random()) AS delay,
        CASE WHEN lost.lost THEN pick.lease_until - COALESCE(pick.lease_ttl, :lease_ttl) END AS last_seen_at,
        CASE
            WHEN pick.lease_until < statement_timestamp() THEN 'WORKER_LOST'
            WHEN pick.deadline < statement_timestamp() THEN 'TIMED_OUT'
            ELSE 'STALLED'
        END AS outcome
    FROM (
        SELECT pulse_django_job_hot.id AS id, pulse_django_job_hot.locked_by AS locked_by,
            pulse_django_job_hot.attempts AS attempts, pulse_django_job_hot.token AS token,
            pulse_django_job_hot.next_run_at AS next_run_at, pulse_django_job_hot.started_at AS started_at,
            pulse_django_job_hot.refunds AS refunds, pulse_django_job_hot.max_attempts AS max_attempts,
            pulse_django_job_hot.losses AS losses, pulse_django_job_hot.lease_until AS lease_until,
            pulse_django_job_hot.lease_ttl AS lease_ttl, pulse_django_job_hot.deadline AS deadline,
            pulse_django_job_hot.max_lost_workers AS max_lost_workers,
            pulse_django_job_hot.count_lost_workers AS count_lost_workers,
            pulse_django_job_hot.cancel_requested_at AS cancel_requested_at, pulse_django_job_hot.task AS task,
            pulse_django_job_hot.queue AS queue, pulse_django_job_hot.created_at AS created_at,
            pulse_django_job_hot.give_up_after AS give_up_after, pulse_django_job_hot.lane_key AS lane_key,
            pulse_django_job_hot.batch_id AS batch_id, pulse_django_job_hot.awaited AS awaited
        FROM pulse_django_job_hot
        WHERE (pulse_django_job_hot.status::text = 'RUNNING'
                AND (pulse_django_job_hot.lease_until < (statement_timestamp()) OR pulse_django_job_hot.deadline <
                    (statement_timestamp()) OR pulse_django_job_hot.progress_timeout < (statement_timestamp() -
                    GREATEST(pulse_django_job_hot.started_at, pulse_django_job_hot.progress_at)))
                AND pulse_django_job_hot.id IN (:id))
        ORDER BY 1 ASC
        LIMIT 1
        FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED) AS pick
    CROSS JOIN LATERAL (
        SELECT
            pick.lease_until < statement_timestamp(),
            pick.lease_until < statement_timestamp() AND NOT pick.count_lost_workers
    ) AS lost (lost, free)
),
judged AS MATERIALIZED (
    SELECT
        job.*,
        CASE
            WHEN CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END IN ('COMPLETED', 'CANCELLED') THEN CASE
                WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END = 'RETRYING'
                AND (job.attempts - job.refunds - job.free::int >= job.max_attempts OR clock_timestamp() + job.delay *
                    interval '1 second' > job.created_at + job.give_up_after)
            THEN 'DEAD_LETTERED'
            ELSE CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END
        END
        AS verdict,
        CASE job.outcome
            WHEN 'WORKER_LOST' THEN 'worker lease expired'
            WHEN 'TIMED_OUT' THEN 'run exceeded its time limit'
            ELSE 'run made no progress'
        END AS message
    FROM over AS job
),
ending AS MATERIALIZED (
    SELECT
        id, locked_by::text AS holder, attempts AS attempt, token, next_run_at AS due_at, started_at, last_seen_at,
        outcome, verdict, message, task, queue,
        batch_id, awaited, (free AND verdict = 'RETRYING')::int AS refund, (outcome = 'WORKER_LOST')::int AS loss,
        delay, refunds AS had_refunds, losses AS had_losses, lane_key,
        CASE
            WHEN spent OR verdict <> 'DEAD_LETTERED' THEN message
            WHEN killer
            THEN pg_catalog.format('lost %%s worker%%s: %%s', losses + 1, CASE WHEN losses > 0 THEN 's' END, message)
            ELSE 'give_up_after reached: ' || message
        END AS error,
        NULL::text AS cancel_reason, NULL::text AS result, NULL::text AS progress, NULL::text AS error_class,
        NULL::text AS traceback
    FROM judged
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
        COALESCE(ending.error) AS last_error,
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
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.progress_timeout < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        )
    RETURNING
        job.id, staying.holder, staying.attempt, staying.token, staying.due_at, staying.started_at,
        staying.last_seen_at, staying.outcome, staying.verdict, staying.error_class, staying.message,
        staying.traceback, staying.batch_id, staying.awaited, job.task, job.queue, job.last_error AS error
),
gone AS (
    DELETE FROM pulse_django_job_hot AS job
    USING ending
    WHERE job.id = ANY (ARRAY[ending.id]) AND job.locked_by::text = ending.holder AND job.attempts = ending.attempt
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.progress_timeout < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        ) AND ending.verdict IN ('COMPLETED', 'CANCELLED')
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
SELECT id, holder, attempt, token, outcome, verdict, task, queue, error FROM ended;

-- overlooked()
SELECT pulse_django_job_hot.id AS id
FROM pulse_django_job_hot
WHERE (pulse_django_job_hot.status::text = 'RUNNING'
        AND (pulse_django_job_hot.lease_until < (statement_timestamp()) OR pulse_django_job_hot.deadline <
            (statement_timestamp()) OR pulse_django_job_hot.progress_timeout < (statement_timestamp() -
            GREATEST(pulse_django_job_hot.started_at, pulse_django_job_hot.progress_at)))
        AND NOT (pulse_django_job_hot.lease_until >= (statement_timestamp() - :age)
            AND pulse_django_job_hot.lease_until IS NOT NULL))
ORDER BY 1 ASC
LIMIT 1000
FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED;

-- touch_expired()
WITH expired AS MATERIALIZED (
    SELECT pulse_django_job_hot.id AS id, pulse_django_job_hot.locked_by AS locked_by,
        pulse_django_job_hot.attempts AS attempts, pulse_django_job_hot.token AS token,
        pulse_django_job_hot.next_run_at AS next_run_at, pulse_django_job_hot.started_at AS started_at,
        pulse_django_job_hot.refunds AS refunds, pulse_django_job_hot.max_attempts AS max_attempts,
        pulse_django_job_hot.losses AS losses, pulse_django_job_hot.lease_until AS lease_until,
        pulse_django_job_hot.lease_ttl AS lease_ttl, pulse_django_job_hot.deadline AS deadline,
        pulse_django_job_hot.max_lost_workers AS max_lost_workers,
        pulse_django_job_hot.count_lost_workers AS count_lost_workers,
        pulse_django_job_hot.cancel_requested_at AS cancel_requested_at, pulse_django_job_hot.task AS task,
        pulse_django_job_hot.queue AS queue, pulse_django_job_hot.created_at AS created_at,
        pulse_django_job_hot.give_up_after AS give_up_after, pulse_django_job_hot.lane_key AS lane_key,
        pulse_django_job_hot.batch_id AS batch_id, pulse_django_job_hot.awaited AS awaited
    FROM pulse_django_job_hot
    WHERE (pulse_django_job_hot.status::text = 'RUNNING'
            AND (pulse_django_job_hot.lease_until < (statement_timestamp()) OR pulse_django_job_hot.deadline <
                (statement_timestamp()) OR pulse_django_job_hot.progress_timeout < (statement_timestamp() -
                GREATEST(pulse_django_job_hot.started_at, pulse_django_job_hot.progress_at))))
    ORDER BY 1 ASC
    LIMIT 1
    FOR NO KEY UPDATE OF pulse_django_job_hot SKIP LOCKED)
UPDATE pulse_django_job_hot AS job
SET progress_at = job.progress_at
FROM expired
WHERE job.id = expired.id
RETURNING job.id;

-- _dead_letter_what_cannot_wait()
SELECT pulse_django_job.id, pulse_django_job.task, pulse_django_job.queue, pulse_django_job.attempts,
    pulse_django_job.locked_by, pulse_django_job.token
FROM pulse_django_job
WHERE (pulse_django_job.status::text = :status
        AND (pulse_django_job.lease_until < (statement_timestamp()) OR pulse_django_job.deadline <
            (statement_timestamp()) OR pulse_django_job.progress_timeout < (statement_timestamp() -
            GREATEST(pulse_django_job.started_at, pulse_django_job.progress_at)))
        AND pulse_django_job.id = :id);
