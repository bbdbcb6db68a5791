-- Runs last in the transaction of a downgrade to nothing: removes what before.sql and alembic
-- created. Roles stay: they belong to the whole cluster, and other databases may use them.
DROP TABLE IF EXISTS mailgres.schema_version;
DROP SCHEMA mailgres;
NOTIFY pgrst, 'reload schema';
