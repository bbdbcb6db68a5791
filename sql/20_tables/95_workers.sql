CREATE TABLE mailgres.workers (
    worker      text PRIMARY KEY CHECK (worker <> '' AND worker <> 'rpc' AND length(worker) <= 200),
    started_at  timestamptz NOT NULL DEFAULT mailgres.now(),
    seen_at     timestamptz NOT NULL DEFAULT mailgres.now(),
    version     text NOT NULL DEFAULT '',
    details     jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.workers IS 'Heartbeats of the workers.';

-- Enqueuing notifies only while somebody sleeps, because NOTIFY takes a lock that
-- all committing transactions share. A worker that sleeps has a row here.

CREATE TABLE mailgres.sleepers (
    worker       text PRIMARY KEY,
    sleeps_until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

COMMENT ON TABLE mailgres.sleepers IS
    'Workers that sleep and want to be woken by an email due before sleeps_until.';
