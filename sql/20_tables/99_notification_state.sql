-- What the operators, and the tenants that have a contact, were notified about; and the state
-- of the operators' channels.

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

COMMENT ON TABLE mailgres.notification_state IS 'Which dead letters and alerts people were notified about, and which are still to come.';
COMMENT ON COLUMN mailgres.notification_state.audience IS 'operators, or tenant: and the name of a tenant.';
COMMENT ON COLUMN mailgres.notification_state.seen_until IS
    'operators: until when dead letters were counted; a tenant: since when the waiting ones became dead.';
COMMENT ON COLUMN mailgres.notification_state.waiting IS 'Dead letters that they were not notified about yet.';
COMMENT ON COLUMN mailgres.notification_state.notified_at IS 'When they were last notified about dead letters.';
COMMENT ON COLUMN mailgres.notification_state.notified_until IS 'Until when dead letters are included in the last notification.';
COMMENT ON COLUMN mailgres.notification_state.alerts_at IS 'operators: when they were last notified about alerts.';
COMMENT ON COLUMN mailgres.notification_state.webhook IS 'A digest of the webhook that the failures belong to.';
COMMENT ON COLUMN mailgres.notification_state.webhook_off_since IS 'Since when the webhook is off, after ten failures in a row.';
