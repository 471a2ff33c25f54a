-- require_tables()
SELECT c.relname, a.attname
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relname = ANY (:relname) AND c.relkind IN ('r', 'p') AND pg_catalog.pg_table_is_visible(c.oid);

-- changes_in()
SELECT pg_catalog.concat_ws(
    ' ',
    pg_catalog.floor(EXTRACT(epoch FROM statement_timestamp()) / 30::numeric),
    pg_catalog.sum(
        pg_catalog.pg_stat_get_tuples_inserted(oid) + pg_catalog.pg_stat_get_tuples_updated(oid)
        + pg_catalog.pg_stat_get_tuples_deleted(oid)
    )
)
FROM pg_class
WHERE relkind = 'r' AND pg_catalog.starts_with(relname::text, 'pulse_django_')
    AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'pulse_django_job'::regclass::oid)
HAVING pg_catalog.current_setting('track_counts') = 'on';
