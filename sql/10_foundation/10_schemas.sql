-- Two schemas: `public` is the contract that applications, operators and analysts
-- name in their SQL; `mailgres` is the engine room, granted to the worker alone.
-- IF NOT EXISTS, because the migration tool keeps its version table here.

CREATE SCHEMA IF NOT EXISTS mailgres;

COMMENT ON SCHEMA mailgres IS
    'The engine room of mailgres: claim, finish, reap, policies, providers. Never expose it through an API.';
