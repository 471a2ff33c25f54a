-- progress_of()
WITH RECURSIVE tree (root, id) AS (
    SELECT asked.id, asked.id FROM pg_catalog.unnest(:batches::bigint[]) AS asked (id)
    UNION
    SELECT tree.root, batch.id FROM tree JOIN pulse_django_batch AS batch ON batch.parent_id = tree.id
)
SELECT
    tree.root,
    COALESCE(pg_catalog.sum(batch.added + news.added)::bigint, 0),
    COALESCE(pg_catalog.sum(batch.completed + news.completed)::bigint, 0),
    COALESCE(pg_catalog.sum(batch.cancelled + news.cancelled)::bigint, 0),
    COALESCE(pg_catalog.sum(dead.count)::bigint, 0)
FROM tree
JOIN pulse_django_batch AS batch ON batch.id = tree.id
CROSS JOIN LATERAL (
    SELECT
        COALESCE(pg_catalog.sum(added)::bigint, 0) AS added,
        COALESCE(pg_catalog.sum(completed)::bigint, 0) AS completed,
        COALESCE(pg_catalog.sum(cancelled)::bigint, 0) AS cancelled
    FROM pulse_django_unresolved
    WHERE batch_id = batch.id AND batch_id IS NOT NULL
) AS news
CROSS JOIN LATERAL (
    SELECT count(*) AS count
    FROM pulse_django_job_hot
    WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NOT NULL
) AS dead
GROUP BY tree.root;
