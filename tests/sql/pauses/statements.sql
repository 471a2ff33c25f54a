-- PauseManager.pause()
INSERT INTO pulse_django_pause AS pause (task, queue, lane_key, paused_until, reason, paused_by)
SELECT
    task, :queue, :lane_key, clock_timestamp() + :seconds::float8 * interval '1 second', :reason, :by
FROM pg_catalog.unnest(:tasks::text[]) AS wanted (task)
ON CONFLICT (lane_key, task, queue) DO UPDATE SET
    paused_at = CASE WHEN pause.paused_until <= excluded.paused_at THEN excluded.paused_at ELSE pause.paused_at END,
    paused_until = excluded.paused_until, reason = excluded.reason, paused_by = excluded.paused_by
WHERE pause.paused_until IS NOT NULL
    AND (excluded.paused_until IS NULL OR pause.paused_until < excluded.paused_until)
    AND (NOT :anew::boolean OR pause.paused_until <= excluded.paused_at)
RETURNING id;

-- PauseManager.resume()
DELETE FROM pulse_django_pause
WHERE lane_key::text = :lane_key AND task::text = ANY (:tasks::text[])
    AND (:queue::text IS NULL OR queue::text = :queue)
    AND (:seen::timestamptz IS NULL OR paused_at = :seen)
RETURNING id;

-- PauseManager.forget_ended()
DELETE FROM pulse_django_pause WHERE paused_until <= statement_timestamp() RETURNING task, queue, lane_key;
