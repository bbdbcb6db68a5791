-- How many emails have which events. A change of the state of an email appends the difference; a janitor
-- adds it to the hourly table, as with the other rollups. Hours are those of created_at.

CREATE TABLE mailgres.event_deltas (
    hour           timestamptz NOT NULL,
    template_type  text NOT NULL,
    tenant_id      text NOT NULL,
    domain         text NOT NULL,
    reported       int NOT NULL DEFAULT 0,
    delivered      int NOT NULL DEFAULT 0,
    bounced        int NOT NULL DEFAULT 0,
    hard_bounced   int NOT NULL DEFAULT 0,
    complained     int NOT NULL DEFAULT 0,
    opened         int NOT NULL DEFAULT 0,
    clicked        int NOT NULL DEFAULT 0,
    unsubscribed   int NOT NULL DEFAULT 0,
    refused        int NOT NULL DEFAULT 0,
    seconds        double precision NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

ALTER TABLE mailgres.event_deltas REPLICA IDENTITY FULL;

COMMENT ON TABLE mailgres.event_deltas IS 'Changes of the states of emails that are not yet added to the rollup.';
COMMENT ON COLUMN mailgres.event_deltas.domain IS 'The domain of the recipient.';
COMMENT ON COLUMN mailgres.event_deltas.reported IS 'Emails that were delivered or bounced.';
COMMENT ON COLUMN mailgres.event_deltas.delivered IS 'Emails that were delivered and did not bounce later.';
COMMENT ON COLUMN mailgres.event_deltas.refused IS 'Emails that the provider accepted and did not send.';
COMMENT ON COLUMN mailgres.event_deltas.seconds IS 'Sum of the times from being due to being delivered.';

CREATE TABLE mailgres.rollup_by_event (
    hour           timestamptz NOT NULL,
    dimension      text NOT NULL CHECK (dimension IN ('template', 'tenant', 'domain')),
    name           text NOT NULL,
    reported       bigint NOT NULL DEFAULT 0,
    delivered      bigint NOT NULL DEFAULT 0,
    bounced        bigint NOT NULL DEFAULT 0,
    hard_bounced   bigint NOT NULL DEFAULT 0,
    complained     bigint NOT NULL DEFAULT 0,
    opened         bigint NOT NULL DEFAULT 0,
    clicked        bigint NOT NULL DEFAULT 0,
    unsubscribed   bigint NOT NULL DEFAULT 0,
    refused        bigint NOT NULL DEFAULT 0,
    seconds        double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (dimension, name, hour)
);

CREATE INDEX rollup_by_event_hour_idx ON mailgres.rollup_by_event (hour, dimension);

COMMENT ON TABLE mailgres.rollup_by_event IS
    'How many emails have which events, by hour of creation and template; by day of creation and tenant, or domain of the recipient.';
