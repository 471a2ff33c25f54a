-- MinuteManager.unwritten()
SELECT begin
FROM pg_catalog.generate_series(
    pg_catalog.date_trunc('minute', statement_timestamp() - interval '65 s') - :over::float8 * interval '1 min',
    pg_catalog.date_trunc('minute', statement_timestamp() - interval '65 s'),
    interval '1 min'
) AS over (begin)
WHERE begin > (
    SELECT COALESCE(pg_catalog.max(minute), '-infinity') FROM pulse_django_minute WHERE minute <= statement_timestamp()
)
ORDER BY begin;

-- MinuteManager.write()
SELECT totals::text, workers::text
FROM pulse_django_minute
WHERE totals IS NOT NULL AND minute <> :minute
ORDER BY minute DESC
LIMIT 1;

-- MinuteManager.write()
SELECT task, queue, count(*)
FROM pulse_django_job
WHERE id >= :first_job AND id < :last_job AND created_at >= :begin AND created_at < :end
GROUP BY task, queue;

-- MinuteManager.write()
SELECT task, queue, count(*)
FROM (
    SELECT task, queue FROM pulse_django_job_hot
    WHERE status::text = 'RUNNING' AND started_at >= :begin AND started_at < :end
    UNION ALL
    SELECT task, queue FROM pulse_django_job
    WHERE status::text = 'COMPLETED' AND finished_at >= :begin AND finished_at < :soon
        AND started_at >= :begin AND started_at < :end AND completed_by IS NOT NULL
    UNION ALL
    SELECT job.task, job.queue
    FROM pulse_django_attempt AS attempt
    JOIN pulse_django_job AS job ON job.id = attempt.job_id
    WHERE attempt.id >= :first_attempt AND attempt.finished_at >= :begin AND attempt.finished_at < :soon
        AND attempt.started_at >= :begin AND attempt.started_at < :end
) AS begun
GROUP BY task, queue;

-- MinuteManager.write()
SELECT '', queue, 'COMPLETED', count(*), 0 FROM pulse_django_job
WHERE status::text = 'COMPLETED' AND finished_at >= :begin AND finished_at < :end GROUP BY queue
UNION ALL
SELECT task, queue, 'DEAD_LETTERED', count(*), 0 FROM pulse_django_job_hot
WHERE status::text = 'DEAD_LETTERED' AND finished_at >= :begin AND finished_at < :end GROUP BY task, queue
UNION ALL
SELECT
    '', queue, 'CANCELLED', count(*),
    count(*) FILTER (WHERE expires_at IS NOT NULL AND attempts = 0 AND cancel_requested_at IS NULL)
FROM pulse_django_job
WHERE status::text = 'CANCELLED' AND finished_at >= :begin AND finished_at < :end GROUP BY queue;

-- MinuteManager.write()
WITH ended AS MATERIALIZED (
    SELECT
        COALESCE(job.task, '') AS task, COALESCE(job.queue, '') AS queue, attempt.outcome, attempt.number,
        EXTRACT(epoch FROM attempt.finished_at - attempt.started_at)::float8 AS ran,
        EXTRACT(epoch FROM attempt.started_at - attempt.due_at)::float8 AS waited,
        EXTRACT(epoch FROM attempt.started_at - job.created_at)::float8 AS begun_after,
        EXTRACT(epoch FROM attempt.finished_at - attempt.last_seen_at)::float8 AS recovered,
        job.status::text = 'DEAD_LETTERED' AND job.attempts = attempt.number AS is_dead
    FROM pulse_django_attempt AS attempt
    LEFT JOIN pulse_django_job AS job ON job.id = attempt.job_id
    WHERE attempt.id >= :first_attempt AND attempt.id < :last_attempt
        AND attempt.finished_at >= :begin AND attempt.finished_at < :end
    UNION ALL
    SELECT
        task, queue, 'SUCCEEDED', attempts, EXTRACT(epoch FROM finished_at - started_at)::float8,
        EXTRACT(epoch FROM started_at - next_run_at)::float8, EXTRACT(epoch FROM started_at - created_at)::float8,
        NULL::float8, false
    FROM pulse_django_job
    WHERE status::text = 'COMPLETED' AND finished_at >= :begin AND finished_at < :end
        AND completed_by IS NOT NULL
)
SELECT
    '', task, queue, outcome, NULL::int, count(*), NULL::float8,
    count(*) FILTER (WHERE outcome::text = 'WORKER_LOST' AND NOT COALESCE(is_dead, false)),
    count(*) FILTER (WHERE outcome::text = 'WORKER_LOST' AND recovered IS NOT NULL)
FROM ended
GROUP BY task, queue, outcome
UNION ALL
SELECT 'run_seconds', task, queue, '', pg_catalog.ceil(
    pg_catalog.ln(GREATEST(ran, 0.001) / 0.001::float8) / pg_catalog.ln(2.0::float8)
    * 2::float8 - 1e-9::float8
)::int, count(*), pg_catalog.sum(ran), 0, 0
FROM ended
WHERE true
GROUP BY 2, 3, 5
UNION ALL
SELECT 'lease_acquisition_seconds', task, queue, '', pg_catalog.ceil(
    pg_catalog.ln(GREATEST(waited, 0.001) / 0.001::float8) / pg_catalog.ln(2.0::float8)
    * 2::float8 - 1e-9::float8
)::int, count(*), pg_catalog.sum(waited), 0, 0
FROM ended
WHERE waited IS NOT NULL
GROUP BY 2, 3, 5
UNION ALL
SELECT 'enqueue_to_start_seconds', '', queue, '', pg_catalog.ceil(
    pg_catalog.ln(GREATEST(begun_after, 0.001) / 0.001::float8) / pg_catalog.ln(2.0::float8)
    * 2::float8 - 1e-9::float8
)::int, count(*), pg_catalog.sum(begun_after), 0, 0
FROM ended
WHERE number = 1 AND begun_after IS NOT NULL
GROUP BY 2, 3, 5
UNION ALL
SELECT 'death_to_requeue_seconds', '', '', '', pg_catalog.ceil(
    pg_catalog.ln(GREATEST(recovered, 0.001) / 0.001::float8) / pg_catalog.ln(2.0::float8)
    * 2::float8 - 1e-9::float8
)::int, count(*), pg_catalog.sum(recovered), 0, 0
FROM ended
WHERE recovered IS NOT NULL
GROUP BY 2, 3, 5
UNION ALL
SELECT 'batch_seconds', kind, '', '', pg_catalog.ceil(
    pg_catalog.ln(GREATEST(took, 0.001) / 0.001::float8) / pg_catalog.ln(2.0::float8)
    * 2::float8 - 1e-9::float8
)::int, count(*), pg_catalog.sum(took), 0, 0
FROM (
    SELECT kind, EXTRACT(epoch FROM finished_at - created_at)::float8 AS took
    FROM pulse_django_batch
    WHERE finished_at IS NOT NULL AND finished_at >= :begin AND finished_at < :end
        AND cancelled_at IS NULL AND parent_id IS NULL
) AS batch
WHERE true
GROUP BY 2, 3, 5;

-- MinuteManager.write()
SELECT late_outcome, count(*) FROM pulse_django_attempt
WHERE late_at >= :begin AND late_at < :end AND NOT (outcome::text = 'SUCCEEDED' AND late_outcome::text = 'FAILED')
GROUP BY late_outcome;

-- MinuteManager.write()
SELECT pg_catalog.concat(name, ':', boot_id), (vitals - 'processes'::text - 'stuck'::text)::text
FROM pulse_django_worker
ORDER BY id;

-- MinuteManager.write()
INSERT INTO pulse_django_minute (minute, signs, totals, workers)
VALUES (:minute, :signs::jsonb, :totals::jsonb, :workers::jsonb)
ON CONFLICT (minute) DO NOTHING
RETURNING minute;

-- MinuteManager.write()
WITH earlier AS MATERIALIZED (
    SELECT minute, signs - 'queues'::text AS signs
    FROM pulse_django_minute
    WHERE minute <> :minute AND totals IS NOT NULL
    ORDER BY minute
    FOR NO KEY UPDATE
)
UPDATE pulse_django_minute AS minute
SET totals = NULL, workers = NULL, signs = earlier.signs
FROM earlier
WHERE minute.minute = earlier.minute AND minute.totals IS NOT NULL
RETURNING minute.minute;

-- MinuteManager.note()
UPDATE pulse_django_minute SET signs = signs || :value::jsonb WHERE minute = :minute RETURNING minute;

-- MinuteManager.forget()
DELETE FROM pulse_django_minute
WHERE minute < statement_timestamp() - :age::interval OR (minute > statement_timestamp() AND totals IS NULL)
RETURNING minute;
