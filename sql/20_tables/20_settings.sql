-- Defaults for emails and templates that set no value of their own. One row, typed columns.

CREATE TABLE mailgres.settings (
    only_row           boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    retry_policy       text NOT NULL REFERENCES mailgres.retry_policies,
    expires_after      interval CHECK (expires_after > '0' AND expires_after <= '1000 years'),
    max_lease_losses   int NOT NULL DEFAULT 5 CHECK (max_lease_losses > 0),
    config_wait        interval NOT NULL DEFAULT '15 minutes' CHECK (config_wait > '0' AND config_wait <= '1000 years'),
    config_wait_total  interval NOT NULL DEFAULT '3 days' CHECK (config_wait_total > '0' AND config_wait_total <= '1000 years'),
    dead_letter_ttl    interval NOT NULL DEFAULT '7 days' CHECK (dead_letter_ttl > '0' AND dead_letter_ttl <= '1000 years'),
    archive_ttl        interval NOT NULL DEFAULT '90 days' CHECK (archive_ttl > '0' AND archive_ttl <= '1000 years'),
    sent_ttl           interval NOT NULL DEFAULT '90 days' CHECK (sent_ttl > '0' AND sent_ttl <= '1000 years'),
    captured_ttl       interval NOT NULL DEFAULT '7 days' CHECK (captured_ttl > '0' AND captured_ttl <= '1000 years'),
    captured_bytes     bigint NOT NULL DEFAULT 268435456 CHECK (captured_bytes >= 0),
    counts_ttl         interval NOT NULL DEFAULT '100 days' CHECK (counts_ttl >= '31 days' AND counts_ttl <= '1000 years'),
    database_capacity  bigint CHECK (database_capacity > 0),
    initial            boolean NOT NULL DEFAULT true
);

COMMENT ON TABLE mailgres.settings IS 'Defaults of this queue: one row.';
COMMENT ON COLUMN mailgres.settings.expires_after IS
    'Emails not sent this long after they were due die as expired; null means never.';
COMMENT ON COLUMN mailgres.settings.max_lease_losses IS
    'An email dies as crashed when this many workers have died while holding it.';
COMMENT ON COLUMN mailgres.settings.config_wait IS
    'How long an email waits when the sender''s configuration is wrong (an unverified domain).';
COMMENT ON COLUMN mailgres.settings.config_wait_total IS
    'How long such an email waits in total before it dies.';
COMMENT ON COLUMN mailgres.settings.dead_letter_ttl IS 'Dead letters move to the archive after this time.';
COMMENT ON COLUMN mailgres.settings.archive_ttl IS 'Archived dead letters are deleted after this time.';
COMMENT ON COLUMN mailgres.settings.sent_ttl IS 'Sent and cancelled emails are deleted after this time.';
COMMENT ON COLUMN mailgres.settings.captured_ttl IS 'Messages of the provider capture are deleted after this time.';
COMMENT ON COLUMN mailgres.settings.captured_bytes IS
    'How many bytes of attachments of captured messages are kept; the oldest go first.';
COMMENT ON COLUMN mailgres.settings.counts_ttl IS
    'Hourly counts are deleted after this time, which is at least the period that the views cover.';
COMMENT ON COLUMN mailgres.settings.database_capacity IS
    'How many bytes the database may use, for alerts: UPDATE mailgres.settings SET database_capacity = pg_size_bytes(''8 GB''); null: not known.';
COMMENT ON COLUMN mailgres.settings.initial IS
    'Whether retry_policy and expires_after are as the migration set them: then the first worker that has other values sets them.';
