-- Counts for dashboards and alerts, so that no query has to count the queue. Every change of
-- an email appends deltas; no row is updated, so no writer waits for another.
-- mailgres.fold_rollups() adds the deltas to narrow tables. The views mailgres.counted_* add
-- the deltas that are not folded yet, so they are always exact.
--
-- There are two kinds of counts. Outcomes of emails: a settled email (sent, failed,
-- cancelled) is counted in one cell of each table, and moves to another cell when its status
-- is corrected later. Hours are those of created_at, so that the sums equal the same query on
-- email_queue. Events: attempts and other events at the time when they happened; these counts
-- never change. Open emails change with every enqueue and are not counted here: see depth.

CREATE TABLE mailgres.rollup_deltas (
    hour           timestamptz NOT NULL,
    template_type  text NOT NULL,
    tenant_id      text NOT NULL,
    provider       text NOT NULL,
    error_code     text NOT NULL,
    status         text NOT NULL,
    retries        int NOT NULL,
    within         int NOT NULL DEFAULT 0,
    dead_hour      timestamptz,
    dead_reason    text,
    emails         bigint NOT NULL,
    here           bigint NOT NULL,
    seconds        double precision NOT NULL DEFAULT 0,
    oldest         timestamptz,
    newest         timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- For publications, which must identify each row: a primary key would cost every outcome two
-- index entries, this costs nothing.
ALTER TABLE mailgres.rollup_deltas REPLICA IDENTITY FULL;

COMMENT ON TABLE mailgres.rollup_deltas IS 'Outcomes of emails that are not yet added to the rollups.';
COMMENT ON COLUMN mailgres.rollup_deltas.status IS 'sent, failed or cancelled.';
COMMENT ON COLUMN mailgres.rollup_deltas.within IS
    'The upper bound, in seconds, of the bucket of its time to delivery; 0 if it was not sent.';
COMMENT ON COLUMN mailgres.rollup_deltas.emails IS 'The change of the counts that include deleted emails.';
COMMENT ON COLUMN mailgres.rollup_deltas.here IS 'The change of the counts of emails in the queue.';
COMMENT ON COLUMN mailgres.rollup_deltas.seconds IS 'Sum of the times from being due to being sent.';

CREATE TABLE mailgres.attempt_deltas (
    at            timestamptz NOT NULL,
    event         text NOT NULL,
    attempt       int NOT NULL,
    tenant_id     text NOT NULL,
    provider      text NOT NULL,
    error_class   text NOT NULL,
    error_code    text NOT NULL,
    claimed_at    timestamptz,
    claim_number  bigint,
    emails        bigint NOT NULL,
    seconds       double precision NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

ALTER TABLE mailgres.attempt_deltas REPLICA IDENTITY FULL;

COMMENT ON TABLE mailgres.attempt_deltas IS 'Events that are not yet added to the rollups.';
COMMENT ON COLUMN mailgres.attempt_deltas.event IS
    'As in email_logs; claimed: the claim of a retry, with the seconds since the attempt before; provider_failed: emails of a call that failed because of the provider, counted in addition.';
COMMENT ON COLUMN mailgres.attempt_deltas.claimed_at IS 'When the attempt was claimed; null if the event is not an attempt.';
COMMENT ON COLUMN mailgres.attempt_deltas.claim_number IS 'How many claims had been made by then.';

-- Outcomes of emails, by the hour in which they were created.

CREATE TABLE mailgres.rollup_by_template (
    hour           timestamptz NOT NULL,
    template_type  text NOT NULL,
    status         text NOT NULL,
    emails         bigint NOT NULL,
    PRIMARY KEY (hour, template_type, status)
);

CREATE TABLE mailgres.rollup_by_tenant (
    hour       timestamptz NOT NULL,
    tenant_id  text NOT NULL,
    status     text NOT NULL,
    emails     bigint NOT NULL,
    PRIMARY KEY (hour, tenant_id, status)
);

CREATE TABLE mailgres.rollup_by_provider (
    hour        timestamptz NOT NULL,
    provider    text NOT NULL,
    error_code  text NOT NULL,
    status      text NOT NULL,
    emails      bigint NOT NULL,
    PRIMARY KEY (hour, provider, error_code, status)
);

CREATE TABLE mailgres.rollup_by_retries (
    hour     timestamptz NOT NULL,
    status   text NOT NULL,
    retries  int NOT NULL,
    within   int NOT NULL,
    emails   bigint NOT NULL,
    seconds  double precision NOT NULL,
    PRIMARY KEY (hour, status, retries, within)
);

COMMENT ON TABLE mailgres.rollup_by_template IS 'Emails by hour of creation, template and status.';
COMMENT ON TABLE mailgres.rollup_by_tenant IS 'Emails by hour of creation, tenant and status.';
COMMENT ON TABLE mailgres.rollup_by_provider IS 'Emails by hour of creation, provider, error code and status.';
COMMENT ON TABLE mailgres.rollup_by_retries IS
    'Emails by hour of creation, status, retries and time to delivery.';

-- Settled emails that are in the queue now.

CREATE TABLE mailgres.rollup_by_status (
    hour    timestamptz NOT NULL,
    status  text NOT NULL,
    emails  bigint NOT NULL,
    oldest  timestamptz,
    newest  timestamptz,
    PRIMARY KEY (hour, status)
);

COMMENT ON TABLE mailgres.rollup_by_status IS 'Settled emails in the queue, by hour of creation and status.';
COMMENT ON COLUMN mailgres.rollup_by_status.oldest IS 'Creation time of the oldest email of this hour that was ever counted here.';

CREATE TABLE mailgres.rollup_dead (
    hour         timestamptz NOT NULL,
    tenant_id    text NOT NULL,
    error_code   text NOT NULL,
    dead_reason  text NOT NULL,
    emails       bigint NOT NULL,
    PRIMARY KEY (hour, tenant_id, error_code, dead_reason)
);

COMMENT ON TABLE mailgres.rollup_dead IS
    'Dead letters in the queue, by the hour in which they died, tenant, error code and reason.';

-- Events, by the time when they happened.

CREATE TABLE mailgres.rollup_by_minute (
    minute    timestamptz NOT NULL,
    outcome   text NOT NULL,
    provider  text NOT NULL,
    emails    bigint NOT NULL,
    PRIMARY KEY (minute, outcome, provider)
);

CREATE TABLE mailgres.rollup_by_attempt (
    hour      timestamptz NOT NULL,
    attempt   int NOT NULL,
    outcome   text NOT NULL,
    attempts  bigint NOT NULL,
    seconds   double precision NOT NULL,
    PRIMARY KEY (hour, attempt, outcome)
);

CREATE TABLE mailgres.rollup_by_fault (
    hour         timestamptz NOT NULL,
    provider     text NOT NULL,
    error_class  text NOT NULL,
    error_code   text NOT NULL,
    outcome      text NOT NULL,
    attempts     bigint NOT NULL,
    PRIMARY KEY (hour, provider, error_class, error_code, outcome)
);

CREATE TABLE mailgres.tenant_activity (
    tenant_id     text PRIMARY KEY,
    processed     bigint NOT NULL,
    claimed_at    timestamptz NOT NULL,
    batch         bigint NOT NULL,
    claim_number  bigint NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.rollup_by_minute IS
    'What happened to emails in each minute: sent, retry, deferred, dead, cancelled and the other events of email_logs; and provider_failed: emails of calls that failed because of the provider, counted in addition.';
COMMENT ON TABLE mailgres.rollup_by_attempt IS 'Attempts by hour, number of the attempt and outcome.';
COMMENT ON COLUMN mailgres.rollup_by_attempt.outcome IS
    'sent, retry, dead or deferred; or claimed: a retry was claimed, with the seconds since the attempt before.';
COMMENT ON TABLE mailgres.rollup_by_fault IS 'Failed attempts by hour, provider, and class and code of the error.';
COMMENT ON TABLE mailgres.tenant_activity IS 'How many attempts were made for each tenant, and when the last was.';
COMMENT ON COLUMN mailgres.tenant_activity.processed IS 'Attempts made for its emails.';
COMMENT ON COLUMN mailgres.tenant_activity.claimed_at IS 'When its emails of the last attempts were claimed.';
COMMENT ON COLUMN mailgres.tenant_activity.batch IS 'How many of its emails that claim had.';
COMMENT ON COLUMN mailgres.tenant_activity.claim_number IS 'How many claims had been made when the last attempts were made.';
