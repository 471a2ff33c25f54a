-- SettlingOnCitus.end(): on Citus
-- the whole: 1247a4b4
-- 30 lines of settle.sql: WITH report AS MATERIALIZED (SELECT * FROM (
SELECT pg_catalog.json_strip_nulls(pg_catalog.json_build_object('id'::text, id, 'holder'::text, holder, 'attempt'::text,
    attempt, 'token'::text, token, 'due_at'::text, due_at, 'started_at'::text, started_at, 'last_seen_at'::text,
    last_seen_at, 'outcome'::text, outcome, 'verdict'::text, verdict, 'error_class'::text, error_class, 'message'::text,
    message, 'traceback'::text, traceback, 'error'::text, error, 'refund'::text, refund, 'loss'::text, loss,
    'had_refunds'::text, had_refunds, 'had_losses'::text, had_losses, 'lane_key'::text, lane_key, 'delay'::text, delay,
    'cancel_reason'::text, cancel_reason, 'progress'::text, progress, 'result'::text, result, 'status'::text, status,
    'too_late'::text, too_late, 'batch_id'::text, batch_id, 'awaited'::text, awaited, 'written_at'::text,
    clock_timestamp(), 'today'::text, (
            SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int), 'leaves'::text,
                ending.verdict IN ('COMPLETED', 'CANCELLED'), 'is_noted'::text, verdict = 'DEAD_LETTERED' OR awaited OR
                batch_id IS NOT NULL OR verdict = 'WAITING', 'has_entry'::text, outcome <> 'SUCCEEDED'))::text
FROM ending;

-- SettlingOnCitus.end(): on Citus
-- the whole: 1381317d
WITH
-- 15 lines of settle.sql: staying AS MATERIALIZED (
    FROM (
        SELECT id, holder, attempt, token, due_at, started_at, NULL::timestamptz AS last_seen_at, outcome, verdict,
            error_class, message, traceback, error, NULL::int AS refund, NULL::int AS loss, had_refunds, had_losses,
            lane_key, delay, NULL::text AS progress, status, NULL::boolean AS too_late, NULL::text AS task,
            NULL::text AS queue, NULL::bigint AS batch_id, awaited
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[]),
            pg_catalog.unnest(:attempt::int[]), pg_catalog.unnest(:token::bigint[]),
            pg_catalog.unnest(:due_at::timestamptz[]), pg_catalog.unnest(:started_at::timestamptz[]),
            pg_catalog.unnest(:outcome::text[]), pg_catalog.unnest(:verdict::text[]),
            pg_catalog.unnest(:error_class::text[]), pg_catalog.unnest(:message::text[]),
            pg_catalog.unnest(:traceback::text[]), pg_catalog.unnest(:error::text[]),
            pg_catalog.unnest(:had_refunds::int[]), pg_catalog.unnest(:had_losses::int[]),
            pg_catalog.unnest(:lane_key::text[]), pg_catalog.unnest(:delay::float8[]),
            pg_catalog.unnest(:status::text[]), pg_catalog.unnest(:awaited::boolean[])) AS given (id, holder, attempt,
            token, due_at, started_at, outcome, verdict, error_class, message, traceback, error, had_refunds,
            had_losses, lane_key, delay, status, awaited)) AS ending
-- 22 lines of settle.sql: WHERE NOT ending.verdict IN ('COMPLETED', 'CANCELLED')
) SELECT id FROM stayed;

-- SettlingOnCitus.end(): on Citus
-- the whole: 52be993e
-- 5 lines of reap.sql: INSERT INTO pulse_django_attempt (
        id, attempt, token, holder, due_at, started_at, written_at, last_seen_at, outcome,
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, '')
    FROM (
        SELECT id, holder, attempt, token, due_at, started_at, NULL::timestamptz AS last_seen_at, outcome, error_class,
            message, traceback, written_at
-- 3 lines of citus/jobs.sql: FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[])
            pg_catalog.unnest(:outcome::text[]), pg_catalog.unnest(:error_class::text[]),
            pg_catalog.unnest(:message::text[]), pg_catalog.unnest(:traceback::text[]),
            pg_catalog.unnest(:written_at::timestamptz[])) AS given (id, holder, attempt, token, due_at, started_at,
            outcome, error_class, message, traceback, written_at)) AS ending
    WHERE outcome <> 'SUCCEEDED'
    ON CONFLICT (job_id, number) DO NOTHING;

-- SettlingOnCitus.end(): on Citus
-- the whole: 703c8a34
-- 13 lines of settle.sql: WITH report AS MATERIALIZED (SELECT * FROM (
-- 33 lines of citus/jobs.sql: job.batch_id, job.awaited, late.too_late, job.refunds AS had_refunds, job.losses AS had_losses, job.lane_key;

-- SettlingOnCitus.end(): on Citus
-- the whole: 18335f25
-- 4 lines of citus/capabilities.sql: INSERT INTO pulse_django_job (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive
    awaited, era, finished_at, status, result, completed_by, completed_token)
-- 5 lines of reap.sql: SELECT id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive, next_run_at, attempts
        expires_at, CASE WHEN pg_catalog.octet_length(on_dead::text) <= 1000 THEN on_dead END, batch_id, node, awaited,
        source_today, source_written_at, source_verdict, source_result::jsonb, CASE WHEN source_outcome = 'SUCCEEDED'
        THEN source_holder END, CASE WHEN source_outcome = 'SUCCEEDED' THEN source_token END
-- 6 lines of citus/capabilities.sql: FROM (
-- 5 lines of reap.sql: job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, ending.holder AS source_holder
        ending.result AS source_result, ending.written_at AS source_written_at, ending.today AS source_today
    FROM pulse_django_job_hot AS job
    CROSS JOIN (
        SELECT id, holder, attempt, token, started_at, NULL::timestamptz AS last_seen_at, outcome, verdict,
            NULL::text AS error_class, NULL::text AS message, NULL::text AS traceback, NULL::text AS error,
            NULL::int AS refund, NULL::int AS loss, NULL::text AS cancel_reason, NULL::text AS progress, result, status,
            NULL::text AS task, NULL::text AS queue, NULL::bigint AS batch_id, awaited, written_at, today
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[]),
            pg_catalog.unnest(:attempt::int[]), pg_catalog.unnest(:token::bigint[]),
            pg_catalog.unnest(:started_at::timestamptz[]), pg_catalog.unnest(:outcome::text[]),
            pg_catalog.unnest(:verdict::text[]), pg_catalog.unnest(:result::text[]), pg_catalog.unnest(:status::text[]),
            pg_catalog.unnest(:awaited::boolean[]), pg_catalog.unnest(:written_at::timestamptz[]),
            pg_catalog.unnest(:today::int[])) AS given (id, holder, attempt, token, started_at, outcome, verdict,
            result, status, awaited, written_at, today)) AS ending
-- 4 lines of settle.sql: WHERE job.id = ANY (ARRAY[ending.id])
) AS gone;

-- SettlingOnCitus.end(): on Citus
-- the whole: 6ce46f4e
DELETE FROM pulse_django_job_hot AS job
    USING (
        SELECT id, holder, attempt, verdict, NULL::text AS task, NULL::text AS queue
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[]),
            pg_catalog.unnest(:attempt::int[]), pg_catalog.unnest(:verdict::text[])) AS given (id, holder, attempt,
            verdict)) AS ending
-- 4 lines of settle.sql: WHERE job.id = ANY (ARRAY[ending.id])
    RETURNING job.id, job.task, job.queue;

-- SettlingOnCitus.end(): on Citus
-- the whole: 6cd33c76
-- 18 lines of citus/jobs.sql: WITH
            error_class, message, traceback, error, refund, NULL::int AS loss, had_refunds, had_losses, lane_key, delay,
            NULL::text AS progress, status, NULL::boolean AS too_late, NULL::text AS task, NULL::text AS queue,
            NULL::bigint AS batch_id, awaited
-- 5 lines of citus/jobs.sql: FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[])
            pg_catalog.unnest(:traceback::text[]), pg_catalog.unnest(:error::text[]), pg_catalog.unnest(:refund::int[]),
-- 3 lines of citus/jobs.sql: pg_catalog.unnest(:had_refunds::int[]), pg_catalog.unnest(:had_losses::int[])
            token, due_at, started_at, outcome, verdict, error_class, message, traceback, error, refund, had_refunds,
-- 24 lines of citus/jobs.sql: had_losses, lane_key, delay, status, awaited)) AS ending;

-- SettlingOnCitus.end(): on Citus
-- the whole: bbe0d581
-- 18 lines of citus/jobs.sql: WITH
            NULL::text AS error_class, message, NULL::text AS traceback, NULL::text AS error, refund, NULL::int AS loss,
            had_refunds, had_losses, lane_key, delay, NULL::text AS progress, status, NULL::boolean AS too_late,
            NULL::text AS task, NULL::text AS queue, NULL::bigint AS batch_id, awaited
-- 4 lines of citus/jobs.sql: FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[])
            pg_catalog.unnest(:message::text[]), pg_catalog.unnest(:refund::int[]),
-- 3 lines of citus/jobs.sql: pg_catalog.unnest(:had_refunds::int[]), pg_catalog.unnest(:had_losses::int[])
            token, due_at, started_at, outcome, verdict, message, refund, had_refunds, had_losses, lane_key, delay,
            status, awaited)) AS ending
-- 23 lines of citus/jobs.sql: WHERE NOT ending.verdict IN ('COMPLETED', 'CANCELLED');

-- SettlingOnCitus.end(): on Citus
-- the whole: 23312b25
-- 8 lines of citus/jobs.sql: INSERT INTO pulse_django_attempt (
        SELECT id, holder, attempt, token, due_at, started_at, NULL::timestamptz AS last_seen_at, outcome,
            NULL::text AS error_class, message, NULL::text AS traceback, written_at
-- 3 lines of citus/jobs.sql: FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[])
            pg_catalog.unnest(:outcome::text[]), pg_catalog.unnest(:message::text[]),
            pg_catalog.unnest(:written_at::timestamptz[])) AS given (id, holder, attempt, token, due_at, started_at,
            outcome, message, written_at)) AS ending
    WHERE outcome <> 'SUCCEEDED'
    ON CONFLICT (job_id, number) DO NOTHING;

-- SettlingOnCitus.end(): on Citus
-- the whole: b145a89b
-- 19 lines of citus/jobs.sql: WITH
            lane_key, NULL::float8 AS delay, NULL::text AS progress, status, NULL::boolean AS too_late,
-- 5 lines of citus/jobs.sql: NULL::text AS task, NULL::text AS queue, NULL::bigint AS batch_id, awaited
-- 3 lines of citus/jobs.sql: pg_catalog.unnest(:error_class::text[]), pg_catalog.unnest(:message::text[])
            pg_catalog.unnest(:lane_key::text[]), pg_catalog.unnest(:status::text[]),
            pg_catalog.unnest(:awaited::boolean[])) AS given (id, holder, attempt, token, due_at, started_at, outcome,
            verdict, error_class, message, traceback, error, had_refunds, had_losses, lane_key, status,
            awaited)) AS ending
-- 23 lines of citus/jobs.sql: WHERE NOT ending.verdict IN ('COMPLETED', 'CANCELLED');

-- SettlingOnCitus.end(): on Citus
-- the whole: de814b41
INSERT INTO pulse_django_job_hot (task, queue, priority, tags, lane_key, max_attempts, timeout, lease_ttl,
    progress_timeout, max_lost_workers, count_lost_workers, give_up_after, weight, sensitive, meta, parent_id, trace,
    args, payload_bytes)
-- 20 lines of reap.sql: SELECT
            FROM (
                SELECT id, attempt, verdict, error_class, message, error, lane_key, NULL::text AS task,
                    NULL::text AS queue
                FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:attempt::int[]),
                    pg_catalog.unnest(:verdict::text[]), pg_catalog.unnest(:error_class::text[]),
                    pg_catalog.unnest(:message::text[]), pg_catalog.unnest(:error::text[]),
                    pg_catalog.unnest(:lane_key::text[])) AS given (id, attempt, verdict, error_class, message, error,
                    lane_key)) AS ending
-- 9 lines of reap.sql: WHERE verdict = 'DEAD_LETTERED';

-- SettlingOnCitus.end(): on Citus
-- the whole: fb49b6ff
INSERT INTO pulse_django_unresolved (job_id, batch_id, died)
    SELECT id, NULL::bigint, false
    FROM (
        SELECT id, verdict, NULL::bigint AS batch_id, awaited
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:verdict::text[]),
            pg_catalog.unnest(:awaited::boolean[])) AS given (id, verdict, awaited)) AS ending
    WHERE verdict = 'WAITING' OR awaited
        AND verdict = 'DEAD_LETTERED'
    UNION ALL
    SELECT DISTINCT NULL::bigint, batch_id, true
    FROM (
        SELECT id, verdict, NULL::bigint AS batch_id, awaited
        FROM ROWS FROM (pg_catalog.unnest(:id_2::bigint[]), pg_catalog.unnest(:verdict_2::text[]),
            pg_catalog.unnest(:awaited_2::boolean[])) AS given (id, verdict, awaited)) AS ending
    WHERE batch_id IS NOT NULL
        AND verdict = 'DEAD_LETTERED';

-- SettlingOnCitus.end(): on Citus
-- the whole: 0edea5f5
-- 28 lines of citus/jobs.sql: INSERT INTO pulse_django_job (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive
            NULL::text AS error_class, message, NULL::text AS traceback, NULL::text AS error, NULL::int AS refund,
            NULL::int AS loss, NULL::text AS cancel_reason, NULL::text AS progress, NULL::text AS result, status,
-- 4 lines of citus/jobs.sql: NULL::text AS task, NULL::text AS queue, NULL::bigint AS batch_id, awaited, written_at, today
            pg_catalog.unnest(:verdict::text[]), pg_catalog.unnest(:message::text[]),
            pg_catalog.unnest(:status::text[]), pg_catalog.unnest(:awaited::boolean[]),
            pg_catalog.unnest(:written_at::timestamptz[]), pg_catalog.unnest(:today::int[])) AS given (id, holder,
            attempt, token, started_at, outcome, verdict, message, status, awaited, written_at, today)) AS ending
-- 5 lines of citus/jobs.sql: WHERE job.id = ANY (ARRAY[ending.id]);

-- SettlingOnCitus.end()
-- the whole: 48bc7062
-- 27 lines of citus/jobs.sql: INSERT INTO pulse_django_job (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive
        SELECT id, holder, attempt, token, started_at, NULL::timestamptz AS last_seen_at, outcome, verdict, error_class,
            message, traceback, error, refund, NULL::int AS loss, cancel_reason, NULL::text AS progress,
            NULL::text AS result, status, NULL::text AS task, NULL::text AS queue, NULL::bigint AS batch_id, awaited,
            written_at, today
-- 3 lines of citus/jobs.sql: FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[])
            pg_catalog.unnest(:verdict::text[]), pg_catalog.unnest(:error_class::text[]),
            pg_catalog.unnest(:message::text[]), pg_catalog.unnest(:traceback::text[]),
            pg_catalog.unnest(:error::text[]), pg_catalog.unnest(:refund::int[]),
            pg_catalog.unnest(:cancel_reason::text[]), pg_catalog.unnest(:status::text[]),
            pg_catalog.unnest(:awaited::boolean[]), pg_catalog.unnest(:written_at::timestamptz[]),
            pg_catalog.unnest(:today::int[])) AS given (id, holder, attempt, token, started_at, outcome, verdict,
            error_class, message, traceback, error, refund, cancel_reason, status, awaited, written_at,
            today)) AS ending
-- 5 lines of citus/jobs.sql: WHERE job.id = ANY (ARRAY[ending.id]);

-- SettlingOnCitus.end()
-- the whole: 9ab512d8
-- 19 lines of citus/jobs.sql: WITH
            NULL::text AS progress, status, too_late, NULL::text AS task, NULL::text AS queue, NULL::bigint AS batch_id,
            awaited
-- 8 lines of citus/jobs.sql: FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[])
            pg_catalog.unnest(:status::text[]), pg_catalog.unnest(:too_late::boolean[]),
            pg_catalog.unnest(:awaited::boolean[])) AS given (id, holder, attempt, token, due_at, started_at, outcome,
            verdict, error_class, message, traceback, error, refund, had_refunds, had_losses, lane_key, delay, status,
            too_late, awaited)) AS ending
-- 23 lines of citus/jobs.sql: WHERE NOT ending.verdict IN ('COMPLETED', 'CANCELLED');

-- SettlingOnCitus.end()
-- the whole: c155b68a
-- 4 lines of reap.sql: INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
-- 16 lines of citus/jobs.sql: FROM (
            NULL::int AS refund, NULL::int AS loss, NULL::text AS cancel_reason, NULL::text AS progress, result,
-- 4 lines of citus/jobs.sql: NULL::text AS task, NULL::text AS queue, NULL::bigint AS batch_id, awaited, written_at, today
            pg_catalog.unnest(:verdict::text[]), pg_catalog.unnest(:result::text[]),
            pg_catalog.unnest(:awaited::boolean[]), pg_catalog.unnest(:written_at::timestamptz[]),
            pg_catalog.unnest(:today::int[])) AS given (id, holder, attempt, token, started_at, outcome, verdict,
            result, awaited, written_at, today)) AS ending
-- 5 lines of citus/jobs.sql: WHERE job.id = ANY (ARRAY[ending.id])
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2;

-- SettlingOnCitus.end()
-- the whole: 82eab3a1
-- 29 lines of citus/jobs.sql: INSERT INTO pulse_django_job (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive
            NULL::int AS refund, NULL::int AS loss, NULL::text AS cancel_reason, NULL::text AS progress,
            NULL::text AS result, status, NULL::text AS task, NULL::text AS queue, batch_id, awaited, written_at, today
-- 3 lines of citus/jobs.sql: FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[])
            pg_catalog.unnest(:verdict::text[]), pg_catalog.unnest(:status::text[]),
            pg_catalog.unnest(:batch_id::bigint[]), pg_catalog.unnest(:awaited::boolean[]),
            pg_catalog.unnest(:written_at::timestamptz[]), pg_catalog.unnest(:today::int[])) AS given (id, holder,
            attempt, token, started_at, outcome, verdict, status, batch_id, awaited, written_at, today)) AS ending
-- 5 lines of citus/jobs.sql: WHERE job.id = ANY (ARRAY[ending.id]);

-- SettlingOnCitus.end()
-- the whole: 49c0a041
-- 20 lines of citus/jobs.sql: INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
            NULL::int AS refund, NULL::int AS loss, NULL::text AS cancel_reason, NULL::text AS progress,
            NULL::text AS result, NULL::text AS task, NULL::text AS queue, batch_id, awaited, written_at, today
-- 3 lines of citus/jobs.sql: FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[])
            pg_catalog.unnest(:verdict::text[]), pg_catalog.unnest(:batch_id::bigint[]),
            pg_catalog.unnest(:awaited::boolean[]), pg_catalog.unnest(:written_at::timestamptz[]),
            pg_catalog.unnest(:today::int[])) AS given (id, holder, attempt, token, started_at, outcome, verdict,
            batch_id, awaited, written_at, today)) AS ending
-- 7 lines of citus/jobs.sql: WHERE job.id = ANY (ARRAY[ending.id]);

-- SettlingOnCitus.store_completed_runs(): on Citus
-- the whole: b0bac6c6
-- 20 lines of settle.sql: WITH report AS MATERIALIZED (
SELECT pg_catalog.json_strip_nulls(pg_catalog.json_build_object('id'::text, id, 'completed_by'::text, completed_by,
    'attempts'::text, attempts, 'completed_token'::text, completed_token, 'next_run_at'::text, next_run_at,
    'started_at'::text, started_at, 'finished_at'::text, finished_at, 'outcome'::text, outcome, 'error_class'::text,
    error_class, 'message'::text, message, 'traceback'::text, traceback, 'repeated'::text, repeated, 'written_at'::text,
    clock_timestamp(), 'today'::text, (
            SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int)))::text
FROM completed;

-- SettlingOnCitus.store_completed_runs(): on Citus
-- the whole: 46b66c0c
UPDATE pulse_django_job AS job
    SET completed_by = NULL, completed_token = NULL
    FROM (
        SELECT id, completed_by, completed_token, repeated
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:completed_by::text[]),
            pg_catalog.unnest(:completed_token::bigint[]), pg_catalog.unnest(:repeated::boolean[])) AS given (id,
            completed_by, completed_token, repeated)) AS completed
    WHERE job.id = completed.id AND NOT completed.repeated AND job.locked_by IS NULL;

-- SettlingOnCitus.store_completed_runs(): on Citus
-- the whole: a16ae269
-- 6 lines of settle.sql: INSERT INTO pulse_django_attempt (
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, ''), outcome, written_at
    FROM (
        SELECT id, completed_by, attempts, completed_token, next_run_at, started_at, finished_at, outcome,
            NULL::text AS error_class, NULL::text AS message, NULL::text AS traceback, repeated, written_at
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:completed_by::text[]),
            pg_catalog.unnest(:attempts::int[]), pg_catalog.unnest(:completed_token::bigint[]),
            pg_catalog.unnest(:next_run_at::timestamptz[]), pg_catalog.unnest(:started_at::timestamptz[]),
            pg_catalog.unnest(:finished_at::timestamptz[]), pg_catalog.unnest(:outcome::text[]),
            pg_catalog.unnest(:repeated::boolean[]), pg_catalog.unnest(:written_at::timestamptz[])) AS given (id,
            completed_by, attempts, completed_token, next_run_at, started_at, finished_at, outcome, repeated,
            written_at)) AS completed
    WHERE NOT repeated
    ON CONFLICT (job_id, number) DO NOTHING;

-- ReapingOnCitus.end(): on Citus
-- the whole: 214b66c6
-- 80 lines of reap.sql: WITH over AS MATERIALIZED (
-- 5 lines of citus/jobs.sql: SELECT pg_catalog.json_strip_nulls(pg_catalog.json_build_object('id'::text, id, 'holder'::text, holder, 'attempt'::text
    'cancel_reason'::text, cancel_reason, 'progress'::text, progress, 'result'::text, result, 'task'::text, task,
    'queue'::text, queue, 'batch_id'::text, batch_id, 'awaited'::text, awaited, 'written_at'::text, clock_timestamp(),
    'today'::text, (
-- 4 lines of citus/jobs.sql: SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int), 'leaves'::text;

-- ReapingOnCitus.end(): on Citus
-- the whole: f47f9e53
-- 12 lines of citus/jobs.sql: WITH
        COALESCE(ending.error) AS last_error,
        progress::jsonb AS progress
    FROM (
        SELECT id, holder, attempt, token, due_at, started_at, last_seen_at, outcome, verdict,
            NULL::text AS error_class, message, NULL::text AS traceback, error, refund, loss, had_refunds, had_losses,
            lane_key, delay, NULL::text AS progress, NULL::text AS status, task, queue, NULL::bigint AS batch_id,
-- 4 lines of citus/jobs.sql: awaited
            pg_catalog.unnest(:last_seen_at::timestamptz[]), pg_catalog.unnest(:outcome::text[]),
            pg_catalog.unnest(:verdict::text[]), pg_catalog.unnest(:message::text[]), pg_catalog.unnest(:error::text[]),
            pg_catalog.unnest(:refund::int[]), pg_catalog.unnest(:loss::int[]), pg_catalog.unnest(:had_refunds::int[]),
            pg_catalog.unnest(:had_losses::int[]), pg_catalog.unnest(:lane_key::text[]),
            pg_catalog.unnest(:delay::float8[]), pg_catalog.unnest(:task::text[]), pg_catalog.unnest(:queue::text[]),
            pg_catalog.unnest(:awaited::boolean[])) AS given (id, holder, attempt, token, due_at, started_at,
            last_seen_at, outcome, verdict, message, error, refund, loss, had_refunds, had_losses, lane_key, delay,
            task, queue, awaited)) AS ending
-- 23 lines of citus/jobs.sql: WHERE NOT ending.verdict IN ('COMPLETED', 'CANCELLED');

-- ReapingOnCitus.end(): on Citus
-- the whole: ce849824
-- 8 lines of citus/jobs.sql: INSERT INTO pulse_django_attempt (
        SELECT id, holder, attempt, token, due_at, started_at, last_seen_at, outcome, NULL::text AS error_class,
            message, NULL::text AS traceback, written_at
-- 4 lines of citus/jobs.sql: FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:holder::text[])
            pg_catalog.unnest(:message::text[]), pg_catalog.unnest(:written_at::timestamptz[])) AS given (id, holder,
            attempt, token, due_at, started_at, last_seen_at, outcome, message, written_at)) AS ending
    WHERE outcome <> 'SUCCEEDED'
    ON CONFLICT (job_id, number) DO NOTHING;

-- ReapingOnCitus.end()
-- the whole: 1c1ee480
-- 24 lines of citus/jobs.sql: INSERT INTO pulse_django_job_hot (task, queue, priority, tags, lane_key, max_attempts, timeout, lease_ttl
                SELECT id, attempt, verdict, NULL::text AS error_class, message, error, lane_key, task, queue
                FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:attempt::int[]),
                    pg_catalog.unnest(:verdict::text[]), pg_catalog.unnest(:message::text[]),
                    pg_catalog.unnest(:error::text[]), pg_catalog.unnest(:lane_key::text[]),
                    pg_catalog.unnest(:task::text[]), pg_catalog.unnest(:queue::text[])) AS given (id, attempt, verdict,
                    message, error, lane_key, task, queue)) AS ending
-- 9 lines of reap.sql: WHERE verdict = 'DEAD_LETTERED';

-- CancellingOnCitus.request(): on Citus
-- the whole: e83886c4
-- 10 lines of cancel.sql: WITH wanted AS MATERIALIZED (
SELECT pg_catalog.json_strip_nulls(pg_catalog.json_build_object('id'::text, id, 'status'::text, status, 'task'::text,
    task, 'queue'::text, queue, 'attempts'::text, attempts, 'waits'::text, waits, 'reason'::text, reason,
    'written_at'::text, clock_timestamp(), 'today'::text, (
            SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int)))::text
FROM wanted;

-- CancellingOnCitus.request(): on Citus
-- the whole: 65941b98
-- 6 lines of citus/capabilities.sql: INSERT INTO pulse_django_job (id, task, queue, priority, args, kwargs, payload_bytes, parent_id, trace, sensitive
        refunds, losses, progress, progress_at, source_written_at, source_reason, last_error, created_at, started_at,
-- 10 lines of citus/capabilities.sql: tags, search_terms, meta, max_attempts, timeout, lease_ttl, progress_timeout, max_lost_workers
        job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, wanted.status AS source_status,
        wanted.reason AS source_reason, wanted.written_at AS source_written_at, wanted.today AS source_today
    FROM pulse_django_job_hot AS job
    CROSS JOIN (
        SELECT id, status, task, queue, attempts, waits, reason, written_at, today
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:status::text[]),
            pg_catalog.unnest(:task::text[]), pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:attempts::int[]),
            pg_catalog.unnest(:waits::boolean[]), pg_catalog.unnest(:reason::text[]),
            pg_catalog.unnest(:written_at::timestamptz[]), pg_catalog.unnest(:today::int[])) AS given (id, status, task,
            queue, attempts, waits, reason, written_at, today)) AS wanted
    WHERE job.id = ANY (ARRAY[wanted.id]) AND wanted.waits
) AS gone;

-- CancellingOnCitus.request(): on Citus
-- the whole: ace51eb9
-- 10 lines of citus/capabilities.sql: INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
-- 12 lines of citus/jobs.sql: job.expires_at, job.on_dead, job.batch_id, job.node, job.awaited, wanted.status AS source_status
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2;

-- CancellingOnCitus.request(): on Citus
-- the whole: a32061be
DELETE FROM pulse_django_job_hot AS job
    USING (
        SELECT id, task, queue, waits
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:task::text[]),
            pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:waits::boolean[])) AS given (id, task, queue,
            waits)) AS wanted
    WHERE job.id = ANY (ARRAY[wanted.id]) AND wanted.waits
    RETURNING job.id, job.task, job.queue;

-- CancellingOnCitus.request(): on Citus
-- the whole: 0e5a8aa5
WITH
running AS MATERIALIZED (
    SELECT id, status, reason, clock_timestamp() AS now
    FROM (
        SELECT id, status, task, queue, attempts, waits, reason
        FROM ROWS FROM (pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:status::text[]),
            pg_catalog.unnest(:task::text[]), pg_catalog.unnest(:queue::text[]), pg_catalog.unnest(:attempts::int[]),
            pg_catalog.unnest(:waits::boolean[]), pg_catalog.unnest(:reason::text[])) AS given (id, status, task, queue,
            attempts, waits, reason)) AS wanted
    WHERE NOT waits
-- 8 lines of cancel.sql: )
) SELECT id FROM asked;
