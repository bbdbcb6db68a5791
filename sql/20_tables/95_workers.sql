CREATE TABLE mailgres.workers (
    worker      text PRIMARY KEY CHECK (worker <> '' AND length(worker) <= 200),
    started_at  timestamptz NOT NULL DEFAULT mailgres.now(),
    seen_at     timestamptz NOT NULL DEFAULT mailgres.now(),
    version     text NOT NULL DEFAULT '',
    details     jsonb NOT NULL DEFAULT '{}',
    providers   text[],
    on_demand   boolean NOT NULL DEFAULT false,
    stopped_at  timestamptz,
    role        text NOT NULL DEFAULT session_user
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.workers IS 'Workers: when each was last seen, and which providers it has.';
COMMENT ON COLUMN mailgres.workers.providers IS 'The providers that it can send through; null: it did not report them.';
COMMENT ON COLUMN mailgres.workers.on_demand IS
    'Whether it works only when it is called (mailgres process, the HTTP service), and is seen only then.';
COMMENT ON COLUMN mailgres.workers.stopped_at IS 'When it stopped cleanly; null: it did not.';
COMMENT ON COLUMN mailgres.workers.role IS 'The role that it logged in as.';

-- Enqueuing notifies only while a worker sleeps, because NOTIFY takes a lock that all
-- committing transactions share. A sleeping worker has a row here.

CREATE TABLE mailgres.sleepers (
    worker       text PRIMARY KEY,
    sleeps_until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

COMMENT ON TABLE mailgres.sleepers IS
    'Workers that sleep and must be woken by an email due before sleeps_until.';

CREATE TABLE mailgres.janitor_failures (
    janitor    text NOT NULL CHECK (length(janitor) <= 200),
    worker     text NOT NULL CHECK (length(worker) <= 200),
    failures   int NOT NULL DEFAULT 1,
    since      timestamptz NOT NULL DEFAULT mailgres.now(),
    failed_at  timestamptz NOT NULL DEFAULT mailgres.now(),
    run_every  interval NOT NULL,
    error      text NOT NULL,
    PRIMARY KEY (janitor, worker)
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.janitor_failures IS 'Janitors that failed in their last run, by the worker that ran them.';
COMMENT ON COLUMN mailgres.janitor_failures.failures IS 'How many runs in a row failed.';
COMMENT ON COLUMN mailgres.janitor_failures.run_every IS
    'How often it runs: a failure that is much older belongs to a worker that is gone.';
