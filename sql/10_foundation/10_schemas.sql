-- Two schemas. `public` holds the contract: the names that applications, operators and
-- analysts use in their SQL. `mailgres` holds the engine and is granted to the worker only.
-- IF NOT EXISTS, because the migration tool keeps its version table in this schema.

CREATE SCHEMA IF NOT EXISTS mailgres;

COMMENT ON SCHEMA mailgres IS
    'The engine of mailgres: claim, finish, reap, policies, providers. Never expose it through an API.';
