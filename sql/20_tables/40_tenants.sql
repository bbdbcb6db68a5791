-- Tenants need no registration: a tenant without a row has weight 1 and is not
-- paused. A row exists only for what differs.

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

COMMENT ON TABLE mailgres.tenants IS 'Tenants that differ from the default.';
COMMENT ON COLUMN mailgres.tenants.weight IS
    'How many times three emails the tenant may have in a turn while others wait.';
COMMENT ON COLUMN mailgres.tenants.route IS 'The route of its emails, if neither they nor their template name one.';
COMMENT ON COLUMN mailgres.tenants.contact_email IS 'Who is told about its dead letters and alerts.';

-- Where the next claim continues its round through the tenants. A claim locks the
-- first free slot, so that any number of workers go round at once without waiting
-- for each other: with one worker the round is strict, with several each slot is.

CREATE TABLE mailgres.claim_slots (
    slot        int PRIMARY KEY,
    next_route  bigint NOT NULL DEFAULT 0,
    cursors     jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- How many claims there have been: the rounds that tenants wait for. A sequence, because
-- nobody waits for that.
CREATE SEQUENCE mailgres.claim_numbers;

COMMENT ON SEQUENCE mailgres.claim_numbers IS 'Claims that took something.';
COMMENT ON TABLE mailgres.claim_slots IS 'Where each claimer is in its round through the tenants.';
COMMENT ON COLUMN mailgres.claim_slots.cursors IS
    'For each route, and for its urgent pass: the tenant after which to go on, and what the next one had of its share.';
