-- Who was told what about dead letters: the operators, and tenants that have a contact.
-- And what holds for the operators' channels.

CREATE TABLE mailgres.notification_state (
    audience           text PRIMARY KEY CHECK (audience = 'operators' OR audience LIKE 'tenant:_%'),
    seen_until         timestamptz NOT NULL DEFAULT '-infinity',
    waiting            bigint NOT NULL DEFAULT 0,
    notified_at        timestamptz,
    notified_until     timestamptz NOT NULL DEFAULT '-infinity',
    alerts_at          timestamptz,
    webhook            text,
    webhook_failures   int NOT NULL DEFAULT 0,
    webhook_off_since  timestamptz
);

COMMENT ON TABLE mailgres.notification_state IS 'What people were told about dead letters, and what they will be.';
COMMENT ON COLUMN mailgres.notification_state.audience IS 'operators, or tenant: and the name of one.';
COMMENT ON COLUMN mailgres.notification_state.seen_until IS
    'operators: up to when dead letters were counted; a tenant: since when those waiting became dead.';
COMMENT ON COLUMN mailgres.notification_state.waiting IS 'Dead letters that they have not been told of.';
COMMENT ON COLUMN mailgres.notification_state.notified_at IS 'When they were last told of dead letters.';
COMMENT ON COLUMN mailgres.notification_state.notified_until IS 'Up to when dead letters were in what they were told.';
COMMENT ON COLUMN mailgres.notification_state.alerts_at IS 'operators: when people were last told of alerts.';
COMMENT ON COLUMN mailgres.notification_state.webhook IS 'A digest of the webhook that the failures belong to.';
COMMENT ON COLUMN mailgres.notification_state.webhook_off_since IS 'It failed ten times in a row and is not called since.';
