-- add_needs()
WITH need AS MATERIALIZED (
    SELECT
        job, needs, batch, event, COALESCE(name, '') AS name, on_need_failed, moment,
        clock_timestamp() + timeout * interval '1 second' AS until
    FROM pg_catalog.json_to_recordset(:said::json) AS said (
        job bigint, needs bigint, batch bigint, event text, name text, on_need_failed text, moment text, timeout float8
    )
)
INSERT INTO pulse_django_dependency (job_id, needs, needs_batch, needs_event, name, on_need_failed, moment, until)
SELECT job, needs, batch, event, name, on_need_failed, moment, until
FROM need
WHERE NOT EXISTS (
    SELECT 1 FROM pulse_django_dependency AS old
    WHERE old.job_id = need.job AND old.met_at IS NULL AND (
        old.needs = need.needs OR old.needs_batch = need.batch AND old.moment::text = need.moment
        OR old.needs_event::text = need.event
    )
)
RETURNING id;

-- add_needs()
WITH locked AS MATERIALIZED (
    SELECT id FROM pulse_django_job_hot WHERE id = ANY (:id::bigint[]) AND NOT awaited ORDER BY id FOR NO KEY UPDATE
)
UPDATE pulse_django_job_hot AS job SET awaited = true FROM locked WHERE job.id = locked.id RETURNING job.id;

-- add_needs()
INSERT INTO pulse_django_unresolved (job_id) SELECT pg_catalog.unnest(:job_id::bigint[]) RETURNING id;

-- add_needs()
SELECT id FROM pulse_django_batch WHERE id = ANY (:id::bigint[]) ORDER BY id FOR SHARE;

-- add_needs_of_run()
WITH locked AS MATERIALIZED (
    SELECT id, locked_by, attempts
    FROM pulse_django_job_hot
    WHERE id = ANY (:id::bigint[])
    ORDER BY id
    FOR NO KEY UPDATE
)
SELECT id FROM locked WHERE id = :id_2 AND locked_by::text = :locked_by AND attempts = :attempts;

-- add_needs_of_run()
WITH RECURSIVE waiter (kind, id) AS (
    SELECT :kind::text, :id::bigint
    UNION
    SELECT next.kind, next.id
    FROM waiter
    CROSS JOIN LATERAL (
        SELECT 'job' AS kind, job_id AS id
        FROM pulse_django_dependency
        WHERE waiter.kind = 'job' AND needs = waiter.id AND needs IS NOT NULL AND met_at IS NULL
        UNION ALL
        SELECT 'batch', batch_id
        FROM pulse_django_job_hot
        WHERE waiter.kind = 'job' AND id = waiter.id AND batch_id IS NOT NULL
        UNION ALL
        SELECT 'job', job_id
        FROM pulse_django_dependency
        WHERE waiter.kind = 'batch' AND needs_batch = waiter.id AND needs_batch IS NOT NULL AND met_at IS NULL
        UNION ALL
        SELECT 'batch', parent_id
        FROM pulse_django_batch
        WHERE waiter.kind = 'batch' AND id = waiter.id AND parent_id IS NOT NULL
    ) AS next
),
looked_at AS (SELECT kind, id FROM waiter LIMIT :most)
SELECT kind, id
FROM looked_at
WHERE kind = 'job' AND id = ANY (:jobs::bigint[]) OR kind = 'batch' AND id = ANY (:batches::bigint[])
LIMIT 1;

-- note_overlooked()
WITH walked AS MATERIALIZED (
    SELECT id, batch_id
    FROM pulse_django_job_hot
    WHERE status::text = 'WAITING' AND id > :id
    ORDER BY id
    LIMIT :limit
),
overlooked AS MATERIALIZED (
    SELECT id
    FROM walked
    WHERE NOT EXISTS (SELECT 1 FROM pulse_django_unresolved WHERE job_id = walked.id)
        AND NOT EXISTS (
            SELECT 1 FROM pulse_django_batch AS batch WHERE batch.id = walked.batch_id AND batch.paused_at IS NOT NULL
        )
        AND (
            NOT EXISTS (SELECT 1 FROM pulse_django_dependency WHERE job_id = walked.id AND met_at IS NULL)
            OR EXISTS (
                SELECT 1 FROM pulse_django_dependency AS need
                WHERE need.job_id = walked.id AND need.met_at IS NULL AND NOT EXISTS (
                    SELECT 1 FROM pulse_django_unresolved AS change
                    WHERE change.job_id = need.needs OR change.batch_id = need.needs_batch
                        OR change.event::text = need.needs_event::text
                ) AND (
                    need.needs IS NOT NULL
                        AND NOT EXISTS (SELECT 1 FROM pulse_django_job_hot WHERE id = need.needs)
                    OR need.needs_batch IS NOT NULL AND NOT EXISTS (
                        SELECT 1 FROM pulse_django_batch WHERE id = need.needs_batch AND finished_at IS NULL
                    )
                    OR need.needs_event IS NOT NULL AND EXISTS (
                        SELECT 1 FROM pulse_django_event WHERE name::text = need.needs_event::text
                    )
                )
            )
        )
),
noted AS (
    INSERT INTO pulse_django_unresolved (job_id) SELECT id FROM overlooked
)
SELECT pg_catalog.max(id), (SELECT count(*) FROM overlooked) FROM walked;

-- note_overlooked()
WITH walked AS MATERIALIZED (
    SELECT id, sealed_at, ended_at, cancelled_at
    FROM pulse_django_batch
    WHERE finished_at IS NULL AND id > :id
    ORDER BY id
    LIMIT :limit
),
overlooked AS MATERIALIZED (
    SELECT id
    FROM walked
    WHERE sealed_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM pulse_django_unresolved WHERE batch_id = walked.id AND batch_id IS NOT NULL)
        AND NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE batch_id = walked.id AND batch_id IS NOT NULL AND finished_at IS NULL
                AND (walked.cancelled_at IS NULL OR cancel_requested_at IS NOT NULL)
        )
        AND NOT EXISTS (
            SELECT 1 FROM pulse_django_batch AS child WHERE child.parent_id = walked.id AND child.finished_at IS NULL
        )
        AND (ended_at IS NULL OR cancelled_at IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE batch_id = walked.id AND batch_id IS NOT NULL AND finished_at IS NOT NULL
        ))
),
noted AS (
    INSERT INTO pulse_django_unresolved (batch_id) SELECT id FROM overlooked
)
SELECT pg_catalog.max(id), (SELECT count(*) FROM overlooked) FROM walked;
