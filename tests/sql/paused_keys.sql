-- PausedKeyManager.pause()
INSERT INTO pulse_django_pausedkey AS paused (lane_key, paused_until, reason, paused_by)
SELECT lane_key, clock_timestamp() + :seconds::float8 * interval '1 second', :reason, :by
FROM pg_catalog.unnest(:lane_keys::text[]) AS wanted (lane_key)
ON CONFLICT (lane_key) DO UPDATE SET
    paused_until = excluded.paused_until, reason = excluded.reason, paused_by = excluded.paused_by,
    paused_at = excluded.paused_at
WHERE paused.paused_until IS NOT NULL
    AND (excluded.paused_until IS NULL OR paused.paused_until < excluded.paused_until)
RETURNING lane_key;

-- PausedKeyManager.resume()
DELETE FROM pulse_django_pausedkey WHERE lane_key::text = ANY (:lane_key::text[]) RETURNING lane_key;

-- PausedKeyManager.resume_task()
WITH found AS MATERIALIZED (
    SELECT lane_key
    FROM pulse_django_pausedkey
    WHERE lane_key::text >= 'task='
        AND lane_key::text < 'task>'
        AND pg_catalog.split_part(pg_catalog.substr(lane_key::text, 6), pg_catalog.chr(10), 1) = ANY (:value::text[])
)
DELETE FROM pulse_django_pausedkey WHERE lane_key::text = ANY (ARRAY(SELECT lane_key::text FROM found))
RETURNING lane_key;

-- PausedKeyManager.forget_ended()
DELETE FROM pulse_django_pausedkey WHERE paused_until <= statement_timestamp() RETURNING lane_key;
