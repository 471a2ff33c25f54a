-- has_citus()
-- the whole: a797ea69
SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus'::name);

-- leads_to_a_node()
-- the whole: 0d71c957
SELECT pg_catalog.to_regclass('pg_dist_local_group') IS NOT NULL;

-- schema_of()
-- the whole: c47d0dd9
SELECT current_schema()::text, pg_catalog.quote_ident(current_schema());
