-- Limits that all workers share. A token bucket fills at its rate, up to the tokens of one
-- second (at least one). A claim takes all the tokens that it needs at once, so the row is
-- written once per claim, not once per email.

CREATE TABLE mailgres.buckets (
    name        text PRIMARY KEY,
    per_second  double precision NOT NULL CHECK (per_second > 0),
    tokens      double precision NOT NULL,
    filled_at   timestamptz NOT NULL DEFAULT mailgres.now()
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

COMMENT ON TABLE mailgres.buckets IS 'Rate limits: how much may be sent now.';
COMMENT ON COLUMN mailgres.buckets.name IS
    'What is limited: calls:PROVIDER, emails:PROVIDER or tenant:TENANT (emails).';
COMMENT ON COLUMN mailgres.buckets.tokens IS 'Tokens left at filled_at; negative if more were used than there were.';

-- Emails sent per day and per month through the providers that have a quota.

CREATE TABLE mailgres.quota_usage (
    provider        text NOT NULL REFERENCES mailgres.providers ON DELETE CASCADE,
    period          text NOT NULL CHECK (period IN ('day', 'month')),
    starts          timestamptz NOT NULL,
    emails          int NOT NULL,
    reported        int,
    reported_until  timestamptz,
    PRIMARY KEY (provider, period, starts)
) WITH (fillfactor = 20);

COMMENT ON TABLE mailgres.quota_usage IS 'Emails that count against the quotas of providers.';
COMMENT ON COLUMN mailgres.quota_usage.emails IS 'How many emails mailgres sent.';
COMMENT ON COLUMN mailgres.quota_usage.reported IS
    'How many emails the provider reported as sent, plus those that mailgres sent since; null: no report.';
COMMENT ON COLUMN mailgres.quota_usage.reported_until IS
    'Until when the reported number is used instead of our own: the provider''s day may not be a UTC day.';
