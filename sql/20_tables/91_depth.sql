-- What is open, counted every few seconds by a janitor: to count it at every enqueue would
-- make enqueuing a third slower, and to count it whenever somebody looks takes long when a
-- million emails wait. `as_of` says when it was counted. Where nobody has counted for a
-- while, whoever looks counts for himself: mailgres.current_depth_by_template, current_depth_by_tenant.

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
COMMENT ON COLUMN mailgres.depth.tried_at IS 'When they were last counted, or it was given up because it took too long.';
COMMENT ON COLUMN mailgres.depth.valid_until IS 'After this nobody believes it any more; before as_of if they could not be counted yet.';
COMMENT ON COLUMN mailgres.depth.took IS 'How long the counting took; it may take a tenth of the time.';
COMMENT ON COLUMN mailgres.depth.claim_number IS 'How many claims there had been.';
COMMENT ON COLUMN mailgres.depth.capped IS 'There is more than is counted in one go: the numbers are the least there is.';

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
COMMENT ON COLUMN mailgres.depth_by_template.due IS 'Those that could be claimed.';
COMMENT ON COLUMN mailgres.depth_by_template.recent IS 'Those created in the last 7 days (from the full hour on).';
COMMENT ON COLUMN mailgres.depth_by_template.parked IS 'Those that wait for the sender''s set-up to be mended.';

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
COMMENT ON COLUMN mailgres.depth_by_tenant.last_due IS 'When the last of them is due that waits for a later time.';
COMMENT ON COLUMN mailgres.depth_by_tenant.claim_number IS 'How many claims there had been when it was first seen with something due.';
