-- Retry policies are rows, not code. A policy either lists its waits (`steps`) or starts
-- at `base` and multiplies by `factor`. `cap` limits a wait. The jitter fractions spread
-- it: a wait w becomes a random value in [w*(1-down), w*(1+up)].

CREATE TABLE mailgres.retry_policies (
    name         text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
    max_retries  int NOT NULL CHECK (max_retries BETWEEN 0 AND 100),
    steps        interval[] CHECK (cardinality(steps) > 0 AND array_position(steps, NULL) IS NULL AND '0' <= ALL (steps)),
    base         interval CHECK (base > '0' AND base <= '1000 years'),
    factor       double precision NOT NULL DEFAULT 2 CHECK (factor BETWEEN 1 AND 10),
    cap          interval NOT NULL CHECK (cap > '0' AND cap <= '1000 years'),
    jitter_down  double precision NOT NULL DEFAULT 0 CHECK (jitter_down BETWEEN 0 AND 1),
    jitter_up    double precision NOT NULL DEFAULT 0 CHECK (jitter_up BETWEEN 0 AND 1),
    description  text NOT NULL DEFAULT '',
    CHECK ((steps IS NULL) <> (base IS NULL))
);

COMMENT ON TABLE mailgres.retry_policies IS
    'How long to wait before each retry, and how many retries there are.';
COMMENT ON COLUMN mailgres.retry_policies.max_retries IS
    'Retries after the first attempt; copied to the email when it is enqueued.';
COMMENT ON COLUMN mailgres.retry_policies.steps IS
    'The waits, one for each retry; the last one repeats.';
