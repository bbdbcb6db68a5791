-- Counts of settled emails (sent, failed, cancelled) for dashboards, so that nobody
-- has to count the queue. A change of status appends deltas (no row is updated, so
-- nobody waits); mailgres.fold() adds them to three narrow tables. Hours are those
-- of created_at, so that the sums equal the same question asked of email_queue
-- itself. What is still open changes with every enqueue and is not counted here.

CREATE TABLE mailgres.rollup_deltas (
    hour           timestamptz NOT NULL,
    template_type  text NOT NULL,
    tenant_id      text NOT NULL,
    provider       text NOT NULL,
    error_code     text NOT NULL,
    status         text NOT NULL,
    retries        int NOT NULL,
    emails         bigint NOT NULL,
    seconds        double precision NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

COMMENT ON TABLE mailgres.rollup_deltas IS 'Changes not yet added to the rollups.';
COMMENT ON COLUMN mailgres.rollup_deltas.seconds IS 'Sum of the times from enqueuing to sending.';

CREATE TABLE mailgres.rollup_by_template (
    hour           timestamptz NOT NULL,
    template_type  text NOT NULL,
    status         text NOT NULL,
    retries        int NOT NULL,
    emails         bigint NOT NULL,
    seconds        double precision NOT NULL,
    PRIMARY KEY (hour, template_type, status, retries)
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

COMMENT ON TABLE mailgres.rollup_by_template IS 'Emails by hour of creation, template, status and retries.';
COMMENT ON TABLE mailgres.rollup_by_tenant IS 'Emails by hour of creation, tenant and status.';
COMMENT ON TABLE mailgres.rollup_by_provider IS 'Emails by hour of creation, provider, error code and status.';
