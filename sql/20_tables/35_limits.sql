-- Limits that all workers share. A bucket fills at its rate up to what one second
-- brings (at least one), and whoever claims takes out what the claim will use, in one
-- go: so its row is written once a claim, not once an email.

CREATE TABLE mailgres.buckets (
    name        text PRIMARY KEY,
    per_second  double precision NOT NULL CHECK (per_second > 0),
    tokens      double precision NOT NULL,
    filled_at   timestamptz NOT NULL DEFAULT mailgres.now()
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

COMMENT ON TABLE mailgres.buckets IS 'Rate limits: how much may go out now.';
COMMENT ON COLUMN mailgres.buckets.name IS
    'What is limited: calls:PROVIDER, emails:PROVIDER or tenant:TENANT (emails).';
COMMENT ON COLUMN mailgres.buckets.tokens IS 'What was left at filled_at; below zero after a debt.';

-- What went out by each provider in a day and in a month, for those that have a quota.

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
COMMENT ON COLUMN mailgres.quota_usage.emails IS 'How many we sent.';
COMMENT ON COLUMN mailgres.quota_usage.reported IS
    'How many the provider said were sent, and what we sent since; null: it said nothing.';
COMMENT ON COLUMN mailgres.quota_usage.reported_until IS
    'Until when that counts instead of our own number: its day may be another than ours.';
