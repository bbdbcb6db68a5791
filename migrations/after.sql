-- Runs last in the transaction of a migration that changed something.

-- alembic makes its table with whatever default privileges the database has. A worker must see
-- whether the schema is the one it was written for, and so may an operator; nobody else.
DO $$
DECLARE
    v_role text;
BEGIN
    REVOKE ALL ON mailgres.schema_version FROM PUBLIC;
    FOR v_role IN
        SELECT DISTINCT a.grantee::pg_catalog.regrole::text
        FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
        WHERE c.oid = 'mailgres.schema_version'::pg_catalog.regclass
          AND a.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON mailgres.schema_version FROM %s', v_role);
    END LOOP;
    FOR v_role IN
        SELECT rolname FROM pg_catalog.pg_roles
        WHERE rolname IN ('mailgres_worker', 'mailgres_operator')
    LOOP
        EXECUTE pg_catalog.format('GRANT SELECT ON mailgres.schema_version TO %I', v_role);
    END LOOP;
END
$$;

COMMENT ON TABLE mailgres.schema_version IS
    'The revision of the schema. Written by `mailgres migrate` (alembic) only.';

-- PostgREST caches the schema; without this the new functions are 404 until it restarts.
NOTIFY pgrst, 'reload schema';
