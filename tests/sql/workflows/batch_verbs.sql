-- open_batch(): workflows, all
INSERT INTO pulse_django_batch (name, kind, parent_id, context, sealed_at, cancelled_at, cancel_reason)
VALUES (:name, :kind, :parent_id, :context::jsonb, :sealed_at, :cancelled_at, :cancel_reason)
RETURNING id;

-- open_batch()
SELECT finished_at IS NOT NULL, cancelled_at, cancel_reason FROM pulse_django_batch WHERE id = :id FOR SHARE;

-- seal_batch()
WITH found AS MATERIALIZED (
    SELECT id, sealed_at IS NULL AS is_open, cancelled_at IS NOT NULL AS is_cancelled
    FROM pulse_django_batch
    WHERE id = :id
    FOR NO KEY UPDATE
),
open AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM found WHERE is_open
),
sealed AS (
    UPDATE pulse_django_batch AS batch SET sealed_at = open.now FROM open WHERE batch.id = open.id
),
noted AS (
    INSERT INTO pulse_django_unresolved (batch_id) SELECT id FROM found
)
SELECT is_open OR is_cancelled FROM found;

-- cancel_batch()
WITH RECURSIVE tree (id) AS (
    SELECT :id::bigint
    UNION
    SELECT batch.id FROM tree JOIN pulse_django_batch AS batch ON batch.parent_id = tree.id
),
found AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch
    WHERE id = ANY (ARRAY(SELECT id FROM tree)) AND finished_at IS NULL AND cancelled_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
),
open AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM found
),
cancelled AS (
    UPDATE pulse_django_batch AS batch
    SET cancelled_at = open.now, sealed_at = COALESCE(batch.sealed_at, open.now), cancel_reason = :cancel_reason
    FROM open
    WHERE batch.id = open.id
    RETURNING batch.id
)
SELECT id FROM cancelled;

-- cancel_batch()
INSERT INTO pulse_django_unresolved (batch_id) SELECT pg_catalog.unnest(:batch_id::bigint[]) RETURNING batch_id;

-- members_to_cancel()
SELECT job.id, batch.cancel_reason
FROM pulse_django_batch AS batch
CROSS JOIN LATERAL (
    SELECT id
    FROM pulse_django_job_hot
    WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NULL AND cancel_requested_at IS NULL
    ORDER BY id
    LIMIT :limit
) AS job
WHERE batch.id = :id AND batch.cancelled_at IS NOT NULL;

-- of_batches()
SELECT id FROM pulse_django_job_hot WHERE id = ANY (:id::bigint[]) AND batch_id = ANY (:batch_id::bigint[]);

-- Joining.one(): workflows, all
SELECT id, finished_at IS NOT NULL, cancelled_at IS NOT NULL, cancel_reason
FROM pulse_django_batch
WHERE id = ANY (:id::bigint[])
ORDER BY id
FOR SHARE;

-- Joining.one(): workflows, all
INSERT INTO pulse_django_unresolved (batch_id, added)
SELECT *
FROM ROWS FROM (pg_catalog.unnest(:batch_id::bigint[]), pg_catalog.unnest(:count::int[])) AS added (batch_id, count)
RETURNING id;

-- Joining.many(): all
SELECT id, batch_id FROM pulse_django_job_hot WHERE id = ANY (:id::bigint[]) AND id > :id_2 AND batch_id IS NOT NULL;

-- judge_batches(): workflows, all
SELECT id FROM pulse_django_batch WHERE id = ANY (:id::bigint[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED;

-- judge_batches(): workflows, all
WITH news AS MATERIALIZED (
    SELECT
        batch_id, pg_catalog.sum(added)::bigint AS added, pg_catalog.sum(completed)::bigint AS completed,
        pg_catalog.sum(cancelled)::bigint AS cancelled, pg_catalog.bool_or(died) AS has_died
    FROM pulse_django_unresolved
    WHERE id = ANY (:id::bigint[]) AND batch_id = ANY (:batch_id::bigint[])
    GROUP BY batch_id
),
fact AS MATERIALIZED (
    SELECT
        batch.id, batch.parent_id, batch.sealed_at, batch.cancelled_at, batch.died_at, batch.ended_at,
        batch.added + news.added AS added, batch.completed + news.completed AS completed,
        batch.cancelled + news.cancelled AS cancelled, news.has_died,
        EXISTS (
            SELECT 1 FROM (
                SELECT 1 FROM pulse_django_job_hot
                WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NULL
                ORDER BY id DESC
                LIMIT 1
            ) AS open
        ) AS has_open,
        EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NOT NULL
        ) AS has_dead,
        batch.cancelled_at IS NOT NULL AND EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NULL AND cancel_requested_at IS NULL
        ) AS has_wanted,
        child.has_open AS has_open_child, child.has_busy AS has_busy_child, child.has_dead AS has_dead_child
    FROM news
    JOIN pulse_django_batch AS batch ON batch.id = news.batch_id
    CROSS JOIN LATERAL (
        SELECT
            count(*) > 0 AS has_open, COALESCE(pg_catalog.bool_or(ended_at IS NULL), false) AS has_busy,
            COALESCE(pg_catalog.bool_or(died_at IS NOT NULL), false) AS has_dead
        FROM pulse_django_batch
        WHERE parent_id = batch.id AND finished_at IS NULL
    ) AS child
    WHERE batch.finished_at IS NULL
),
verdict AS MATERIALIZED (
    SELECT
        fact.*,
        COALESCE(died_at, CASE WHEN has_died OR has_dead OR has_dead_child THEN clock_timestamp() END) AS dies_at,
        COALESCE(ended_at, CASE WHEN is_ended THEN clock_timestamp() END) AS ends_at,
        CASE
            WHEN is_ended AND NOT has_open_child AND (cancelled_at IS NOT NULL OR NOT has_dead) THEN clock_timestamp()
        END AS finishes_at
    FROM fact
    CROSS JOIN LATERAL (SELECT sealed_at IS NOT NULL AND NOT has_open AND NOT has_busy_child) AS met (is_ended)
),
judged AS (
    UPDATE pulse_django_batch AS batch
    SET added = verdict.added,
        completed = verdict.completed,
        cancelled = verdict.cancelled,
        died_at = verdict.dies_at,
        ended_at = verdict.ends_at,
        finished_at = verdict.finishes_at
    FROM verdict
    WHERE batch.id = verdict.id
),
late AS MATERIALIZED (
    SELECT
        batch.id, batch.added + news.added AS added, batch.completed + news.completed AS completed,
        batch.cancelled + news.cancelled AS cancelled
    FROM news
    JOIN pulse_django_batch AS batch ON batch.id = news.batch_id
    WHERE batch.finished_at IS NOT NULL AND batch.id <> ALL (ARRAY(SELECT id FROM fact))
),
added_late AS (
    UPDATE pulse_django_batch AS batch
    SET added = late.added, completed = late.completed, cancelled = late.cancelled
    FROM late
    WHERE batch.id = late.id AND batch.finished_at IS NOT NULL
),
again AS (
    INSERT INTO pulse_django_unresolved (batch_id, died)
    SELECT parent_id, dies_at IS DISTINCT FROM died_at
    FROM verdict
    WHERE parent_id IS NOT NULL AND (
        finishes_at IS NOT NULL OR dies_at IS DISTINCT FROM died_at OR ends_at IS DISTINCT FROM ended_at
    )
    UNION ALL
    SELECT id, false FROM verdict WHERE has_wanted
    RETURNING id
)
SELECT id, finishes_at IS NOT NULL, has_wanted, EXISTS (SELECT 1 FROM again) FROM verdict;

-- pause_batch()
WITH RECURSIVE tree (id) AS (
    SELECT :id::bigint
    UNION
    SELECT batch.id FROM tree JOIN pulse_django_batch AS batch ON batch.parent_id = tree.id
),
found AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch
    WHERE id = ANY (ARRAY(SELECT id FROM tree)) AND finished_at IS NULL AND paused_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
),
open AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM found
),
written AS (
    UPDATE pulse_django_batch AS batch SET paused_at = open.now FROM open WHERE batch.id = open.id RETURNING batch.id
)
SELECT id FROM written;

-- resume_batch()
WITH RECURSIVE tree (id) AS (
    SELECT :id::bigint
    UNION
    SELECT batch.id FROM tree JOIN pulse_django_batch AS batch ON batch.parent_id = tree.id
),
found AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch
    WHERE id = ANY (ARRAY(SELECT id FROM tree)) AND paused_at IS NOT NULL
    ORDER BY id
    FOR NO KEY UPDATE
),
resumed AS (
    UPDATE pulse_django_batch AS batch SET paused_at = NULL FROM found WHERE batch.id = found.id
)
SELECT id FROM found;

-- resume_batch()
INSERT INTO pulse_django_unresolved (job_id)
SELECT id
FROM pulse_django_job_hot
WHERE batch_id = ANY (:batch_id::bigint[]) AND batch_id IS NOT NULL AND finished_at IS NULL AND status::text = 'WAITING'
RETURNING job_id;

-- hold()
WITH paused AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch AS batch
    WHERE paused_at IS NOT NULL AND finished_at IS NULL AND EXISTS (
        SELECT 1 FROM pulse_django_job_hot
        WHERE batch_id = batch.id
            AND batch_id IS NOT NULL
            AND finished_at IS NULL
            AND status::text IN ('PENDING', 'RETRYING')
    )
    ORDER BY id
    FOR SHARE SKIP LOCKED
),
found AS MATERIALIZED (
    SELECT job.id
    FROM paused
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulse_django_job_hot
        WHERE batch_id = paused.id
            AND batch_id IS NOT NULL
            AND finished_at IS NULL
            AND status::text IN ('PENDING', 'RETRYING')
        ORDER BY id
        LIMIT :limit
    ) AS job
    LIMIT :limit_2
),
locked AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job_hot
    WHERE id = ANY (ARRAY(SELECT id FROM found)) AND status::text IN ('PENDING', 'RETRYING')
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pulse_django_job_hot AS job
SET status = 'WAITING'
FROM locked
WHERE job.id = locked.id AND job.locked_by IS NULL AND job.finished_at IS NULL
RETURNING job.id;

-- forget_batches()
WITH old AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch AS batch
    WHERE finished_at < statement_timestamp() - :age::float8 * interval '1 second' AND finished_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE batch_id = batch.id AND batch_id IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM pulse_django_batch AS child WHERE child.parent_id = batch.id)
        AND NOT EXISTS (
            SELECT 1 FROM pulse_django_dependency
            WHERE needs_batch = batch.id AND needs_batch IS NOT NULL AND met_at IS NULL
        )
    ORDER BY finished_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pulse_django_batch AS batch USING old WHERE batch.id = old.id RETURNING batch.id;
