-- require_rights()
SELECT CURRENT_USER, needed.name, needed.privilege
FROM ROWS FROM (pg_catalog.unnest(:name::text[]), pg_catalog.unnest(:privilege::text[])) AS needed (name, privilege)
WHERE NOT CASE needed.privilege::text
    WHEN 'USAGE' THEN pg_catalog.has_sequence_privilege(needed.name, needed.privilege)
    WHEN 'DELETE' THEN pg_catalog.has_table_privilege(needed.name, needed.privilege)
    ELSE pg_catalog.has_any_column_privilege(needed.name, needed.privilege)
END
LIMIT 1;
