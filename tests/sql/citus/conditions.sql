-- _nodes()
-- the whole: 2090a53c
SELECT nodeid, groupid, pg_catalog.concat(nodename, ':', nodeport), shouldhaveshards
FROM pg_dist_node
WHERE isactive AND noderole::text = 'primary'
ORDER BY groupid;

-- _shards()
-- the whole: c8eed0f3
SELECT dist.schemaid::regnamespace::text, place.groupid, part.logicalrelid::oid = 'pulse_django_job_hot'::regclass::oid
FROM pg_dist_schema AS dist
JOIN pg_dist_partition AS part ON part.colocationid = dist.colocationid
JOIN pg_class AS c ON c.oid = part.logicalrelid::oid
JOIN pg_dist_shard AS shard ON shard.logicalrelid::oid = c.oid
JOIN pg_dist_placement AS place ON place.shardid = shard.shardid
WHERE c.relname = 'pulse_django_job_hot'::name
ORDER BY dist.schemaid;

-- _answers()
-- the whole: d07736ff
SELECT nodeid, success, result FROM pg_catalog.run_command_on_all_nodes('SHOW synchronous_commit');

-- _long_transactions()
-- the whole: 2aad9093
SELECT 0 AS place, pg_catalog.row_to_json(found)::text AS subject
FROM (SELECT * FROM (
SELECT which, form, who, state, transactions, pg_catalog.date_trunc('second', age) AS time
FROM (
    SELECT
        pg_catalog.concat('pid ', pid) AS which, '%%(who)s is %%(state)s, for %%(time)s' AS form,
        pg_catalog.concat_ws(' ', usename, NULLIF(application_name, '')) AS who, state,
        NULL::int AS transactions, statement_timestamp() - xact_start AS age
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
        AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
        AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL OR state LIKE 'idle in transaction%%')
        AND xact_start < statement_timestamp() - :long_transaction
    UNION ALL
    SELECT
        pg_catalog.concat('prepared ', gid), 'a prepared transaction of %%(who)s, for %%(time)s', owner::text, NULL,
        NULL, statement_timestamp() - prepared
    FROM pg_prepared_xacts
    WHERE database = current_database() AND prepared < statement_timestamp() - :long_transaction
    UNION ALL
    SELECT
        pg_catalog.concat('replication slot ', slot_name), '%%(transactions)s transactions behind, and not in use',
        NULL, NULL, pg_catalog.age(xmin), NULL
    FROM pg_replication_slots
    WHERE NOT active AND xmin IS NOT NULL
) AS open
ORDER BY age DESC NULLS LAST
) AS asked (subject_key, sentence_form) LIMIT :limit) AS found;

-- _bloat()
-- the whole: e4187ed8
SELECT 0 AS place, pg_catalog.row_to_json(found)::text AS subject
FROM (SELECT * FROM (
SELECT
    relname, CASE
        WHEN last_autovacuum IS NULL AND last_vacuum IS NULL
        THEN '%%(dead)s dead rows beside %%(live)s live ones; last vacuum never'
        ELSE '%%(dead)s dead rows beside %%(live)s live ones; last vacuum %%(at)s'
    END,
    n_dead_tup AS dead, n_live_tup AS live, GREATEST(last_autovacuum, last_vacuum)::text AS at
FROM pg_stat_user_tables
WHERE relname::text LIKE 'pulse\_django\_%%' AND pg_catalog.pg_table_is_visible(relid)
    AND n_dead_tup > :dead_rows AND n_dead_tup::float8 > :dead_share::float8 * n_live_tup::float8
ORDER BY n_dead_tup DESC
) AS asked (subject_key, sentence_form) LIMIT :limit) AS found;

-- _missing_days()
-- the whole: ce26af4c
SELECT era, 'jobs that ended on this day are in pulse_django_job_other'
    FROM (SELECT era FROM pulse_django_job_other ORDER BY era LIMIT :sample) AS stray
    GROUP BY era;

-- _missing_days()
-- the whole: 4b1d1e23
SELECT era, 'the day has no partition'
    FROM (
        SELECT pg_catalog.to_char((statement_timestamp() AT TIME ZONE 'UTC')::date + ahead, 'YYYYMMDD')::int
        FROM pg_catalog.generate_series(0, 1) AS ahead
    ) AS next (era)
    WHERE pg_catalog.pg_partition_root(pg_catalog.to_regclass('pulse_django_job_' || era::text))::oid
        IS DISTINCT FROM 'pulse_django_job'::regclass::oid;
