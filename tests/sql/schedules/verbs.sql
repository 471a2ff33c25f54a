-- clock()
SELECT clock_timestamp();

-- store()
INSERT INTO pulse_django_schedule (name, task, args, kwargs, queue, priority, cron, tz, every, phase, missed, grace,
    overlap, jitter, starts_at, ends_at, next_at, waiting_at, last_at, last_job_id, declared, declared_in, overrides,
    gone_at, paused_at, paused_until, pause_reason, owner, changed_by)
VALUES (:name, :task, :args, :kwargs, :queue, :priority, :cron, :tz, :every, :phase, :missed, :grace, :overlap, :jitter,
    :starts_at, :ends_at, :next_at, :waiting_at, :last_at, :last_job_id, :declared, :declared_in, :overrides, :gone_at,
    :paused_at, :paused_until, :pause_reason, :owner, :changed_by)
RETURNING pulse_django_schedule.id, pulse_django_schedule.args, pulse_django_schedule.kwargs,
    pulse_django_schedule.missed, pulse_django_schedule.overlap, pulse_django_schedule.overrides,
    pulse_django_schedule.pause_reason, pulse_django_schedule.owner, pulse_django_schedule.created_at,
    pulse_django_schedule.changed_at, pulse_django_schedule.changed_by;

-- store()
UPDATE pulse_django_schedule
SET name = :name, task = :task, args = :args, kwargs = :kwargs, queue = :queue, priority = :priority, cron = :cron, tz =
    :tz, every = :every, phase = :phase, missed = :missed, grace = :grace, overlap = :overlap, jitter = :jitter,
    starts_at = :starts_at, ends_at = :ends_at, next_at = :next_at, declared = :declared, declared_in = :declared_in,
    overrides = :overrides, gone_at = :gone_at, owner = :owner, changed_at = :changed_at, changed_by = :changed_by
WHERE pulse_django_schedule.id = :id;

-- change()
SELECT pulse_django_schedule.id, pulse_django_schedule.name, pulse_django_schedule.task, pulse_django_schedule.args,
    pulse_django_schedule.kwargs, pulse_django_schedule.queue, pulse_django_schedule.priority,
    pulse_django_schedule.cron, pulse_django_schedule.tz, pulse_django_schedule.every, pulse_django_schedule.phase,
    pulse_django_schedule.missed, pulse_django_schedule.grace, pulse_django_schedule.overlap,
    pulse_django_schedule.jitter, pulse_django_schedule.starts_at, pulse_django_schedule.ends_at,
    pulse_django_schedule.next_at, pulse_django_schedule.waiting_at, pulse_django_schedule.last_at,
    pulse_django_schedule.last_job_id, pulse_django_schedule.declared, pulse_django_schedule.declared_in,
    pulse_django_schedule.overrides, pulse_django_schedule.gone_at, pulse_django_schedule.paused_at,
    pulse_django_schedule.paused_until, pulse_django_schedule.pause_reason, pulse_django_schedule.owner,
    pulse_django_schedule.created_at, pulse_django_schedule.changed_at, pulse_django_schedule.changed_by
FROM pulse_django_schedule
WHERE pulse_django_schedule.id = :id
LIMIT 21
FOR NO KEY UPDATE;

-- change()
UPDATE pulse_django_schedule
SET task = :task, args = :args, kwargs = :kwargs, queue = :queue, priority = :priority, cron = :cron, tz = :tz, every =
    :every, phase = :phase, missed = :missed, grace = :grace, overlap = :overlap, jitter = :jitter, starts_at =
    :starts_at, ends_at = :ends_at, next_at = :next_at, declared = :declared, declared_in = :declared_in, overrides =
    :overrides, gone_at = :gone_at, changed_at = :changed_at, changed_by = :changed_by
WHERE pulse_django_schedule.id = :id;

-- pause()
WITH found AS MATERIALIZED (
    SELECT id, paused_at, paused_until
    FROM pulse_django_schedule
    WHERE id = ANY (:id::bigint[]) AND gone_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
),
paused AS MATERIALIZED (
    SELECT
        id, clock_timestamp() AS now,
        CASE
            WHEN paused_at IS NULL OR paused_until <= statement_timestamp() THEN clock_timestamp() ELSE paused_at
        END AS since,
        clock_timestamp() + :until::float8 * interval '1 second' AS until
    FROM found
),
written AS (
    UPDATE pulse_django_schedule AS schedule
    SET paused_at = paused.since, paused_until = paused.until, pause_reason = :pause_reason, changed_by = :changed_by,
        changed_at = paused.now
    FROM paused
    WHERE schedule.id = paused.id AND schedule.gone_at IS NULL
    RETURNING schedule.id
)
SELECT id FROM written;

-- resume()
WITH found AS MATERIALIZED (
    SELECT id
    FROM pulse_django_schedule
    WHERE id = ANY (:id::bigint[]) AND paused_at IS NOT NULL
        AND (paused_until IS NULL OR paused_until > statement_timestamp())
    ORDER BY id
    FOR NO KEY UPDATE
),
resumed AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM found
),
written AS (
    UPDATE pulse_django_schedule AS schedule
    SET paused_until = resumed.now, changed_by = :changed_by, changed_at = resumed.now
    FROM resumed
    WHERE schedule.id = resumed.id AND schedule.paused_at IS NOT NULL
    RETURNING schedule.id
)
SELECT id FROM written;

-- declare()
SELECT COUNT(*) AS __count FROM pulse_django_schedule WHERE pulse_django_schedule.name::text IN (:name);

-- declare()
SELECT pulse_django_schedule.id, pulse_django_schedule.name, pulse_django_schedule.task, pulse_django_schedule.args,
    pulse_django_schedule.kwargs, pulse_django_schedule.queue, pulse_django_schedule.priority,
    pulse_django_schedule.cron, pulse_django_schedule.tz, pulse_django_schedule.every, pulse_django_schedule.phase,
    pulse_django_schedule.missed, pulse_django_schedule.grace, pulse_django_schedule.overlap,
    pulse_django_schedule.jitter, pulse_django_schedule.starts_at, pulse_django_schedule.ends_at,
    pulse_django_schedule.next_at, pulse_django_schedule.waiting_at, pulse_django_schedule.last_at,
    pulse_django_schedule.last_job_id, pulse_django_schedule.declared, pulse_django_schedule.declared_in,
    pulse_django_schedule.overrides, pulse_django_schedule.gone_at, pulse_django_schedule.paused_at,
    pulse_django_schedule.paused_until, pulse_django_schedule.pause_reason, pulse_django_schedule.owner,
    pulse_django_schedule.created_at, pulse_django_schedule.changed_at, pulse_django_schedule.changed_by
FROM pulse_django_schedule
WHERE (pulse_django_schedule.declared_in::text = :declared_in OR pulse_django_schedule.name::text IN (:name))
ORDER BY pulse_django_schedule.id ASC
FOR NO KEY UPDATE;

-- declare()
INSERT INTO pulse_django_schedule (name, task, args, kwargs, queue, priority, cron, tz, every, phase, missed, grace,
    overlap, jitter, starts_at, ends_at, next_at, waiting_at, last_at, last_job_id, declared, declared_in, overrides,
    gone_at, paused_at, paused_until, pause_reason, owner, changed_at, changed_by)
VALUES (:name, :task, :args, :kwargs, :queue, :priority, :cron, :tz, :every, :phase, :missed, :grace, :overlap, :jitter,
    :starts_at, :ends_at, :next_at, :waiting_at, :last_at, :last_job_id, :declared, :declared_in, :overrides, :gone_at,
    :paused_at, :paused_until, :pause_reason, :owner, :changed_at, :changed_by)
RETURNING pulse_django_schedule.id, pulse_django_schedule.args, pulse_django_schedule.kwargs,
    pulse_django_schedule.missed, pulse_django_schedule.overlap, pulse_django_schedule.overrides,
    pulse_django_schedule.pause_reason, pulse_django_schedule.owner, pulse_django_schedule.created_at,
    pulse_django_schedule.changed_at, pulse_django_schedule.changed_by;

-- declare()
UPDATE pulse_django_schedule
SET next_at = :next_at, waiting_at = :waiting_at, gone_at = :gone_at
WHERE pulse_django_schedule.id = :id;

-- declare()
SELECT pulse_django_schedule.id, pulse_django_schedule.name, pulse_django_schedule.task, pulse_django_schedule.args,
    pulse_django_schedule.kwargs, pulse_django_schedule.queue, pulse_django_schedule.priority,
    pulse_django_schedule.cron, pulse_django_schedule.tz, pulse_django_schedule.every, pulse_django_schedule.phase,
    pulse_django_schedule.missed, pulse_django_schedule.grace, pulse_django_schedule.overlap,
    pulse_django_schedule.jitter, pulse_django_schedule.starts_at, pulse_django_schedule.ends_at,
    pulse_django_schedule.next_at, pulse_django_schedule.waiting_at, pulse_django_schedule.last_at,
    pulse_django_schedule.last_job_id, pulse_django_schedule.declared, pulse_django_schedule.declared_in,
    pulse_django_schedule.overrides, pulse_django_schedule.gone_at, pulse_django_schedule.paused_at,
    pulse_django_schedule.paused_until, pulse_django_schedule.pause_reason, pulse_django_schedule.owner,
    pulse_django_schedule.created_at, pulse_django_schedule.changed_at, pulse_django_schedule.changed_by
FROM pulse_django_schedule
WHERE pulse_django_schedule.declared_in::text = :declared_in
ORDER BY pulse_django_schedule.id ASC
FOR NO KEY UPDATE;
