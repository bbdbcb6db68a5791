-- Open emails, counted every few seconds by a janitor: counting at every enqueue would make
-- enqueuing a third slower, and counting at every query takes long when a million emails
-- wait. `as_of` says when they were counted. If no janitor has counted for a while, the views
-- mailgres.current_depth_by_template and current_depth_by_tenant count themselves.

CREATE TABLE mailgres.depth (
    only_row      boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    as_of         timestamptz NOT NULL,
    tried_at      timestamptz NOT NULL,
    valid_until   timestamptz NOT NULL,
    took          interval NOT NULL,
    capped        boolean NOT NULL,
    claim_number  bigint NOT NULL
) WITH (fillfactor = 20);

COMMENT ON TABLE mailgres.depth IS 'When the open emails were counted: one row.';
COMMENT ON COLUMN mailgres.depth.tried_at IS 'When the janitor last counted, or stopped because it took too long.';
COMMENT ON COLUMN mailgres.depth.valid_until IS 'Until when the counts are used; before as_of if there are none yet.';
COMMENT ON COLUMN mailgres.depth.took IS 'How long the counting took; a tenth of the time may be spent on it.';
COMMENT ON COLUMN mailgres.depth.claim_number IS 'How many claims had been made.';
COMMENT ON COLUMN mailgres.depth.capped IS 'Whether there are more emails than one run counts: the counts are lower bounds.';

CREATE TABLE mailgres.depth_by_template (
    status         text NOT NULL,
    template_type  text NOT NULL,
    retries        int NOT NULL,
    emails         bigint NOT NULL,
    due            bigint NOT NULL,
    recent         bigint NOT NULL,
    parked         bigint NOT NULL,
    oldest         timestamptz NOT NULL,
    newest         timestamptz NOT NULL,
    oldest_due     timestamptz,
    oldest_lease   timestamptz,
    as_of          timestamptz NOT NULL,
    PRIMARY KEY (status, template_type, retries)
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.depth_by_template IS 'Open emails by status (pending, sending), template and retries.';
COMMENT ON COLUMN mailgres.depth_by_template.due IS 'Emails that can be claimed now.';
COMMENT ON COLUMN mailgres.depth_by_template.recent IS 'Emails created in the last 7 days (from the full hour on).';
COMMENT ON COLUMN mailgres.depth_by_template.parked IS 'Emails that wait until the sender''s configuration is fixed.';

CREATE TABLE mailgres.depth_by_tenant (
    route         text NOT NULL,
    tenant_id     text NOT NULL,
    emails        bigint NOT NULL,
    due           bigint NOT NULL,
    oldest_due    timestamptz,
    last_due      timestamptz,
    claim_number  bigint NOT NULL,
    as_of         timestamptz NOT NULL,
    PRIMARY KEY (route, tenant_id)
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.depth_by_tenant IS 'Waiting emails by route and tenant.';
COMMENT ON COLUMN mailgres.depth_by_tenant.last_due IS 'When the last of its emails that are not due yet becomes due.';
COMMENT ON COLUMN mailgres.depth_by_tenant.claim_number IS 'How many claims had been made when it was first seen with a due email.';
