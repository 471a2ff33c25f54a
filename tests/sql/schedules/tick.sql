-- look()
SELECT
    (
        SELECT EXTRACT(epoch FROM next_at - clock_timestamp())::float8
        FROM pulse_django_schedule WHERE next_at IS NOT NULL AND id <> ALL (:without::bigint[])
        ORDER BY next_at LIMIT 1
    ),
    EXISTS (
        SELECT 1 FROM pulse_django_schedule AS schedule
        WHERE waiting_at IS NOT NULL AND id <> ALL (:without::bigint[]) AND NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = schedule.last_job_id AND job.finished_at IS NULL
        )
    );

-- lock_due()
SELECT schedule.id, schedule.name, COALESCE(EXTRACT(epoch
        FROM statement_timestamp() - schedule.next_at), 0)::float8, clock_timestamp()
FROM pulse_django_schedule AS schedule
WHERE schedule.gone_at IS NULL
    AND (
        schedule.next_at <= COALESCE(:until::timestamptz, statement_timestamp())
        OR schedule.waiting_at IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = schedule.last_job_id AND job.finished_at IS NULL
        )
    )
    AND (
        schedule.task::text = ANY (:known::text[])
        OR NOT EXISTS (
            SELECT 1 FROM pulse_django_worker AS worker
            WHERE worker.stopped_at IS NULL AND worker.last_beat_at > statement_timestamp() - :silence::interval
                AND (worker.tasks IS NULL OR pg_catalog.jsonb_exists(worker.tasks, schedule.task::text))
        )
    )
    AND NOT ((
        schedule.id = ANY (:troubled::bigint[])
        OR schedule.task::text = ANY (:tasks::text[])
        OR schedule.queue::text = ANY (:queues::text[])
        OR schedule.overlap::text = 'cancel' AND schedule.last_job_id IS NOT NULL
        OR pg_catalog.pg_column_size(schedule.args) + pg_catalog.pg_column_size(schedule.kwargs) > :large
    ) IS TRUE)
    AND schedule.id <> ALL (:without::bigint[])
    AND (
        schedule.next_at <= COALESCE(:until::timestamptz, statement_timestamp()) - :in_time::interval
    ) IS TRUE = :is_late
ORDER BY schedule.next_at ASC, schedule.id
LIMIT :limit
FOR NO KEY UPDATE OF schedule SKIP LOCKED;

-- lock_due()
SELECT schedule.id, schedule.name, COALESCE(EXTRACT(epoch
        FROM statement_timestamp() - schedule.next_at), 0)::float8, clock_timestamp()
FROM pulse_django_schedule AS schedule
WHERE schedule.gone_at IS NULL
    AND (
        schedule.next_at <= COALESCE(:until::timestamptz, statement_timestamp())
        OR schedule.waiting_at IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = schedule.last_job_id AND job.finished_at IS NULL
        )
    )
    AND (
        schedule.task::text = ANY (:known::text[])
        OR NOT EXISTS (
            SELECT 1 FROM pulse_django_worker AS worker
            WHERE worker.stopped_at IS NULL AND worker.last_beat_at > statement_timestamp() - :silence::interval
                AND (worker.tasks IS NULL OR pg_catalog.jsonb_exists(worker.tasks, schedule.task::text))
        )
    )
    AND NOT ((
        schedule.id = ANY (:troubled::bigint[])
        OR schedule.task::text = ANY (:tasks::text[])
        OR schedule.queue::text = ANY (:queues::text[])
        OR schedule.overlap::text = 'cancel' AND schedule.last_job_id IS NOT NULL
        OR pg_catalog.pg_column_size(schedule.args) + pg_catalog.pg_column_size(schedule.kwargs) > :large
    ) IS TRUE)
    AND schedule.id <> ALL (:without::bigint[])
    AND (
        schedule.next_at <= COALESCE(:until::timestamptz, statement_timestamp()) - :in_time::interval
    ) IS TRUE = :is_late
ORDER BY schedule.next_at DESC, schedule.id
LIMIT :limit
FOR NO KEY UPDATE OF schedule SKIP LOCKED;

-- read_locked()
SELECT pulse_django_schedule.id, pulse_django_schedule.name, pulse_django_schedule.task, pulse_django_schedule.args,
    pulse_django_schedule.kwargs, pulse_django_schedule.queue, pulse_django_schedule.priority,
    pulse_django_schedule.cron, pulse_django_schedule.tz, pulse_django_schedule.every, pulse_django_schedule.phase,
    pulse_django_schedule.missed, pulse_django_schedule.grace, pulse_django_schedule.overlap,
    pulse_django_schedule.jitter, pulse_django_schedule.starts_at, pulse_django_schedule.ends_at,
    pulse_django_schedule.next_at, pulse_django_schedule.waiting_at, pulse_django_schedule.last_at,
    pulse_django_schedule.last_job_id, pulse_django_schedule.declared_in, pulse_django_schedule.gone_at,
    pulse_django_schedule.paused_at, pulse_django_schedule.paused_until, pulse_django_schedule.pause_reason,
    pulse_django_schedule.owner, pulse_django_schedule.created_at, pulse_django_schedule.changed_at,
    pulse_django_schedule.changed_by
FROM pulse_django_schedule
WHERE pulse_django_schedule.id IN (:id);

-- due_alone()
SELECT schedule.id, schedule.name, COALESCE(EXTRACT(epoch
        FROM statement_timestamp() - schedule.next_at), 0)::float8, clock_timestamp()
FROM pulse_django_schedule AS schedule
WHERE schedule.gone_at IS NULL
    AND (
        schedule.next_at <= COALESCE(:until::timestamptz, statement_timestamp())
        OR schedule.waiting_at IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = schedule.last_job_id AND job.finished_at IS NULL
        )
    )
    AND (
        schedule.task::text = ANY (:known::text[])
        OR NOT EXISTS (
            SELECT 1 FROM pulse_django_worker AS worker
            WHERE worker.stopped_at IS NULL AND worker.last_beat_at > statement_timestamp() - :silence::interval
                AND (worker.tasks IS NULL OR pg_catalog.jsonb_exists(worker.tasks, schedule.task::text))
        )
    )
    AND (
        schedule.id = ANY (:troubled::bigint[])
        OR schedule.task::text = ANY (:tasks::text[])
        OR schedule.queue::text = ANY (:queues::text[])
        OR schedule.overlap::text = 'cancel' AND schedule.last_job_id IS NOT NULL
        OR pg_catalog.pg_column_size(schedule.args) + pg_catalog.pg_column_size(schedule.kwargs) > :large
    ) IS TRUE
    AND schedule.id <> ALL (:without::bigint[])
ORDER BY schedule.next_at DESC, schedule.id
LIMIT :limit;

-- read_due()
SELECT clock_timestamp(), EXISTS (
    SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = schedule.last_job_id AND job.finished_at IS NULL
)
FROM pulse_django_schedule AS schedule
WHERE schedule.gone_at IS NULL
    AND (
        schedule.next_at <= COALESCE(:until::timestamptz, statement_timestamp())
        OR schedule.waiting_at IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = schedule.last_job_id AND job.finished_at IS NULL
        )
    )
    AND (
        schedule.task::text = ANY (:known::text[])
        OR NOT EXISTS (
            SELECT 1 FROM pulse_django_worker AS worker
            WHERE worker.stopped_at IS NULL AND worker.last_beat_at > statement_timestamp() - :silence::interval
                AND (worker.tasks IS NULL OR pg_catalog.jsonb_exists(worker.tasks, schedule.task::text))
        )
    )
    AND schedule.id = :id;

-- read_due()
SELECT pulse_django_schedule.id, pulse_django_schedule.name, pulse_django_schedule.task, pulse_django_schedule.args,
    pulse_django_schedule.kwargs, pulse_django_schedule.queue, pulse_django_schedule.priority,
    pulse_django_schedule.cron, pulse_django_schedule.tz, pulse_django_schedule.every, pulse_django_schedule.phase,
    pulse_django_schedule.missed, pulse_django_schedule.grace, pulse_django_schedule.overlap,
    pulse_django_schedule.jitter, pulse_django_schedule.starts_at, pulse_django_schedule.ends_at,
    pulse_django_schedule.next_at, pulse_django_schedule.waiting_at, pulse_django_schedule.last_at,
    pulse_django_schedule.last_job_id, pulse_django_schedule.declared_in, pulse_django_schedule.gone_at,
    pulse_django_schedule.paused_at, pulse_django_schedule.paused_until, pulse_django_schedule.pause_reason,
    pulse_django_schedule.owner, pulse_django_schedule.created_at, pulse_django_schedule.changed_at,
    pulse_django_schedule.changed_by
FROM pulse_django_schedule
WHERE pulse_django_schedule.id = :id;

-- is_unchanged()
SELECT pg_catalog.set_config('lock_timeout', :value, true);

-- is_unchanged()
SELECT pulse_django_schedule.id AS id, pulse_django_schedule.name AS name, pulse_django_schedule.task AS task,
    pulse_django_schedule.queue AS queue, pulse_django_schedule.priority AS priority,
    pulse_django_schedule.cron AS cron, pulse_django_schedule.tz AS tz, pulse_django_schedule.every AS every,
    pulse_django_schedule.phase AS phase, pulse_django_schedule.missed AS missed, pulse_django_schedule.grace AS grace,
    pulse_django_schedule.overlap AS overlap, pulse_django_schedule.jitter AS jitter,
    pulse_django_schedule.starts_at AS starts_at, pulse_django_schedule.ends_at AS ends_at,
    pulse_django_schedule.next_at AS next_at, pulse_django_schedule.waiting_at AS waiting_at,
    pulse_django_schedule.last_at AS last_at, pulse_django_schedule.last_job_id AS last_job_id,
    pulse_django_schedule.declared_in AS declared_in, pulse_django_schedule.gone_at AS gone_at,
    pulse_django_schedule.paused_at AS paused_at, pulse_django_schedule.paused_until AS paused_until,
    pulse_django_schedule.pause_reason AS pause_reason, pulse_django_schedule.owner AS owner,
    pulse_django_schedule.created_at AS created_at, pulse_django_schedule.changed_at AS changed_at,
    pulse_django_schedule.changed_by AS changed_by
FROM pulse_django_schedule
WHERE pulse_django_schedule.id = :id
ORDER BY pulse_django_schedule.id ASC
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED;

-- unfinished()
SELECT id FROM pulse_django_job_hot WHERE id = ANY (:id::bigint[]) AND finished_at IS NULL;

-- advance()
WITH given AS (
    SELECT * FROM ROWS FROM (
        pg_catalog.unnest(:schedule_id::bigint[]), pg_catalog.unnest(:at::timestamptz[]),
            pg_catalog.unnest(:outcome::text[]),
        pg_catalog.unnest(:note::text[]), pg_catalog.unnest(:job_id::bigint[]), pg_catalog.unnest(:task::text[]),
        pg_catalog.unnest(:key::text[])
    ) AS given (schedule_id, at, outcome, note, job_id, task, key)
),
tick AS (
INSERT INTO pulse_django_tick AS tick (schedule_id, at, outcome, note, job_id)
SELECT schedule_id, at, outcome, note, job_id FROM given
ON CONFLICT (schedule_id, at) DO UPDATE
    SET outcome = excluded.outcome, note = excluded.note, job_id = excluded.job_id, decided_at = excluded.decided_at
    WHERE tick.outcome::text = 'WAITING' AND excluded.outcome::text <> 'WAITING'
RETURNING schedule_id, at
)
INSERT INTO pulse_django_key (task, key, job_id)
SELECT given.task, given.key, given.job_id
FROM given
JOIN tick ON tick.schedule_id = given.schedule_id AND tick.at = given.at
WHERE given.key IS NOT NULL
ON CONFLICT (task, key) DO NOTHING
RETURNING job_id;

-- advance()
WITH given AS (
    SELECT * FROM ROWS FROM (
        pg_catalog.unnest(:id::bigint[]), pg_catalog.unnest(:next_at::timestamptz[]),
            pg_catalog.unnest(:waiting_at::timestamptz[]),
        pg_catalog.unnest(:last_at::timestamptz[]), pg_catalog.unnest(:last_job_id::bigint[]),
            pg_catalog.unnest(:resumed::bool[])
    ) AS given (id, next_at, waiting_at, last_at, last_job_id, resumed)
)
UPDATE pulse_django_schedule AS schedule
SET next_at = given.next_at,
    waiting_at = given.waiting_at,
    last_at = COALESCE(given.last_at, schedule.last_at),
    last_job_id = COALESCE(given.last_job_id, schedule.last_job_id),
    paused_at = CASE WHEN NOT given.resumed THEN schedule.paused_at END,
    paused_until = CASE WHEN NOT given.resumed THEN schedule.paused_until END,
    pause_reason = CASE WHEN given.resumed THEN '' ELSE schedule.pause_reason END
FROM given
WHERE schedule.id = given.id
RETURNING schedule.id;

-- advance()
UPDATE pulse_django_tick AS tick
SET job_id = key.job_id
FROM ROWS FROM (
    pg_catalog.unnest(:schedule_id::bigint[]), pg_catalog.unnest(:at::timestamptz[]), pg_catalog.unnest(:task::text[]),
    pg_catalog.unnest(:key::text[])
) AS given (schedule_id, at, task, key)
JOIN pulse_django_key AS key ON key.task::text = given.task AND key.key::text = given.key
WHERE tick.schedule_id = given.schedule_id AND tick.at = given.at
RETURNING tick.job_id;

-- write_ticks()
WITH given AS (
    SELECT * FROM ROWS FROM (
        pg_catalog.unnest(:schedule_id::bigint[]), pg_catalog.unnest(:at::timestamptz[]),
            pg_catalog.unnest(:outcome::text[]),
        pg_catalog.unnest(:note::text[]), pg_catalog.unnest(:job_id::bigint[]), pg_catalog.unnest(:task::text[]),
        pg_catalog.unnest(:key::text[])
    ) AS given (schedule_id, at, outcome, note, job_id, task, key)
)
INSERT INTO pulse_django_tick AS tick (schedule_id, at, outcome, note, job_id)
SELECT schedule_id, at, outcome, note, job_id FROM given
ON CONFLICT (schedule_id, at) DO UPDATE
    SET outcome = excluded.outcome, note = excluded.note, job_id = excluded.job_id, decided_at = excluded.decided_at
    WHERE tick.outcome::text = 'WAITING' AND excluded.outcome::text <> 'WAITING'
RETURNING schedule_id, at;

-- forget_ticks()
WITH old AS (
    SELECT tick.schedule_id, tick.at
    FROM (
        SELECT id FROM pulse_django_schedule
    ) AS schedule
    CROSS JOIN LATERAL (
        SELECT schedule_id, at FROM pulse_django_tick
        WHERE schedule_id = schedule.id AND at < statement_timestamp() - :age::interval
        ORDER BY at LIMIT :limit
    ) AS tick
    LIMIT :limit_2
)
DELETE FROM pulse_django_tick AS tick USING old
WHERE tick.schedule_id = old.schedule_id AND tick.at = old.at
RETURNING tick.schedule_id;
