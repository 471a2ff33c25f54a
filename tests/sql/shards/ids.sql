-- number_ids()
SELECT pg_catalog.pg_get_serial_sequence(name, 'id'::text) FROM pg_catalog.unnest(:name::text[]) AS name;

-- raise_sequence()
SELECT pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(relowner)) FROM pg_class WHERE oid = :oid::regclass::oid;

-- raise_sequence()
SELECT pg_catalog.setval(:value::regclass, GREATEST(
    :value_2::bigint, COALESCE(pg_catalog.pg_sequence_last_value(:value_3::regclass), 1)
));

-- position_of()
SELECT CASE
    WHEN pg_catalog.has_sequence_privilege(:value::text, 'SELECT, USAGE'::text)
    THEN COALESCE(pg_catalog.pg_sequence_last_value(:value_2::regclass), 0)
END;
