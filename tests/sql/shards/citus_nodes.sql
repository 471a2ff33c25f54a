-- leads_to_a_node()
SELECT pg_catalog.to_regclass('pg_dist_local_group') IS NOT NULL;

-- schema_of()
SELECT current_schema()::text, pg_catalog.quote_ident(current_schema());
