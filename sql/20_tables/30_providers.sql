-- Providers, and routes: ordered lists of providers. The state that all workers
-- share about a provider (paused, circuit open) lives in its row.

CREATE TABLE mailgres.providers (
    name          text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
    kind          text NOT NULL CHECK (kind IN ('capture', 'null', 'resend', 'ses', 'smtp')),
    idempotent    boolean NOT NULL DEFAULT false,
    key_window    interval NOT NULL DEFAULT '23 hours' CHECK (key_window > '0'),
    batch_size    int NOT NULL DEFAULT 1 CHECK (batch_size BETWEEN 1 AND 1000),
    enabled       boolean NOT NULL DEFAULT true,
    paused_until  timestamptz,
    pause_reason  text,
    circuit       text NOT NULL DEFAULT 'closed' CHECK (circuit IN ('closed', 'open', 'half_open')),
    circuit_since timestamptz NOT NULL DEFAULT mailgres.now()
);

COMMENT ON TABLE mailgres.providers IS 'Who sends, and the state all workers share about it.';
COMMENT ON COLUMN mailgres.providers.idempotent IS
    'The provider takes idempotency keys: a try whose outcome is unknown may be repeated.';
COMMENT ON COLUMN mailgres.providers.key_window IS
    'How long after the first try a key still protects against a second delivery.';

CREATE FUNCTION mailgres.is_open(p mailgres.providers) RETURNS boolean
    LANGUAGE sql STABLE
RETURN p.enabled
    AND p.circuit = 'closed'
    AND (p.paused_until IS NULL OR p.paused_until <= mailgres.now());

COMMENT ON FUNCTION mailgres.is_open(mailgres.providers) IS
    'Whether emails may be claimed for this provider now.';

CREATE TABLE mailgres.routes (
    route       text PRIMARY KEY CHECK (route ~ '^[a-z][a-z0-9_-]{0,62}$'),
    paused      boolean NOT NULL DEFAULT false,
    description text NOT NULL DEFAULT ''
);

COMMENT ON TABLE mailgres.routes IS 'Named ways out of the queue; an email has one.';

CREATE TABLE mailgres.route_providers (
    route     text NOT NULL REFERENCES mailgres.routes ON DELETE CASCADE,
    position  int NOT NULL CHECK (position > 0),
    provider  text NOT NULL REFERENCES mailgres.providers,
    PRIMARY KEY (route, position),
    UNIQUE (route, provider)
);

COMMENT ON TABLE mailgres.route_providers IS
    'The providers of a route in the order of preference.';
