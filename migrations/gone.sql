-- Runs last in the transaction of a downgrade to nothing: what before.sql and alembic made goes
-- too. Roles stay: they belong to the whole cluster, and other databases may use them.
DROP TABLE IF EXISTS mailgres.schema_version;
DROP SCHEMA mailgres;
NOTIFY pgrst, 'reload schema';
