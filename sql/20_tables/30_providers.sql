-- Providers, and routes: ordered lists of providers. A provider is an account: two
-- API keys are two providers. Its row holds the state that all workers share: paused,
-- rate-limited, out of quota, open circuit.

CREATE TABLE mailgres.providers (
    name               text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
    kind               text NOT NULL CHECK (kind ~ '^[a-z][a-z0-9_-]{0,62}$'),
    captures           boolean NOT NULL DEFAULT false,
    idempotent         boolean NOT NULL DEFAULT false,
    key_window         interval NOT NULL DEFAULT '23 hours' CHECK (key_window > '0' AND key_window <= '1000 years'),
    batch_size         int NOT NULL DEFAULT 1 CHECK (batch_size BETWEEN 1 AND 1000),
    fixed_batches      boolean NOT NULL DEFAULT false,
    enabled            boolean NOT NULL DEFAULT true,

    -- set by an operator
    paused_until       timestamptz,
    pause_reason       text,

    -- reported by the provider
    limited_until      timestamptz,
    limited_since      timestamptz,
    limited_by         text CHECK (limited_by IN ('rate', 'quota')),
    daily_quota        int CHECK (daily_quota >= 0),
    monthly_quota      int CHECK (monthly_quota >= 0),

    -- set by its failures
    circuit            text NOT NULL DEFAULT 'closed' CHECK (circuit IN ('closed', 'open', 'half_open')),
    circuit_since      timestamptz NOT NULL DEFAULT mailgres.now(),
    circuit_until      timestamptz,
    circuit_reason     text,
    failure_threshold  int NOT NULL DEFAULT 5 CHECK (failure_threshold > 0),
    failure_window     interval NOT NULL DEFAULT '60 seconds' CHECK (failure_window > '0' AND failure_window <= '1000 years'),
    failure_share      numeric NOT NULL DEFAULT 0.1 CHECK (failure_share BETWEEN 0 AND 1),
    open_for           interval NOT NULL DEFAULT '120 seconds' CHECK (open_for > '0' AND open_for <= '1000 years'),
    open_for_at_most   interval NOT NULL DEFAULT '30 minutes' CHECK (open_for_at_most > '0' AND open_for_at_most <= '1000 years'),
    failures           int NOT NULL DEFAULT 0,
    failed_at          timestamptz[] NOT NULL DEFAULT '{}',
    reopened           int NOT NULL DEFAULT 0,
    probe_token        uuid,
    probe_until        timestamptz
);

COMMENT ON TABLE mailgres.providers IS 'Services that send, and the state that all workers share.';
COMMENT ON COLUMN mailgres.providers.captures IS 'Whether the provider stores emails in the database instead of sending them.';
COMMENT ON COLUMN mailgres.providers.idempotent IS
    'Whether the provider accepts idempotency keys: an attempt whose outcome is unknown may be repeated.';
COMMENT ON COLUMN mailgres.providers.key_window IS
    'How long after the first attempt a key protects against a second delivery.';
COMMENT ON COLUMN mailgres.providers.batch_size IS 'The most emails in one call.';
COMMENT ON COLUMN mailgres.providers.fixed_batches IS
    'Whether a call with several emails has one key, so that it is repeated with the same emails or not at all.';
COMMENT ON COLUMN mailgres.providers.paused_until IS 'Until when an operator paused it.';
COMMENT ON COLUMN mailgres.providers.limited_until IS 'Until when it is rate-limited or out of quota.';
COMMENT ON COLUMN mailgres.providers.limited_since IS 'Since when; later than now if the clock was set back: mailgres.correct_times().';
COMMENT ON COLUMN mailgres.providers.limited_by IS 'Which of the two: rate or quota.';
COMMENT ON COLUMN mailgres.providers.daily_quota IS 'The most emails per day (UTC).';
COMMENT ON COLUMN mailgres.providers.monthly_quota IS 'The most emails per month (UTC).';
COMMENT ON COLUMN mailgres.providers.circuit IS
    'closed: calls are made; open: no calls, because it failed; half_open: one probe tests whether it works again.';
COMMENT ON COLUMN mailgres.providers.circuit_until IS
    'When an open circuit allows a probe; null means that an operator has to reset it.';
COMMENT ON COLUMN mailgres.providers.failure_threshold IS
    'This many failed calls open the circuit: within failure_window if failure_share is reached too, or in a row.';
COMMENT ON COLUMN mailgres.providers.failure_share IS
    'Failed calls in failure_window open the circuit only if they held at least this share of the emails in that time.';
COMMENT ON COLUMN mailgres.providers.open_for IS
    'How long the circuit stays open at first; it doubles each time the circuit reopens.';
COMMENT ON COLUMN mailgres.providers.failures IS 'Consecutive failed calls, with no successful call between them.';
COMMENT ON COLUMN mailgres.providers.failed_at IS 'The times of the last failed calls, newest last.';
COMMENT ON COLUMN mailgres.providers.reopened IS 'How often the circuit reopened since it was closed.';
COMMENT ON COLUMN mailgres.providers.probe_token IS 'The lease of the probe.';

CREATE FUNCTION mailgres.is_usable(p mailgres.providers) RETURNS boolean
    LANGUAGE sql STABLE
RETURN p.enabled
    AND p.circuit = 'closed'
    AND (p.paused_until IS NULL OR p.paused_until <= mailgres.now())
    AND (p.limited_until IS NULL OR p.limited_until <= mailgres.now())
    AND (p.captures OR NOT mailgres.is_quarantined());

COMMENT ON FUNCTION mailgres.is_usable(mailgres.providers) IS
    'Whether emails may be claimed for this provider now.';

CREATE TABLE mailgres.routes (
    route       text PRIMARY KEY CHECK (route ~ '^[a-z][a-z0-9_-]{0,62}$'),
    paused      boolean NOT NULL DEFAULT false,
    description text NOT NULL DEFAULT '',
    initial     boolean NOT NULL DEFAULT false
);

COMMENT ON TABLE mailgres.routes IS 'Named, ordered lists of providers; every email has a route.';
COMMENT ON COLUMN mailgres.routes.initial IS
    'Whether the route is as the migration created it: the first worker with providers sets it, after that only a command.';

CREATE TABLE mailgres.route_providers (
    route     text NOT NULL REFERENCES mailgres.routes ON DELETE CASCADE,
    position  int NOT NULL CHECK (position > 0),
    provider  text NOT NULL REFERENCES mailgres.providers,
    PRIMARY KEY (route, position),
    UNIQUE (route, provider)
);

COMMENT ON TABLE mailgres.route_providers IS
    'The providers of a route in the order of preference.';

-- Events of providers, for operators and alerts. Rows are only inserted.

CREATE TABLE mailgres.provider_events (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT mailgres.now(),
    provider  text NOT NULL,
    event     text NOT NULL,
    reason    text,
    worker    text
);

COMMENT ON TABLE mailgres.provider_events IS 'Events of providers: circuits, pauses, limits, quotas.';
COMMENT ON COLUMN mailgres.provider_events.event IS
    'CircuitBreakerOpened, CircuitBreakerHalfOpen, CircuitBreakerClosed, RateLimited, QuotaReached, Paused, Resumed, ClockCorrected.';
COMMENT ON COLUMN mailgres.provider_events.worker IS 'The worker whose call caused it; null if an operator did.';
