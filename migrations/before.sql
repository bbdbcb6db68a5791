-- Runs first in the transaction of every migration, online and in the printed script.

-- One migration at a time per database: the second waits here, then finds nothing left to do.
-- The number is the ASCII of 'mailgres'; nothing else may use it.
SET LOCAL lock_timeout = '60s';
SELECT pg_catalog.pg_advisory_xact_lock(7881696737188013427);

-- A statement that waits for a lock makes every later query on that table wait behind it, so it
-- gives up early: running the migration again is cheap, a stalled application is not.
SET LOCAL lock_timeout = '5s';
-- Filling or indexing a large table may take longer than a server allows its ordinary queries.
SET LOCAL statement_timeout = 0;
-- What a migration builds must not depend on settings of the role that runs it.
SET LOCAL search_path = public;
SET LOCAL check_function_bodies = on;

-- The version table lives here, out of PostgREST's sight and apart from the alembic_version of
-- the application's own migrations.
CREATE SCHEMA IF NOT EXISTS mailgres;
