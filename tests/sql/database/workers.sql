-- WorkerManager.note()
WITH noted AS (
    INSERT INTO pulse_django_worker AS worker
        (name, boot_id, host, pid, versions, queues, slots, in_flight, stuck_slots, tasks, vitals)
    SELECT name, boot_id, host, pid, versions, queues, slots, in_flight, stuck_slots, tasks, vitals
    FROM pg_catalog.json_to_record(:said::json) AS said (
        name text, boot_id text, host text, pid int, versions jsonb, queues jsonb, slots int, in_flight int,
        stuck_slots int, tasks jsonb, vitals jsonb
    )
    ON CONFLICT (name, boot_id) DO UPDATE SET
        slots = excluded.slots,
        in_flight = excluded.in_flight,
        stuck_slots = excluded.stuck_slots,
        tasks = CASE WHEN worker.tasks = excluded.tasks THEN worker.tasks ELSE excluded.tasks END,
        vitals = excluded.vitals,
        last_beat_at = excluded.last_beat_at,
        stopped_at = NULL,
        lost_at = NULL,
        acknowledged_at = NULL,
        acknowledged_by = ''
    RETURNING worker.id, worker.queues, worker.stack_wanted, worker.stack_asked_at
)
SELECT pg_catalog.count(other.id) FILTER (
    WHERE other.id < noted.id), pg_catalog.count(other.id) + 1, CASE WHEN noted.stack_asked_at > statement_timestamp() -
        interval '120 s' THEN noted.stack_wanted END
FROM noted
LEFT JOIN pulse_django_worker AS other ON other.queues = noted.queues
    AND other.id <> noted.id
    AND other.stopped_at IS NULL
    AND other.last_beat_at > statement_timestamp() - :age::interval
GROUP BY noted.id, noted.stack_wanted, noted.stack_asked_at;

-- WorkerManager.farewell()
WITH leaving AS MATERIALIZED (
    SELECT id FROM pulse_django_worker WHERE name::text = :name AND boot_id::text = :boot_id FOR NO KEY UPDATE
),
gone AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM leaving
),
written AS (
    UPDATE pulse_django_worker AS worker
    SET in_flight = 0, stopped_at = gone.now, last_beat_at = gone.now,
        lost_at = NULL, acknowledged_at = NULL, acknowledged_by = ''
    FROM gone
    WHERE worker.id = gone.id
    RETURNING worker.id
)
SELECT id FROM written;

-- WorkerManager.mark_lost()
WITH candidate AS MATERIALIZED (
    SELECT id, name, host, pid, last_beat_at, stopped_at IS NULL AS is_new
    FROM pulse_django_worker
    WHERE (stopped_at IS NULL
            AND last_beat_at < statement_timestamp() - :age::interval) OR (stopped_at IS NOT NULL
            AND lost_at IS NOT NULL
            AND acknowledged_at IS NULL)
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
),
found AS MATERIALIZED (
    SELECT
        id,
        is_new,
        CASE WHEN is_new THEN statement_timestamp() END AS lost_at,
        CASE WHEN EXISTS (
            SELECT 1 FROM pulse_django_worker AS other
            WHERE other.id <> candidate.id AND other.started_at > candidate.last_beat_at
                AND (CASE
                WHEN other.name::text = pg_catalog.concat(other.host, '-', other.pid) THEN other.host ELSE other.name
            END)::text = (CASE
                WHEN candidate.name::text = pg_catalog.concat(candidate.host, '-', candidate.pid) THEN candidate.host
                    ELSE candidate.name
            END)::text
        ) THEN statement_timestamp() END AS back_at
    FROM candidate
)
UPDATE pulse_django_worker AS worker
SET stopped_at = worker.last_beat_at,
    lost_at = COALESCE(found.lost_at, worker.lost_at),
    acknowledged_at = found.back_at,
    acknowledged_by = ''
FROM found
WHERE worker.id = found.id AND (found.is_new OR found.back_at IS NOT NULL)
RETURNING worker.name, worker.boot_id, found.is_new;

-- WorkerManager.ask_stack()
WITH live AS MATERIALIZED (
    SELECT id FROM pulse_django_worker
    WHERE name::text = :name AND boot_id::text = :boot_id AND stopped_at IS NULL
    FOR NO KEY UPDATE
),
asked AS MATERIALIZED (
    SELECT id, statement_timestamp() AS now FROM live
)
UPDATE pulse_django_worker AS worker
SET stack_wanted = :stack_wanted, stack_asked_at = asked.now
FROM asked
WHERE worker.id = asked.id
RETURNING worker.id;

-- WorkerManager.answer_stack()
WITH mine AS MATERIALIZED (
    SELECT id FROM pulse_django_worker WHERE name::text = :name AND boot_id::text = :boot_id FOR NO KEY UPDATE
),
taken AS MATERIALIZED (
    SELECT id, statement_timestamp() AS now FROM mine
)
UPDATE pulse_django_worker AS worker
SET stack_wanted = NULL, stack_of = :stack_of, stack = :stack, stack_at = taken.now
FROM taken
WHERE worker.id = taken.id
RETURNING worker.id;

-- WorkerManager.acknowledge()
WITH lost AS MATERIALIZED (
    SELECT id FROM pulse_django_worker
    WHERE name::text = :name
        AND boot_id::text = :boot_id
        AND stopped_at IS NOT NULL
        AND lost_at IS NOT NULL
        AND acknowledged_at IS NULL
    FOR NO KEY UPDATE
),
known AS MATERIALIZED (
    SELECT id, statement_timestamp() AS now FROM lost
)
UPDATE pulse_django_worker AS worker
SET acknowledged_at = known.now, acknowledged_by = :acknowledged_by
FROM known
WHERE worker.id = known.id
RETURNING worker.id;

-- WorkerManager.forget()
UPDATE pulse_django_worker
SET stack = '', stack_of = NULL, stack_at = NULL
WHERE stack_at < statement_timestamp() - interval '600 s'
RETURNING id;

-- WorkerManager.forget()
DELETE FROM pulse_django_worker
WHERE (stopped_at < statement_timestamp() - :age::interval
        AND NOT (stopped_at IS NOT NULL
            AND lost_at IS NOT NULL
            AND acknowledged_at IS NULL))
    OR stopped_at < statement_timestamp() - :age_2::interval
RETURNING id;
