-- is_invalid --
SELECT FROM pg_catalog.pg_index i
WHERE i.indexrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(%(index)s) AND NOT i.indisvalid

-- is_completed --
-- Whether a migration of this database was completed.
SELECT FROM mailgres.schema_objects LIMIT 1

-- drop --
DROP INDEX CONCURRENTLY IF EXISTS {index}

-- drop_invalid --
DO $$
BEGIN
    -- left behind by an interrupted run
    IF EXISTS (SELECT FROM pg_catalog.pg_index i
               WHERE i.indexrelid = pg_catalog.to_regclass('{index}') AND NOT i.indisvalid) THEN
        DROP INDEX {index};
    END IF;
END
$$;
