-- QueueManager.pause()
INSERT INTO pulse_django_queue AS queue (name, paused_at, paused_until, pause_reason)
VALUES (:name, clock_timestamp(), clock_timestamp() + :paused_until::interval, :pause_reason)
ON CONFLICT (name) DO UPDATE SET
    paused_at = CASE
        WHEN queue.paused_until <= excluded.paused_at THEN excluded.paused_at
        ELSE COALESCE(queue.paused_at, excluded.paused_at)
    END,
    paused_until = excluded.paused_until,
    pause_reason = excluded.pause_reason
WHERE :value::boolean OR :value_2::timestamptz IS NOT DISTINCT FROM
    CASE WHEN queue.paused_until <= excluded.paused_at THEN NULL ELSE queue.paused_at END
RETURNING queue.id;

-- QueueManager.resume()
UPDATE pulse_django_queue
SET paused_at = NULL, paused_until = NULL, pause_reason = ''
WHERE name::text = :name AND paused_at IS NOT NULL AND (:value::boolean OR paused_at = :paused_at::timestamptz)
RETURNING id;

-- QueueManager.resume_ended()
UPDATE pulse_django_queue
SET paused_at = NULL, paused_until = NULL, pause_reason = ''
WHERE paused_at IS NOT NULL AND paused_until <= statement_timestamp()
RETURNING name;
