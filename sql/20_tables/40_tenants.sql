-- Tenants need no registration: a tenant without a row has weight 1 and is not paused.
-- Only tenants that differ from this have a row.

CREATE TABLE mailgres.tenants (
    tenant_id      text PRIMARY KEY CHECK (length(tenant_id) BETWEEN 1 AND 200),
    weight         int NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100),
    paused_at      timestamptz,
    pause_reason   text,
    from_email     text,
    reply_to       text,
    route          text REFERENCES mailgres.routes,
    contact_email  text
);

COMMENT ON TABLE mailgres.tenants IS 'Tenants with settings of their own.';
COMMENT ON COLUMN mailgres.tenants.weight IS
    'The tenant gets this many times three emails per turn while other tenants wait.';
COMMENT ON COLUMN mailgres.tenants.route IS 'The route of its emails, if neither the email nor its template names one.';
COMMENT ON COLUMN mailgres.tenants.contact_email IS 'The address that is notified about its dead letters and alerts.';

-- Where the next claim continues its round through the tenants. A claim locks the first
-- free slot, so that claims of several workers do not wait for each other. With one worker
-- the round is strict; with several, the round of each slot is.

CREATE TABLE mailgres.claim_slots (
    slot        int PRIMARY KEY,
    next_route  bigint NOT NULL DEFAULT 0,
    cursors     jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- Counts the claims: tenants wait for a number of claims, not for a time. A sequence,
-- because incrementing it takes no lock.
CREATE SEQUENCE mailgres.claim_numbers;

COMMENT ON SEQUENCE mailgres.claim_numbers IS 'Numbers the claims that took at least one email.';
COMMENT ON TABLE mailgres.claim_slots IS 'Where each concurrent claim continues its round through the tenants.';
COMMENT ON COLUMN mailgres.claim_slots.cursors IS
    'For each route, and for its urgent pass: the last tenant served, and how much of its share the next one has used.';
