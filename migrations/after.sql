-- Runs last in the transaction of a migration that changed something.

-- Also for the objects of a revision and for the table of alembic.
SELECT mailgres.secure();

COMMENT ON TABLE mailgres.schema_version IS
    'The revision of the schema. Written by `mailgres migrate` (alembic) only.';

-- PostgREST caches the schema; without this the new functions return 404 until it restarts.
NOTIFY pgrst, 'reload schema';
