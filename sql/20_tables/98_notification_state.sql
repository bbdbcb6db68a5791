-- The state of the notifier: one row.

CREATE TABLE mailgres.notification_state (
    only_row           boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    dead_letters_at    timestamptz,
    alerts_at          timestamptz,
    webhook            text,
    webhook_failures   int NOT NULL DEFAULT 0,
    webhook_off_since  timestamptz
);

COMMENT ON TABLE mailgres.notification_state IS 'When people were last notified, and the state of the alert webhook: one row.';
COMMENT ON COLUMN mailgres.notification_state.dead_letters_at IS 'When people were last notified of dead letters.';
COMMENT ON COLUMN mailgres.notification_state.alerts_at IS 'When people were last notified of alerts.';
COMMENT ON COLUMN mailgres.notification_state.webhook IS 'A digest of the webhook that the failures belong to.';
COMMENT ON COLUMN mailgres.notification_state.webhook_failures IS 'Calls of the webhook that failed in a row.';
COMMENT ON COLUMN mailgres.notification_state.webhook_off_since IS 'Since when the webhook is off, after ten failures in a row.';
