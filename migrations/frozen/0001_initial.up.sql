-- 0001_initial: sql/ as it was when this revision was frozen. Never edited by hand.

-- ---- sql/10_foundation/10_schemas.sql

-- Two schemas. `public` holds the contract: the names that applications, operators and
-- analysts use in their SQL. `mailgres` holds the engine and is granted to the worker only.
-- IF NOT EXISTS, because the migration tool keeps its version table in this schema.

CREATE SCHEMA IF NOT EXISTS mailgres;

COMMENT ON SCHEMA mailgres IS
    'The engine of mailgres: claim, finish, reap, policies, providers. Never expose it through an API.';

-- ---- sql/10_foundation/20_now.sql

-- The only source of time. All other functions call mailgres.now(), so a test can change
-- the time by replacing this function in its own database. In production no setting lets
-- a caller change the time.

CREATE FUNCTION mailgres.now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN pg_catalog.now();

COMMENT ON FUNCTION mailgres.now() IS
    'The time of the current transaction; tests replace this function to change the time.';

-- For times in texts that are stored or shown: a cast would depend on DateStyle and TimeZone.
CREATE FUNCTION mailgres.time_text(p_time timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN isfinite(p_time) THEN to_char(p_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
            ELSE p_time::text END;

COMMENT ON FUNCTION mailgres.time_text(timestamptz) IS
    'A time as text, in UTC, whatever the settings of the session.';

-- ---- sql/10_foundation/30_uuid_v7.sql

-- A time-ordered uuid (RFC 9562, version 7): new ids are neighbours in the index, so few of
-- its pages are written. Written here because PostgreSQL has uuidv7() only since version 18.
-- The first half of a random uuid is replaced by 48 bits of milliseconds since 1970, the
-- version (7), and 12 bits for the fraction of the millisecond, so that ids keep the order of
-- enqueuing. The second half already has the right variant.

CREATE FUNCTION mailgres.uuid_v7() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN encode(
    overlay(
        uuid_send(gen_random_uuid())
        PLACING int8send(
            (floor(date_part('epoch', clock_timestamp()) * 1000)::bigint << 16)
            | 28672
            | (floor(date_part('epoch', clock_timestamp()) * 4096000)::bigint & 4095))
        FROM 1 FOR 8),
    'hex')::uuid;

COMMENT ON FUNCTION mailgres.uuid_v7() IS 'A new time-ordered uuid (version 7).';

-- ---- sql/10_foundation/40_refuse.sql

-- Bad input is refused in the caller's transaction with a SQLSTATE of class MG,
-- a message that says what is wrong and a hint that says what to do. The codes
-- are listed in the documentation (docs/errors.md) and mapped to exceptions in
-- the Python package.

CREATE FUNCTION mailgres.refuse(p_sqlstate text, p_message text, p_hint text) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = p_sqlstate, MESSAGE = p_message, HINT = p_hint;
END
$$;

COMMENT ON FUNCTION mailgres.refuse(text, text, text) IS
    'Raises an error of class MG. Declared boolean so that it can stand in a condition.';

-- ---- sql/10_foundation/50_canonical_address.sql

-- One mailbox has many spellings: Ana@Example.com, ana@bücher.example and its A-label
-- ana@xn--bcher-kva.example, full-width letters, an invisible zero-width space. Suppressions
-- and allowed senders are compared in a canonical form that all spellings share. Emails are
-- sent to the address as it was given, not to its canonical form.
--
-- Most addresses are ASCII and need only lower() with collation C (in a Turkish locale, I
-- becomes a dotless i). The other functions are called for the rest only. PostgreSQL has no
-- punycode function (RFC 3492), so this file has one.

-- Invisible characters (Default_Ignorable_Code_Point), and the marks that change the
-- direction of the text after them.
CREATE FUNCTION mailgres.invisible_characters() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '[\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e'
    || '\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff'
    || '\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]';

COMMENT ON FUNCTION mailgres.invisible_characters() IS
    'A pattern of the characters that an address must not contain because they are invisible.';

-- Some programs read compatibility characters (NFKC changes them: full-width, circled and
-- mathematical letters, ligatures) as plain characters and others do not. They cannot be
-- detected in a database whose encoding is not UTF8, so there an address must be ASCII.
CREATE FUNCTION mailgres.is_unambiguous(p_text text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN CASE WHEN getdatabaseencoding() = 'UTF8' THEN
    p_text !~ mailgres.invisible_characters()
    AND p_text !~ '\u3002'  -- IDNA reads it as a full stop
    AND normalize(p_text, NFKC) = normalize(p_text, NFC)
    ELSE false END;

COMMENT ON FUNCTION mailgres.is_unambiguous(text) IS
    'Whether a text beyond ASCII has no invisible and no compatibility characters.';

-- In a database with the locale C, lower() only changes ASCII letters.
CREATE FUNCTION mailgres.lower_unicode(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN lower(p_text COLLATE pg_catalog."und-x-icu");
EXCEPTION
    WHEN undefined_object OR feature_not_supported THEN  -- a server without ICU
        RETURN lower(p_text);
END
$$;

COMMENT ON FUNCTION mailgres.lower_unicode(text) IS
    'The text in lower case, letters beyond ASCII included, whatever the locale of the database.';

CREATE FUNCTION mailgres.punycode(p_label text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    c_digits  constant text := 'abcdefghijklmnopqrstuvwxyz0123456789';
    v_points  constant int[] := ARRAY(SELECT ascii(c) FROM string_to_table(p_label, NULL) c);
    v_coded   text := regexp_replace(p_label, E'[^\\x01-\\x7f]', '', 'g');
    v_basic   constant int := length(v_coded);
    v_done    int := v_basic;
    v_next    int := 128;
    v_delta   bigint := 0;
    v_bias    int := 72;
    v_least   int;
    v_point   int;
    v_rest    bigint;
    v_k       int;
    v_t       int;
BEGIN
    IF v_basic > 0 THEN
        v_coded := v_coded || '-';
    END IF;
    WHILE v_done < cardinality(v_points) LOOP
        v_least := (SELECT min(p) FROM unnest(v_points) p WHERE p >= v_next);
        v_delta := v_delta + (v_least - v_next)::bigint * (v_done + 1);
        v_next := v_least;
        FOREACH v_point IN ARRAY v_points LOOP
            v_delta := v_delta + (v_point < v_next)::int;
            CONTINUE WHEN v_point <> v_next;
            v_rest := v_delta;
            v_k := 36;
            LOOP
                v_t := least(greatest(v_k - v_bias, 1), 26);
                EXIT WHEN v_rest < v_t;
                v_coded := v_coded || substr(c_digits, (v_t + (v_rest - v_t) % (36 - v_t))::int + 1, 1);
                v_rest := (v_rest - v_t) / (36 - v_t);
                v_k := v_k + 36;
            END LOOP;
            v_coded := v_coded || substr(c_digits, v_rest::int + 1, 1);
            -- adapt the bias (RFC 3492, section 6.1)
            v_delta := CASE WHEN v_done = v_basic THEN v_delta / 700 ELSE v_delta / 2 END;
            v_done := v_done + 1;
            v_delta := v_delta + v_delta / v_done;
            v_bias := 0;
            WHILE v_delta > 455 LOOP
                v_delta := v_delta / 35;
                v_bias := v_bias + 36;
            END LOOP;
            v_bias := v_bias + (36 * v_delta / (v_delta + 38))::int;
            v_delta := 0;
        END LOOP;
        v_delta := v_delta + 1;
        v_next := v_next + 1;
    END LOOP;
    RETURN v_coded;
END
$$;

COMMENT ON FUNCTION mailgres.punycode(text) IS 'One label of a domain in punycode (RFC 3492), without xn--.';

CREATE FUNCTION mailgres.canonical_unicode(p_address text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    c_longest  constant int := 2000;  -- no address is this long; do not spend time on longer texts
    v_address  text;
    v_domain   text;
BEGIN
    IF getdatabaseencoding() <> 'UTF8' OR octet_length(p_address) > c_longest THEN
        RETURN lower(p_address COLLATE "C");
    END IF;
    v_address := normalize(mailgres.lower_unicode(
        regexp_replace(normalize(p_address, NFKC), mailgres.invisible_characters(), '', 'g')), NFKC);
    v_domain := regexp_replace(substring(v_address FROM '[^@]*$'), E'\\u3002', '.', 'g');
    RETURN left(v_address, -length(substring(v_address FROM '[^@]*$'))) || (
        SELECT string_agg(
            CASE WHEN octet_length(l.label) > length(l.label) THEN 'xn--' || mailgres.punycode(l.label)
                 ELSE l.label END, '.' ORDER BY l.place)
        FROM string_to_table(v_domain, '.') WITH ORDINALITY l(label, place));
END
$$;

COMMENT ON FUNCTION mailgres.canonical_unicode(text) IS
    'The form in which addresses are compared, for an address beyond ASCII.';

CREATE FUNCTION mailgres.canonical_address(p_address text) RETURNS text
    LANGUAGE sql IMMUTABLE
RETURN CASE WHEN octet_length(p_address) = length(p_address) THEN lower(p_address COLLATE "C")
            ELSE mailgres.canonical_unicode(p_address) END;

COMMENT ON FUNCTION mailgres.canonical_address(text) IS
    'The form in which addresses are compared: lower case, the domain in A-labels. A text without @ is read as a domain.';

-- ---- sql/20_tables/10_retry_policies.sql

-- Retry policies are rows, not code. A policy either lists its waits (`steps`) or starts
-- at `base` and multiplies by `factor`. `cap` limits a wait. The jitter fractions spread
-- it: a wait w becomes a random value in [w*(1-down), w*(1+up)].

CREATE TABLE mailgres.retry_policies (
    name         text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
    max_retries  int NOT NULL CHECK (max_retries BETWEEN 0 AND 100),
    steps        interval[] CHECK (cardinality(steps) > 0 AND array_position(steps, NULL) IS NULL AND '0' <= ALL (steps)),
    base         interval CHECK (base > '0' AND base <= '1000 years'),
    factor       double precision NOT NULL DEFAULT 2 CHECK (factor BETWEEN 1 AND 10),
    cap          interval NOT NULL CHECK (cap > '0' AND cap <= '1000 years'),
    jitter_down  double precision NOT NULL DEFAULT 0 CHECK (jitter_down BETWEEN 0 AND 1),
    jitter_up    double precision NOT NULL DEFAULT 0 CHECK (jitter_up BETWEEN 0 AND 1),
    description  text NOT NULL DEFAULT '',
    CHECK ((steps IS NULL) <> (base IS NULL))
);

COMMENT ON TABLE mailgres.retry_policies IS
    'How long to wait before each retry, and how many retries there are.';
COMMENT ON COLUMN mailgres.retry_policies.max_retries IS
    'Retries after the first attempt; copied to the email when it is enqueued.';
COMMENT ON COLUMN mailgres.retry_policies.steps IS
    'The waits, one for each retry; the last one repeats.';

-- ---- sql/20_tables/20_settings.sql

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
COMMENT ON COLUMN mailgres.settings.counts_ttl IS
    'Hourly counts are deleted after this time, which is at least the period that the views cover.';
COMMENT ON COLUMN mailgres.settings.database_capacity IS
    'How many bytes the database may use, for alerts: UPDATE mailgres.settings SET database_capacity = pg_size_bytes(''8 GB''); null: not known.';
COMMENT ON COLUMN mailgres.settings.initial IS
    'Whether retry_policy and expires_after are as the migration set them: then the first worker that has other values sets them.';

-- ---- sql/20_tables/30_providers.sql

-- Providers, and routes: ordered lists of providers. A provider is an account: two
-- API keys are two providers. The state that all workers share about one (paused,
-- told to wait, circuit open) lives in its row.

CREATE TABLE mailgres.providers (
    name               text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
    kind               text NOT NULL CHECK (kind ~ '^[a-z][a-z0-9_-]{0,62}$'),
    captures           boolean NOT NULL DEFAULT false,
    idempotent         boolean NOT NULL DEFAULT false,
    key_window         interval NOT NULL DEFAULT '23 hours' CHECK (key_window > '0' AND key_window <= '1000 years'),
    batch_size         int NOT NULL DEFAULT 1 CHECK (batch_size BETWEEN 1 AND 1000),
    fixed_batches      boolean NOT NULL DEFAULT false,
    enabled            boolean NOT NULL DEFAULT true,

    -- by hand
    paused_until       timestamptz,
    pause_reason       text,

    -- by what the provider said
    limited_until      timestamptz,
    limited_since      timestamptz,
    limited_by         text CHECK (limited_by IN ('rate', 'quota')),
    daily_quota        int CHECK (daily_quota >= 0),
    monthly_quota      int CHECK (monthly_quota >= 0),

    -- by its failures
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

COMMENT ON TABLE mailgres.providers IS 'Who sends, and the state all workers share about it.';
COMMENT ON COLUMN mailgres.providers.captures IS 'The provider stores emails in the database; none leaves.';
COMMENT ON COLUMN mailgres.providers.idempotent IS
    'The provider takes idempotency keys: a try whose outcome is unknown may be repeated.';
COMMENT ON COLUMN mailgres.providers.key_window IS
    'How long after the first try a key still protects against a second delivery.';
COMMENT ON COLUMN mailgres.providers.batch_size IS 'How many emails a call takes.';
COMMENT ON COLUMN mailgres.providers.fixed_batches IS
    'A call with several emails has one key, so it is repeated with the same emails or not at all.';
COMMENT ON COLUMN mailgres.providers.paused_until IS 'An operator paused it until then.';
COMMENT ON COLUMN mailgres.providers.limited_until IS 'The provider asked to be left alone until then.';
COMMENT ON COLUMN mailgres.providers.limited_since IS 'When it asked; later than now if the clock went back: mailgres.correct_times().';
COMMENT ON COLUMN mailgres.providers.limited_by IS 'What for: its rate limit or a quota.';
COMMENT ON COLUMN mailgres.providers.daily_quota IS 'How many emails it takes in a day (UTC).';
COMMENT ON COLUMN mailgres.providers.monthly_quota IS 'How many emails it takes in a month (UTC).';
COMMENT ON COLUMN mailgres.providers.circuit IS
    'closed: in use; open: failing, left alone; half_open: one call tries whether it is back.';
COMMENT ON COLUMN mailgres.providers.circuit_until IS
    'When an open circuit lets one call through; null means not by itself.';
COMMENT ON COLUMN mailgres.providers.failure_threshold IS
    'So many failed calls within failure_window open the circuit if failure_share is reached too, or so many in a row.';
COMMENT ON COLUMN mailgres.providers.failure_share IS
    'Failed calls in failure_window open the circuit only if they had at least this part of the emails of that time.';
COMMENT ON COLUMN mailgres.providers.open_for IS
    'How long the circuit stays open at first; doubles each time it reopens.';
COMMENT ON COLUMN mailgres.providers.failures IS 'Failed calls in a row: without an answered call between them.';
COMMENT ON COLUMN mailgres.providers.failed_at IS 'When the last calls failed, newest last.';
COMMENT ON COLUMN mailgres.providers.reopened IS 'How often the circuit reopened since it was closed.';
COMMENT ON COLUMN mailgres.providers.probe_token IS 'The lease of the one call that tries whether it is back.';

CREATE FUNCTION mailgres.is_usable(p mailgres.providers) RETURNS boolean
    LANGUAGE sql STABLE
RETURN p.enabled
    AND p.circuit = 'closed'
    AND (p.paused_until IS NULL OR p.paused_until <= mailgres.now())
    AND (p.limited_until IS NULL OR p.limited_until <= mailgres.now());

COMMENT ON FUNCTION mailgres.is_usable(mailgres.providers) IS
    'Whether emails may be claimed for this provider now.';

CREATE TABLE mailgres.routes (
    route       text PRIMARY KEY CHECK (route ~ '^[a-z][a-z0-9_-]{0,62}$'),
    paused      boolean NOT NULL DEFAULT false,
    description text NOT NULL DEFAULT '',
    initial     boolean NOT NULL DEFAULT false
);

COMMENT ON TABLE mailgres.routes IS 'Named ways out of the queue; an email has one.';
COMMENT ON COLUMN mailgres.routes.initial IS
    'Still as the migration made it: the first worker that names providers sets it, and nothing but a command later.';

CREATE TABLE mailgres.route_providers (
    route     text NOT NULL REFERENCES mailgres.routes ON DELETE CASCADE,
    position  int NOT NULL CHECK (position > 0),
    provider  text NOT NULL REFERENCES mailgres.providers,
    PRIMARY KEY (route, position),
    UNIQUE (route, provider)
);

COMMENT ON TABLE mailgres.route_providers IS
    'The providers of a route in the order of preference.';

-- What happened to a provider, for people and alerts. Only ever appended to.

CREATE TABLE mailgres.provider_events (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT mailgres.now(),
    provider  text NOT NULL,
    event     text NOT NULL,
    reason    text,
    worker    text
);

COMMENT ON TABLE mailgres.provider_events IS 'What happened to providers: circuits, pauses, quotas.';
COMMENT ON COLUMN mailgres.provider_events.event IS
    'CircuitBreakerOpened, CircuitBreakerHalfOpen, CircuitBreakerClosed, RateLimited, QuotaReached, Paused, Resumed, ClockCorrected.';
COMMENT ON COLUMN mailgres.provider_events.worker IS 'The worker whose call showed it; null: by hand.';

-- ---- sql/20_tables/35_limits.sql

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

-- ---- sql/20_tables/40_tenants.sql

-- Tenants need no registration: a tenant without a row has weight 1 and is not paused.
-- Only tenants that differ from this have a row.

CREATE TABLE mailgres.tenants (
    tenant_id      text PRIMARY KEY CHECK (length(tenant_id) BETWEEN 1 AND 200),
    weight         int NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100),
    paused_at      timestamptz,
    pause_reason   text,
    from_email     text,
    reply_to       text,
    route          text REFERENCES mailgres.routes,
    contact_email  text
);

COMMENT ON TABLE mailgres.tenants IS 'Tenants with settings of their own.';
COMMENT ON COLUMN mailgres.tenants.weight IS
    'The tenant gets this many times three emails per turn while other tenants wait.';
COMMENT ON COLUMN mailgres.tenants.route IS 'The route of its emails, if neither the email nor its template names one.';
COMMENT ON COLUMN mailgres.tenants.contact_email IS 'The address that is notified about its dead letters and alerts.';

-- Where the next claim continues its round through the tenants. A claim locks the first
-- free slot, so that claims of several workers do not wait for each other. With one worker
-- the round is strict; with several, the round of each slot is.

CREATE TABLE mailgres.claim_slots (
    slot        int PRIMARY KEY,
    next_route  bigint NOT NULL DEFAULT 0,
    cursors     jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- Counts the claims: tenants wait for a number of claims, not for a time. A sequence,
-- because incrementing it takes no lock.
CREATE SEQUENCE mailgres.claim_numbers;

COMMENT ON SEQUENCE mailgres.claim_numbers IS 'Numbers the claims that took at least one email.';
COMMENT ON TABLE mailgres.claim_slots IS 'Where each concurrent claim continues its round through the tenants.';
COMMENT ON COLUMN mailgres.claim_slots.cursors IS
    'For each route, and for its urgent pass: the last tenant served, and how much of its share the next one has used.';

-- ---- sql/20_tables/45_senders.sql

-- The senders that an application may set (docs/senders.md). Without a row it may set any.

CREATE TABLE mailgres.senders (
    tenant_id   text NOT NULL CHECK (length(tenant_id) BETWEEN 1 AND 200),
    sender      text NOT NULL,
    allowed_at  timestamptz NOT NULL DEFAULT mailgres.now(),
    PRIMARY KEY (tenant_id, sender)
);

COMMENT ON TABLE mailgres.senders IS
    'Senders that applications may set in from_email. A tenant uses its own rows, or those of * if it has none; without either, any sender is accepted.';
COMMENT ON COLUMN mailgres.senders.tenant_id IS 'The tenant; * is for tenants without a list of their own.';
COMMENT ON COLUMN mailgres.senders.sender IS
    'A domain, *. and a domain for all its subdomains, or one address; in canonical form.';

-- Roles that may enqueue for one tenant only.

CREATE TABLE mailgres.producers (
    role_name  text PRIMARY KEY,
    tenant_id  text NOT NULL CHECK (length(tenant_id) BETWEEN 1 AND 200),
    bound_at   timestamptz NOT NULL DEFAULT mailgres.now()
);

COMMENT ON TABLE mailgres.producers IS 'Roles that may enqueue for one tenant only; a role without a row may enqueue for any.';
COMMENT ON COLUMN mailgres.producers.role_name IS
    'The role that logs in, or the role that a session switches to with SET ROLE. Stored by name, so that it is still right after a restore.';

-- ---- sql/20_tables/50_email_templates.sql

-- A template is a row with its settings. Its content is in immutable versions, one row
-- for each locale, so that every retry of an email renders exactly the same as its first
-- attempt.

CREATE TABLE public.email_templates (
    template_type       text PRIMARY KEY CHECK (template_type ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$'),
    description         text NOT NULL DEFAULT '',
    active_version      int NOT NULL DEFAULT 1 CHECK (active_version > 0),
    required_variables  text[] NOT NULL DEFAULT '{}',
    from_email          text,
    reply_to            text,
    route               text REFERENCES mailgres.routes,
    priority            smallint CHECK (priority BETWEEN 1 AND 9),
    retry_policy        text REFERENCES mailgres.retry_policies,
    expires_after       interval CHECK (expires_after > '0' AND expires_after <= '1000 years'),
    on_uncertain        text NOT NULL DEFAULT 'hold' CHECK (on_uncertain IN ('hold', 'resend')),
    sample              jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(sample) = 'object'),
    retired_at          timestamptz,
    created_at          timestamptz NOT NULL DEFAULT mailgres.now(),
    updated_at          timestamptz NOT NULL DEFAULT mailgres.now()
);

COMMENT ON TABLE public.email_templates IS
    'Templates and their settings; the content of each version is in mailgres.template_versions.';
COMMENT ON COLUMN public.email_templates.required_variables IS
    'Keys that the payload must have; checked when an email is enqueued.';
COMMENT ON COLUMN public.email_templates.on_uncertain IS
    'What to do when a provider without idempotency keys may or may not have sent an email: hold (a person decides) or resend (a duplicate is acceptable).';
COMMENT ON COLUMN public.email_templates.sample IS
    'A payload for previews of the template; invented data, never a real person''s.';
COMMENT ON COLUMN public.email_templates.retired_at IS
    'Since when no new email may use the template; emails in the queue are still sent.';

CREATE TABLE mailgres.template_versions (
    template_type  text NOT NULL REFERENCES public.email_templates,
    version        int NOT NULL CHECK (version > 0),
    locale         text NOT NULL DEFAULT 'en' CHECK (locale ~ '^[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*$'),
    subject        text NOT NULL CHECK (subject <> '' AND subject !~ '[\n\r]'),
    html           text,
    text           text NOT NULL CHECK (text <> ''),
    is_default     boolean NOT NULL DEFAULT false,
    created_at     timestamptz NOT NULL DEFAULT mailgres.now(),
    PRIMARY KEY (template_type, version, locale)
);

CREATE UNIQUE INDEX template_versions_one_default ON mailgres.template_versions (template_type, version)
    WHERE is_default;

COMMENT ON TABLE mailgres.template_versions IS 'The content of a template: immutable.';
COMMENT ON COLUMN mailgres.template_versions.is_default IS
    'Whether this locale is used when the requested one does not exist.';

CREATE FUNCTION mailgres.forbid_change() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.refuse(
        'MG040',
        format('rows of %I.%I are never changed', TG_TABLE_SCHEMA, TG_TABLE_NAME),
        'Add a new row instead: a new version of a template, a new entry of a log.');
    RETURN NULL;
END
$$;

CREATE TRIGGER template_versions_are_immutable
    BEFORE UPDATE OR DELETE OR TRUNCATE ON mailgres.template_versions
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.forbid_change();

-- ---- sql/20_tables/55_fields.sql

-- Which values the columns of email_queue accept, from every writer: a worker must be able
-- to prepare every email in the queue, or one email would stall others.
--
-- Domains, because a cached plan keeps their checks, and because the error of a table's
-- CHECK quotes the failing row, which has the recipient. The functions run with the rights
-- of the writer; their bodies are parsed when they are created, so no search_path changes
-- their meaning. Functions with a subquery are strict and the others are inlined, so that a
-- null column costs almost nothing. A check that returns null passes, so each function
-- returns null for null only.

-- An address is a dot-atom of at most 64 characters, @, and a domain of at least two
-- labels, the last of which starts with a letter; at most 254 bytes in all. Letters
-- beyond ASCII are accepted on both sides (RFC 6531); quoted local parts, comments,
-- address literals and display names are not. The character classes exclude characters,
-- because the set of letters depends on the collation. Some programs read U+2028 and U+2029
-- as line breaks. Beyond ASCII, characters that are invisible or can be read in two ways are
-- refused: see mailgres.is_unambiguous().
CREATE FUNCTION mailgres.is_address(p_address text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN octet_length(p_address) <= 254
    AND strpos(p_address, '@') <= 65
    AND p_address ~ (
        '^[^\x01-\x20\x7f-\xa0\u2028\u2029"(),.:;<>@\[\\\]]+(?:\.[^\x01-\x20\x7f-\xa0\u2028\u2029"(),.:;<>@\[\\\]]+)*'
        || '@(?:[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029](?:[^\x01-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029]*[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029])?\.)+'
        || '[^\x01-\x40\x5b-\x60\x7b-\xa0\u2028\u2029](?:[^\x01-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029]*[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029])?$')
    AND (p_address !~ '[^\x01-\x7f]' OR mailgres.is_unambiguous(p_address));

COMMENT ON FUNCTION mailgres.is_address(text) IS 'Whether a text is one plain email address.';

-- A sender may carry a display name: Example <mail@example.com>.
CREATE FUNCTION mailgres.is_sender(p_sender text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_sender !~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]' AND length(p_sender) <= 320
    AND mailgres.is_address(coalesce(substring(p_sender FROM '^[^<>]*<([^<>]*)>$'), p_sender));

COMMENT ON FUNCTION mailgres.is_sender(text) IS
    'Whether a text is an address, with or without a display name.';

-- One dimension only: the worker would read an element of a larger array as an array.
CREATE FUNCTION mailgres.are_addresses(p_addresses text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN cardinality(p_addresses) <= 50
    AND coalesce(array_ndims(p_addresses) = 1 AND array_lower(p_addresses, 1) = 1, true)
    AND NOT EXISTS (SELECT FROM unnest(p_addresses) a WHERE mailgres.is_address(a) IS NOT TRUE);

COMMENT ON FUNCTION mailgres.are_addresses(text[]) IS
    'Whether these are at most 50 plain email addresses in an array of one dimension.';

-- Headers that mailgres, a server or a provider sets itself or acts on are refused:
-- src/mailgres/providers/header.py has the same list.
CREATE FUNCTION mailgres.are_headers(p_headers jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN jsonb_typeof(p_headers) = 'object' THEN
    octet_length(p_headers::text) <= 16384
    AND jsonb_array_length(jsonb_path_query_array(p_headers, '$.keyvalue()')) <= 50
    AND NOT jsonb_path_exists(p_headers, '$.keyvalue() ? (
        !(@.key like_regex "^[A-Za-z0-9-]{1,76}$")
        || @.key like_regex "^(?:from|to|cc|bcc|subject|date|message-id|reply-to|sender|return-path|mime-version|delivered-to|dkim-signature|domainkey-signature|authentication-results|x-smtpapi|x-msys-api|received(?:-.*)?|(?:resent|content|arc|x-ses|x-mc|x-pm|x-mailgun|x-mj|x-mailin|x-sg)-.*)$" flag "i"
        || @.value.type() != "string"
        || @.value like_regex "[\u0001-\u0008\u000a-\u001f\u007f-\u009f\u2028\u2029]")')
    WHEN p_headers IS NOT NULL THEN false END;

COMMENT ON FUNCTION mailgres.are_headers(jsonb) IS
    'Whether this is an object of at most 50 headers that an email may set, 16 KB in all.';

CREATE FUNCTION mailgres.are_tags(p_tags jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN jsonb_typeof(p_tags) = 'object' THEN
    jsonb_array_length(jsonb_path_query_array(p_tags, '$.keyvalue()')) <= 40
    AND NOT jsonb_path_exists(p_tags, '$.keyvalue() ? (
        !(@.key like_regex "^[A-Za-z0-9_-]{1,255}$")
        || @.value.type() != "string"
        || !(@.value like_regex "^[A-Za-z0-9_-]{1,255}$"))')
    WHEN p_tags IS NOT NULL THEN false END;

COMMENT ON FUNCTION mailgres.are_tags(jsonb) IS
    'Whether this is an object of at most 40 tags that providers accept.';

CREATE DOMAIN mailgres.template_name AS text
    CONSTRAINT is_a_name CHECK (octet_length(VALUE) BETWEEN 1 AND 100);
CREATE DOMAIN mailgres.tenant AS text COLLATE "C"
    CONSTRAINT is_a_name CHECK (length(VALUE) BETWEEN 1 AND 200);
CREATE DOMAIN mailgres.key AS text
    CONSTRAINT is_short CHECK (length(VALUE) BETWEEN 1 AND 256);
CREATE DOMAIN mailgres.address AS text
    CONSTRAINT is_an_address CHECK (mailgres.is_address(VALUE));
CREATE DOMAIN mailgres.sender AS text
    CONSTRAINT is_a_sender CHECK (mailgres.is_sender(VALUE));
CREATE DOMAIN mailgres.addresses AS text[]
    CONSTRAINT are_addresses CHECK (mailgres.are_addresses(VALUE));
CREATE DOMAIN mailgres.more_addresses AS mailgres.addresses
    CONSTRAINT are_at_most_49 CHECK (cardinality(VALUE) <= 49);  -- providers accept 50 with recipient_email
CREATE DOMAIN mailgres.headers AS jsonb
    CONSTRAINT are_headers CHECK (mailgres.are_headers(VALUE));
CREATE DOMAIN mailgres.tags AS jsonb
    CONSTRAINT are_tags CHECK (mailgres.are_tags(VALUE));
CREATE DOMAIN mailgres.subject AS text
    CONSTRAINT is_one_line CHECK (length(VALUE) BETWEEN 1 AND 998 AND VALUE !~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]');
CREATE DOMAIN mailgres.body AS text
    CONSTRAINT is_at_most_5_mib CHECK (octet_length(VALUE) <= 5242880);
-- The largest size that 1 MiB of text can have as jsonb, and some more. The || makes it a value
-- in memory, whose size is that of its content: a compressed value of another table looks small.
CREATE DOMAIN mailgres.payload AS jsonb
    CONSTRAINT is_an_object CHECK (CASE WHEN jsonb_typeof(VALUE) = 'object'
        THEN pg_column_size(VALUE || '{}') <= 8388608 ELSE VALUE IS NULL END);
CREATE DOMAIN mailgres.delay AS interval
    CONSTRAINT is_at_most_30_days CHECK (VALUE BETWEEN '0' AND '30 days');
CREATE DOMAIN mailgres.priority AS smallint CHECK (VALUE BETWEEN 1 AND 9);
-- Limited, so that a sum with it does not overflow.
CREATE DOMAIN mailgres.count AS int CHECK (VALUE BETWEEN 0 AND 1000000000);
CREATE DOMAIN mailgres.most_retries AS int CHECK (VALUE BETWEEN 0 AND 100);
-- A time for arithmetic, and one that programs can read: infinity would make claims, janitors
-- and figures fail for all emails. The time that an email waits for may be infinite.
CREATE DOMAIN mailgres.moment AS timestamptz
    CONSTRAINT is_in_years_1_to_9999
    CHECK (VALUE >= '0001-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');

-- ---- sql/20_tables/60_email_queue.sql

-- The queue. One row per message; the status says how far it has come:
--
--   pending -> sending -> sent
--                      -> pending   (a later next_retry_at)
--                      -> failed    (dead: dead_at, dead_reason, error_message)
--   pending -> cancelled | failed   (by hand, suppressed, expired)
--
-- docs/lifecycle.md has a diagram. CHECKs enforce what must hold in each status. Lists of
-- values, and which values a column accepts (55_fields.sql), are domains: a cached plan keeps
-- their checks, while every statement reads the CHECKs of a table again.

CREATE DOMAIN mailgres.status AS text
    CHECK (VALUE IN ('pending', 'sending', 'sent', 'failed', 'cancelled'));
CREATE DOMAIN mailgres.dead_reason AS text
    CHECK (VALUE IN ('exhausted', 'permanent', 'expired', 'uncertain', 'crashed'));
CREATE DOMAIN mailgres.error_class AS text
    CHECK (VALUE IN ('transient', 'rate', 'quota', 'config', 'permanent', 'ambiguous'));

CREATE TABLE public.email_queue (
    id                   uuid PRIMARY KEY DEFAULT mailgres.uuid_v7(),
    user_id              uuid,
    template_type        mailgres.template_name NOT NULL,
    recipient_email      mailgres.address NOT NULL,
    payload              mailgres.payload NOT NULL DEFAULT '{}',
    status               mailgres.status NOT NULL DEFAULT 'pending',
    retries              mailgres.count NOT NULL DEFAULT 0,
    max_retries          mailgres.most_retries NOT NULL DEFAULT 3,
    last_attempt_at      mailgres.moment,
    next_retry_at        timestamptz NOT NULL DEFAULT mailgres.now(),
    error_message        text,
    resend_id            text,
    created_at           mailgres.moment NOT NULL DEFAULT mailgres.now(),

    -- tenant, route and schedule
    tenant_id            mailgres.tenant NOT NULL DEFAULT 'default',
    priority             mailgres.priority NOT NULL DEFAULT 5,
    route                text COLLATE "C" NOT NULL DEFAULT 'default',
    scheduled_for        timestamptz,
    expires_at           timestamptz,
    ready                boolean NOT NULL DEFAULT false,
    idempotency_key      mailgres.key,
    correlation_id       mailgres.key,
    retry_policy         text,
    retry_delay          mailgres.delay,
    max_retry_delay      mailgres.delay,

    -- outcome of the email, or of its last attempt
    sent_at              mailgres.moment,
    dead_at              mailgres.moment,
    dead_reason          mailgres.dead_reason,
    error_code           text,
    error_class          mailgres.error_class,
    error_detail         text,
    provider             text,
    provider_message_id  text,

    -- attempts and the lease
    generation           mailgres.count NOT NULL DEFAULT 0,
    template_version     int,
    first_attempt_at     mailgres.moment,
    uncertain_since      mailgres.moment,
    parked_since         mailgres.moment,
    last_duration_ms     int,
    batch_id             uuid,
    batch_size           int,
    send_alone           boolean NOT NULL DEFAULT false,
    lease_token          uuid,
    leased_at            mailgres.moment,
    lease_until          mailgres.moment,
    lease_worker         text,
    lease_is_tokenless   boolean NOT NULL DEFAULT false,
    lease_losses         mailgres.count NOT NULL DEFAULT 0,
    attempt_started_at   mailgres.moment,

    -- content of applications that render emails themselves
    from_email           mailgres.sender,
    reply_to             mailgres.sender,
    subject              mailgres.subject,
    html                 mailgres.body,
    text                 mailgres.body,
    headers              mailgres.headers,
    tags                 mailgres.tags,
    also_to              mailgres.more_addresses,
    cc                   mailgres.addresses,
    bcc                  mailgres.addresses,
    has_attachments      boolean NOT NULL DEFAULT false,

    -- when a janitor has to handle the row: it is due, it expires, its lease ends, or it has
    -- been dead long enough. One index serves all of them.
    due_at               timestamptz GENERATED ALWAYS AS (
                             CASE status
                                 -- an uncertain email of a batch stays with its batch
                                 WHEN 'pending' THEN CASE WHEN NOT ready THEN next_retry_at
                                                          WHEN uncertain_since IS NULL OR batch_id IS NULL
                                                          THEN expires_at END
                                 WHEN 'sending' THEN lease_until
                                 WHEN 'failed' THEN dead_at
                             END) STORED,

    CONSTRAINT email_queue_state CHECK (
        CASE status
            WHEN 'pending' THEN num_nonnulls(lease_token, dead_at) = 0
            WHEN 'sending' THEN NOT ready AND dead_at IS NULL
                AND num_nonnulls(lease_token, lease_until, leased_at, lease_worker) = 4
            ELSE NOT ready AND lease_token IS NULL AND CASE status
                WHEN 'sent' THEN dead_at IS NULL AND sent_at IS NOT NULL
                    AND (provider IS NULL OR provider_message_id IS NOT NULL)
                WHEN 'failed' THEN num_nonnulls(dead_at, dead_reason, nullif(error_message, '')) = 3
                ELSE dead_at IS NULL
            END
        END)
)
-- Measured by benchmarks/storage.py with a million sent rows: the queue drains equally fast
-- with fillfactor 100, 90 and 70, because no update of this table can be HOT (each moves the
-- row from one partial index to another), and 70 takes a quarter more space. So it has the
-- default, 100. At that size PostgreSQL's defaults for vacuum are as good, but they wait for
-- a fifth of the table: two million dead rows of ten million. These wait for a fiftieth. A
-- transaction that stays open is costly: it halves the rate until it ends.
WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

-- The claim goes round the tenants of a route and takes the next emails of each: exact
-- ranges of this index, whatever else is in the table.
CREATE INDEX email_queue_ready_idx ON public.email_queue
    (route, tenant_id, priority, next_retry_at) WHERE ready;

-- The same round among urgent emails only.
CREATE INDEX email_queue_urgent_idx ON public.email_queue
    (route, tenant_id, priority, next_retry_at) WHERE ready AND priority <= 2;

-- The rows that janitors handle, soonest first: promote, expire, reap, archive_dead_letters.
CREATE INDEX email_queue_due_idx ON public.email_queue (status, due_at) WHERE due_at IS NOT NULL;

-- The other emails of an uncertain batch, and emails that wait until the sender's
-- configuration is fixed; almost always empty.
CREATE INDEX email_queue_batch_idx ON public.email_queue (batch_id, parked_since)
    WHERE uncertain_since IS NOT NULL OR parked_since IS NOT NULL AND status = 'pending';

CREATE UNIQUE INDEX email_queue_idempotency_idx ON public.email_queue
    (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

COMMENT ON TABLE public.email_queue IS 'Every email: waiting, being sent, sent, dead or cancelled.';
COMMENT ON COLUMN public.email_queue.id IS 'Time-ordered uuid (version 7).';
COMMENT ON COLUMN public.email_queue.user_id IS 'The user of the application whom this email concerns.';
COMMENT ON COLUMN public.email_queue.template_type IS 'The template; for an email with its own content, a name for statistics.';
COMMENT ON COLUMN public.email_queue.recipient_email IS 'The address it goes to; the first, if there are several.';
COMMENT ON COLUMN public.email_queue.payload IS 'Variables of the template.';
COMMENT ON COLUMN public.email_queue.status IS 'pending, sending, sent, failed (dead) or cancelled.';
COMMENT ON COLUMN public.email_queue.retries IS 'Retries made after the first attempt.';
COMMENT ON COLUMN public.email_queue.max_retries IS 'Retries allowed: 3 means at most four attempts.';
COMMENT ON COLUMN public.email_queue.last_attempt_at IS 'When the last attempt was claimed.';
COMMENT ON COLUMN public.email_queue.next_retry_at IS 'When the next attempt may be made; change it by hand to retry sooner or later.';
COMMENT ON COLUMN public.email_queue.error_message IS 'Why the last attempt failed, with addresses replaced by placeholders.';
COMMENT ON COLUMN public.email_queue.resend_id IS 'The provider''s id when Resend sent it.';
COMMENT ON COLUMN public.email_queue.created_at IS 'When it was enqueued.';
COMMENT ON COLUMN public.email_queue.tenant_id IS 'The tenant of the email; the claim is fair between tenants.';
COMMENT ON COLUMN public.email_queue.priority IS '1 (urgent) to 9 (bulk); orders a tenant''s own emails.';
COMMENT ON COLUMN public.email_queue.route IS 'The route: an ordered list of providers.';
COMMENT ON COLUMN public.email_queue.scheduled_for IS 'The email is not sent before this time.';
COMMENT ON COLUMN public.email_queue.expires_at IS 'The email is not sent after this time.';
COMMENT ON COLUMN public.email_queue.ready IS 'Whether the email is due, and so in the index of the claim.';
COMMENT ON COLUMN public.email_queue.idempotency_key IS 'The application''s own key: unique per tenant.';
COMMENT ON COLUMN public.email_queue.correlation_id IS 'The application''s own id for tracing.';
COMMENT ON COLUMN public.email_queue.retry_policy IS 'Name of the retry policy; null means the default.';
COMMENT ON COLUMN public.email_queue.retry_delay IS 'First wait of this email, instead of the policy''s.';
COMMENT ON COLUMN public.email_queue.max_retry_delay IS 'Longest wait of this email, instead of the policy''s.';
COMMENT ON COLUMN public.email_queue.sent_at IS 'When the provider accepted it.';
COMMENT ON COLUMN public.email_queue.dead_at IS 'When it became a dead letter.';
COMMENT ON COLUMN public.email_queue.dead_reason IS 'exhausted, permanent, expired, uncertain or crashed.';
COMMENT ON COLUMN public.email_queue.error_code IS 'The provider''s code for the last error.';
COMMENT ON COLUMN public.email_queue.error_class IS 'transient, rate, quota, config, permanent or ambiguous.';
COMMENT ON COLUMN public.email_queue.error_detail IS 'The provider''s text, unchanged; for operators only, because it may quote addresses.';
COMMENT ON COLUMN public.email_queue.provider IS 'The provider of the last attempt.';
COMMENT ON COLUMN public.email_queue.provider_message_id IS 'The provider''s id of the sent email.';
COMMENT ON COLUMN public.email_queue.generation IS 'Part of the idempotency key sent to the provider; increases when a dead email is retried by hand.';
COMMENT ON COLUMN public.email_queue.template_version IS 'The version of the template; the first attempt sets it for all attempts.';
COMMENT ON COLUMN public.email_queue.first_attempt_at IS 'When the first attempt of this generation was made: the time for which the provider remembers the key starts here.';
COMMENT ON COLUMN public.email_queue.uncertain_since IS 'Since when the outcome is uncertain: an earlier attempt may have been delivered. Provider and key stay the same until it is settled.';
COMMENT ON COLUMN public.email_queue.parked_since IS 'Since when the email waits until the sender''s configuration is fixed.';
COMMENT ON COLUMN public.email_queue.last_duration_ms IS 'How long the call of the last attempt took.';
COMMENT ON COLUMN public.email_queue.batch_id IS 'The batch in which it was sent to the provider.';
COMMENT ON COLUMN public.email_queue.batch_size IS 'How many emails that batch has.';
COMMENT ON COLUMN public.email_queue.lease_token IS 'Fencing token of the claim that holds it.';
COMMENT ON COLUMN public.email_queue.leased_at IS 'When it was claimed.';
COMMENT ON COLUMN public.email_queue.lease_until IS 'When the lease expires, unless the worker extends it.';
COMMENT ON COLUMN public.email_queue.lease_worker IS 'The worker that holds it.';
COMMENT ON COLUMN public.email_queue.lease_is_tokenless IS 'Whether the lease, if there is one, belongs to a processor that does not use tokens.';
COMMENT ON COLUMN public.email_queue.send_alone IS 'Whether the provider refused its last batch as a whole: the next call has this email only.';
COMMENT ON COLUMN public.email_queue.lease_losses IS 'How many workers died while holding it.';
COMMENT ON COLUMN public.email_queue.attempt_started_at IS 'When the call to the provider started under this lease.';
COMMENT ON COLUMN public.email_queue.from_email IS 'Sender, when the email brings its own.';
COMMENT ON COLUMN public.email_queue.reply_to IS 'Reply address, when the email brings its own.';
COMMENT ON COLUMN public.email_queue.subject IS 'Subject, when the email brings its own content.';
COMMENT ON COLUMN public.email_queue.html IS 'HTML part, when the email brings its own content.';
COMMENT ON COLUMN public.email_queue.text IS 'Text part, when the email brings its own content.';
COMMENT ON COLUMN public.email_queue.headers IS 'More headers: an object of strings.';
COMMENT ON COLUMN public.email_queue.tags IS 'Tags for the provider: an object of strings.';
COMMENT ON COLUMN public.email_queue.also_to IS 'More To addresses of the same message.';
COMMENT ON COLUMN public.email_queue.cc IS 'Copies.';
COMMENT ON COLUMN public.email_queue.bcc IS 'Blind copies.';
COMMENT ON COLUMN public.email_queue.has_attachments IS 'Whether it has attachments (mailgres.attachments).';
COMMENT ON COLUMN public.email_queue.due_at IS 'When a janitor handles the row next.';

-- ---- sql/20_tables/70_attachments.sql

CREATE TABLE mailgres.attachments (
    queue_id      uuid NOT NULL REFERENCES public.email_queue ON DELETE CASCADE,
    position      int NOT NULL CHECK (position > 0),
    filename      text NOT NULL CHECK (filename <> '' AND length(filename) <= 255),
    content_type  text NOT NULL DEFAULT 'application/octet-stream',
    content_id    text,
    content       bytea NOT NULL,
    PRIMARY KEY (queue_id, position)
);

-- Most attachments are already compressed: PostgreSQL need not try.
ALTER TABLE mailgres.attachments ALTER COLUMN content SET STORAGE EXTERNAL;

COMMENT ON TABLE mailgres.attachments IS 'The attachments of emails.';
COMMENT ON COLUMN mailgres.attachments.content_id IS 'For images shown inside the HTML part.';

-- ---- sql/20_tables/80_email_logs.sql

-- The audit log: a row for every change of status and every attempt. Append-only. A claim
-- has no row of its own: the row that ends it has claimed_at and worker, whether the attempt
-- was made, given back or lost. No foreign key, because every attempt would have to check
-- it; janitors delete or archive the log of an email together with the email.

CREATE TABLE public.email_logs (
    id                   bigint GENERATED ALWAYS AS IDENTITY,
    queue_id             uuid NOT NULL,
    at                   timestamptz NOT NULL DEFAULT mailgres.now(),
    event                text NOT NULL,
    from_status          text,
    to_status            text,
    attempt              int,
    tenant_id            text NOT NULL,
    template_type        text NOT NULL,
    claimed_at           timestamptz,
    worker               text,
    duration_ms          int,
    provider             text,
    provider_message_id  text,
    error_class          text,
    error_code           text,
    error_message        text,
    error_detail         text,
    next_retry_at        timestamptz,
    dead_reason          text,
    role                 text NOT NULL DEFAULT session_user,
    PRIMARY KEY (queue_id, id)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE INDEX email_logs_at_idx ON public.email_logs USING brin (at);
CREATE INDEX email_logs_provider_message_idx ON public.email_logs (provider_message_id)
    WHERE provider_message_id IS NOT NULL;

-- Emails that were retried recently; emails without a retry are not in it.
CREATE INDEX email_logs_retry_idx ON public.email_logs (at) WHERE event = 'retry';

CREATE TRIGGER email_logs_are_append_only
    BEFORE UPDATE OR TRUNCATE ON public.email_logs
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.forbid_change();

COMMENT ON TABLE public.email_logs IS
    'Every change of status and every attempt of every email. Append-only.';
COMMENT ON COLUMN public.email_logs.event IS
    'sent, retry, deferred, dead, cancelled, given_back, lost, reopened, rescheduled; copy_refused: another recipient of a sent email was refused; or what a provider reported: delivered, bounced, complained, failed.';
COMMENT ON COLUMN public.email_logs.attempt IS 'Number of the attempt, the first being 1.';
COMMENT ON COLUMN public.email_logs.claimed_at IS 'When the worker claimed the email for this attempt.';
COMMENT ON COLUMN public.email_logs.error_detail IS 'The provider''s text, unchanged; for operators only.';
COMMENT ON COLUMN public.email_logs.role IS 'The database role that made the change.';

-- ---- sql/20_tables/85_email_suppressions.sql

CREATE TABLE public.email_suppressions (
    recipient_email  text NOT NULL CHECK (recipient_email = lower(recipient_email COLLATE "C")),
    tenant_id        text NOT NULL DEFAULT '*',
    reason           text NOT NULL CHECK (reason IN ('bounced', 'complained', 'unsubscribed', 'manual')),
    detail           text,
    queue_id         uuid,
    created_at       timestamptz NOT NULL DEFAULT mailgres.now(),
    PRIMARY KEY (recipient_email, tenant_id)
);

-- All spellings of an address are stored in one form.
CREATE FUNCTION mailgres.canonical_suppression() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.recipient_email := mailgres.canonical_address(NEW.recipient_email);
    RETURN NEW;
END
$$;

CREATE TRIGGER canonical_suppression
    BEFORE INSERT OR UPDATE OF recipient_email ON public.email_suppressions
    FOR EACH ROW EXECUTE FUNCTION mailgres.canonical_suppression();

COMMENT ON TABLE public.email_suppressions IS 'Addresses that get no email; queued emails to them are cancelled.';
COMMENT ON COLUMN public.email_suppressions.recipient_email IS
    'The address in the form in which addresses are compared: lower case, the domain in A-labels (xn--).';
COMMENT ON COLUMN public.email_suppressions.tenant_id IS 'The tenant that must not write to it; * means every tenant.';
COMMENT ON COLUMN public.email_suppressions.queue_id IS 'The email whose bounce or complaint caused the suppression.';

-- ---- sql/20_tables/90_rollups.sql

-- Counts for dashboards and alerts, so that no query has to count the queue. Every change of
-- an email appends deltas; no row is updated, so no writer waits for another.
-- mailgres.fold_rollups() adds the deltas to narrow tables. The views mailgres.counted_* add
-- the deltas that are not folded yet, so they are always exact.
--
-- There are two kinds of counts. Outcomes of emails: a settled email (sent, failed,
-- cancelled) is counted in one cell of each table, and moves to another cell when its status
-- is corrected later. Hours are those of created_at, so that the sums equal the same query on
-- email_queue. Events: attempts and other events at the time when they happened; these counts
-- never change. Open emails change with every enqueue and are not counted here: see depth.

CREATE TABLE mailgres.rollup_deltas (
    hour           timestamptz NOT NULL,
    template_type  text NOT NULL,
    tenant_id      text NOT NULL,
    provider       text NOT NULL,
    error_code     text NOT NULL,
    status         text NOT NULL,
    retries        int NOT NULL,
    within         int NOT NULL DEFAULT 0,
    dead_hour      timestamptz,
    dead_reason    text,
    emails         bigint NOT NULL,
    here           bigint NOT NULL,
    seconds        double precision NOT NULL DEFAULT 0,
    oldest         timestamptz,
    newest         timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- For publications, which must identify each row: a primary key would cost every outcome two
-- index entries, this costs nothing.
ALTER TABLE mailgres.rollup_deltas REPLICA IDENTITY FULL;

COMMENT ON TABLE mailgres.rollup_deltas IS 'Outcomes of emails that are not yet added to the rollups.';
COMMENT ON COLUMN mailgres.rollup_deltas.status IS
    'sent, failed or cancelled; or bounced, which is counted in addition to the status.';
COMMENT ON COLUMN mailgres.rollup_deltas.within IS
    'The upper bound, in seconds, of the bucket of its time to delivery; 0 if it was not sent.';
COMMENT ON COLUMN mailgres.rollup_deltas.emails IS 'The change of the counts that include deleted emails.';
COMMENT ON COLUMN mailgres.rollup_deltas.here IS 'The change of the counts of emails in the queue.';
COMMENT ON COLUMN mailgres.rollup_deltas.seconds IS 'Sum of the times from being due to being sent.';

CREATE TABLE mailgres.attempt_deltas (
    at            timestamptz NOT NULL,
    event         text NOT NULL,
    attempt       int NOT NULL,
    tenant_id     text NOT NULL,
    provider      text NOT NULL,
    error_class   text NOT NULL,
    error_code    text NOT NULL,
    claimed_at    timestamptz,
    claim_number  bigint,
    emails        bigint NOT NULL,
    seconds       double precision NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

ALTER TABLE mailgres.attempt_deltas REPLICA IDENTITY FULL;

COMMENT ON TABLE mailgres.attempt_deltas IS 'Events that are not yet added to the rollups.';
COMMENT ON COLUMN mailgres.attempt_deltas.event IS
    'As in email_logs; claimed: the claim of a retry, with the seconds since the attempt before; provider_failed: emails of a call that failed because of the provider, counted in addition.';
COMMENT ON COLUMN mailgres.attempt_deltas.claimed_at IS 'When the attempt was claimed; null if the event is not an attempt.';
COMMENT ON COLUMN mailgres.attempt_deltas.claim_number IS 'How many claims had been made by then.';

-- Outcomes of emails, by the hour in which they were created.

CREATE TABLE mailgres.rollup_by_template (
    hour           timestamptz NOT NULL,
    template_type  text NOT NULL,
    status         text NOT NULL,
    emails         bigint NOT NULL,
    PRIMARY KEY (hour, template_type, status)
);

CREATE TABLE mailgres.rollup_by_tenant (
    hour       timestamptz NOT NULL,
    tenant_id  text NOT NULL,
    status     text NOT NULL,
    emails     bigint NOT NULL,
    PRIMARY KEY (hour, tenant_id, status)
);

CREATE TABLE mailgres.rollup_by_provider (
    hour        timestamptz NOT NULL,
    provider    text NOT NULL,
    error_code  text NOT NULL,
    status      text NOT NULL,
    emails      bigint NOT NULL,
    PRIMARY KEY (hour, provider, error_code, status)
);

CREATE TABLE mailgres.rollup_by_retries (
    hour     timestamptz NOT NULL,
    status   text NOT NULL,
    retries  int NOT NULL,
    within   int NOT NULL,
    emails   bigint NOT NULL,
    seconds  double precision NOT NULL,
    PRIMARY KEY (hour, status, retries, within)
);

COMMENT ON TABLE mailgres.rollup_by_template IS 'Emails by hour of creation, template and status.';
COMMENT ON TABLE mailgres.rollup_by_tenant IS 'Emails by hour of creation, tenant and status.';
COMMENT ON TABLE mailgres.rollup_by_provider IS 'Emails by hour of creation, provider, error code and status.';
COMMENT ON TABLE mailgres.rollup_by_retries IS
    'Emails by hour of creation, status, retries and time to delivery.';

-- Settled emails that are in the queue now.

CREATE TABLE mailgres.rollup_by_status (
    hour    timestamptz NOT NULL,
    status  text NOT NULL,
    emails  bigint NOT NULL,
    oldest  timestamptz,
    newest  timestamptz,
    PRIMARY KEY (hour, status)
);

COMMENT ON TABLE mailgres.rollup_by_status IS 'Settled emails in the queue, by hour of creation and status.';
COMMENT ON COLUMN mailgres.rollup_by_status.oldest IS 'Creation time of the oldest email of this hour that was ever counted here.';

CREATE TABLE mailgres.rollup_dead (
    hour         timestamptz NOT NULL,
    tenant_id    text NOT NULL,
    error_code   text NOT NULL,
    dead_reason  text NOT NULL,
    emails       bigint NOT NULL,
    PRIMARY KEY (hour, tenant_id, error_code, dead_reason)
);

COMMENT ON TABLE mailgres.rollup_dead IS
    'Dead letters in the queue, by the hour in which they died, tenant, error code and reason.';

-- Events, by the time when they happened.

CREATE TABLE mailgres.rollup_by_minute (
    minute    timestamptz NOT NULL,
    outcome   text NOT NULL,
    provider  text NOT NULL,
    emails    bigint NOT NULL,
    PRIMARY KEY (minute, outcome, provider)
);

CREATE TABLE mailgres.rollup_by_attempt (
    hour      timestamptz NOT NULL,
    attempt   int NOT NULL,
    outcome   text NOT NULL,
    attempts  bigint NOT NULL,
    seconds   double precision NOT NULL,
    PRIMARY KEY (hour, attempt, outcome)
);

CREATE TABLE mailgres.rollup_by_fault (
    hour         timestamptz NOT NULL,
    provider     text NOT NULL,
    error_class  text NOT NULL,
    error_code   text NOT NULL,
    outcome      text NOT NULL,
    attempts     bigint NOT NULL,
    PRIMARY KEY (hour, provider, error_class, error_code, outcome)
);

CREATE TABLE mailgres.tenant_activity (
    tenant_id     text PRIMARY KEY,
    processed     bigint NOT NULL,
    claimed_at    timestamptz NOT NULL,
    batch         bigint NOT NULL,
    claim_number  bigint NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.rollup_by_minute IS
    'What happened to emails in each minute: sent, retry, deferred, dead, cancelled and the other events of email_logs; and provider_failed: emails of calls that failed because of the provider, counted in addition.';
COMMENT ON TABLE mailgres.rollup_by_attempt IS 'Attempts by hour, number of the attempt and outcome.';
COMMENT ON COLUMN mailgres.rollup_by_attempt.outcome IS
    'sent, retry, dead or deferred; or claimed: a retry was claimed, with the seconds since the attempt before.';
COMMENT ON TABLE mailgres.rollup_by_fault IS 'Failed attempts by hour, provider, and class and code of the error.';
COMMENT ON TABLE mailgres.tenant_activity IS 'How many attempts were made for each tenant, and when the last was.';
COMMENT ON COLUMN mailgres.tenant_activity.processed IS 'Attempts made for its emails.';
COMMENT ON COLUMN mailgres.tenant_activity.claimed_at IS 'When its emails of the last attempts were claimed.';
COMMENT ON COLUMN mailgres.tenant_activity.batch IS 'How many of its emails that claim had.';
COMMENT ON COLUMN mailgres.tenant_activity.claim_number IS 'How many claims had been made when the last attempts were made.';

-- ---- sql/20_tables/91_depth.sql

-- Open emails, counted every few seconds by a janitor: counting at every enqueue would make
-- enqueuing a third slower, and counting at every query takes long when a million emails
-- wait. `as_of` says when they were counted. If no janitor has counted for a while, the views
-- mailgres.current_depth_by_template and current_depth_by_tenant count themselves.

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
COMMENT ON COLUMN mailgres.depth.tried_at IS 'When the janitor last counted, or stopped because it took too long.';
COMMENT ON COLUMN mailgres.depth.valid_until IS 'Until when the counts are used; before as_of if there are none yet.';
COMMENT ON COLUMN mailgres.depth.took IS 'How long the counting took; a tenth of the time may be spent on it.';
COMMENT ON COLUMN mailgres.depth.claim_number IS 'How many claims had been made.';
COMMENT ON COLUMN mailgres.depth.capped IS 'Whether there are more emails than one run counts: the counts are lower bounds.';

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
COMMENT ON COLUMN mailgres.depth_by_template.due IS 'Emails that can be claimed now.';
COMMENT ON COLUMN mailgres.depth_by_template.recent IS 'Emails created in the last 7 days (from the full hour on).';
COMMENT ON COLUMN mailgres.depth_by_template.parked IS 'Emails that wait until the sender''s configuration is fixed.';

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
COMMENT ON COLUMN mailgres.depth_by_tenant.last_due IS 'When the last of its emails that are not due yet becomes due.';
COMMENT ON COLUMN mailgres.depth_by_tenant.claim_number IS 'How many claims had been made when it was first seen with a due email.';

-- ---- sql/20_tables/95_workers.sql

CREATE TABLE mailgres.workers (
    worker      text PRIMARY KEY CHECK (worker <> '' AND length(worker) <= 200),
    started_at  timestamptz NOT NULL DEFAULT mailgres.now(),
    seen_at     timestamptz NOT NULL DEFAULT mailgres.now(),
    version     text NOT NULL DEFAULT '',
    details     jsonb NOT NULL DEFAULT '{}',
    providers   text[],
    on_demand   boolean NOT NULL DEFAULT false,
    stopped_at  timestamptz,
    role        text NOT NULL DEFAULT session_user
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.workers IS 'Workers: when each was last seen, and which providers it has.';
COMMENT ON COLUMN mailgres.workers.providers IS 'The providers that it can send through; null: it did not report them.';
COMMENT ON COLUMN mailgres.workers.on_demand IS
    'Whether it works only when it is called (mailgres process, the HTTP service), and is seen only then.';
COMMENT ON COLUMN mailgres.workers.stopped_at IS 'When it stopped cleanly; null: it did not.';
COMMENT ON COLUMN mailgres.workers.role IS 'The role that it logged in as.';

-- Enqueuing notifies only while a worker sleeps, because NOTIFY takes a lock that all
-- committing transactions share. A sleeping worker has a row here.

CREATE TABLE mailgres.sleepers (
    worker       text PRIMARY KEY,
    sleeps_until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

COMMENT ON TABLE mailgres.sleepers IS
    'Workers that sleep and must be woken by an email due before sleeps_until.';

CREATE TABLE mailgres.janitor_failures (
    janitor    text NOT NULL CHECK (length(janitor) <= 200),
    worker     text NOT NULL CHECK (length(worker) <= 200),
    failures   int NOT NULL DEFAULT 1,
    since      timestamptz NOT NULL DEFAULT mailgres.now(),
    failed_at  timestamptz NOT NULL DEFAULT mailgres.now(),
    run_every  interval NOT NULL,
    error      text NOT NULL,
    PRIMARY KEY (janitor, worker)
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.janitor_failures IS 'Janitors that failed in their last run, by the worker that ran them.';
COMMENT ON COLUMN mailgres.janitor_failures.failures IS 'How many runs in a row failed.';
COMMENT ON COLUMN mailgres.janitor_failures.run_every IS
    'How often it runs: a failure that is much older belongs to a worker that is gone.';

-- ---- sql/20_tables/96_captured.sql

-- Messages that the provider `capture` kept instead of sending: for development, demos and
-- tests. The primary key is the idempotency key, so that a repeated call keeps one message,
-- as with a real provider that supports keys.

CREATE TABLE mailgres.captured (
    key          text PRIMARY KEY,
    queue_id     uuid NOT NULL,
    captured_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    message      jsonb NOT NULL
);

CREATE INDEX captured_queue_idx ON mailgres.captured (queue_id);

COMMENT ON TABLE mailgres.captured IS 'Messages kept by the provider capture instead of being sent.';
COMMENT ON COLUMN mailgres.captured.key IS 'The idempotency key of the call.';

-- ---- sql/20_tables/97_dead_letters.sql

CREATE TABLE mailgres.dead_letters (
    queue_id       uuid PRIMARY KEY,
    tenant_id      text NOT NULL,
    template_type  text NOT NULL,
    dead_reason    text NOT NULL,
    error_code     text,
    dead_at        timestamptz NOT NULL,
    archived_at    timestamptz NOT NULL DEFAULT mailgres.now(),
    expires_at     timestamptz NOT NULL,
    email          jsonb NOT NULL,
    log            jsonb NOT NULL
);

CREATE INDEX dead_letters_newest_idx ON mailgres.dead_letters (dead_at DESC, queue_id);
CREATE INDEX dead_letters_expires_idx ON mailgres.dead_letters (expires_at);

COMMENT ON TABLE mailgres.dead_letters IS
    'The archive of dead letters: the whole row of the email and its whole log.';

-- Written together with the log row of a death; the process that deletes the row logs the dead letter.
CREATE TABLE mailgres.dead_letters_to_log (
    queue_id  uuid NOT NULL,
    log_id    bigint NOT NULL,
    PRIMARY KEY (queue_id, log_id)
);

COMMENT ON TABLE mailgres.dead_letters_to_log IS 'Dead letters that no process has logged yet.';
COMMENT ON COLUMN mailgres.dead_letters_to_log.log_id IS 'The row of email_logs that says how it died.';

-- ---- sql/20_tables/98_alerts.sql

-- Alerts: rules are rows, and so is the state of each alert that fired, with what people were
-- notified of: once when it fires and once when it resolves.

CREATE TABLE mailgres.alert_rules (
    name         text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_]{0,62}$'),
    threshold    double precision NOT NULL CHECK (threshold >= 0 AND threshold < 'infinity'),
    unit         text NOT NULL,
    reaches      boolean NOT NULL DEFAULT false,
    time_window  interval CHECK (time_window > '0' AND time_window <= '7 days'),
    least        int NOT NULL DEFAULT 0 CHECK (least >= 0),
    severity     text NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    enabled      boolean NOT NULL DEFAULT true,
    about        text NOT NULL DEFAULT 'queue'
                 CHECK (about IN ('queue', 'tenant', 'template', 'provider', 'table', 'session', 'janitor')),
    means        text NOT NULL CHECK (means <> ''),
    runbook      text NOT NULL GENERATED ALWAYS AS ('docs/runbook.md#' || name) STORED,
    CONSTRAINT alert_rules_percent CHECK (unit <> '%' OR threshold <= 100)
);

COMMENT ON TABLE mailgres.alert_rules IS 'When people are notified; change threshold, window, severity as you like.';
COMMENT ON COLUMN mailgres.alert_rules.threshold IS 'It fires when the figure is larger than this.';
COMMENT ON COLUMN mailgres.alert_rules.unit IS 'What the figure counts.';
COMMENT ON COLUMN mailgres.alert_rules.reaches IS 'It fires when the figure is as large as the threshold, too.';
COMMENT ON COLUMN mailgres.alert_rules.time_window IS
    'The time that the figure is about, or that something has to last; null: neither.';
COMMENT ON COLUMN mailgres.alert_rules.least IS
    'The smallest sample it judges: one failure of two emails at night fires nothing.';
COMMENT ON COLUMN mailgres.alert_rules.about IS 'What it fires for: the queue as a whole, or each tenant, template and so on.';
COMMENT ON COLUMN mailgres.alert_rules.runbook IS 'The section of the documentation that says what to do.';

CREATE TABLE mailgres.alerts (
    rule         text NOT NULL REFERENCES mailgres.alert_rules ON UPDATE CASCADE ON DELETE CASCADE,
    subject      text NOT NULL DEFAULT '',
    figure       double precision NOT NULL,
    since        timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,
    resolved_at  timestamptz,
    notified     text NOT NULL DEFAULT 'nothing' CHECK (notified IN ('nothing', 'firing', 'resolved')),
    notified_at  timestamptz,
    PRIMARY KEY (rule, subject),
    CONSTRAINT alerts_notified CHECK ((notified = 'nothing') = (notified_at IS NULL))
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.alerts IS 'Alerts that fire, or did, and what people were notified of them.';
COMMENT ON COLUMN mailgres.alerts.subject IS 'Which tenant, template, provider; empty: the queue.';
COMMENT ON COLUMN mailgres.alerts.seen_at IS 'When its rule was last true; it resolves when that was some minutes ago.';
COMMENT ON COLUMN mailgres.alerts.resolved_at IS 'When it resolved; null: it fires.';
COMMENT ON COLUMN mailgres.alerts.notified IS 'The last state that people were notified of.';

-- Notifications for the webhook. A row is deleted when a call succeeded. If the process that posts
-- it dies, another one takes it.

CREATE TABLE mailgres.notifications (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT mailgres.now(),
    body         jsonb NOT NULL,
    attempts     int NOT NULL DEFAULT 0,
    taken_until  timestamptz
);

COMMENT ON TABLE mailgres.notifications IS 'Notifications for operators that the webhook was not called with yet.';
COMMENT ON COLUMN mailgres.notifications.attempts IS 'Calls that failed.';
COMMENT ON COLUMN mailgres.notifications.taken_until IS 'Until then a worker is posting it, or it waits after a failure.';

-- ---- sql/20_tables/99_notification_state.sql

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

-- ---- sql/30_engine/10_triggers/10_normalize_manual_update.sql

-- The settings of the engine's functions:
--
--   search_path = pg_catalog, pg_temp     they run with the rights of their owner. The path
--                                         names pg_temp last: otherwise PostgreSQL looks there
--                                         first for types, and a caller could create some
--   plan_cache_mode = force_generic_plan  planning them again costs more than running them
--   enable_seqscan = off                  a plan made while the queue is empty is kept
--                                         when it is full, so it has to use an index
--   jit = off                             the inflated costs of such a plan would start the JIT
--   enable_nestloop = off                 (log_changes) joins two sets of unknown size

-- People change rows by hand: they set next_retry_at, set a dead email back to pending,
-- release one that hangs. This trigger completes such a change, so that it passes the CHECKs
-- and has the intended effect. The engine's own statements are complete, so for them only the
-- WHEN below is evaluated.

CREATE FUNCTION mailgres.normalize_manual_update() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.next_retry_at := coalesce(NEW.next_retry_at, mailgres.now());
    -- promote() sets it to ready again when it is due and its route exists.
    NEW.ready := NEW.ready AND NEW.status = 'pending' AND NEW.next_retry_at <= mailgres.now()
        AND EXISTS (SELECT FROM mailgres.routes r WHERE r.route = NEW.route);

    IF NEW.status <> 'sending' AND NEW.lease_token IS NOT NULL THEN
        IF NEW.status <> 'sent' THEN  -- an email taken from a worker may have been sent
            NEW.uncertain_since := coalesce(NEW.uncertain_since, NEW.attempt_started_at);
        END IF;
        NEW.lease_token := NULL;
        NEW.leased_at := NULL;
        NEW.lease_until := NULL;
        NEW.lease_worker := NULL;
        NEW.attempt_started_at := NULL;
    END IF;

    IF NEW.status = 'failed' THEN
        NEW.dead_at := coalesce(NEW.dead_at, mailgres.now());
        NEW.dead_reason := coalesce(NEW.dead_reason, 'permanent');
        NEW.error_message := coalesce(nullif(NEW.error_message, ''), 'marked as failed by hand');
    ELSE
        NEW.dead_at := NULL;
        NEW.dead_reason := NULL;
        IF OLD.status = 'failed' AND NEW.retries >= NEW.max_retries THEN
            NEW.retries := 0;  -- otherwise it would die at its next error
        END IF;
    END IF;

    IF NEW.status = 'sent' THEN
        NEW.sent_at := coalesce(NEW.sent_at, mailgres.now());
        NEW.provider_message_id := coalesce(NEW.provider_message_id, NEW.resend_id);
        IF NEW.provider_message_id IS NULL THEN
            NEW.provider := NULL;  -- none of our workers sent it
        END IF;
        NEW.uncertain_since := NULL;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER normalize_manual_update
    BEFORE UPDATE ON public.email_queue
    FOR EACH ROW
    WHEN (
        NEW.next_retry_at IS NULL
        OR NEW.route <> OLD.route
        OR (NEW.ready AND (NEW.status <> 'pending' OR NEW.next_retry_at > mailgres.now()))
        OR (NEW.status <> 'sending' AND NEW.lease_token IS NOT NULL)
        OR (NEW.status = 'failed') <> (NEW.dead_at IS NOT NULL)
        OR (NEW.status = 'failed' AND coalesce(NEW.error_message, '') = '')
        OR (NEW.status = 'sent' AND (NEW.sent_at IS NULL OR NEW.uncertain_since IS NOT NULL
            OR (NEW.provider_message_id IS NULL AND NEW.provider IS NOT NULL)))
    )
    EXECUTE FUNCTION mailgres.normalize_manual_update();

-- The same for imported rows that only have the columns of the contract. Every statement reads
-- the WHEN of a trigger again, so it is short; a complete row is not changed.
CREATE TRIGGER normalize_import
    BEFORE INSERT ON public.email_queue
    FOR EACH ROW WHEN (NEW.status <> 'pending' OR NEW.next_retry_at IS NULL)
    EXECUTE FUNCTION mailgres.normalize_manual_update();

-- `UPDATE email_queue SET status = 'pending'` must not send an email twice. An uncertain email
-- is sent again while its key protects it, through the provider that knows the key. Otherwise
-- the row is not changed, is not counted as changed, and a warning says what to do. To accept
-- a duplicate is to set a new generation, that is a new key: retry_email(…, p_accept_duplicate
-- => true) does so.

CREATE FUNCTION mailgres.warn_uncertain(p_queue_id uuid) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    c_most       constant int := 10;  -- warnings per statement: a client shows all of them
    v_statement  constant text := date_part('epoch', statement_timestamp())::numeric::text;
    v_warned     constant text[] := string_to_array(current_setting('mailgres.warned', true), ' ');
    v_count      constant int := 1 + CASE WHEN v_warned[1] = v_statement THEN v_warned[2]::int ELSE 0 END;
BEGIN
    PERFORM set_config('mailgres.warned', v_statement || ' ' || v_count, true);
    IF v_count > c_most + 1 THEN
        RETURN;
    END IF;
    RAISE WARNING USING
        ERRCODE = 'MG024',
        MESSAGE = CASE WHEN v_count > c_most THEN 'more emails are left as they are for the same reason'
                       ELSE format('email %s is left as it is: an earlier attempt may have arrived', p_queue_id) END,
        HINT = 'Look it up at the provider and settle it with record_email_event, or call retry_email(id, p_accept_duplicate => true).';
END
$$;

COMMENT ON FUNCTION mailgres.warn_uncertain(uuid) IS
    'Warns that an email was not set back to pending because an earlier attempt may have been delivered.';

CREATE FUNCTION mailgres.hold_uncertain() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_before  public.email_queue;
BEGIN
    -- A cancelled email, or one that died as uncertain, stays uncertain, whatever is written.
    IF NEW.status = 'cancelled' OR NEW.status = 'failed' AND NEW.dead_reason = 'uncertain' THEN
        NEW.uncertain_since := coalesce(NEW.uncertain_since, OLD.uncertain_since);
    END IF;
    -- Workers clear attempt_started_at; a new generation accepts a duplicate.
    IF NEW.status <> 'pending' OR OLD.status = 'pending' OR NEW.generation <> OLD.generation
       OR (OLD.status = 'sending' AND NEW.attempt_started_at IS NULL) THEN
        RETURN NEW;
    END IF;
    v_before := OLD;
    v_before.uncertain_since := coalesce(OLD.uncertain_since, OLD.attempt_started_at);
    IF mailgres.key_protects(v_before) THEN
        NEW.uncertain_since := v_before.uncertain_since;
        NEW.first_attempt_at := OLD.first_attempt_at;
        NEW.provider := OLD.provider;
        NEW.batch_id := OLD.batch_id;
        NEW.batch_size := OLD.batch_size;
        RETURN NEW;
    END IF;
    -- A call is in progress: decide as reap does when a worker dies.
    IF OLD.status = 'sending' AND EXISTS (
        SELECT FROM public.email_templates t
        WHERE t.template_type = OLD.template_type AND t.on_uncertain = 'resend') THEN
        RETURN NEW;
    END IF;
    PERFORM mailgres.warn_uncertain(OLD.id);
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION mailgres.hold_uncertain() IS
    'Refuses a change by hand that would send an uncertain email again.';

-- Runs before normalize_manual_update: triggers run in the order of their names.
CREATE TRIGGER hold_uncertain
    BEFORE UPDATE ON public.email_queue
    FOR EACH ROW
    WHEN (OLD.uncertain_since IS NOT NULL OR (NEW.attempt_started_at IS NOT NULL AND NEW.status = 'pending'))
    EXECUTE FUNCTION mailgres.hold_uncertain();

-- ---- sql/30_engine/10_triggers/20_log_changes.sql

-- These triggers write the log and the deltas of the rollups in the transaction of the change,
-- whoever changes an email and however. They are statement triggers, so finishing a hundred
-- emails appends all its rows at once.

-- The bucket of a time to delivery. A SQL function, because PostgreSQL inlines it.
CREATE FUNCTION mailgres.bucket_of(p_seconds double precision) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN p_seconds IS NULL THEN 0
    WHEN p_seconds <= 1 THEN 1
    WHEN p_seconds <= 5 THEN 5
    WHEN p_seconds <= 15 THEN 15
    WHEN p_seconds <= 60 THEN 60
    WHEN p_seconds <= 300 THEN 300
    WHEN p_seconds <= 900 THEN 900
    WHEN p_seconds <= 3600 THEN 3600
    WHEN p_seconds <= 21600 THEN 21600
    WHEN p_seconds <= 86400 THEN 86400
    ELSE 2147483647
END;

COMMENT ON FUNCTION mailgres.bucket_of(double precision) IS
    'The bucket of a time to delivery: its upper bound in seconds; 0 for none.';

-- The time to delivery. It is 0 for an email that was sent before it was due (which may be never).
CREATE FUNCTION mailgres.seconds_between(p_from timestamptz, p_to timestamptz) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_from < p_to THEN date_part('epoch', p_to - p_from) ELSE 0 END;

COMMENT ON FUNCTION mailgres.seconds_between(timestamptz, timestamptz) IS
    'Seconds from one time to a later one; 0 if it is not later.';

-- Adds one email to the deltas or subtracts it. p_here: the change of the emails in the queue.
CREATE FUNCTION mailgres.count_email(q public.email_queue, p_status text, p_emails int, p_here int) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_took constant double precision := CASE WHEN q.status = 'sent' THEN
        mailgres.seconds_between(greatest(q.created_at, q.scheduled_for), q.sent_at) END;
BEGIN
    INSERT INTO mailgres.rollup_deltas
        (hour, template_type, tenant_id, provider, error_code, status, retries, within,
         dead_hour, dead_reason, emails, here, seconds, oldest, newest)
    VALUES
        (date_trunc('hour', q.created_at, 'UTC'), q.template_type, q.tenant_id,
         coalesce(q.provider, ''), coalesce(q.error_code, ''), p_status, q.retries,
         CASE WHEN p_status = 'sent' THEN mailgres.bucket_of(v_took) ELSE 0 END,
         date_trunc('hour', q.dead_at, 'UTC'), q.dead_reason, p_emails, p_here,
         CASE WHEN p_status = 'sent' THEN p_emails * v_took ELSE 0 END, q.created_at, q.created_at);
END
$$;

COMMENT ON FUNCTION mailgres.count_email(public.email_queue, text, int, int) IS
    'Appends the delta of one email.';

-- A bounced email was not delivered. If it is sent again, the bounce no longer counts.
CREATE FUNCTION mailgres.has_bounced(p_queue_id uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN coalesce((
        SELECT l.event = 'bounced' FROM public.email_logs l
        WHERE l.queue_id = p_queue_id AND l.event IN ('sent', 'bounced')
        ORDER BY l.id DESC LIMIT 1), false);
END
$$;

COMMENT ON FUNCTION mailgres.has_bounced(uuid) IS
    'Whether an email bounced since it was sent last.';

-- For the import of a history: settled emails are counted when they are inserted.
CREATE FUNCTION mailgres.count_imported() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NEW.status IN ('sent', 'failed', 'cancelled') THEN
        PERFORM mailgres.count_email(NEW, NEW.status, 1, 1);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER count_imported
    AFTER INSERT ON public.email_queue
    FOR EACH ROW WHEN (NEW.status <> 'pending')
    EXECUTE FUNCTION mailgres.count_imported();

CREATE FUNCTION mailgres.log_changes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_nestloop = off SET jit = off
AS $$
BEGIN
    -- The time between the attempt before and the retry. Only the claim knows both.
    PERFORM FROM new_rows n WHERE n.retries > 0 AND n.status = 'sending' LIMIT 1;
    IF FOUND THEN
        INSERT INTO mailgres.attempt_deltas
            (at, event, attempt, tenant_id, provider, error_class, error_code, emails, seconds)
        SELECT mailgres.now(), 'claimed', n.retries + 1, '', '', '', '', count(*),
               sum(date_part('epoch', n.last_attempt_at - o.last_attempt_at))
        FROM new_rows n
        JOIN old_rows o ON o.id = n.id
        WHERE n.retries > 0 AND n.status = 'sending' AND o.status = 'pending' AND o.last_attempt_at IS NOT NULL
        GROUP BY n.retries;
    END IF;

    -- A claim settles nothing: the change that ends it is logged.
    PERFORM FROM new_rows n WHERE n.status <> 'sending' LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;

    -- An email that is no longer sent is no longer counted as bounced.
    PERFORM FROM old_rows o WHERE o.status = 'sent' LIMIT 1;
    IF FOUND THEN
        INSERT INTO mailgres.rollup_deltas
            (hour, template_type, tenant_id, provider, error_code, status, retries, emails, here)
        SELECT date_trunc('hour', o.created_at, 'UTC'), o.template_type, o.tenant_id, coalesce(o.provider, ''),
               '', 'bounced', o.retries, -1, 0
        FROM old_rows o
        JOIN new_rows n ON n.id = o.id
        WHERE o.status = 'sent' AND n.status <> 'sent' AND mailgres.has_bounced(o.id);
    END IF;

    WITH logged AS (
        INSERT INTO public.email_logs
            (queue_id, event, from_status, to_status, attempt, tenant_id, template_type, claimed_at,
             worker, duration_ms, provider, provider_message_id, error_class, error_code,
             error_message, error_detail, next_retry_at, dead_reason)
        SELECT n.id, e.event, o.status, n.status, o.retries + 1, n.tenant_id, n.template_type,
               o.leased_at, o.lease_worker, n.last_duration_ms, n.provider, n.provider_message_id,
               -- an attempt that was not made has no error; the row still has that of an earlier one
               CASE WHEN e.has_fault THEN n.error_class END, CASE WHEN e.has_fault THEN n.error_code END,
               CASE WHEN e.has_fault THEN n.error_message END, CASE WHEN e.has_fault THEN n.error_detail END,
               CASE WHEN n.status = 'pending' THEN n.next_retry_at END, n.dead_reason
        FROM new_rows n
        JOIN old_rows o ON o.id = n.id
        CROSS JOIN LATERAL (
            SELECT x.event, x.event IN ('dead', 'cancelled', 'retry', 'deferred') AS has_fault
            FROM (SELECT CASE
                WHEN n.status = 'failed' THEN 'dead'
                WHEN n.status <> 'pending' THEN n.status
                WHEN o.status NOT IN ('pending', 'sending') THEN 'reopened'
                WHEN n.retries > o.retries THEN 'retry'
                WHEN o.status = 'pending' THEN 'rescheduled'
                WHEN n.lease_losses > o.lease_losses THEN 'lost'
                WHEN n.next_retry_at > o.leased_at THEN 'deferred'
                WHEN o.lease_until <= mailgres.now() THEN 'lost'
                ELSE 'given_back'
            END AS event) x
        ) e
        WHERE n.status <> 'sending'
          AND (o.status <> n.status OR o.retries <> n.retries OR o.next_retry_at <> n.next_retry_at)
        RETURNING id, queue_id, event, from_status, attempt, tenant_id, provider, error_class, error_code,
                  claimed_at
    ), died AS (
        INSERT INTO mailgres.dead_letters_to_log (queue_id, log_id)
        SELECT l.queue_id, l.id FROM logged l WHERE l.event = 'dead' AND l.from_status <> 'failed'
    )
    INSERT INTO mailgres.attempt_deltas
        (at, event, attempt, tenant_id, provider, error_class, error_code, claimed_at, claim_number, emails)
    SELECT mailgres.now(), l.event, l.attempt, l.tenant_id, coalesce(l.provider, ''),
           coalesce(l.error_class, ''), coalesce(l.error_code, ''), l.claimed_at,
           (SELECT r.last_value FROM mailgres.claim_numbers r), count(*)
    FROM logged l
    GROUP BY 2, 3, 4, 5, 6, 7, 8;

    -- A settled email is subtracted from the cell where it was and added to the cell where it
    -- is now; if that is the same cell, the two cancel out.
    INSERT INTO mailgres.rollup_deltas
        (hour, template_type, tenant_id, provider, error_code, status, retries, within,
         dead_hour, dead_reason, emails, here, seconds, oldest, newest)
    SELECT date_trunc('hour', r.created_at, 'UTC'), r.template_type, r.tenant_id,
           coalesce(r.provider, ''), coalesce(r.error_code, ''), r.status, r.retries, mailgres.bucket_of(r.took),
           date_trunc('hour', r.dead_at, 'UTC'), r.dead_reason, sum(r.emails), sum(r.emails),
           coalesce(sum(r.emails * r.took), 0),
           min(r.created_at) FILTER (WHERE r.emails > 0), max(r.created_at) FILTER (WHERE r.emails > 0)
    FROM (
        SELECT n.created_at, n.template_type, n.tenant_id, n.provider, n.error_code, n.status, n.retries,
               CASE WHEN n.status = 'sent' THEN
                   mailgres.seconds_between(greatest(n.created_at, n.scheduled_for), n.sent_at) END AS took,
               n.dead_at, n.dead_reason, 1 AS emails
        FROM new_rows n WHERE n.status IN ('sent', 'failed', 'cancelled')
        UNION ALL
        SELECT o.created_at, o.template_type, o.tenant_id, o.provider, o.error_code, o.status, o.retries,
               CASE WHEN o.status = 'sent' THEN
                   mailgres.seconds_between(greatest(o.created_at, o.scheduled_for), o.sent_at) END,
               o.dead_at, o.dead_reason, -1
        FROM old_rows o WHERE o.status IN ('sent', 'failed', 'cancelled')
    ) r
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
    HAVING sum(r.emails) <> 0 OR coalesce(sum(r.emails * r.took), 0) <> 0;
    RETURN NULL;
END
$$;

CREATE TRIGGER log_changes
    AFTER UPDATE ON public.email_queue REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.log_changes();

-- Deleted emails are still counted, but not as emails in the queue.
CREATE FUNCTION mailgres.count_removed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_nestloop = off SET jit = off
AS $$
BEGIN
    INSERT INTO mailgres.rollup_deltas
        (hour, template_type, tenant_id, provider, error_code, status, retries,
         dead_hour, dead_reason, emails, here)
    SELECT date_trunc('hour', o.created_at, 'UTC'), '', o.tenant_id, '', coalesce(o.error_code, ''), o.status, 0,
           date_trunc('hour', o.dead_at, 'UTC'), o.dead_reason, 0, -count(*)
    FROM old_rows o WHERE o.status IN ('sent', 'failed', 'cancelled')
    GROUP BY 1, 3, 5, 6, 8, 9;
    RETURN NULL;
END
$$;

CREATE TRIGGER count_removed
    AFTER DELETE ON public.email_queue REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.count_removed();

CREATE FUNCTION mailgres.count_truncated() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Wait for a fold in progress: otherwise its counts would stay.
    PERFORM pg_advisory_xact_lock(hashtext('mailgres.fold_rollups'));
    DELETE FROM mailgres.rollup_by_status;
    DELETE FROM mailgres.rollup_dead;
    UPDATE mailgres.rollup_deltas SET here = 0;
    RETURN NULL;
END
$$;

CREATE TRIGGER count_truncated
    AFTER TRUNCATE ON public.email_queue
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.count_truncated();

-- ---- sql/30_engine/10_triggers/30_wake.sql

-- Wakes sleeping workers. NOTIFY takes a lock that all committing transactions share, so it is
-- sent only while a worker sleeps that waits for such an email. The check runs at commit
-- (deferred): a transaction that enqueued while the worker was awake and commits after it fell
-- asleep still wakes it.

CREATE FUNCTION mailgres.wake() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_checked  text;
    v_due      numeric;  -- a time as text would depend on DateStyle and TimeZone
BEGIN
    -- One check per transaction is enough: a due email covers all others, and a later one
    -- covers those after it.
    IF current_setting('mailgres.wake_checked', true) = 'now' THEN
        RETURN NULL;
    ELSIF NEW.ready THEN
        v_checked := set_config('mailgres.wake_checked', 'now', true);
    ELSE
        v_checked := current_setting('mailgres.wake_checked', true);
        v_due := extract(epoch FROM NEW.next_retry_at);
        IF v_checked <> '' AND v_checked::numeric <= v_due THEN
            RETURN NULL;
        END IF;
        v_checked := set_config('mailgres.wake_checked', v_due::text, true);
    END IF;

    -- A transaction with a stricter isolation level only sees the sleepers of its start, so it
    -- always notifies.
    IF EXISTS (
        SELECT FROM mailgres.sleepers s
        WHERE s.sleeps_until > greatest(NEW.next_retry_at, clock_timestamp())
    ) OR (NEW.next_retry_at <= clock_timestamp()
          AND current_setting('transaction_isolation') <> 'read committed') THEN
        v_checked := set_config('mailgres.wake_checked', 'now', true);
        -- PREPARE TRANSACTION fails after NOTIFY, so do not notify: the workers' next poll finds the emails.
        IF current_query() ~* 'prepare([[:space:]]|/[*].*[*]/|--[^[:cntrl:]]*[[:cntrl:]])+transaction' THEN
            RETURN NULL;
        END IF;
        PERFORM pg_notify('mailgres', '');
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION mailgres.wake() IS 'Notifies the workers if one sleeps that waits for this email.';

CREATE CONSTRAINT TRIGGER wake_after_insert
    AFTER INSERT ON public.email_queue
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION mailgres.wake();

-- Retried, rescheduled, given back or changed by hand. Also emails that a worker gives back: by
-- then that worker may sleep, and the other workers do not know about them.
CREATE CONSTRAINT TRIGGER wake_after_update
    AFTER UPDATE ON public.email_queue
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (
        NEW.status = 'pending' AND (NEW.status <> OLD.status OR NEW.next_retry_at < OLD.next_retry_at))
    EXECUTE FUNCTION mailgres.wake();

-- ---- sql/30_engine/20_claim/05_commit_durably.sql

-- Before a worker calls a provider, the database must have recorded it on disk; and where no
-- key protects, the outcome must not be lost. With synchronous_commit = off a crash of
-- PostgreSQL loses the last commits, and those emails would be sent again. So a setting weaker
-- than `on` is raised for this transaction; the stronger remote_apply is kept. A SET clause of a
-- function would not work: it ends before the commit.

CREATE FUNCTION mailgres.commit_durably() RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.commit_durably() IS
    'Makes this transaction commit to disk, whatever synchronous_commit says.';

-- ---- sql/30_engine/20_claim/10_limits.sql

-- How much may be sent now under rate limits and quotas. A claim locks the buckets, so that two
-- claims do not take the same tokens.

-- A bucket that was filled in the future was filled before the clock was set back. Nobody knows
-- how long ago that was, so it counts as full, as it would be after a second. (Up to 10 seconds
-- are normal: the transaction of this claim may have started before the one that filled it.)
CREATE FUNCTION mailgres.tokens_of(b mailgres.buckets) RETURNS double precision
    LANGUAGE sql STABLE
RETURN CASE
    WHEN b.filled_at > mailgres.now() + interval '10 seconds' THEN greatest(b.per_second, 1)
    ELSE least(
        greatest(b.per_second, 1),
        b.tokens + b.per_second * greatest(date_part('epoch', mailgres.now() - b.filled_at), 0))
END;

COMMENT ON FUNCTION mailgres.tokens_of(mailgres.buckets) IS 'How many tokens a bucket holds now.';

-- A transaction that waited for the bucket may be older than the one that filled it last: the
-- time in between must not be filled twice.
CREATE FUNCTION mailgres.filled_until(b mailgres.buckets) RETURNS timestamptz
    LANGUAGE sql STABLE
RETURN CASE WHEN b.filled_at BETWEEN mailgres.now() AND mailgres.now() + interval '10 seconds' THEN b.filled_at
            ELSE mailgres.now() END;

COMMENT ON FUNCTION mailgres.filled_until(mailgres.buckets) IS 'The new filled_at of a bucket that is filled now.';

-- Sets a limit; null removes it. A bucket whose rate changes keeps its tokens.
CREATE FUNCTION mailgres.set_bucket(p_name text, p_per_second double precision) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_per_second IS NULL THEN
        DELETE FROM mailgres.buckets b WHERE b.name = p_name;
        RETURN;
    END IF;
    INSERT INTO mailgres.buckets AS b (name, per_second, tokens)
    VALUES (p_name, p_per_second, greatest(p_per_second, 1))
    ON CONFLICT (name) DO UPDATE
        SET per_second = excluded.per_second, tokens = mailgres.tokens_of(b),
            filled_at = mailgres.filled_until(b)
        WHERE b.per_second <> excluded.per_second;
END
$$;

COMMENT ON FUNCTION mailgres.set_bucket(text, double precision) IS
    'Sets how much may be sent in a second; null means no limit.';

CREATE FUNCTION mailgres.take_tokens(p_name text, p_tokens bigint) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE mailgres.buckets b
    SET tokens = mailgres.tokens_of(b) - p_tokens, filled_at = mailgres.filled_until(b)
    WHERE b.name = p_name;
END
$$;

COMMENT ON FUNCTION mailgres.take_tokens(text, bigint) IS 'Takes tokens out of a bucket, if there is one.';

CREATE FUNCTION mailgres.used_of_quota(u mailgres.quota_usage, p_at timestamptz) RETURNS int
    LANGUAGE sql IMMUTABLE
RETURN CASE WHEN u.reported_until > p_at THEN u.reported ELSE u.emails END;

COMMENT ON FUNCTION mailgres.used_of_quota(mailgres.quota_usage, timestamptz) IS
    'How much of a quota is used: by a recent report of the provider, or else by our own count.';

CREATE FUNCTION mailgres.quota_left(p mailgres.providers) RETURNS int
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_used  int;
BEGIN
    IF p.daily_quota IS NULL AND p.monthly_quota IS NULL THEN
        RETURN NULL;
    END IF;
    -- Emails that are being sent will count.
    SELECT count(*) INTO v_used FROM public.email_queue q
    WHERE q.status = 'sending' AND q.due_at IS NOT NULL AND q.provider = p.name;
    RETURN (
        SELECT min(x.quota - v_used - coalesce(mailgres.used_of_quota(u, mailgres.now()), 0))
        FROM (VALUES ('day', p.daily_quota), ('month', p.monthly_quota)) AS x(period, quota)
        LEFT JOIN mailgres.quota_usage u
            ON u.provider = p.name AND u.period = x.period
            AND u.starts = date_trunc(x.period, mailgres.now(), 'UTC')
        WHERE x.quota IS NOT NULL);
END
$$;

COMMENT ON FUNCTION mailgres.quota_left(mailgres.providers) IS
    'How many emails the quotas of a provider allow now; null means it has no quota.';

-- How much a claim may take for a provider.
CREATE FUNCTION mailgres.provider_room(p_provider text, INOUT p_emails int, OUT p_calls int)
    LANGUAGE plpgsql
AS $$
DECLARE
    v_bucket    mailgres.buckets;
    v_provider  mailgres.providers;
BEGIN
    p_calls := p_emails;
    FOR v_bucket IN
        SELECT * FROM mailgres.buckets b
        WHERE b.name IN ('calls:' || p_provider, 'emails:' || p_provider)
        ORDER BY b.name FOR UPDATE
    LOOP
        IF v_bucket.name LIKE 'calls:%' THEN
            p_calls := least(p_calls, floor(mailgres.tokens_of(v_bucket)))::int;
        ELSE
            p_emails := least(p_emails, floor(mailgres.tokens_of(v_bucket)))::int;
        END IF;
    END LOOP;
    SELECT * INTO v_provider FROM mailgres.providers p WHERE p.name = p_provider;
    p_emails := least(p_emails, mailgres.quota_left(v_provider));
    IF NOT v_provider.fixed_batches THEN
        p_emails := least(p_emails, p_calls * v_provider.batch_size);
    END IF;
    IF p_calls < 1 THEN
        p_emails := 0;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.provider_room(text, int) IS
    'How many emails, in how many calls, may be claimed for a provider now.';

-- When a provider's next token arrives; null if it has one or has no limit.
CREATE FUNCTION mailgres.next_token_at(p_provider text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT max(mailgres.now() + (1 - mailgres.tokens_of(b)) / b.per_second * interval '1 second')
        FROM mailgres.buckets b
        WHERE b.name IN ('calls:' || p_provider, 'emails:' || p_provider) AND mailgres.tokens_of(b) < 1);
END
$$;

COMMENT ON FUNCTION mailgres.next_token_at(text) IS
    'When the rate limits of a provider allow the next call; null means now.';

-- If another claim has locked the bucket of a tenant, this claim skips the tenant: claims visit
-- tenants in any order, so they must not wait for each other.
CREATE FUNCTION mailgres.tenant_room(p_tenant text) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    c_most   constant int := 1000;  -- no claim is larger
    v_room   int;
BEGIN
    PERFORM FROM mailgres.buckets b WHERE b.name = 'tenant:' || p_tenant;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT least(greatest(floor(mailgres.tokens_of(b)), 0), c_most) INTO v_room
    FROM mailgres.buckets b WHERE b.name = 'tenant:' || p_tenant FOR UPDATE SKIP LOCKED;
    RETURN coalesce(v_room, 0);
END
$$;

COMMENT ON FUNCTION mailgres.tenant_room(text) IS
    'How many emails the rate limit of a tenant allows now; null means no limit.';

-- A worker that drains the queue and claims nothing may only have to wait for a rate limit:
-- emails are ready but there is no token, or a provider just deferred them.
CREATE FUNCTION mailgres.rate_limit_ends_at() RETURNS timestamptz
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_soon constant interval := '10 seconds';
BEGIN
    RETURN least(
        (SELECT min(q.due_at) FROM public.email_queue q
         WHERE q.status = 'pending' AND q.due_at <= mailgres.now() + c_soon
           AND NOT q.ready AND q.error_class = 'rate'),
        CASE WHEN EXISTS (SELECT FROM public.email_queue q WHERE q.ready) THEN (
            SELECT min(greatest(x.token_at, x.limited_until))
            FROM (
                SELECT mailgres.next_token_at(p.name) AS token_at,
                       CASE WHEN p.limited_by = 'rate' AND p.limited_until > mailgres.now() THEN p.limited_until END
                           AS limited_until
                FROM mailgres.providers p
                WHERE p.enabled AND p.circuit = 'closed'
            ) x) END);
END
$$;

COMMENT ON FUNCTION mailgres.rate_limit_ends_at() IS
    'When emails that only wait for a rate limit can be sent; null if there are none.';

-- ---- sql/30_engine/20_claim/20_routes.sql

-- Which routes can be served now, and by which provider: the first of the route that does not
-- need a fallback. A provider needs one if it is disabled, its circuit is open, it is paused by
-- hand, out of quota, or this worker does not have it. A provider that is rate-limited for at
-- most a minute needs none: its route waits for it.

CREATE TYPE mailgres.usable_route AS (
    route      text,
    providers  text[],   -- the providers that can send now, in order of preference
    probe      boolean   -- one email may probe whether the provider works again
);

CREATE FUNCTION mailgres.needs_fallback(p mailgres.providers) RETURNS boolean
    LANGUAGE sql STABLE
RETURN NOT p.enabled
    OR p.circuit <> 'closed'
    OR coalesce(p.paused_until > mailgres.now(), false)
    OR coalesce(p.limited_until > mailgres.now() AND p.limited_by = 'quota', false)
    OR coalesce(p.limited_until > mailgres.now() + interval '1 minute', false);

COMMENT ON FUNCTION mailgres.needs_fallback(mailgres.providers) IS
    'Whether the next provider of the route is used instead of this one.';

CREATE FUNCTION mailgres.is_probe_due(p mailgres.providers) RETURNS boolean
    LANGUAGE sql STABLE
RETURN p.enabled
    AND (p.paused_until IS NULL OR p.paused_until <= mailgres.now())
    AND (p.limited_until IS NULL OR p.limited_until <= mailgres.now())
    AND CASE p.circuit WHEN 'open' THEN p.circuit_until <= mailgres.now()
                       -- the lease of the probe may have been extended
                       WHEN 'half_open' THEN p.probe_until <= mailgres.now() AND NOT EXISTS (
                           SELECT FROM public.email_queue q
                           WHERE q.status = 'sending' AND q.due_at > mailgres.now() AND q.lease_token = p.probe_token)
                       ELSE false END;

COMMENT ON FUNCTION mailgres.is_probe_due(mailgres.providers) IS
    'Whether one email may now probe if the provider works again.';

CREATE FUNCTION mailgres.usable_routes(p_providers text[], p_tokenless boolean) RETURNS mailgres.usable_route[]
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF p_tokenless THEN
        RETURN ARRAY(
            SELECT ROW(r.route, NULL, false)::mailgres.usable_route
            FROM mailgres.routes r WHERE NOT r.paused ORDER BY r.route);
    END IF;
    RETURN ARRAY(
        SELECT ROW(x.route, x.providers, x.probe)::mailgres.usable_route
        FROM (
            SELECT r.route, array_agg(p.name ORDER BY rp.position) AS providers,
                   (array_agg(mailgres.is_usable(p) AND mailgres.next_token_at(p.name) IS NULL
                              ORDER BY rp.position))[1] AS serves,
                   false AS probe
            FROM mailgres.routes r
            JOIN mailgres.route_providers rp ON rp.route = r.route
            JOIN mailgres.providers p ON p.name = rp.provider
            WHERE NOT r.paused AND NOT mailgres.needs_fallback(p)
              AND (p_providers IS NULL OR p.name = ANY (p_providers))
            GROUP BY r.route
            UNION ALL
            SELECT r.route, ARRAY[p.name], true, true
            FROM mailgres.routes r
            JOIN mailgres.route_providers rp ON rp.route = r.route
            JOIN mailgres.providers p ON p.name = rp.provider
            WHERE NOT r.paused AND p.circuit <> 'closed' AND mailgres.is_probe_due(p)
              AND (p_providers IS NULL OR p.name = ANY (p_providers))
        ) x
        WHERE x.serves
        ORDER BY x.probe DESC, x.route);
END
$$;

COMMENT ON FUNCTION mailgres.usable_routes(text[], boolean) IS
    'The routes that can be served now, probes first.';

-- After a definite rejection the next provider of the route is used.
CREATE FUNCTION mailgres.provider_for(p_email public.email_queue, p_usable text[]) RETURNS text
    LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN p_email.uncertain_since IS NOT NULL THEN p_email.provider
    WHEN cardinality(p_usable) > 1 AND p_email.error_class IN ('transient', 'quota', 'config')
         AND NOT p_email.send_alone
        THEN coalesce(p_usable[array_position(p_usable, p_email.provider) + 1], p_usable[1])
    ELSE p_usable[1] END;

COMMENT ON FUNCTION mailgres.provider_for(public.email_queue, text[]) IS
    'The provider of the next attempt: the preferred one, or the one after the provider that rejected the email; always the same one while an email is uncertain.';

-- ---- sql/30_engine/20_claim/30_batches.sql

-- Emails that are sent to the provider in one call, under one key. A call whose outcome is
-- uncertain is repeated with the same emails in the same order or not at all, so the claim
-- stores which emails belong together, and leases such a batch as a whole.

-- An uncertain email of a batch stays with its batch, even if it has expired or was suppressed
-- since.
CREATE FUNCTION mailgres.is_in_uncertain_batch(q public.email_queue) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN q.uncertain_since IS NOT NULL AND q.batch_id IS NOT NULL;

COMMENT ON FUNCTION mailgres.is_in_uncertain_batch(public.email_queue) IS
    'Whether the email is uncertain and belongs to a batch, so that it has to stay with it.';

CREATE TYPE mailgres.call_plan AS (ids uuid[], batches uuid[], sizes int[]);

-- Distributes emails over calls. Urgent emails, emails with attachments, and emails that were
-- rejected by another provider or with a whole batch go alone; the others go together. Emails
-- that wait for their sender's configuration share calls with each other only, so that they do
-- not delay other emails. At most p_calls, urgent and other calls in turn.
CREATE FUNCTION mailgres.plan_calls(p_ids uuid[], p_batch_size int, p_calls int, p_usable text[])
    RETURNS mailgres.call_plan
    LANGUAGE plpgsql
AS $$
DECLARE
    v_plan mailgres.call_plan;
BEGIN
    WITH emails AS (
        SELECT q.id, q.priority <= 2 AS urgent, q.uncertain_since IS NOT NULL AS uncertain, q.batch_id,
               q.priority <= 2 OR q.has_attachments OR q.uncertain_since IS NOT NULL
                   OR q.send_alone
                   OR mailgres.provider_for(q, p_usable) <> p_usable[1] AS alone,
               q.parked_since IS NOT NULL AS parked
        FROM public.email_queue q WHERE q.id = ANY (p_ids)
    ), numbered AS (
        SELECT e.*, CASE
            WHEN e.uncertain THEN coalesce(e.batch_id, e.id)::text
            WHEN e.alone THEN e.id::text
            ELSE e.parked || ' ' || (row_number() OVER (PARTITION BY e.alone, e.parked ORDER BY e.id) - 1)
                                    / p_batch_size END AS call
        FROM emails e
    ), calls AS (
        SELECT n.call, count(*)::int AS size, bool_or(n.urgent) AS urgent,
               CASE WHEN count(*) > 1 OR bool_or(n.uncertain AND n.batch_id IS NOT NULL)
                    THEN coalesce((array_agg(n.batch_id) FILTER (WHERE n.uncertain))[1], gen_random_uuid())
               END AS batch_id
        FROM numbered n GROUP BY n.call
    ), made AS (
        SELECT c.* FROM (
            SELECT c.*, row_number() OVER (PARTITION BY c.urgent ORDER BY c.call) AS turn FROM calls c
        ) c
        ORDER BY c.turn, c.urgent DESC LIMIT p_calls
    )
    SELECT array_agg(n.id), array_agg(m.batch_id), array_agg(CASE WHEN m.batch_id IS NOT NULL THEN m.size END)
    INTO v_plan.ids, v_plan.batches, v_plan.sizes
    FROM numbered n JOIN made m USING (call);
    RETURN v_plan;
END
$$;

COMMENT ON FUNCTION mailgres.plan_calls(uuid[], int, int, text[]) IS
    'Distributes emails over the calls of a provider that accepts several in one call.';

-- Only one claim at a time works on a batch; the others skip it.
CREATE FUNCTION mailgres.try_lock_batch(p_batch uuid) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    RETURN pg_try_advisory_xact_lock(hashtextextended('mailgres batch ' || p_batch, 0));
END
$$;

COMMENT ON FUNCTION mailgres.try_lock_batch(uuid) IS
    'Whether this transaction has the lock of a batch, until it ends.';

-- A batch adds emails of tenants that the claim did not visit: their buckets are locked at once
-- or not at all (see tenant_room).
CREATE FUNCTION mailgres.try_lock_buckets(p_ids uuid[]) RETURNS boolean
    LANGUAGE plpgsql
AS $$
DECLARE
    v_names   constant text[] := ARRAY(
        SELECT DISTINCT 'tenant:' || q.tenant_id FROM public.email_queue q WHERE q.id = ANY (p_ids));
    v_locked  int;
BEGIN
    SELECT count(*) INTO v_locked FROM (
        SELECT FROM mailgres.buckets b WHERE b.name = ANY (v_names) FOR UPDATE SKIP LOCKED) x;
    RETURN v_locked = (SELECT count(*) FROM mailgres.buckets b WHERE b.name = ANY (v_names));
END
$$;

COMMENT ON FUNCTION mailgres.try_lock_buckets(uuid[]) IS
    'Whether this transaction has locked the rate limits of all tenants of these emails.';

-- Uncertain batches are claimed as a whole or not at all: adds the rest of each batch, or removes
-- the emails of a batch that is not complete. The claim that picks an email of a batch holds the
-- lock of the batch (take_from_tenant takes it), but another session may have locked some of the
-- emails, or they are not reaped yet. No claim waits for another, so the batch is deferred for a
-- moment.
CREATE FUNCTION mailgres.complete_batches(p_ids uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_batch      record;
    v_in_flight  boolean;
    v_all        uuid[];
    v_locked     uuid[];
    v_whole      boolean;
BEGIN
    FOR v_batch IN
        SELECT q.batch_id AS id, min(q.batch_size) AS size, array_agg(q.id) AS picked
        FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.uncertain_since IS NOT NULL AND q.batch_id IS NOT NULL
        GROUP BY q.batch_id
    LOOP
        p_ids := ARRAY(SELECT unnest(p_ids) EXCEPT SELECT unnest(v_batch.picked));
        -- Read first: an email that returns while the others are read was in flight, not settled.
        v_in_flight := EXISTS (
            SELECT FROM public.email_queue q
            WHERE q.status = 'sending' AND q.due_at IS NOT NULL AND q.batch_id = v_batch.id);
        v_all := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status = 'pending');
        v_locked := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status = 'pending'
            ORDER BY q.id FOR UPDATE SKIP LOCKED);
        v_whole := cardinality(v_locked) = v_batch.size;
        IF v_whole AND mailgres.try_lock_buckets(v_locked) THEN
            p_ids := p_ids || v_locked;
        ELSIF v_whole OR v_in_flight OR cardinality(v_locked) < cardinality(v_all) THEN
            UPDATE public.email_queue q
            SET ready = false, next_retry_at = mailgres.now() + (1 + random()) * interval '1 second'
            WHERE q.id = ANY (v_locked);
        ELSE
            -- Some emails were settled, by an event or by hand: the call cannot be repeated unchanged.
            UPDATE public.email_queue q
            SET status = 'failed', ready = false, dead_at = mailgres.now(), dead_reason = 'uncertain',
                error_message = 'an earlier attempt may have arrived, and its batch is no longer whole'
            WHERE q.id = ANY (v_locked);
        END IF;
    END LOOP;
    RETURN p_ids;
END
$$;

COMMENT ON FUNCTION mailgres.complete_batches(uuid[]) IS
    'Completes uncertain batches, or leaves them out.';

-- ---- sql/30_engine/20_claim/40_pick.sql

-- Picks the next emails: fair between tenants, at a cost that does not depend on the size of
-- the table. Every step reads an exact range of an index; sent rows, future rows, other tenants
-- and the rest of the backlog are never read. All functions are plpgsql, because it keeps the
-- plans between calls.

CREATE TYPE mailgres.pick_state AS (
    picked    uuid[],  -- the emails picked and locked so far
    taken     jsonb,   -- how many of them each tenant has
    has_more  text[],  -- tenants that used their whole share in this round: they may have more
    cursor    text,    -- the tenant after which the next round starts
    had       jsonb    -- how much of its share that tenant got before the last claim was full
);

-- The next tenant after p_after that has a ready email on the route. Two statements, so that
-- each uses its own partial index.
CREATE FUNCTION mailgres.next_tenant(p_route text, p_after text, p_urgent boolean) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF p_urgent THEN
        RETURN (
            SELECT q.tenant_id FROM public.email_queue q
            WHERE q.ready AND q.priority <= 2 AND q.route = p_route AND q.tenant_id > p_after
            ORDER BY q.tenant_id LIMIT 1);
    END IF;
    RETURN (
        SELECT q.tenant_id FROM public.email_queue q
        WHERE q.ready AND q.route = p_route AND q.tenant_id > p_after
        ORDER BY q.tenant_id LIMIT 1);
END
$$;

COMMENT ON FUNCTION mailgres.next_tenant(text, text, boolean) IS
    'The next tenant in the round that has a ready email.';

CREATE FUNCTION mailgres.tenant_share(p_tenant text) RETURNS int
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN coalesce(
        (SELECT CASE WHEN t.paused_at IS NULL THEN 3 * t.weight ELSE 0 END
         FROM mailgres.tenants t WHERE t.tenant_id = p_tenant),
        3);
END
$$;

COMMENT ON FUNCTION mailgres.tenant_share(text) IS
    'How many emails a tenant may have per turn while other tenants wait; 0 while it is paused.';

-- A processor that only knows the template and the payload cannot send content of the email's
-- own, attachments, or an uncertain email, which needs its key.
CREATE FUNCTION mailgres.is_plain(q public.email_queue) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN NOT q.has_attachments AND num_nonnulls(
    q.subject, q.from_email, q.reply_to, q.headers, q.also_to, q.cc, q.bcc, q.uncertain_since) = 0;

COMMENT ON FUNCTION mailgres.is_plain(public.email_queue) IS
    'Whether a processor that only knows the template and the payload can send the email.';

-- For a day, only workers that have its provider claim an uncertain email. It is claimed with
-- the rest of its batch or not at all. p_plain: see is_plain.
CREATE FUNCTION mailgres.is_claimable(q public.email_queue, p_providers text[], p_plain boolean) RETURNS boolean
    LANGUAGE sql
RETURN (q.uncertain_since IS NULL OR p_providers IS NULL OR q.provider = ANY (p_providers)
        OR q.uncertain_since < mailgres.now() - interval '1 day')
    AND (NOT p_plain OR mailgres.is_plain(q))
    AND (q.uncertain_since IS NULL OR q.batch_id IS NULL OR mailgres.try_lock_batch(q.batch_id));

COMMENT ON FUNCTION mailgres.is_claimable(public.email_queue, text[], boolean) IS
    'Whether a claim may take a ready email.';

-- Picks and locks the next emails of one tenant.
CREATE FUNCTION mailgres.take_from_tenant(
    p_state mailgres.pick_state, p_route text, p_tenant text, p_limit int, p_urgent boolean,
    p_providers text[], p_plain boolean
) RETURNS mailgres.pick_state
    LANGUAGE plpgsql
AS $$
DECLARE
    v_ids   uuid[];
    v_room  constant int := mailgres.tenant_room(p_tenant) - coalesce((p_state.taken ->> p_tenant)::int, 0);
    v_limit constant int := least(p_limit, v_room);
BEGIN
    IF v_limit < 1 THEN
        RETURN p_state;
    END IF;
    IF p_urgent THEN
        v_ids := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.ready AND q.priority <= 2 AND q.route = p_route AND q.tenant_id = p_tenant
              AND q.id <> ALL (p_state.picked)
              AND mailgres.is_claimable(q, p_providers, p_plain)
            ORDER BY q.priority, q.next_retry_at
            LIMIT v_limit FOR UPDATE SKIP LOCKED);
    ELSE
        v_ids := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.ready AND q.route = p_route AND q.tenant_id = p_tenant
              AND q.id <> ALL (p_state.picked)
              AND mailgres.is_claimable(q, p_providers, p_plain)
            ORDER BY q.priority, q.next_retry_at
            LIMIT v_limit FOR UPDATE SKIP LOCKED);
    END IF;
    p_state.picked := p_state.picked || v_ids;
    p_state.taken := p_state.taken || jsonb_build_object(
        p_tenant, coalesce((p_state.taken ->> p_tenant)::int, 0) + cardinality(v_ids));
    IF cardinality(v_ids) = p_limit AND v_room IS DISTINCT FROM p_limit THEN
        p_state.has_more := p_state.has_more || p_tenant;
    END IF;
    RETURN p_state;
END
$$;

COMMENT ON FUNCTION mailgres.take_from_tenant(mailgres.pick_state, text, text, int, boolean, text[], boolean) IS
    'Picks and locks the next emails of one tenant.';

-- One round: from the tenant after the cursor round to that tenant itself, until p_limit emails
-- are picked.
CREATE FUNCTION mailgres.take_round(
    p_state mailgres.pick_state, p_route text, p_limit int, p_urgent boolean, p_providers text[],
    p_plain boolean
) RETURNS mailgres.pick_state
    LANGUAGE plpgsql
AS $$
DECLARE
    c_most_visits  constant int := 1000;  -- limits how many paused tenants a claim passes
    v_start        text := p_state.cursor;
    v_wrapped      boolean := v_start = '';
    v_before       text;
    v_tenant       text;
    v_share        int;
    v_room         int;
BEGIN
    p_state.has_more := '{}';
    FOR v_visit IN 1 .. c_most_visits LOOP
        v_room := p_limit - cardinality(p_state.picked);
        EXIT WHEN v_room <= 0;
        v_before := p_state.cursor;
        v_tenant := mailgres.next_tenant(p_route, p_state.cursor, p_urgent);
        IF v_tenant IS NULL AND NOT v_wrapped THEN
            v_wrapped := true;
            p_state.cursor := '';
            CONTINUE;
        END IF;
        EXIT WHEN v_tenant IS NULL
            OR (v_wrapped AND v_start <> '' AND v_tenant > v_start COLLATE "C");
        p_state.cursor := v_tenant;

        v_share := mailgres.tenant_share(v_tenant);
        CONTINUE WHEN v_share = 0;
        v_share := v_share - coalesce((p_state.taken ->> v_tenant)::int, 0)
                           - coalesce((p_state.had ->> v_tenant)::int, 0);
        IF v_share > 0 THEN
            p_state := mailgres.take_from_tenant(
                p_state, p_route, v_tenant, least(v_share, v_room), p_urgent, p_providers, p_plain);
            -- A tenant whose share is cut short by the end of the claim gets the rest in the next one.
            IF cardinality(p_state.picked) = p_limit AND v_room < least(v_share, p_limit) THEN
                p_state.cursor := v_before;
                p_state.had := jsonb_build_object(
                    v_tenant, coalesce((p_state.had ->> v_tenant)::int, 0) + v_room);
                EXIT;
            END IF;
        ELSE
            p_state.has_more := p_state.has_more || v_tenant;
        END IF;
        p_state.had := '{}';
    END LOOP;
    RETURN p_state;
END
$$;

COMMENT ON FUNCTION mailgres.take_round(mailgres.pick_state, text, int, boolean, text[], boolean) IS
    'One round through the tenants, up to 3 x weight emails of each.';

-- If no more emails are ready than a claim takes, it takes all of them, and needs no rounds: a
-- quiet queue is the usual case, and it is where latency matters. Null: there are more, or a
-- tenant has a rate limit.
CREATE FUNCTION mailgres.pick_few(p_route text, p_limit int, p_providers text[], p_plain boolean)
    RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    c_few constant int := least(p_limit, 10);
BEGIN
    IF EXISTS (SELECT FROM mailgres.buckets b WHERE b.name LIKE 'tenant:%') OR c_few < (
        SELECT count(*) FROM (
            SELECT FROM public.email_queue q WHERE q.ready AND q.route = p_route LIMIT c_few + 1) x)
    THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.ready AND q.route = p_route
          AND NOT EXISTS (
              SELECT FROM mailgres.tenants t WHERE t.tenant_id = q.tenant_id AND t.paused_at IS NOT NULL)
          AND mailgres.is_claimable(q, p_providers, p_plain)
        ORDER BY q.priority, q.next_retry_at
        LIMIT c_few FOR UPDATE OF q SKIP LOCKED);
END
$$;

COMMENT ON FUNCTION mailgres.pick_few(text, int, text[], boolean) IS
    'Picks and locks all ready emails of a route, if there are few.';

-- The emails of one claim. First an urgent round with priorities 1 and 2, for at most half of the
-- claim; then a round with all emails, where priority orders the emails of each tenant. If that
-- does not fill the claim and only one tenant has more, it gets the rest; several tenants get
-- another round for every ten emails of the claim.
CREATE FUNCTION mailgres.pick(
    p_route text, p_limit int, p_providers text[], p_plain boolean,
    INOUT p_cursors jsonb, OUT p_picked uuid[]
)
    LANGUAGE plpgsql
AS $$
DECLARE
    v_urgent    text := 'urgent:' || p_route;
    v_state     mailgres.pick_state;
    v_has_more  text[];
    v_tenant    text;
    v_room      int;
BEGIN
    p_picked := mailgres.pick_few(p_route, p_limit, p_providers, p_plain);
    IF p_picked IS NOT NULL THEN
        RETURN;
    END IF;

    v_state := ROW('{}', '{}', '{}', coalesce(p_cursors #>> ARRAY[v_urgent, 'cursor'], ''),
                   p_cursors #> ARRAY[v_urgent, 'had']);
    v_state := mailgres.take_round(v_state, p_route, p_limit / 2, true, p_providers, p_plain);
    p_cursors := p_cursors || jsonb_build_object(
        v_urgent, jsonb_build_object('cursor', v_state.cursor, 'had', v_state.had));

    v_state.cursor := coalesce(p_cursors #>> ARRAY[p_route, 'cursor'], '');
    v_state.had := p_cursors #> ARRAY[p_route, 'had'];
    v_state := mailgres.take_round(v_state, p_route, p_limit, false, p_providers, p_plain);
    p_cursors := p_cursors || jsonb_build_object(
        p_route, jsonb_build_object('cursor', v_state.cursor, 'had', v_state.had));

    FOR v_turn IN 2 .. p_limit LOOP
        v_has_more := v_state.has_more;
        v_state.has_more := '{}';
        EXIT WHEN cardinality(v_has_more) = 0
            OR (cardinality(v_has_more) > 1 AND v_turn > (p_limit + 9) / 10);
        FOREACH v_tenant IN ARRAY v_has_more LOOP
            v_room := p_limit - cardinality(v_state.picked);
            EXIT WHEN v_room = 0;
            v_state := mailgres.take_from_tenant(
                v_state, p_route, v_tenant,
                CASE WHEN cardinality(v_has_more) = 1 THEN v_room
                     ELSE least(v_room, mailgres.tenant_share(v_tenant)) END,
                false, p_providers, p_plain);
        END LOOP;
    END LOOP;
    p_picked := v_state.picked;
END
$$;

COMMENT ON FUNCTION mailgres.pick(text, int, text[], boolean, jsonb) IS
    'Picks and locks the emails of one claim, fairly between tenants.';

-- ---- sql/30_engine/20_claim/50_settle_unsendable.sql

-- Emails that were picked but cannot be sent now are settled or deferred, so that they do not
-- block the next claim of their tenant. The conditions do not name the status, so that no plan
-- can use its index instead of the ids.

CREATE FUNCTION mailgres.settle_unsendable(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM mailgres.expire_these(p_ids);

    -- Suppressed: cancelled, or dead if it is uncertain.
    UPDATE public.email_queue q
    SET status = CASE WHEN q.uncertain_since IS NULL THEN 'cancelled' ELSE 'failed' END,
        ready = false,
        dead_at = CASE WHEN q.uncertain_since IS NOT NULL THEN mailgres.now() END,
        dead_reason = CASE WHEN q.uncertain_since IS NOT NULL THEN 'uncertain' END,
        error_message = 'the address is suppressed',
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL
    WHERE q.id = ANY (p_ids)
      AND q.attempt_started_at IS NULL AND q.dead_at IS NULL AND NOT mailgres.is_in_uncertain_batch(q)
      AND EXISTS (
          SELECT FROM public.email_suppressions s
          WHERE s.recipient_email = mailgres.canonical_address(q.recipient_email) AND s.tenant_id IN ('*', q.tenant_id));

    -- Uncertain, and its key no longer protects it or no worker has had its provider for days:
    -- a person has to decide.
    UPDATE public.email_queue q
    SET status = 'failed', ready = false, dead_at = mailgres.now(), dead_reason = 'uncertain',
        error_message = 'an earlier attempt may have arrived, and it is too late to repeat it safely'
                        || coalesce('; last fault: ' || nullif(q.error_message, ''), '')
    FROM (
        SELECT x.id, x.provider AS name, p.idempotent, p.key_window, s.config_wait_total AS dead_after
        FROM public.email_queue x
        CROSS JOIN mailgres.settings s
        LEFT JOIN mailgres.providers p ON p.name = x.provider
        WHERE x.id = ANY (p_ids)
    ) p
    WHERE q.id = ANY (p_ids) AND q.id = p.id
      AND q.uncertain_since IS NOT NULL AND q.lease_token IS NULL AND q.dead_at IS NULL
      AND (p.idempotent AND q.uncertain_since + p.key_window <= mailgres.now()
           OR q.uncertain_since + p.dead_after <= mailgres.now());

    -- Only its own provider may repeat it, and that one is not usable now. Nothing wakes these
    -- emails if it becomes usable early, so they are checked again from time to time.
    UPDATE public.email_queue q
    SET ready = false,
        next_retry_at = least(mailgres.now() + interval '15 minutes', greatest(
            mailgres.now() + interval '1 minute',
            (SELECT greatest(p.circuit_until, p.limited_until, p.paused_until)
             FROM mailgres.providers p WHERE p.name = q.provider)))
    WHERE q.id = ANY (p_ids) AND q.next_retry_at <= mailgres.now()
      AND q.uncertain_since IS NOT NULL AND q.lease_token IS NULL AND q.dead_at IS NULL;
END
$$;

COMMENT ON FUNCTION mailgres.settle_unsendable(uuid[]) IS
    'Settles emails that must not be sent now: expired, suppressed, or uncertain at a provider that cannot repeat them.';

-- ---- sql/30_engine/20_claim/60_claim.sql

-- The claim leases emails to a worker, in one short transaction that commits before the provider
-- is called. Each row gets a fencing token, without which no outcome is accepted for it, and the
-- version of its template that every attempt renders.
--
-- p_providers: the providers that the worker has; null means all. p_tokenless: the claim is for a
-- processor that does not use tokens (process_pending_emails_for_retry). It sends the emails
-- itself, so no provider is chosen.

CREATE FUNCTION mailgres.may_retry_uncertain(
    p_email public.email_queue, p_providers text[], p_route mailgres.usable_route
) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM mailgres.providers p
        WHERE p.name = p_email.provider
          AND (mailgres.is_usable(p) OR p_route.probe AND p.name = p_route.providers[1])
          AND (p_providers IS NULL OR p.name = ANY (p_providers))
          AND (NOT p.idempotent OR p_email.uncertain_since + p.key_window > mailgres.now()));
END
$$;

COMMENT ON FUNCTION mailgres.may_retry_uncertain(public.email_queue, text[], mailgres.usable_route) IS
    'Whether an uncertain email can be retried now: through the same provider, while its key is valid.';

-- Charges a claim to limits and circuits: takes the tokens, and records the probe of a provider.
CREATE FUNCTION mailgres.charge_limits(p_ids uuid[], p_token uuid, p_route mailgres.usable_route)
    RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_used    record;
    v_worker  text;
    v_until   timestamptz;
BEGIN
    IF p_route.probe THEN
        SELECT q.lease_worker, q.lease_until INTO v_worker, v_until FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.lease_token = p_token AND q.provider = p_route.providers[1] LIMIT 1;
        IF FOUND THEN
            PERFORM mailgres.set_circuit(p_route.providers[1], 'half_open', NULL, v_worker);
            UPDATE mailgres.providers p SET probe_token = p_token, probe_until = v_until
            WHERE p.name = p_route.providers[1];
        END IF;
    END IF;

    FOR v_used IN
        WITH used AS MATERIALIZED (  -- evaluated once, for any number of providers
            SELECT q.provider, count(*) AS emails, count(DISTINCT coalesce(q.batch_id, q.id)) AS batches
            FROM public.email_queue q WHERE q.id = ANY (p_ids) AND q.lease_token = p_token GROUP BY q.provider
        )
        SELECT u.provider, u.emails,
               CASE WHEN p.fixed_batches THEN u.batches ELSE (u.emails + p.batch_size - 1) / p.batch_size END AS calls
        FROM used u JOIN mailgres.providers p ON p.name = u.provider
        ORDER BY u.provider
    LOOP
        PERFORM mailgres.take_tokens('calls:' || v_used.provider, v_used.calls);
        PERFORM mailgres.take_tokens('emails:' || v_used.provider, v_used.emails);
    END LOOP;
    FOR v_used IN
        SELECT q.tenant_id, count(*) AS emails FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.lease_token = p_token GROUP BY q.tenant_id ORDER BY q.tenant_id
    LOOP
        PERFORM mailgres.take_tokens('tenant:' || v_used.tenant_id, v_used.emails);
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.charge_limits(uuid[], uuid, mailgres.usable_route) IS
    'Takes the tokens for the leased emails, and records the provider that they probe.';

-- Emails that the first provider rejected go to its fallback, up to what that provider accepts
-- now; the others wait for it.
CREATE FUNCTION mailgres.fit_fallbacks(p_ids uuid[], p_usable text[]) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_other  record;
    v_room   int;
    v_free   timestamptz;
BEGIN
    FOR v_other IN
        SELECT p, x.ids
        FROM (
            SELECT mailgres.provider_for(q, p_usable) AS name, array_agg(q.id ORDER BY q.id) AS ids
            FROM public.email_queue q
            WHERE q.id = ANY (p_ids) AND q.uncertain_since IS NULL AND mailgres.provider_for(q, p_usable) <> p_usable[1]
            GROUP BY 1
        ) x
        JOIN mailgres.providers p ON p.name = x.name
    LOOP
        SELECT CASE WHEN NOT mailgres.is_usable(v_other.p) THEN 0
                    WHEN (v_other.p).fixed_batches THEN least(r.p_emails, r.p_calls)
                    ELSE r.p_emails END
        INTO v_room FROM mailgres.provider_room((v_other.p).name, cardinality(v_other.ids)) r;
        CONTINUE WHEN v_room >= cardinality(v_other.ids);
        v_other.ids := v_other.ids[greatest(v_room, 0) + 1 :];
        p_ids := ARRAY(SELECT unnest(p_ids) EXCEPT SELECT unnest(v_other.ids));
        v_free := greatest(mailgres.next_token_at((v_other.p).name), (v_other.p).limited_until,
                           mailgres.now() + interval '1 second');
        UPDATE public.email_queue q SET ready = false, next_retry_at = v_free
        WHERE q.id = ANY (v_other.ids);
    END LOOP;
    RETURN p_ids;
END
$$;

COMMENT ON FUNCTION mailgres.fit_fallbacks(uuid[], text[]) IS
    'Defers emails whose fallback provider has no room now.';

-- Leases the picked emails that may be sent, in at most p_calls calls. p_batched: some of them may
-- belong to uncertain batches. p_limited: there are limits or circuits to update.
CREATE FUNCTION mailgres.lease(
    p_ids uuid[], p_worker text, p_lease interval, p_providers text[], p_route mailgres.usable_route,
    p_calls int, p_tokenless boolean, p_batched boolean, p_limited boolean
) RETURNS SETOF public.email_queue
    LANGUAGE plpgsql
AS $$
DECLARE
    v_token  constant uuid := gen_random_uuid();
    v_keyed  text[];
    v_batch  int;     -- how many emails the first provider accepts in a fixed batch; null: none
    v_ids    uuid[] := p_ids;
    v_plan   mailgres.call_plan;
BEGIN
    SELECT array_agg(p.name) FILTER (WHERE p.idempotent),
           max(p.batch_size) FILTER (WHERE p.fixed_batches AND p.name = p_route.providers[1])
    INTO v_keyed, v_batch FROM mailgres.providers p;
    IF p_batched THEN
        v_ids := mailgres.complete_batches(p_ids);
    END IF;
    v_plan.ids := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (v_ids)
          AND (q.uncertain_since IS NULL OR mailgres.may_retry_uncertain(q, p_providers, p_route))
          AND (mailgres.is_in_uncertain_batch(q)
               OR (q.expires_at IS NULL OR q.expires_at > mailgres.now()) AND NOT EXISTS (
                   SELECT FROM public.email_suppressions s
                   WHERE s.recipient_email = mailgres.canonical_address(q.recipient_email) AND s.tenant_id IN ('*', q.tenant_id))));
    IF cardinality(p_route.providers) > 1 THEN
        v_plan.ids := mailgres.fit_fallbacks(v_plan.ids, p_route.providers);
    END IF;
    IF v_batch IS NOT NULL THEN
        v_plan := mailgres.plan_calls(v_plan.ids, v_batch, p_calls, p_route.providers);
    END IF;

    RETURN QUERY
    UPDATE public.email_queue q
    SET status = 'sending',
        ready = false,
        lease_token = v_token,
        lease_worker = p_worker,
        lease_is_tokenless = p_tokenless,
        leased_at = mailgres.now(),
        lease_until = mailgres.now() + p_lease,
        last_attempt_at = mailgres.now(),
        first_attempt_at = coalesce(q.first_attempt_at, mailgres.now()),
        last_duration_ms = NULL,
        provider = mailgres.provider_for(q, p_route.providers),
        batch_id = CASE WHEN q.uncertain_since IS NULL THEN c.batch_id ELSE q.batch_id END,
        batch_size = CASE WHEN q.uncertain_since IS NULL THEN c.size ELSE q.batch_size END,
        -- With a key the claim is enough: the call may be repeated, whatever its outcome was.
        attempt_started_at = CASE WHEN mailgres.provider_for(q, p_route.providers) = ANY (v_keyed)
            THEN mailgres.now() END,
        template_version = coalesce(q.template_version, (
            SELECT t.active_version FROM public.email_templates t
            WHERE t.template_type = q.template_type AND q.subject IS NULL))
    FROM unnest(v_plan.ids, v_plan.batches, v_plan.sizes) AS c(id, batch_id, size)
    WHERE q.id = c.id
    RETURNING q.*;
    IF p_limited THEN
        PERFORM mailgres.charge_limits(v_plan.ids, v_token, p_route);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.lease(uuid[], text, interval, text[], mailgres.usable_route, int, boolean, boolean, boolean) IS
    'Leases picked emails to a worker under a new fencing token.';

-- How much this claim may take on a route: one email to probe a provider, if no other claim does
-- so now; otherwise as much as limits and quotas allow.
CREATE FUNCTION mailgres.route_room(
    p_route mailgres.usable_route, p_limit int, OUT p_emails int, OUT p_calls int
)
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_route.providers IS NULL THEN
        p_emails := p_limit;
        p_calls := p_limit;
    ELSIF p_route.probe THEN
        PERFORM FROM mailgres.providers p
        WHERE p.name = p_route.providers[1] AND mailgres.is_probe_due(p) FOR UPDATE SKIP LOCKED;
        p_emails := FOUND::int;
        p_calls := 1;
    ELSE
        SELECT x.p_emails, x.p_calls INTO p_emails, p_calls
        FROM mailgres.provider_room(p_route.providers[1], p_limit) x;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.route_room(mailgres.usable_route, int) IS
    'How many emails, in how many calls, a claim may take on a route now.';

-- Before a claim computes its room, it locks the buckets of all providers that it may use, in
-- one order, so that two claims never deadlock; and for providers with a quota, the right to
-- count what is left of it.
CREATE FUNCTION mailgres.lock_limits(p_routes mailgres.usable_route[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_names constant text[] := ARRAY(SELECT DISTINCT n FROM unnest(p_routes) r, unnest(r.providers) n);
BEGIN
    PERFORM FROM mailgres.buckets b
    WHERE b.name IN (SELECT x.kind || n FROM unnest(v_names) n, (VALUES ('calls:'), ('emails:')) AS x(kind))
    ORDER BY b.name FOR UPDATE;
    PERFORM pg_advisory_xact_lock(hashtextextended('mailgres quota ' || x.name, 0))
    FROM (
        SELECT p.name FROM mailgres.providers p
        WHERE p.name = ANY (v_names) AND num_nonnulls(p.daily_quota, p.monthly_quota) > 0
        ORDER BY p.name
    ) x;
END
$$;

COMMENT ON FUNCTION mailgres.lock_limits(mailgres.usable_route[]) IS
    'Locks the limits of the providers that a claim may use, in one order.';

CREATE FUNCTION mailgres.claim(
    p_worker text,
    p_limit int DEFAULT 10,
    p_lease interval DEFAULT '60 seconds',
    p_providers text[] DEFAULT NULL,
    p_tokenless boolean DEFAULT false
) RETURNS SETOF public.email_queue
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_due     boolean;
    v_lost    boolean;
    v_ready   boolean;
    v_slot    mailgres.claim_slots;
    v_before  mailgres.claim_slots;
    v_routes  mailgres.usable_route[];
    v_route   mailgres.usable_route;
    v_limited boolean;
    v_room    int;
    v_calls   int;
    v_ids     uuid[];
    v_special boolean;
    v_leased  int;
    v_empty   int := 0;
BEGIN
    IF coalesce(p_worker, '') = '' OR coalesce(p_limit, 0) NOT BETWEEN 1 AND 1000
       OR coalesce(p_lease, '0') NOT BETWEEN '1 second' AND '1 hour' THEN
        PERFORM mailgres.refuse('MG050', 'a claim needs a worker, a limit and a lease',
            'Name the worker; claim 1 to 1000 emails for 1 second to 1 hour.');
    END IF;

    SELECT EXISTS (SELECT FROM public.email_queue q WHERE q.status = 'pending' AND q.due_at <= mailgres.now()),
           EXISTS (SELECT FROM public.email_queue q WHERE q.status = 'sending' AND q.due_at <= mailgres.now()),
           EXISTS (SELECT FROM public.email_queue q WHERE q.ready),
           EXISTS (SELECT FROM mailgres.buckets) OR EXISTS (
               SELECT FROM mailgres.providers p WHERE num_nonnulls(p.daily_quota, p.monthly_quota) > 0)
    INTO v_due, v_lost, v_ready, v_limited;
    IF v_due THEN
        PERFORM mailgres.promote();
    END IF;
    -- A claim also reaps the emails of dead workers: a queue that only a cron job serves has no
    -- janitor.
    IF v_lost THEN
        PERFORM mailgres.reap(p_limit);
    END IF;
    IF NOT (v_due OR v_lost OR v_ready) THEN  -- an idle worker checks, and writes nothing
        RETURN;
    END IF;

    v_routes := mailgres.usable_routes(p_providers, p_tokenless);
    -- No usable route may be the effect of a clock that was set back; a queue that only a cron job
    -- serves has no janitor to correct it.
    IF cardinality(v_routes) = 0 AND mailgres.correct_times(p_limit) > 0 THEN
        v_routes := mailgres.usable_routes(p_providers, p_tokenless);
    END IF;
    SELECT * INTO v_slot FROM mailgres.claim_slots s ORDER BY s.slot LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN  -- more claims at once than slots: wait for one
        SELECT * INTO v_slot FROM mailgres.claim_slots s ORDER BY s.slot LIMIT 1 FOR UPDATE;
    END IF;

    v_before := v_slot;
    IF v_limited THEN
        PERFORM mailgres.lock_limits(v_routes);
    END IF;

    -- The routes take turns. If all picked emails were settled or deferred, the claim picks again
    -- from the same route; the limit makes sure that a claim always ends.
    FOR v_round IN 1 .. cardinality(v_routes) + 100 LOOP
        EXIT WHEN v_empty = cardinality(v_routes);
        v_route := v_routes[1 + mod(v_slot.next_route, cardinality(v_routes))];
        IF v_limited OR v_route.probe THEN
            SELECT * INTO v_room, v_calls FROM mailgres.route_room(v_route, p_limit);
        ELSE
            v_room := p_limit;
            v_calls := p_limit;
        END IF;
        IF v_room > 0 THEN
            SELECT * INTO v_slot.cursors, v_ids
            FROM mailgres.pick(v_route.route, v_room, p_providers, p_tokenless, v_slot.cursors);
        END IF;

        IF v_room < 1 OR cardinality(v_ids) = 0 THEN
            v_empty := v_empty + 1;
            v_slot.next_route := v_slot.next_route + 1;
            CONTINUE;
        END IF;
        -- An email that a worker held when it died is claimed alone, or alone with its batch: if it
        -- is what kills workers, no other email is affected.
        PERFORM FROM public.email_queue q
        WHERE q.id = ANY (v_ids) AND (q.lease_losses > 0 OR mailgres.is_in_uncertain_batch(q)) LIMIT 1;
        v_special := FOUND;
        IF v_special THEN
            v_ids := coalesce((
                SELECT ARRAY[q.id] FROM public.email_queue q
                WHERE q.id = ANY (v_ids) AND q.lease_losses > 0 ORDER BY q.id LIMIT 1), v_ids);
        END IF;
        RETURN QUERY SELECT * FROM mailgres.lease(
            v_ids, p_worker, p_lease, p_providers, v_route, v_calls, p_tokenless, v_special,
            v_limited OR v_route.probe);
        GET DIAGNOSTICS v_leased = ROW_COUNT;
        IF v_leased < cardinality(v_ids) THEN
            PERFORM mailgres.settle_unsendable(v_ids);
        END IF;
        IF v_leased > 0 THEN
            v_slot.next_route := v_slot.next_route + 1;
            PERFORM nextval('mailgres.claim_numbers'), mailgres.commit_durably();
            EXIT;
        END IF;
    END LOOP;

    v_slot.next_route := mod(v_slot.next_route, greatest(cardinality(v_routes), 1));
    IF v_slot <> v_before THEN
        UPDATE mailgres.claim_slots s SET next_route = v_slot.next_route, cursors = v_slot.cursors
        WHERE s.slot = v_slot.slot;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.claim(text, int, interval, text[], boolean) IS
    'Leases up to p_limit emails to a worker, fairly between tenants, and returns them.';

-- ---- sql/30_engine/20_claim/70_start_attempts.sql

-- Records that the call to the provider starts now, for a provider without idempotency keys. If
-- the worker dies after this, the email is uncertain; before, nothing was sent. Checks again what
-- may have changed since the claim: the lease itself (a cancel removes it), suppression, expiry,
-- pauses of tenant and provider. Returns the emails that may be sent; the others have been
-- settled or given back.
--
-- p_checked: false if the worker has not checked the provider. Emails that would probe a provider
-- whose circuit is open are then returned with check_first, and nothing is changed: an email
-- lost in the probe could not be repeated, so the worker checks the provider first.
--
-- p_lease: how long the call may take. By default the length of the lease so far, which grows
-- with every extension, so at most an hour.

CREATE FUNCTION mailgres.start_attempts(
    p_token uuid, p_ids uuid[], p_checked boolean DEFAULT true, p_lease interval DEFAULT NULL)
    RETURNS TABLE (id uuid, check_first boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_started  uuid[];
    v_rest     uuid[];
BEGIN
    WITH started AS (
        UPDATE public.email_queue q
        SET attempt_started_at = mailgres.now(),
            lease_until = mailgres.now()
                + coalesce(p_lease, least(q.lease_until - q.leased_at, interval '1 hour'))
        WHERE q.id = ANY (p_ids) AND q.lease_token = p_token
          AND q.lease_until > mailgres.now()  -- otherwise it may be reaped during the call
          AND (q.expires_at IS NULL OR q.expires_at > mailgres.now())
          AND NOT EXISTS (
              SELECT FROM public.email_suppressions s
              WHERE s.recipient_email = mailgres.canonical_address(q.recipient_email) AND s.tenant_id IN ('*', q.tenant_id))
          AND NOT EXISTS (
              SELECT FROM mailgres.tenants t
              WHERE t.tenant_id = q.tenant_id AND t.paused_at IS NOT NULL)
          AND NOT EXISTS (
              SELECT FROM mailgres.providers p
              WHERE p.name = q.provider AND NOT mailgres.is_usable(p)
                AND (p.probe_token IS DISTINCT FROM p_token OR NOT p_checked))
        RETURNING q.id
    )
    SELECT coalesce(array_agg(b.id), '{}') INTO v_started FROM started b;
    PERFORM mailgres.commit_durably();

    v_rest := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.id <> ALL (v_started) AND q.lease_token = p_token
        FOR UPDATE);
    IF cardinality(v_rest) > 0 AND NOT p_checked
       AND EXISTS (SELECT FROM mailgres.providers p WHERE p.probe_token = p_token AND p.circuit = 'half_open')
    THEN
        RETURN QUERY SELECT unnest(v_rest), true;
    ELSIF cardinality(v_rest) > 0 THEN
        PERFORM mailgres.settle_unsendable(v_rest);
        PERFORM mailgres.give_back(p_token, v_rest);
    END IF;
    RETURN QUERY SELECT unnest(v_started), false;
END
$$;

COMMENT ON FUNCTION mailgres.start_attempts(uuid, uuid[], boolean, interval) IS
    'Records that the attempts for these emails start, and returns the emails that may be sent.';

-- ---- sql/30_engine/20_claim/75_give_back.sql

-- A worker returns emails that it has not sent: it stops, or start_attempts() refused them. Its
-- own call was not made, so an email is uncertain only if an earlier attempt was.

CREATE FUNCTION mailgres.give_back(p_token uuid, p_ids uuid[]) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    UPDATE mailgres.providers p SET probe_until = mailgres.now() WHERE p.probe_token = p_token;
    RETURN QUERY
    UPDATE public.email_queue q
    SET status = 'pending', ready = true,
        batch_id = CASE WHEN q.uncertain_since IS NOT NULL THEN q.batch_id END,
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
    WHERE q.id = ANY (p_ids) AND q.lease_token = p_token
    RETURNING q.id;
END
$$;

COMMENT ON FUNCTION mailgres.give_back(uuid, uuid[]) IS
    'Returns claimed emails that were not sent; they are ready again and no retry is spent.';

-- ---- sql/30_engine/20_claim/80_extend.sql

-- Extends leases and never waits for a row, so it cannot deadlock, and a row that another session
-- has locked does not cost the others their lease. That session ends the lease, or extends it, or
-- the row is extended the next time. No email of a batch is reaped while another one of the batch
-- has a valid lease.

CREATE FUNCTION mailgres.extend(p_token uuid, p_ids uuid[], p_lease interval DEFAULT '60 seconds')
    RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    UPDATE public.email_queue q
    SET lease_until = greatest(q.lease_until, mailgres.now() + p_lease)
    WHERE q.id = ANY (ARRAY(
        SELECT x.id FROM public.email_queue x
        WHERE x.id = ANY (p_ids) AND x.lease_token = p_token
        FOR NO KEY UPDATE SKIP LOCKED)) AND q.lease_token = p_token;
    RETURN QUERY SELECT q.id FROM public.email_queue q WHERE q.id = ANY (p_ids) AND q.lease_token = p_token;
END
$$;

COMMENT ON FUNCTION mailgres.extend(uuid, uuid[], interval) IS
    'Extends the lease of emails that take longer; returns those that are still held.';

-- ---- sql/30_engine/20_claim/90_mark_asleep.sql

-- A worker that finds nothing to do registers as sleeping, until the time when it wakes up by
-- itself. It keeps its row while it is idle and deletes it when it is busy: then enqueuing sends
-- no notifications. p_for null: the worker does not listen, and only asks when an email is due.

CREATE FUNCTION mailgres.mark_asleep(p_worker text, p_for interval) RETURNS timestamptz
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A worker that polls every second is still registered: nothing is written.
    IF p_for IS NOT NULL AND NOT EXISTS (
        SELECT FROM mailgres.sleepers s
        WHERE s.worker = p_worker AND s.sleeps_until > clock_timestamp() + p_for / 2)
    THEN
        INSERT INTO mailgres.sleepers AS s (worker, sleeps_until)
        VALUES (p_worker, clock_timestamp() + p_for)
        ON CONFLICT (worker) DO UPDATE SET sleeps_until = excluded.sleeps_until;
    END IF;

    -- The next email that becomes due. Expired emails in the same index are skipped: promote
    -- settles them. If emails are ready, they wait for a provider: when one becomes usable.
    RETURN least(
        (SELECT q.due_at FROM public.email_queue q
         WHERE q.status = 'pending' AND NOT q.ready AND q.due_at IS NOT NULL
         ORDER BY q.due_at LIMIT 1),
        CASE WHEN EXISTS (SELECT FROM public.email_queue q WHERE q.ready) THEN (
            SELECT min(x.at) FROM mailgres.providers p
            CROSS JOIN LATERAL (VALUES (p.paused_until), (p.limited_until), (mailgres.next_token_at(p.name)),
                (CASE p.circuit WHEN 'open' THEN p.circuit_until WHEN 'half_open' THEN p.probe_until END)
            ) AS x(at)
            WHERE p.enabled AND x.at > mailgres.now() AND isfinite(x.at)) END,
        CASE WHEN EXISTS (SELECT FROM public.email_queue q WHERE q.ready) THEN (
            SELECT min(mailgres.now() + (1 - mailgres.tokens_of(b)) / b.per_second * interval '1 second')
            FROM mailgres.buckets b WHERE b.name LIKE 'tenant:%' AND mailgres.tokens_of(b) < 1) END);
END
$$;

COMMENT ON FUNCTION mailgres.mark_asleep(text, interval) IS
    'Registers a worker as sleeping; returns when the next waiting email is due, or a provider can be used again.';

CREATE FUNCTION mailgres.mark_awake(p_worker text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM mailgres.sleepers s WHERE s.worker = p_worker;
END
$$;

COMMENT ON FUNCTION mailgres.mark_awake(text) IS 'Records that the worker is awake and needs no notification.';

-- ---- sql/30_engine/30_outcome/10_retry_delay.sql

-- The only place that computes how long to wait. p_retry is the number of the next retry, the
-- first being 1. An email's own first wait replaces the policy's steps and grows by the policy's
-- factor; its own cap replaces the policy's.

CREATE FUNCTION mailgres.retry_delay(
    p_policy mailgres.retry_policies,
    p_retry int,
    p_first interval DEFAULT NULL,
    p_cap interval DEFAULT NULL
) RETURNS interval
    LANGUAGE sql VOLATILE
RETURN least(
        CASE
            WHEN p_first IS NULL AND p_policy.steps IS NOT NULL
                THEN p_policy.steps[least(greatest(p_retry, 1), cardinality(p_policy.steps))]
            -- In seconds up to the cap: a large factor would exceed the longest interval.
            ELSE make_interval(secs => least(
                date_part('epoch', coalesce(p_first, p_policy.base))
                    * p_policy.factor ^ least(greatest(p_retry, 1) - 1, 100),
                date_part('epoch', coalesce(p_cap, p_policy.cap))))
        END,
        coalesce(p_cap, p_policy.cap))
    * (1 - p_policy.jitter_down + random() * (p_policy.jitter_down + p_policy.jitter_up));

COMMENT ON FUNCTION mailgres.retry_delay(mailgres.retry_policies, int, interval, interval) IS
    'How long to wait before the given retry, jitter included.';

-- ---- sql/30_engine/30_outcome/20_redact_addresses.sql

-- Providers quote addresses in their texts. Texts that analysts may read have a placeholder
-- instead; the unchanged text is in error_detail, for operators. The @ may be written as in a URL
-- (%40, %2540), in HTML (&#64;), in JSON (\u0040), or with a compatibility character.
-- src/mailgres/safe_errors.py has the same pattern.

CREATE FUNCTION mailgres.redact_addresses(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_replace(left(p_text, 2000),
    '("[^"]*"|[^\s<>"''(),;:][^\s<>"(),;:]*)'
    || '(@|\uff20|\ufe6b|%(25)?40|&#0{0,4}64;|&#x0{0,4}40;|&commat;|\\u0040)[^\s<>"''(),;:]+', '<address>', 'gi');

COMMENT ON FUNCTION mailgres.redact_addresses(text) IS
    'The text with email addresses replaced by a placeholder.';

-- ---- sql/30_engine/30_outcome/25_redact_recipients.sql

-- Where the email is known, its own recipients are masked in every spelling that is in use:
-- ana+40example.com (SMTP's xtext), ana=example.com (VERP), ana (at) example.com, o%27brien,
-- o&#39;brien, and the mailbox alone: "User ana unknown". After the local part and any spelling
-- of @, every domain is masked, so A-labels and U-labels are treated alike.
-- src/mailgres/sender/spellings.py does the same before a text leaves the worker.

-- A mailbox with such a name identifies nobody, and masking the word would spoil other texts.
CREATE FUNCTION mailgres.ordinary_words() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '{abuse,account,address,admin,and,any,are,arrived,attempt,bad,batch,before,but,call,can,cancelled,code,
    connection,contact,content,copy,daily,domain,earlier,email,error,exceeded,expired,failed,false,fault,for,from,
    hand,has,hello,help,host,info,invalid,key,last,late,limit,longer,mail,mailbox,marked,message,missing,monthly,
    name,none,noreply,not,"null",office,policy,postmaster,provider,quota,rate,reason,recipient,refused,rejected,
    repeat,reported,request,safely,sales,send,sender,sent,server,service,subject,support,suppressed,team,template,
    test,text,the,this,time,too,true,try,unavailable,unknown,user,variable,verified,was,webmaster,whole,with,
    without,worker,you,your}'::text[];

COMMENT ON FUNCTION mailgres.ordinary_words() IS
    'Words that are common in errors: they are not masked, even if a mailbox has that name.';

-- Whether the local part alone identifies a person: three characters with a letter, or six digits.
CREATE FUNCTION mailgres.names_somebody(p_local text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_local ~ '^[\x01-\x40\x5b-\x60\x7b-\x7f]*$'
                THEN length(regexp_replace(p_local, '[^0-9]', '', 'g')) >= 6
            ELSE length(p_local) >= 3 AND lower(p_local COLLATE "C") <> ALL (mailgres.ordinary_words()) END;

COMMENT ON FUNCTION mailgres.names_somebody(text) IS
    'Whether the local part of an address is masked where it stands alone.';

-- Letters and digits of ASCII are always written as they are.
CREATE FUNCTION mailgres.spellings_of(p_local text) RETURNS text
    LANGUAGE sql IMMUTABLE
RETURN (
    SELECT string_agg(CASE
        WHEN ascii(c.one) BETWEEN 48 AND 57 OR ascii(c.one) BETWEEN 65 AND 90 OR ascii(c.one) BETWEEN 97 AND 122 THEN c.one
        ELSE concat('(?:\\?', CASE WHEN ascii(c.one) < 128 THEN '\' END, c.one,
            CASE WHEN ascii(c.one) > 127 THEN '|' || mailgres.lower_unicode(c.one) END,
            '|', regexp_replace(encode(convert_to(c.one, 'UTF8'), 'hex'), '(..)', '(?:%(?:25)?|[+=])\1', 'g'),
            '|&#0{0,4}', ascii(c.one), ';|&#x0{0,4}', to_hex(ascii(c.one)), ';',
            CASE c.one WHEN '&' THEN '|&amp;' WHEN '''' THEN '|&apos;' WHEN '+' THEN '|&plus;|%20' END, ')')
        END, '' ORDER BY c.place)
    FROM string_to_table(p_local, NULL) WITH ORDINALITY c(one, place));

COMMENT ON FUNCTION mailgres.spellings_of(text) IS
    'A pattern of the ways in which URLs, HTML and SMTP spell the local part of an address.';

CREATE FUNCTION mailgres.recipient_pattern(p_local text) RETURNS text
    LANGUAGE sql IMMUTABLE
RETURN '(?:(?<![[:alnum:]])|(?<=%[0-9a-f][0-9a-f]))' || mailgres.spellings_of(p_local) || '(?:(?:"|&quot;)?\s{0,3}'
    || '(?:@|\uff20|\ufe6b|%(?:25)?40|[+=]40|&#0{0,4}64;|&#x0{0,4}40;|&commat;|\\u0040|[(\[{]\s{0,3}at\s{0,3}[)\]}]'
    || '|(?:=|\sat\s)(?=\s{0,3}[^\s.]+\.[^\s]))\s{0,3}[^\s<>"''(),;:]+'
    || CASE WHEN mailgres.names_somebody(p_local) THEN '|(?![[:alnum:]])' ELSE '' END || ')';

COMMENT ON FUNCTION mailgres.recipient_pattern(text) IS
    'A pattern of an address by its local part, in the spellings that texts use.';

CREATE FUNCTION mailgres.redact_recipient(p_text text, p_local text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN regexp_replace(p_text, mailgres.recipient_pattern(p_local), '<address>', 'gi');
EXCEPTION
    -- The same statement writes the outcomes of other emails, so this must not fail.
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN 'the text cannot be told apart from the address: see error_detail';
END
$$;

COMMENT ON FUNCTION mailgres.redact_recipient(text, text) IS
    'The text with the address of this local part replaced by a placeholder, however it is spelled.';

CREATE FUNCTION mailgres.redact_recipients(
    p_text text, p_recipient text, p_also_to text[], p_cc text[], p_bcc text[]
) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    c_longest  constant int := 64;  -- no local part is longer, and the size of a pattern is limited
    v_text     text := mailgres.redact_addresses(p_text);
    v_lower    constant text := lower(v_text COLLATE "C");
    v_local    text;
BEGIN
    -- Most texts quote no recipient. The first letters show that without a pattern.
    FOR v_local IN
        SELECT DISTINCT l.local
        FROM (SELECT p_recipient UNION ALL SELECT unnest(p_also_to)
              UNION ALL SELECT unnest(p_cc) UNION ALL SELECT unnest(p_bcc)) a(address),
             LATERAL (SELECT left(split_part(a.address, '@', 1), c_longest)) l(local)
        WHERE l.local <> '' AND strpos(v_lower, coalesce(substring(lower(l.local COLLATE "C") FROM '[a-z0-9]+'), '')) > 0
        ORDER BY l.local DESC
    LOOP
        v_text := mailgres.redact_recipient(v_text, v_local);
    END LOOP;
    RETURN left(v_text, 2000);
END
$$;

COMMENT ON FUNCTION mailgres.redact_recipients(text, text, text[], text[], text[]) IS
    'The text without addresses; the email''s own recipients are removed in any spelling.';

-- For every writer of error_message: a worker's outcome, an old processor, a person.
CREATE FUNCTION mailgres.mask_error() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.error_message := mailgres.redact_recipients(
        NEW.error_message, NEW.recipient_email, NEW.also_to, NEW.cc, NEW.bcc);
    RETURN NEW;
END
$$;

COMMENT ON FUNCTION mailgres.mask_error() IS 'Masks the addresses in error_message, which analysts may read.';

CREATE TRIGGER mask_error
    BEFORE UPDATE OF error_message ON public.email_queue
    FOR EACH ROW
    WHEN (NEW.error_message IS NOT NULL AND NEW.error_message IS DISTINCT FROM OLD.error_message)
    EXECUTE FUNCTION mailgres.mask_error();

CREATE TRIGGER mask_imported_error
    BEFORE INSERT ON public.email_queue
    FOR EACH ROW WHEN (NEW.error_message IS NOT NULL)
    EXECUTE FUNCTION mailgres.mask_error();

-- ---- sql/30_engine/30_outcome/30_provider_state.sql

-- What outcomes mean for a provider, besides the emails they belong to: it fails and is not used
-- for a while (the circuit breaker), it is rate-limited, or it is out of quota.

-- A provider's request to wait is passed as a duration: the time is that of this server, whatever
-- clocks the worker and the provider have. It is limited to the length of a monthly quota.
CREATE FUNCTION mailgres.time_after(p_seconds double precision) RETURNS timestamptz
    LANGUAGE sql STABLE
RETURN CASE WHEN p_seconds IS NOT NULL
            THEN mailgres.now() + make_interval(secs => least(greatest(p_seconds, 0), 32 * 86400)) END;

COMMENT ON FUNCTION mailgres.time_after(double precision) IS 'The time that is this many seconds from now; null for null.';

-- At least one second from now.
CREATE FUNCTION mailgres.requested_wait_until(p_outcome text, p_retry_at timestamptz) RETURNS timestamptz
    LANGUAGE sql STABLE
RETURN greatest(mailgres.now() + interval '1 second', coalesce(p_retry_at, mailgres.now()
    + CASE p_outcome WHEN 'rate' THEN interval '2 seconds' ELSE interval '15 minutes' END));

COMMENT ON FUNCTION mailgres.requested_wait_until(text, timestamptz) IS
    'Until when a provider that reported a rate limit or a quota is not used.';

-- One outcome, as finish receives it. `call` is the same for all emails of one call.
CREATE TYPE mailgres.report AS (
    provider  text,
    call      uuid,
    token     uuid,
    worker    text,
    outcome   text,
    account   boolean,
    code      text,
    message   text,
    retry_at  timestamptz
);

CREATE FUNCTION mailgres.next_open_duration(p mailgres.providers) RETURNS interval
    LANGUAGE sql IMMUTABLE
RETURN least(p.open_for * power(2, least(p.reopened, 20)), p.open_for_at_most);

COMMENT ON FUNCTION mailgres.next_open_duration(mailgres.providers) IS
    'How long the circuit of a provider stays open when it opens now.';

CREATE FUNCTION mailgres.set_circuit(p_provider text, p_state text, p_reason text, p_worker text)
    RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_before text;
BEGIN
    SELECT p.circuit INTO v_before FROM mailgres.providers p WHERE p.name = p_provider FOR UPDATE;
    UPDATE mailgres.providers p
    SET circuit = p_state,
        circuit_since = mailgres.now(),
        circuit_reason = CASE p_state WHEN 'open' THEN p_reason WHEN 'half_open' THEN p.circuit_reason END,
        circuit_until = CASE p_state
            WHEN 'open' THEN mailgres.now() + mailgres.next_open_duration(p)
            ELSE p.circuit_until END,
        reopened = CASE p_state WHEN 'open' THEN p.reopened + 1 WHEN 'closed' THEN 0 ELSE p.reopened END,
        failures = CASE p_state WHEN 'closed' THEN 0 ELSE p.failures END,
        failed_at = CASE p_state WHEN 'closed' THEN '{}' ELSE p.failed_at END,
        probe_token = NULL,
        probe_until = NULL
    WHERE p.name = p_provider;
    IF v_before = p_state THEN  -- another probe after one of which nothing was heard
        RETURN;
    END IF;
    INSERT INTO mailgres.provider_events (provider, event, reason, worker)
    VALUES (p_provider,
            CASE p_state WHEN 'open' THEN 'CircuitBreakerOpened' WHEN 'closed' THEN 'CircuitBreakerClosed'
                         ELSE 'CircuitBreakerHalfOpen' END,
            p_reason, p_worker);
END
$$;

COMMENT ON FUNCTION mailgres.set_circuit(text, text, text, text) IS
    'Opens, half-opens or closes the circuit of a provider, and records the event.';

CREATE FUNCTION mailgres.mark_limited(
    p_provider mailgres.providers, p_what text, p_until timestamptz, p_reason text, p_worker text
) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE mailgres.providers p
    SET limited_until = p_until, limited_since = mailgres.now(), limited_by = p_what
    WHERE p.name = p_provider.name AND (p.limited_until IS NULL OR p.limited_until < p_until);
    IF FOUND AND (p_provider.limited_until IS NULL OR p_provider.limited_until <= mailgres.now()) THEN
        INSERT INTO mailgres.provider_events (provider, event, reason, worker)
        VALUES (p_provider.name, CASE p_what WHEN 'rate' THEN 'RateLimited' ELSE 'QuotaReached' END,
                p_reason, p_worker);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.mark_limited(mailgres.providers, text, timestamptz, text, text) IS
    'Marks a provider as rate-limited or out of quota until the given time.';

-- A provider that is out of quota is not used until the next day or month, in UTC, whatever the
-- time zone of the session. If only the provider's own count says so, it is not used while that
-- count is valid: the provider's day may not be a UTC day.
CREATE FUNCTION mailgres.apply_quotas(p_provider mailgres.providers, p_worker text) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_full record;
BEGIN
    FOR v_full IN
        SELECT u.period,
               least((u.starts AT TIME ZONE 'UTC' + ('1 ' || u.period)::interval) AT TIME ZONE 'UTC',
                     CASE WHEN u.emails < x.quota THEN u.reported_until END) AS ends
        FROM (VALUES ('day', p_provider.daily_quota), ('month', p_provider.monthly_quota)) AS x(period, quota)
        JOIN mailgres.quota_usage u
            ON u.provider = p_provider.name AND u.period = x.period
            AND u.starts = date_trunc(x.period, mailgres.now(), 'UTC')
        WHERE mailgres.used_of_quota(u, mailgres.now()) >= x.quota
    LOOP
        PERFORM mailgres.mark_limited(p_provider, 'quota', v_full.ends,
            format('the quota of this %s is used up', v_full.period), p_worker);
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.apply_quotas(mailgres.providers, text) IS
    'Marks a provider as limited if its quota is used up.';

CREATE FUNCTION mailgres.count_against_quota(p_provider mailgres.providers, p_emails int, p_worker text)
    RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_emails = 0 OR (p_provider.daily_quota IS NULL AND p_provider.monthly_quota IS NULL) THEN
        RETURN;
    END IF;
    INSERT INTO mailgres.quota_usage AS u (provider, period, starts, emails)
    SELECT p_provider.name, x.period, date_trunc(x.period, mailgres.now(), 'UTC'), p_emails
    FROM (VALUES ('day'), ('month')) AS x(period)
    ON CONFLICT (provider, period, starts) DO UPDATE
        SET emails = u.emails + excluded.emails, reported = u.reported + excluded.emails;
    PERFORM mailgres.apply_quotas(p_provider, p_worker);
END
$$;

COMMENT ON FUNCTION mailgres.count_against_quota(mailgres.providers, int, text) IS
    'Counts sent emails against the quotas of a provider.';

-- Whether a report is of a call that failed because of the provider.
CREATE FUNCTION mailgres.is_failure(r mailgres.report) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN r.account AND r.outcome IN ('transient', 'ambiguous', 'config');

COMMENT ON FUNCTION mailgres.is_failure(mailgres.report) IS
    'Whether a call failed because of the provider, which is what its circuit counts.';

-- Called only after a failure. The counts of outcomes, folded to minutes or not yet folded, say
-- how many emails were attempted. Both sides count emails, as the counts do, and start with the
-- minute in which the window started, because folded counts have no seconds.
CREATE FUNCTION mailgres.reaches_share(p mailgres.providers) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_failed     numeric;
    v_attempted  numeric;
BEGIN
    SELECT sum(c.emails) FILTER (WHERE c.outcome = 'provider_failed'),
           sum(c.emails) FILTER (WHERE c.outcome <> 'provider_failed')
    INTO v_failed, v_attempted
    FROM mailgres.counted_by_minute c
    WHERE c.minute >= date_trunc('minute', mailgres.now() - p.failure_window, 'UTC') AND c.provider = p.name
      AND c.outcome IN ('sent', 'retry', 'deferred', 'dead', 'provider_failed');
    RETURN coalesce(v_failed, 0) >= p.failure_share * coalesce(v_attempted, 0);
END
$$;

COMMENT ON FUNCTION mailgres.reaches_share(mailgres.providers) IS
    'Whether the failed calls of a provider had a large enough share of its recent emails.';

-- Decides whether the circuit changes. Calls that failed because of the provider count. An
-- answered call ends a series of failures, also if both are in the same report, as their order
-- is unknown.
CREATE FUNCTION mailgres.update_circuit(p_provider mailgres.providers, p_reports mailgres.report[])
    RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    p           mailgres.providers := p_provider;
    v_failures  int;
    v_emails    int;
    v_answers   int;
    v_worst     mailgres.report;
    v_reason    text;
    v_probed    boolean;
BEGIN
    SELECT count(DISTINCT r.call) FILTER (WHERE mailgres.is_failure(r)),
           count(*) FILTER (WHERE mailgres.is_failure(r)),
           count(DISTINCT r.call) FILTER (WHERE r.outcome IN ('sent', 'permanent')),
           bool_or(r.token = p.probe_token)
    INTO v_failures, v_emails, v_answers, v_probed
    FROM unnest(p_reports) r;
    SELECT r.* INTO v_worst FROM unnest(p_reports) r
    WHERE mailgres.is_failure(r)
    ORDER BY r.token = p.probe_token DESC NULLS LAST, r.outcome = 'config' DESC LIMIT 1;
    v_reason := concat_ws(': ', nullif(v_worst.code, ''), mailgres.redact_addresses(v_worst.message));

    IF v_probed AND p.circuit = 'half_open' THEN
        PERFORM FROM unnest(p_reports) r WHERE r.token = p.probe_token AND mailgres.is_failure(r);
        IF FOUND THEN
            PERFORM mailgres.set_circuit(p.name, 'open', v_reason, v_worst.worker);
        ELSE
            PERFORM mailgres.set_circuit(p.name, 'closed', NULL, p_reports[1].worker);
        END IF;
    ELSIF v_worst.outcome = 'config' THEN
        IF p.circuit = 'closed' THEN
            PERFORM mailgres.set_circuit(p.name, 'open', v_reason, v_worst.worker);
        END IF;
    ELSIF v_failures > 0 OR p.failures > 0 THEN
        p.failures := CASE WHEN v_answers = 0 THEN p.failures + v_failures ELSE 0 END;
        p.failed_at := (p.failed_at || array_fill(mailgres.now(), ARRAY[v_failures]));
        p.failed_at := p.failed_at[greatest(cardinality(p.failed_at) - p.failure_threshold + 1, 1) :];
        UPDATE mailgres.providers x SET failures = p.failures, failed_at = p.failed_at WHERE x.name = p.name;
        IF v_failures > 0 THEN
            INSERT INTO mailgres.attempt_deltas
                (at, event, attempt, tenant_id, provider, error_class, error_code, emails)
            VALUES (mailgres.now(), 'provider_failed', 0, '', p.name, '', '', v_emails);
        END IF;
        IF p.circuit = 'closed' AND v_failures > 0 AND (
            p.failures >= p.failure_threshold
            OR (SELECT count(*) FROM unnest(p.failed_at) f
                WHERE f > mailgres.now() - p.failure_window AND f <= mailgres.now() + interval '1 minute') >= p.failure_threshold
               AND mailgres.reaches_share(p))
        THEN
            PERFORM mailgres.set_circuit(p.name, 'open', v_reason, v_worst.worker);
        END IF;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.update_circuit(mailgres.providers, mailgres.report[]) IS
    'Opens or closes the circuit of a provider by the outcomes of its calls.';

-- p_uncalled: tokens under which no call was made. They mean nothing for the provider. A probe
-- that made no call releases its slot.
CREATE FUNCTION mailgres.update_provider_state(p_reports mailgres.report[], p_uncalled uuid[] DEFAULT '{}') RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_provider  mailgres.providers;
    v_own       mailgres.report[];
    v_report    mailgres.report;
BEGIN
    -- all sessions lock them in the order of their names
    FOR v_provider IN
        SELECT * FROM mailgres.providers p
        WHERE p.name IN (SELECT r.provider FROM unnest(p_reports) r) OR p.probe_token = ANY (p_uncalled)
        ORDER BY p.name FOR UPDATE
    LOOP
        v_own := ARRAY(SELECT r FROM unnest(p_reports) r WHERE r.provider = v_provider.name);
        PERFORM mailgres.update_circuit(v_provider, v_own);
        UPDATE mailgres.providers p SET probe_until = mailgres.now()
        WHERE p.name = v_provider.name AND p.probe_token = ANY (p_uncalled);
        PERFORM mailgres.count_against_quota(
            v_provider, (SELECT count(*)::int FROM unnest(v_own) r WHERE r.outcome = 'sent'), v_own[1].worker);
        FOR v_report IN
            SELECT DISTINCT ON (r.outcome) r.* FROM unnest(v_own) r
            WHERE r.outcome IN ('rate', 'quota') ORDER BY r.outcome DESC, r.retry_at DESC NULLS LAST
        LOOP
            PERFORM mailgres.mark_limited(v_provider, v_report.outcome,
                mailgres.requested_wait_until(v_report.outcome, v_report.retry_at),
                coalesce(v_report.code, v_report.outcome), v_report.worker);
        END LOOP;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.update_provider_state(mailgres.report[], uuid[]) IS
    'Updates circuits, limits and quotas of providers from the outcomes of their calls.';

-- ---- sql/30_engine/30_outcome/40_decide_retry.sql

-- The rules for a failed attempt: whether and when to retry, or why the email dies. The classes
-- of faults and what each means are in docs/lifecycle.md.

CREATE TYPE mailgres.retry_decision AS (
    spent            int,          -- retries spent: 0 or 1
    next_retry_at    timestamptz,  -- when to retry
    dead_reason      text,         -- or why the email dies
    uncertain_since  timestamptz,
    parked_since     timestamptz
);

CREATE FUNCTION mailgres.has_fallback(p_email public.email_queue) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM mailgres.route_providers mine
        JOIN mailgres.route_providers later ON later.route = mine.route AND later.position > mine.position
        JOIN mailgres.providers p ON p.name = later.provider
        WHERE mine.route = p_email.route AND mine.provider = p_email.provider AND mailgres.is_usable(p));
END
$$;

COMMENT ON FUNCTION mailgres.has_fallback(public.email_queue) IS
    'Whether the route of an email has a usable provider after the one of its last attempt.';

-- p_account: the fault concerns the provider as a whole. p_pinned: an earlier call with the same
-- key may have been accepted. p_apart: a batch was refused because of one of its emails; nobody
-- knows which one, so each is sent alone at once. p_called: a call was made; without one the
-- fault is ours, and says nothing about an earlier call.
CREATE FUNCTION mailgres.decide_retry(
    p_email public.email_queue, p_outcome text, p_retry_at timestamptz, p_account boolean, p_pinned boolean,
    p_apart boolean DEFAULT false, p_called boolean DEFAULT true
) RETURNS mailgres.retry_decision
    LANGUAGE plpgsql
AS $$
DECLARE
    v_now       constant timestamptz := mailgres.now();
    v_settings  mailgres.settings;
    v_policy    mailgres.retry_policies;
    v_provider  mailgres.providers;
    v_hold      boolean;
    v_batched   boolean := mailgres.is_in_uncertain_batch(p_email);
    v_probe     boolean;
    v_free      boolean;
    v           mailgres.retry_decision;
BEGIN
    SELECT * INTO v_settings FROM mailgres.settings;
    SELECT * INTO v_policy FROM mailgres.retry_policies r
    WHERE r.name IN (p_email.retry_policy, v_settings.retry_policy)
    ORDER BY r.name = p_email.retry_policy DESC NULLS LAST LIMIT 1;
    SELECT * INTO v_provider FROM mailgres.providers p WHERE p.name = p_email.provider;
    v_probe := p_account AND p_outcome IN ('transient', 'ambiguous', 'config')
        AND coalesce(p_email.lease_token = v_provider.probe_token, false);
    v.spent := 0;
    v.uncertain_since := p_email.uncertain_since;

    IF p_outcome = 'permanent' THEN
        v.dead_reason := 'permanent';
        IF v_provider.idempotent AND p_called THEN
            v.uncertain_since := NULL;  -- the same call has the same answer
        END IF;
    ELSIF p_outcome IN ('rate', 'quota') THEN
        v.next_retry_at := mailgres.requested_wait_until(p_outcome, p_retry_at);
        v.parked_since := p_email.parked_since;
    ELSIF p_outcome = 'config' AND p_account THEN
        v.next_retry_at := p_email.next_retry_at;  -- the circuit opens, and the email waits for it
        v.parked_since := p_email.parked_since;
    ELSIF p_outcome = 'config' THEN
        v.parked_since := coalesce(p_email.parked_since, v_now);
        v.next_retry_at := greatest(p_retry_at, v_now + v_settings.config_wait);
        IF v.parked_since + v_settings.config_wait_total <= v_now THEN
            v.dead_reason := 'exhausted';
        END IF;
    ELSE
        IF p_apart AND p_called AND v_provider.idempotent THEN
            -- Refused under the key of an earlier call, so that call was not accepted.
            v.uncertain_since := NULL;
        END IF;
        IF p_outcome IN ('ambiguous', 'uncertain') OR p_pinned THEN
            v.uncertain_since := coalesce(p_email.uncertain_since, p_email.attempt_started_at, v_now);
            v_hold := p_outcome = 'uncertain' OR NOT coalesce(v_provider.idempotent, false)
                AND NOT EXISTS (
                    SELECT FROM public.email_templates t
                    WHERE t.template_type = p_email.template_type AND t.on_uncertain = 'resend');
        END IF;
        -- A probe costs no retry. An uncertain email stays with its batch while the key protects
        -- it.
        v_batched := v.uncertain_since IS NOT NULL AND p_email.batch_id IS NOT NULL;
        v_free := v_batched OR p_apart OR v_probe;
        IF v_hold THEN
            v.dead_reason := 'uncertain';
        ELSIF p_email.retries >= p_email.max_retries AND NOT v_free THEN
            v.dead_reason := 'exhausted';
        ELSIF v_batched THEN
            -- the same for the whole batch, whatever each email has set
            v.next_retry_at := v_now + mailgres.retry_delay(v_policy, 1, NULL, NULL);
        ELSE
            v.spent := (NOT v_free)::int;
            v.next_retry_at := CASE WHEN p_apart AND NOT v_batched THEN v_now ELSE v_now + mailgres.retry_delay(
                v_policy, p_email.retries + 1, p_email.retry_delay, p_email.max_retry_delay) END;
        END IF;
    END IF;

    -- The next probe should be another email, if there is one: the fault may be in this one.
    IF v_probe THEN
        v.next_retry_at := greatest(
            v.next_retry_at, v_now + mailgres.next_open_duration(v_provider) + interval '1 second');
    END IF;
    -- A definite rejection, and the route has another usable provider.
    IF v.dead_reason IS NULL AND v.uncertain_since IS NULL AND (p_outcome IN ('transient', 'quota', 'config')
            OR p_outcome = 'rate' AND v.next_retry_at > v_now + interval '1 minute')  -- see needs_fallback
       AND mailgres.has_fallback(p_email) THEN
        v.next_retry_at := v_now;
    END IF;
    IF v.dead_reason IS NULL AND v.next_retry_at >= p_email.expires_at AND NOT v_batched THEN
        v.dead_reason := 'expired';
    END IF;
    IF v.dead_reason IS NULL AND v_provider.idempotent AND v.uncertain_since IS NOT NULL
       AND v.next_retry_at >= v.uncertain_since + v_provider.key_window THEN
        v.dead_reason := 'uncertain';  -- its key would no longer protect it
    END IF;
    -- Whatever the reason: a person has to know that the email may have been delivered.
    IF v.dead_reason IS NOT NULL AND v.uncertain_since IS NOT NULL THEN
        v.dead_reason := 'uncertain';
    END IF;
    IF v.dead_reason IS NOT NULL THEN
        v.spent := 0;
        v.next_retry_at := NULL;
    END IF;
    RETURN v;
END
$$;

COMMENT ON FUNCTION mailgres.decide_retry(public.email_queue, text, timestamptz, boolean, boolean, boolean, boolean) IS
    'What follows from a failed attempt: when to retry, or why not.';

-- ---- sql/30_engine/30_outcome/50_finish.sql

-- Stores the outcomes of many attempts, each guarded by its fencing token. p_outcomes is an array
-- of objects:
--
--   id, token             the email, and the claim of the attempt
--   outcome               sent, or the class of the fault: transient, rate, quota,
--                         config, permanent, ambiguous; or uncertain (the provider
--                         has seen this key with other content)
--   provider_message_id   of a sent email
--   code, message, detail of a fault; addresses in the message are masked
--   duration_ms           how long the call took
--   retry_after           the seconds that the provider asked to wait (rate, quota, config):
--                         a duration, because the worker's clock may differ
--   batch_size            how many emails the call had, if several
--   batch_refused         the whole batch was refused because of one of its emails
--   account               the fault concerns the provider or the account, not the email
--   pinned                an earlier call with the same key may have been accepted
--   called                false: no call was made, because the email could not be rendered or
--                         prepared; this says nothing about the provider
--   suppress              the address does not exist: suppress it
--   refused_copies        of a sent email: other recipients that the provider refused, each with
--                         code, message and detail
--
-- Returns a row for every outcome: the new state of the email, or in `refused` the SQLSTATE
-- because of which nothing was changed (MG030: the lease was lost).

-- What the outcomes say about providers. Read before the outcomes are stored, because the lease
-- says which provider was called.
CREATE FUNCTION mailgres.provider_reports(p_outcomes jsonb, p_ids uuid[]) RETURNS mailgres.report[]
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW(q.provider, coalesce(q.batch_id, q.id), q.lease_token, q.lease_worker, o.outcome,
                   coalesce(o.account, false), o.code,
                   mailgres.redact_recipients(o.message, q.recipient_email, q.also_to, q.cc, q.bcc),
                   mailgres.time_after(o.retry_after))::mailgres.report
        FROM jsonb_to_recordset(p_outcomes) AS o(
            id uuid, token uuid, outcome text, code text, message text, retry_after double precision, account boolean,
            called boolean)
        JOIN public.email_queue q ON q.id = o.id AND q.lease_token = o.token
        WHERE q.id = ANY (p_ids) AND o.called IS NOT FALSE);
END
$$;

COMMENT ON FUNCTION mailgres.provider_reports(jsonb, uuid[]) IS
    'The outcomes of calls that concern providers.';

-- Suppresses addresses that do not exist, according to the provider.
CREATE FUNCTION mailgres.suppress_reported(p_outcomes jsonb) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_ids constant uuid[] := ARRAY(
        SELECT (o ->> 'id')::uuid
        FROM jsonb_path_query(p_outcomes, '$[*] ? (@.suppress == true && @.outcome == "permanent")') o);
BEGIN
    INSERT INTO public.email_suppressions (recipient_email, tenant_id, reason, detail, queue_id)
    SELECT mailgres.canonical_address(q.recipient_email), '*', 'bounced', q.error_message, q.id
    FROM public.email_queue q
    WHERE q.id = ANY (v_ids) AND q.dead_reason = 'permanent'
    ON CONFLICT DO NOTHING;
END
$$;

COMMENT ON FUNCTION mailgres.suppress_reported(jsonb) IS
    'Suppresses the addresses that a provider said do not exist.';

-- A provider can accept an email and refuse some of its recipients: the log says which and why.
CREATE FUNCTION mailgres.log_refused_copies(p_outcomes jsonb) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_outcomes  constant jsonb := jsonb_path_query_array(
        p_outcomes, '$[*] ? (@.outcome == "sent" && exists (@.refused_copies))');
    v_ids       constant uuid[] := ARRAY(SELECT (o ->> 'id')::uuid FROM jsonb_array_elements(v_outcomes) o);
BEGIN
    INSERT INTO public.email_logs
        (queue_id, event, from_status, to_status, attempt, tenant_id, template_type, provider,
         provider_message_id, error_code, error_message, error_detail)
    SELECT q.id, 'copy_refused', q.status, q.status, q.retries + 1, q.tenant_id, q.template_type, q.provider,
           q.provider_message_id, left(c.code, 100),
           coalesce(nullif(mailgres.redact_recipients(c.message, q.recipient_email, q.also_to, q.cc, q.bcc), ''),
                    'a copy was refused'), left(c.detail, 4000)
    FROM jsonb_to_recordset(v_outcomes) AS o(id uuid, provider_message_id text, refused_copies jsonb)
    JOIN public.email_queue q
        ON q.id = o.id AND q.status = 'sent' AND q.provider_message_id = o.provider_message_id
    CROSS JOIN LATERAL jsonb_to_recordset(o.refused_copies) AS c(code text, message text, detail text)
    WHERE q.id = ANY (v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.log_refused_copies(jsonb) IS
    'Logs the recipients, besides the first, that a provider refused of emails that it accepted.';

CREATE FUNCTION mailgres.finish(p_outcomes jsonb)
    RETURNS TABLE (id uuid, status text, retries int, next_retry_at timestamptz, dead_reason text, refused text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_nestloop = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_ids      uuid[];
    v_faults   boolean;
    v_resend   text[];
    v_reported boolean;
    v_reports  mailgres.report[];
    v_uncalled uuid[];
BEGIN
    IF p_outcomes IS NULL OR jsonb_typeof(p_outcomes) <> 'array' OR p_outcomes @? '$[*] ? (@.outcome.type() != "string" ||
        !(@.outcome == "sent" && @.provider_message_id != "" && @.provider_message_id != null)
        && !(@.outcome == "transient" || @.outcome == "rate" || @.outcome == "quota"
             || @.outcome == "config" || @.outcome == "permanent" || @.outcome == "ambiguous"
             || @.outcome == "uncertain"))' THEN
        PERFORM mailgres.refuse('MG031', 'an outcome is not understood',
            'Give an array of objects; outcome is sent (with provider_message_id) or the class of the fault.');
    END IF;

    -- The conditions on these ids make the plan use the primary key.
    v_ids := ARRAY(SELECT (o ->> 'id')::uuid FROM jsonb_array_elements(p_outcomes) o);
    v_faults := p_outcomes @? '$[*] ? (@.outcome != "sent" || exists (@.refused_copies))';
    SELECT array_agg(p.name) FILTER (WHERE p.kind = 'resend'),
           v_faults OR bool_or(p.failures > 0 OR p.circuit <> 'closed'
                               OR num_nonnulls(p.daily_quota, p.monthly_quota) > 0)
    INTO v_resend, v_reported FROM mailgres.providers p;
    IF v_reported THEN
        v_reports := mailgres.provider_reports(p_outcomes, v_ids);
        v_uncalled := ARRAY(
            SELECT DISTINCT o.token FROM jsonb_to_recordset(p_outcomes) AS o(token uuid, called boolean)
            WHERE NOT o.called);
    END IF;

    -- Where a key protects, repeating the call recovers an outcome that was lost in a crash.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') AND EXISTS (
        SELECT FROM public.email_queue q LEFT JOIN mailgres.providers p ON p.name = q.provider
        WHERE q.id = ANY (v_ids) AND p.idempotent IS NOT TRUE)
    THEN
        PERFORM mailgres.commit_durably();
    END IF;

    RETURN QUERY
    WITH reported AS MATERIALIZED (
        SELECT o.* FROM jsonb_to_recordset(p_outcomes) AS o(
            id uuid, token uuid, outcome text, provider_message_id text, code text, message text,
            detail text, duration_ms int, retry_after double precision, batch_size int, account boolean,
            pinned boolean, called boolean, batch_refused boolean)
    ), decided AS MATERIALIZED (
        SELECT q.id, q.lease_token AS token, mailgres.decide_retry(
                   q, o.outcome, mailgres.time_after(o.retry_after), coalesce(o.account, false), coalesce(o.pinned, false),
                   coalesce(o.batch_refused, false), coalesce(o.called, true)) AS decision
        FROM public.email_queue q
        JOIN reported o ON o.id = q.id AND o.token = q.lease_token AND o.outcome <> 'sent'
        WHERE v_faults AND q.id = ANY (v_ids)
    ), finished AS (
        UPDATE public.email_queue q
        SET status = CASE WHEN o.outcome = 'sent' THEN 'sent'
                          WHEN (d.decision).dead_reason IS NULL THEN 'pending'
                          ELSE 'failed' END,
            retries = q.retries + coalesce((d.decision).spent, 0),
            next_retry_at = coalesce((d.decision).next_retry_at, q.next_retry_at),
            sent_at = CASE WHEN o.outcome = 'sent' THEN mailgres.now() END,
            dead_at = CASE WHEN (d.decision).dead_reason IS NOT NULL THEN mailgres.now() END,
            dead_reason = (d.decision).dead_reason,
            uncertain_since = (d.decision).uncertain_since,
            parked_since = (d.decision).parked_since,
            provider_message_id = o.provider_message_id,
            resend_id = CASE WHEN q.provider = ANY (v_resend) THEN o.provider_message_id END,
            error_class = CASE o.outcome WHEN 'sent' THEN NULL
                                         WHEN 'uncertain' THEN 'ambiguous'
                                         ELSE o.outcome END,
            error_code = left(o.code, 100),
            error_message = CASE WHEN o.outcome <> 'sent' THEN coalesce(
                nullif(o.message, ''), nullif(o.code, ''), o.outcome || ' fault') END,
            error_detail = left(o.detail, 4000),
            last_duration_ms = o.duration_ms,
            -- an email whose call was made does not kill workers
            lease_losses = CASE WHEN coalesce(o.called, true) THEN 0 ELSE q.lease_losses END,
            -- emails that could not be rendered were not in the call
            batch_size = coalesce(o.batch_size, q.batch_size),
            send_alone = coalesce(o.batch_refused, false),
            batch_id = CASE WHEN o.outcome = 'sent' OR (d.decision).uncertain_since IS NOT NULL THEN q.batch_id END,
            lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
        FROM reported o
        LEFT JOIN decided d ON d.id = o.id AND d.token = o.token
        WHERE q.id = ANY (v_ids) AND q.id = o.id AND q.lease_token = o.token
        RETURNING q.id, o.token, q.status::text, q.retries::int, q.next_retry_at, q.dead_reason::text
    )
    SELECT f.id, f.status, f.retries, f.next_retry_at, f.dead_reason, NULL
    FROM finished f
    UNION ALL
    SELECT o.id, NULL, NULL, NULL, NULL, 'MG030'
    FROM reported o
    WHERE NOT EXISTS (SELECT FROM finished f WHERE f.id = o.id AND f.token = o.token);

    IF v_reports IS NOT NULL THEN
        PERFORM mailgres.update_provider_state(v_reports, v_uncalled);
    END IF;
    IF v_faults THEN
        PERFORM mailgres.suppress_reported(p_outcomes);
        PERFORM mailgres.log_refused_copies(p_outcomes);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.finish(jsonb) IS
    'Stores the outcomes of many attempts, each only if its lease is still held.';

-- ---- sql/30_engine/30_outcome/60_capture.sql

-- Keeps messages instead of sending them: [{key, queue_id, message}]. For a repeated key the
-- first message is kept.

CREATE FUNCTION mailgres.capture(p_messages jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO mailgres.captured (key, queue_id, message)
    SELECT m.key, m.queue_id, m.message
    FROM jsonb_to_recordset(p_messages) AS m(key text, queue_id uuid, message jsonb)
    ON CONFLICT (key) DO NOTHING;
END
$$;

COMMENT ON FUNCTION mailgres.capture(jsonb) IS 'Keeps messages of the provider capture.';

-- ---- sql/30_engine/40_upkeep/10_promote.sql

-- Future rows are not in the index of the claim: an email that is scheduled for later or waits
-- for a retry becomes `ready` here when it is due. An email that expired while it waited dies
-- instead. The work is limited, so that a claim can call it first.

CREATE FUNCTION mailgres.promote(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_ids uuid[];
BEGIN
    v_ids := ARRAY(
        SELECT q.id
        FROM public.email_queue q
        WHERE q.status = 'pending' AND q.due_at <= mailgres.now()
        ORDER BY q.due_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED);
    IF cardinality(v_ids) = 0 THEN
        RETURN 0;
    END IF;

    PERFORM mailgres.expire_these(v_ids);
    UPDATE public.email_queue q
    SET ready = true,
        -- a route that does not exist would never be claimed
        route = CASE WHEN EXISTS (SELECT FROM mailgres.routes r WHERE r.route = q.route)
                     THEN q.route ELSE 'default' END
    WHERE q.id = ANY (v_ids) AND q.dead_at IS NULL AND NOT q.ready;
    RETURN cardinality(v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.promote(int) IS
    'Makes waiting emails that are due ready, and ends those that expired; returns how many it handled.';

-- ---- sql/30_engine/40_upkeep/20_expire.sql

-- Ends emails that have expired. An uncertain email dies as uncertain, not as expired: a person
-- has to know that it may have been delivered.

CREATE FUNCTION mailgres.expire_these(p_ids uuid[]) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    UPDATE public.email_queue q
    SET status = 'failed',
        ready = false,
        dead_at = mailgres.now(),
        dead_reason = CASE WHEN q.uncertain_since IS NULL THEN 'expired' ELSE 'uncertain' END,
        error_message = format('not sent before it expired at %s', mailgres.time_text(q.expires_at))
                        || coalesce('; last fault: ' || nullif(q.error_message, ''), ''),
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL
    WHERE q.id = ANY (p_ids)
      AND q.expires_at <= mailgres.now() AND (q.uncertain_since IS NULL OR q.batch_id IS NULL)
      AND (q.status = 'pending' OR (q.status = 'sending' AND q.attempt_started_at IS NULL));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.expire_these(uuid[]) IS
    'Ends those of the given emails that have expired and whose call has not started; returns how many.';

CREATE FUNCTION mailgres.expire(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    RETURN mailgres.expire_these(ARRAY(
        SELECT q.id
        FROM public.email_queue q
        WHERE q.status = 'pending' AND q.due_at <= mailgres.now() AND q.expires_at <= mailgres.now()
        ORDER BY q.due_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
END
$$;

COMMENT ON FUNCTION mailgres.expire(int) IS
    'Ends waiting emails that have expired; returns how many.';

-- ---- sql/30_engine/40_upkeep/30_correct_times.sql

-- If the clock of a server was ahead and is set back, times that were stored meanwhile are in the
-- future, and emails and providers would silently wait for as long as the jump was. A lease, a
-- limit or an open circuit that started in the future starts now and keeps its length. Times that
-- a person set are not changed, and emails keep their times: docs/providers.md says what to do
-- about deferred emails. Buckets handle it themselves: mailgres.tokens_of().

CREATE FUNCTION mailgres.correct_leases(p_limit int, p_after timestamptz) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    -- For the same length again, so that live workers can still report.
    UPDATE public.email_queue q
    SET leased_at = mailgres.now(),
        lease_until = mailgres.now() + least(q.lease_until - q.leased_at, interval '1 hour'),
        last_attempt_at = least(q.last_attempt_at, mailgres.now()),
        attempt_started_at = least(q.attempt_started_at, mailgres.now())
    WHERE q.id = ANY (ARRAY(
        SELECT x.id FROM public.email_queue x
        WHERE x.status = 'sending' AND x.due_at > p_after AND x.leased_at > p_after
        LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.correct_leases(int, timestamptz) IS
    'Makes leases that started in the future start now; returns how many.';

CREATE FUNCTION mailgres.correct_provider(p mailgres.providers, p_after timestamptz) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_now      constant timestamptz := mailgres.now();
    v_limited  constant boolean := coalesce(p.limited_since > p_after, false);
    v_circuit  constant boolean := p.circuit_since > p_after;
BEGIN
    UPDATE mailgres.providers x
    SET limited_until = CASE WHEN v_limited THEN v_now + (p.limited_until - p.limited_since) ELSE x.limited_until END,
        limited_since = CASE WHEN v_limited THEN v_now ELSE x.limited_since END,
        circuit_until = CASE WHEN v_circuit THEN v_now + (p.circuit_until - p.circuit_since) ELSE x.circuit_until END,
        probe_until = CASE WHEN v_circuit THEN v_now + (p.probe_until - p.circuit_since) ELSE x.probe_until END,
        circuit_since = CASE WHEN v_circuit THEN v_now ELSE x.circuit_since END,
        failed_at = ARRAY(SELECT f FROM unnest(x.failed_at) f WHERE f <= p_after)
    WHERE x.name = p.name;
    INSERT INTO mailgres.provider_events (provider, event, reason)
    VALUES (p.name, 'ClockCorrected', 'the clock of the database went back: what began in the future begins now');
END
$$;

COMMENT ON FUNCTION mailgres.correct_provider(mailgres.providers, timestamptz) IS
    'Makes limits and circuits of a provider that started in the future start now, and records the event.';

CREATE FUNCTION mailgres.correct_times(p_limit int DEFAULT 500) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    -- concurrent transactions have slightly different times
    v_after     constant timestamptz := mailgres.now() + interval '1 minute';
    v_provider  mailgres.providers;
    v_count     int := 0;
BEGIN
    FOR v_provider IN
        SELECT * FROM mailgres.providers p
        WHERE p.limited_since > v_after OR p.circuit_since > v_after OR p.failed_at[cardinality(p.failed_at)] > v_after
        ORDER BY p.name FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM mailgres.correct_provider(v_provider, v_after);
        v_count := v_count + 1;
    END LOOP;
    UPDATE mailgres.notification_state n
    SET notified_at = least(n.notified_at, mailgres.now()), alerts_at = least(n.alerts_at, mailgres.now())
    WHERE greatest(n.notified_at, n.alerts_at) > v_after;
    UPDATE mailgres.alerts a SET seen_at = least(a.seen_at, mailgres.now()), notified_at = least(a.notified_at, mailgres.now())
    WHERE greatest(a.seen_at, a.notified_at) > v_after;
    UPDATE mailgres.notifications n SET taken_until = mailgres.now() WHERE n.taken_until > v_after + interval '1 minute';
    UPDATE mailgres.workers w SET seen_at = mailgres.now() WHERE w.seen_at > v_after;
    RETURN v_count + mailgres.correct_leases(p_limit, v_after);
END
$$;

COMMENT ON FUNCTION mailgres.correct_times(int) IS
    'Corrects times that were stored before the clock of the server was set back; returns how many providers and leases.';

-- ---- sql/30_engine/40_upkeep/40_reap.sql

-- Reaps the emails of dead workers. A lost lease does not count as a retry, but an email that
-- keeps killing workers dies as crashed. If a call had started, the provider decides: with keys,
-- the call is repeated with the same key; without, the template says whether a person decides
-- (hold) or the email is sent again (resend). After a restart of the database nothing is reaped
-- for the length of a lease, so that live workers can report first.

-- A batch is reaped as a whole or not at all: a worker whose call takes long may still report on
-- the emails that it holds, and the others could never be repeated unchanged. The leases of a
-- batch do not all end at one time, because extend() skips rows that another session has locked.
CREATE FUNCTION mailgres.is_lease_lost(q public.email_queue) RETURNS boolean
    LANGUAGE sql STABLE
RETURN q.lease_until <= mailgres.now()
    AND pg_postmaster_start_time() + (q.lease_until - q.leased_at) <= mailgres.now();

COMMENT ON FUNCTION mailgres.is_lease_lost(public.email_queue) IS
    'Whether the lease of an email has expired, and its worker had time to report.';

CREATE FUNCTION mailgres.rest_of_batches(INOUT p_ids uuid[], OUT p_held uuid[])
    LANGUAGE plpgsql
AS $$
DECLARE
    v_batches  constant uuid[] := ARRAY(
        SELECT DISTINCT q.batch_id FROM public.email_queue q WHERE q.id = ANY (p_ids) AND q.batch_id IS NOT NULL);
BEGIN
    p_held := '{}';
    IF cardinality(v_batches) = 0 THEN
        RETURN;
    END IF;
    p_ids := p_ids || ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.status = 'sending' AND q.due_at <= mailgres.now() AND mailgres.is_lease_lost(q)
          AND q.batch_id = ANY (v_batches) AND q.id <> ALL (p_ids)
        FOR UPDATE SKIP LOCKED);
    p_held := ARRAY(
        SELECT DISTINCT q.batch_id FROM public.email_queue q
        WHERE q.status = 'sending' AND q.due_at IS NOT NULL
          AND q.batch_id = ANY (v_batches) AND q.id <> ALL (p_ids));
    p_ids := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND (q.batch_id IS NULL OR q.batch_id <> ALL (p_held)));
END
$$;

COMMENT ON FUNCTION mailgres.rest_of_batches(uuid[]) IS
    'Completes the batches of emails whose lease has expired, or leaves them out; p_held: the batches that another session or a valid lease still holds a part of.';

-- Batches that are held must not hide emails that were lost after them: the search continues
-- until some can be taken.
CREATE FUNCTION mailgres.take_lost(p_limit int) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_ids      uuid[];
    v_held     uuid[];
    v_skipped  uuid[] := '{}';
BEGIN
    LOOP
        v_ids := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.status = 'sending' AND q.due_at <= mailgres.now() AND mailgres.is_lease_lost(q)
              AND (q.batch_id IS NULL OR q.batch_id <> ALL (v_skipped))
            ORDER BY q.due_at
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED);
        SELECT * INTO v_ids, v_held FROM mailgres.rest_of_batches(v_ids);
        EXIT WHEN cardinality(v_ids) > 0 OR cardinality(v_held) = 0;
        v_skipped := v_skipped || v_held;
    END LOOP;
    RETURN v_ids;
END
$$;

COMMENT ON FUNCTION mailgres.take_lost(int) IS
    'Locks emails whose lease has expired, oldest first, and the rest of their batches.';

CREATE FUNCTION mailgres.reap(p_limit int DEFAULT 500) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_ids    uuid[];
    v_count  int;
BEGIN
    PERFORM mailgres.correct_times(p_limit);
    v_ids := mailgres.take_lost(p_limit);
    WITH lost AS MATERIALIZED (
        SELECT q.id,
               q.lease_losses + (NOT q.lease_is_tokenless)::int AS losses,
               coalesce(q.uncertain_since, q.attempt_started_at) AS uncertain_since,
               q.attempt_started_at IS NOT NULL AND NOT coalesce(p.idempotent, false)
                   AND coalesce(t.on_uncertain, 'hold') = 'hold' AS hold
        FROM public.email_queue q
        LEFT JOIN mailgres.providers p ON p.name = q.provider
        LEFT JOIN public.email_templates t ON t.template_type = q.template_type
        WHERE q.id = ANY (v_ids)
    ), decided AS (
        SELECT l.*, l.losses >= s.max_lease_losses AS crashed
        FROM lost l CROSS JOIN mailgres.settings s
    )
    UPDATE public.email_queue q
    SET status = CASE WHEN d.crashed OR d.hold THEN 'failed' ELSE 'pending' END,
        ready = NOT (d.crashed OR d.hold),
        lease_losses = d.losses,
        uncertain_since = d.uncertain_since,
        batch_id = CASE WHEN d.uncertain_since IS NOT NULL THEN q.batch_id END,
        dead_at = CASE WHEN d.crashed OR d.hold THEN mailgres.now() END,
        dead_reason = CASE WHEN d.crashed THEN 'crashed' WHEN d.hold THEN 'uncertain' END,
        error_class = CASE WHEN d.hold THEN 'ambiguous' ELSE q.error_class END,
        error_message = CASE
            WHEN d.crashed THEN format('%s workers died while they held it', d.losses)
                || CASE WHEN d.uncertain_since IS NOT NULL THEN '; it may have arrived' ELSE '' END
            WHEN d.hold THEN 'the worker died during the call: it may have been sent'
            ELSE q.error_message END,
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
    FROM decided d
    WHERE q.id = d.id AND q.id = ANY (v_ids);  -- repeated for the plan
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.reap(int) IS
    'Reaps emails whose lease has expired; returns how many.';

-- ---- sql/30_engine/40_upkeep/50_archive_dead_letters.sql

-- Dead letters move to an archive after some time, with the whole row and the whole log, and are
-- deleted from there later.
--
-- jit = off goes with enable_seqscan = off: reading a table of one row gets a prohibitive cost,
-- and up to PostgreSQL 17 that alone would make every call compile for a second.

CREATE FUNCTION mailgres.archive_dead_letters(p_limit int DEFAULT 200) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_before timestamptz := (SELECT mailgres.now() - s.dead_letter_ttl FROM mailgres.settings s);
    v_ids    uuid[];
BEGIN
    -- Locked by a separate statement: the next ones then see everything that was logged about
    -- these emails, because a session that logs holds the lock of the row.
    v_ids := ARRAY(
        SELECT q.id
        FROM public.email_queue q
        WHERE q.status = 'failed' AND q.due_at <= v_before
        ORDER BY q.due_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED);
    IF cardinality(v_ids) = 0 THEN
        RETURN 0;
    END IF;

    INSERT INTO mailgres.dead_letters AS d
        (queue_id, tenant_id, template_type, dead_reason, error_code, dead_at, archived_at, expires_at, email, log)
    SELECT q.id, q.tenant_id, q.template_type, q.dead_reason, q.error_code, q.dead_at,
           mailgres.now(), mailgres.now() + s.archive_ttl,
           to_jsonb(q) || jsonb_build_object('attachments', (
               SELECT coalesce(jsonb_agg(jsonb_build_object(
                          'filename', a.filename, 'content_type', a.content_type,
                          'bytes', octet_length(a.content)) ORDER BY a.position), '[]')
               FROM mailgres.attachments a WHERE a.queue_id = q.id)),
           (SELECT coalesce(jsonb_agg(to_jsonb(l) ORDER BY l.id), '[]')
            FROM public.email_logs l WHERE l.queue_id = q.id)
    FROM public.email_queue q
    CROSS JOIN mailgres.settings s
    WHERE q.id = ANY (v_ids)
    -- An archived email was put back into the queue by hand, and it died again.
    ON CONFLICT (queue_id) DO UPDATE
        SET dead_reason = excluded.dead_reason, error_code = excluded.error_code, dead_at = excluded.dead_at,
            archived_at = excluded.archived_at, expires_at = excluded.expires_at,
            email = excluded.email, log = d.log || excluded.log;

    RETURN mailgres.delete_emails(v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.archive_dead_letters(int) IS
    'Moves emails that have been dead for long to mailgres.dead_letters; returns how many.';

-- Deletes emails with their attachments (ON DELETE CASCADE), their log and the messages that the
-- provider capture kept. The rollups still count them.
CREATE FUNCTION mailgres.delete_emails(p_ids uuid[]) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    DELETE FROM mailgres.captured c WHERE c.queue_id = ANY (p_ids);
    DELETE FROM mailgres.dead_letters_to_log d WHERE d.queue_id = ANY (p_ids);
    DELETE FROM public.email_logs l WHERE l.queue_id = ANY (p_ids);
    DELETE FROM public.email_queue q WHERE q.id = ANY (p_ids);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.delete_emails(uuid[]) IS
    'Deletes emails with everything that belongs to them; returns how many.';

CREATE FUNCTION mailgres.purge_archive(p_limit int DEFAULT 500) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_count int;
BEGIN
    DELETE FROM mailgres.dead_letters d
    WHERE d.queue_id = ANY (ARRAY(
        SELECT x.queue_id
        FROM mailgres.dead_letters x
        WHERE x.expires_at <= mailgres.now()
        ORDER BY x.expires_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.purge_archive(int) IS
    'Deletes archived emails that have expired; returns how many.';

-- ---- sql/30_engine/40_upkeep/60_delete_expired_emails.sql

-- Sent and cancelled emails are deleted after settings.sent_ttl. There is no index for that,
-- because every email would pay for it: ids are ordered by time, so the walk follows the primary
-- key from the oldest id. Emails that have to stay (scheduled, or sent late) are skipped, and one
-- call reads a limited number of rows, so the walk stores its position and starts again at the
-- end.
--
-- Two ranges are walked: ids older than sent_ttl, and ids that are not of our clock (an
-- application may set random ids of its own). Ids in between are too young.

CREATE TABLE mailgres.retention_walk (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    after_id    uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    logs_after  uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.retention_walk IS 'The position of delete_expired_emails in its current walk.';

COMMENT ON COLUMN mailgres.retention_walk.logs_after IS
    'The position of the walk through the logs of emails that were deleted by hand.';

INSERT INTO mailgres.retention_walk DEFAULT VALUES;

CREATE FUNCTION mailgres.first_id_of(p_time timestamptz) RETURNS uuid
    LANGUAGE sql STABLE
RETURN rpad(lpad(to_hex(
    floor(least(greatest(date_part('epoch', p_time) * 1000, 0), 281474976710655))::bigint), 12, '0'), 32, '0')::uuid;

COMMENT ON FUNCTION mailgres.first_id_of(timestamptz) IS
    'A lower bound of all time-ordered uuids that are generated at this time or later.';

-- When emails are deleted by hand, their logs stay: there is no foreign key, because every
-- attempt would have to check it. Among ids older than sent_ttl hardly any email is left, so most
-- logs there are such orphans. Logs of the few emails that have to stay are skipped, and the walk
-- stores its position. It follows the primary key of the logs, from one email to the next.
-- (Attachments have a foreign key.)
CREATE FUNCTION mailgres.delete_orphans(p_limit int, p_before timestamptz, p_old uuid, p_future uuid)
    RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    c_first    constant uuid := '00000000-0000-0000-0000-000000000000';
    c_last     constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    v_after    uuid := (SELECT w.logs_after FROM mailgres.retention_walk w);
    v_started  constant uuid := v_after;
    v_end      uuid;
    v_id       uuid;
    v_ids      uuid[] := '{}';
BEGIN
    IF v_after >= p_old THEN
        v_after := greatest(v_after, p_future);
    END IF;
    v_end := CASE WHEN v_after < p_old THEN p_old ELSE c_last END;
    FOR v_step IN 1 .. p_limit LOOP
        SELECT l.queue_id INTO v_id FROM public.email_logs l
        WHERE l.queue_id > v_after AND l.queue_id < v_end ORDER BY l.queue_id LIMIT 1;
        IF NOT FOUND THEN
            v_after := CASE WHEN v_end = p_old THEN p_future ELSE c_first END;
            EXIT;
        END IF;
        v_after := v_id;
        IF NOT EXISTS (SELECT FROM public.email_queue q WHERE q.id = v_id)
           AND p_before > (SELECT max(l.at) FROM public.email_logs l WHERE l.queue_id = v_id) THEN
            v_ids := v_ids || v_id;
        END IF;
    END LOOP;
    IF v_after <> v_started THEN  -- an empty round writes nothing
        UPDATE mailgres.retention_walk w SET logs_after = v_after;
    END IF;
    IF cardinality(v_ids) > 0 THEN
        PERFORM mailgres.delete_emails(v_ids);
    END IF;
    DELETE FROM mailgres.captured c
    WHERE c.captured_at < p_before AND c.queue_id = ANY (ARRAY(
        SELECT x.queue_id FROM (
            SELECT k.queue_id FROM mailgres.captured k WHERE k.queue_id < p_old ORDER BY k.queue_id LIMIT p_limit) x
        WHERE NOT EXISTS (SELECT FROM public.email_queue q WHERE q.id = x.queue_id)));
    RETURN cardinality(v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.delete_orphans(int, timestamptz, uuid, uuid) IS
    'Deletes what is left of emails that were deleted by hand, after sent_ttl; returns how many emails.';

CREATE FUNCTION mailgres.delete_expired_emails(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_first           constant uuid := '00000000-0000-0000-0000-000000000000';
    c_last            constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    c_rows_per_email  constant int := 20;  -- rows read for each email that may be deleted
    v_before          timestamptz := (SELECT mailgres.now() - s.sent_ttl FROM mailgres.settings s);
    v_old             uuid := mailgres.first_id_of(v_before);
    v_future          uuid := mailgres.first_id_of(greatest(mailgres.now(), clock_timestamp()) + interval '1 day');
    v_after           uuid;
    v_end             uuid;
    v_until           uuid;
    v_ids             uuid[];
BEGIN
    SELECT w.after_id INTO v_after FROM mailgres.retention_walk w FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;  -- another session is walking
    END IF;
    IF v_after >= v_old THEN
        v_after := greatest(v_after, v_future);
        SELECT q.id INTO v_until FROM public.email_queue q ORDER BY q.id DESC LIMIT 1;
        IF v_until IS NULL OR v_until <= v_after THEN
            v_after := c_first;  -- the range is empty: do not spend a call on it
        END IF;
    END IF;
    v_end := CASE WHEN v_after < v_old THEN v_old ELSE c_last END;

    -- The last row to read; null if there are fewer rows.
    SELECT q.id INTO v_until FROM public.email_queue q
    WHERE q.id > v_after AND q.id < v_end
    ORDER BY q.id OFFSET greatest(p_limit * c_rows_per_email - 1, 0) LIMIT 1;

    v_ids := ARRAY(
        SELECT q.id
        FROM public.email_queue q
        WHERE q.id > v_after AND q.id <= coalesce(v_until, v_end)
          AND CASE q.status
                  WHEN 'sent' THEN q.sent_at < v_before
                  WHEN 'cancelled' THEN v_before > coalesce(
                      (SELECT max(l.at) FROM public.email_logs l
                       WHERE l.queue_id = q.id AND l.to_status = 'cancelled'),
                      q.created_at)
              END
        ORDER BY q.id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED);

    UPDATE mailgres.retention_walk w
    SET after_id = CASE
        WHEN cardinality(v_ids) >= p_limit THEN v_ids[p_limit]
        WHEN v_until IS NOT NULL THEN v_until
        WHEN v_end = v_old THEN v_future
        ELSE c_first
    END;
    RETURN CASE WHEN cardinality(v_ids) > 0 THEN mailgres.delete_emails(v_ids) ELSE 0 END
        + mailgres.delete_orphans(p_limit, v_before, v_old, v_future);
END
$$;

COMMENT ON FUNCTION mailgres.delete_expired_emails(int) IS
    'Deletes emails that were sent or cancelled long ago; returns how many.';

-- ---- sql/30_engine/40_upkeep/70_workers.sql

-- Heartbeats of workers. A worker that was not seen for a day is deleted, and so is a sleeper
-- that should have woken long ago, because every enqueue reads the sleepers.

CREATE FUNCTION mailgres.heartbeat(
    p_worker text, p_version text DEFAULT '', p_details jsonb DEFAULT '{}', p_providers text[] DEFAULT NULL,
    p_on_demand boolean DEFAULT false
) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    INSERT INTO mailgres.workers AS w (worker, version, details, providers, on_demand)
    VALUES (p_worker, coalesce(p_version, ''), coalesce(p_details, '{}'), p_providers, coalesce(p_on_demand, false))
    ON CONFLICT (worker) DO UPDATE
        SET seen_at = mailgres.now(), version = excluded.version, details = excluded.details,
            providers = excluded.providers, on_demand = excluded.on_demand, role = excluded.role, stopped_at = NULL,
            started_at = CASE WHEN w.stopped_at IS NULL THEN w.started_at ELSE mailgres.now() END;
    RETURN 1;
END
$$;

COMMENT ON FUNCTION mailgres.heartbeat(text, text, jsonb, text[], boolean) IS
    'Records that a worker is alive and has these providers; returns 1.';

CREATE FUNCTION mailgres.sign_off(p_worker text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.workers w SET stopped_at = mailgres.now() WHERE w.worker = p_worker AND w.stopped_at IS NULL;
END
$$;

COMMENT ON FUNCTION mailgres.sign_off(text) IS 'Records that a worker stopped: it no longer counts as alive.';

CREATE FUNCTION mailgres.delete_stale_workers(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_workers   int;
    v_sleepers  int;
BEGIN
    DELETE FROM mailgres.workers w
    WHERE w.worker = ANY (ARRAY(
        SELECT x.worker FROM mailgres.workers x
        WHERE x.seen_at <= mailgres.now() - interval '1 day'
           -- cron starts one every few minutes, each with its own name
           OR x.on_demand AND x.seen_at <= mailgres.now() - interval '1 hour'
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_workers = ROW_COUNT;
    DELETE FROM mailgres.janitor_failures f WHERE f.failed_at <= mailgres.now() - interval '1 day';

    -- sleeps_until is in real time: mark_asleep uses clock_timestamp()
    DELETE FROM mailgres.sleepers s
    WHERE s.worker = ANY (ARRAY(
        SELECT x.worker FROM mailgres.sleepers x
        WHERE x.sleeps_until <= clock_timestamp() - interval '1 hour'
        LIMIT p_limit - v_workers
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_sleepers = ROW_COUNT;
    RETURN v_workers + v_sleepers;
END
$$;

COMMENT ON FUNCTION mailgres.delete_stale_workers(int) IS
    'Deletes workers that were not seen for a day and sleepers that never woke; returns how many.';

-- A worker counts as live for a minute after it was last seen, so that a restart goes unnoticed;
-- an on-demand worker for 15 minutes, because cron calls it from time to time. If no worker is
-- live, no provider is missing: the alert no_processor covers that. A worker of a version that
-- does not report its providers may have any.
CREATE FUNCTION mailgres.missing_providers()
    RETURNS TABLE (provider text, routes text[], since timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH seen AS MATERIALIZED (
        SELECT w.providers, w.started_at, w.seen_at,
               w.seen_at > mailgres.now()
                   - CASE WHEN w.on_demand THEN interval '15 minutes' ELSE interval '1 minute' END AS live
        FROM mailgres.workers w
    )
    SELECT rp.provider, array_agg(rp.route ORDER BY rp.route),
           coalesce((SELECT max(s.seen_at) FROM seen s WHERE rp.provider = ANY (s.providers)),
                    (SELECT min(s.started_at) FROM seen s WHERE s.live))
    FROM mailgres.route_providers rp
    JOIN mailgres.providers p ON p.name = rp.provider AND p.enabled
    WHERE EXISTS (SELECT FROM seen s WHERE s.live)
      AND NOT EXISTS (
          SELECT FROM seen s WHERE s.live AND (s.providers IS NULL OR rp.provider = ANY (s.providers)))
    GROUP BY rp.provider
    ORDER BY rp.provider
$$;

COMMENT ON FUNCTION mailgres.missing_providers() IS
    'Providers of routes that no live worker has, with these routes, and since when.';

-- ---- sql/30_engine/40_upkeep/80_janitor_failures.sql

-- A janitor that keeps failing has no immediate effect: counts stop changing, emails of dead
-- workers are not reaped. So failures in a row are counted, until a run of the same worker
-- succeeds, for an alert and for `mailgres doctor`.

CREATE FUNCTION mailgres.record_janitor_run(p_janitor text, p_worker text, p_error text, p_every interval) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_error IS NULL THEN
        DELETE FROM mailgres.janitor_failures f WHERE f.janitor = p_janitor AND f.worker = p_worker;
        RETURN;
    END IF;
    INSERT INTO mailgres.janitor_failures AS f (janitor, worker, run_every, error)
    VALUES (left(p_janitor, 200), left(p_worker, 200), p_every, left(p_error, 500))
    ON CONFLICT (janitor, worker) DO UPDATE
        SET failures = f.failures + 1, failed_at = excluded.failed_at, run_every = excluded.run_every,
            error = excluded.error;
END
$$;

COMMENT ON FUNCTION mailgres.record_janitor_run(text, text, text, interval) IS
    'Counts a failed run of a janitor; without an error, deletes its earlier failures, because the run succeeded.';

-- One row for each janitor, whichever workers it fails for.
CREATE FUNCTION mailgres.failing_janitors()
    RETURNS TABLE (janitor text, worker text, failures int, since timestamptz, error text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT ON (f.janitor) f.janitor, f.worker, f.failures, f.since, f.error
    FROM mailgres.janitor_failures f
    WHERE f.failed_at > mailgres.now() - (3 * f.run_every + interval '5 minutes')
    ORDER BY f.janitor, f.failures DESC, f.worker
$$;

COMMENT ON FUNCTION mailgres.failing_janitors() IS
    'Janitors that are failing now: the worker with the most failures in a row, and its last error.';

-- ---- sql/30_engine/50_counting/10_depth.sql

-- Counts open emails; see mailgres.depth. One scan of the open emails by their partial indexes,
-- whatever else is in the table, and of at most a million emails of each kind: beyond that the
-- counts are lower bounds.

-- The number of claims so far: how long tenants wait is counted in claims.
CREATE FUNCTION mailgres.claim_number() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT r.last_value FROM mailgres.claim_numbers r $$;

COMMENT ON FUNCTION mailgres.claim_number() IS 'How many claims have been made.';

-- Rows by status, template and retries, and rows by route and tenant (of waiting emails).
-- plpgsql, but planned at each call, whatever settings its caller has: the right plan depends on
-- the number of emails.
CREATE FUNCTION mailgres.count_depth(p_most int DEFAULT 1000000)
    RETURNS TABLE (
        status text, template_type text, retries int, route text, tenant_id text,
        emails bigint, due bigint, recent bigint, parked bigint,
        oldest timestamptz, newest timestamptz, oldest_due timestamptz, last_due timestamptz,
        oldest_lease timestamptz)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan
    SET enable_seqscan = on SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now   constant timestamptz := mailgres.now();
    v_week  constant timestamptz := date_trunc('hour', v_now - interval '7 days', 'UTC');
BEGIN
    RETURN QUERY
    SELECT x.status, x.template_type, x.retries, x.route, x.tenant_id, x.emails, x.due, x.recent, x.parked,
           x.oldest, x.newest, x.oldest_due, x.last_due, x.oldest_lease
    FROM (
        SELECT o.status, o.template_type, o.retries, o.route, o.tenant_id,
               CASE WHEN grouping(o.tenant_id) = 0 THEN count(*) FILTER (WHERE o.status = 'pending')
                    ELSE count(*) END AS emails,
               count(*) FILTER (WHERE o.status = 'pending' AND o.next_retry_at <= v_now) AS due,
               count(*) FILTER (WHERE o.created_at >= v_week) AS recent,
               count(o.parked_since) AS parked,
               min(o.created_at) AS oldest, max(o.created_at) AS newest,
               min(o.next_retry_at) FILTER (WHERE o.status = 'pending' AND o.next_retry_at <= v_now) AS oldest_due,
               max(o.next_retry_at) FILTER (WHERE o.status = 'pending' AND o.next_retry_at > v_now) AS last_due,
               min(o.leased_at) AS oldest_lease
        FROM (
            (SELECT 'pending' AS status, q.template_type::text, q.retries::int AS retries, q.route::text AS route,
                    q.tenant_id::text AS tenant_id, q.created_at, q.next_retry_at, q.parked_since,
                    NULL::timestamptz AS leased_at
             FROM public.email_queue q WHERE q.ready LIMIT p_most)
            UNION ALL
            (SELECT 'pending', q.template_type, q.retries, q.route, q.tenant_id, q.created_at, q.next_retry_at,
                    q.parked_since, NULL
             FROM public.email_queue q WHERE q.status = 'pending' AND NOT q.ready AND q.due_at IS NOT NULL LIMIT p_most)
            UNION ALL
            (SELECT 'sending', q.template_type, q.retries, q.route, q.tenant_id, q.created_at, q.next_retry_at,
                    NULL, q.leased_at
             FROM public.email_queue q WHERE q.status = 'sending' AND q.due_at IS NOT NULL LIMIT p_most)
        ) o
        GROUP BY GROUPING SETS ((o.status, o.template_type, o.retries), (o.route, o.tenant_id))
    ) x
    WHERE x.emails > 0;
END
$$;

COMMENT ON FUNCTION mailgres.count_depth(int) IS
    'Counts open emails now, at most p_most of each kind: by status, template and retries, and by route and tenant.';

-- A janitor calls this every few seconds. A call that comes too early changes nothing: several
-- workers count no more often than one, and counting takes at most a tenth of the time. If there
-- are more emails than can be counted within the statement timeout, the old counts stay valid,
-- with their `as_of`: otherwise every reader would count, too. If there are no counts yet (its
-- row was never valid), fewer emails are counted the next time.
CREATE FUNCTION mailgres.measure_depth(p_every interval DEFAULT '8 seconds') RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    c_most          constant int := CASE
        WHEN EXISTS (SELECT FROM mailgres.depth d WHERE d.valid_until < d.as_of) THEN 10000
        ELSE 1000000 END;
    v_start         constant timestamptz := clock_timestamp();
    v_now           constant timestamptz := mailgres.now();
    v_claim_number  constant bigint := mailgres.claim_number();
    v_took          interval;
    v_most          bigint;
BEGIN
    PERFORM FROM mailgres.depth d
    WHERE v_now BETWEEN d.as_of AND d.tried_at + greatest(p_every, 10 * d.took) - interval '1 microsecond';
    IF FOUND OR NOT pg_try_advisory_xact_lock(hashtext('mailgres.measure_depth')) THEN
        RETURN 0;
    END IF;

    WITH counted AS MATERIALIZED (
        SELECT * FROM mailgres.count_depth(c_most)
    ), by_template AS (
        INSERT INTO mailgres.depth_by_template AS d
            (status, template_type, retries, emails, due, recent, parked, oldest, newest, oldest_due, oldest_lease, as_of)
        SELECT c.status, c.template_type, c.retries, c.emails, c.due, c.recent, c.parked, c.oldest, c.newest,
               c.oldest_due, c.oldest_lease, v_now
        FROM counted c WHERE c.template_type IS NOT NULL
        ON CONFLICT (status, template_type, retries) DO UPDATE
            SET emails = excluded.emails, due = excluded.due, recent = excluded.recent, parked = excluded.parked,
                oldest = excluded.oldest, newest = excluded.newest, oldest_due = excluded.oldest_due,
                oldest_lease = excluded.oldest_lease, as_of = excluded.as_of
    ), by_tenant AS (
        INSERT INTO mailgres.depth_by_tenant AS d
            (route, tenant_id, emails, due, oldest_due, last_due, claim_number, as_of)
        SELECT c.route, c.tenant_id, c.emails, c.due, c.oldest_due, c.last_due, v_claim_number, v_now
        FROM counted c WHERE c.tenant_id IS NOT NULL
        ON CONFLICT (route, tenant_id) DO UPDATE
            SET emails = excluded.emails, due = excluded.due, oldest_due = excluded.oldest_due,
                last_due = excluded.last_due, as_of = excluded.as_of,
                claim_number = CASE WHEN d.due > 0 AND excluded.due > 0 THEN d.claim_number ELSE excluded.claim_number END
    )
    SELECT max(c.emails) INTO v_most FROM (
        SELECT sum(x.emails) AS emails FROM counted x WHERE x.template_type IS NOT NULL GROUP BY x.status) c;

    DELETE FROM mailgres.depth_by_template d WHERE d.as_of <> v_now;
    DELETE FROM mailgres.depth_by_tenant d WHERE d.as_of <> v_now;
    v_took := clock_timestamp() - v_start;
    INSERT INTO mailgres.depth AS d (as_of, tried_at, valid_until, took, capped, claim_number)
    VALUES (v_now, v_now, v_now + greatest(interval '1 minute', 20 * v_took), v_took, coalesce(v_most >= c_most, false), v_claim_number)
    ON CONFLICT (only_row) DO UPDATE
        SET as_of = excluded.as_of, tried_at = excluded.tried_at, valid_until = excluded.valid_until,
            took = excluded.took, capped = excluded.capped, claim_number = excluded.claim_number;
    RETURN 1;
EXCEPTION WHEN query_canceled THEN
    v_took := clock_timestamp() - v_start;
    INSERT INTO mailgres.depth AS d (as_of, tried_at, valid_until, took, capped, claim_number)
    VALUES (v_now, v_now, v_now - interval '1 second', v_took, false, v_claim_number)
    ON CONFLICT (only_row) DO UPDATE
        SET tried_at = excluded.tried_at, took = excluded.took,
            valid_until = CASE WHEN d.valid_until < d.as_of THEN d.valid_until ELSE v_now + 20 * v_took END;
    RETURN 0;
END
$$;

COMMENT ON FUNCTION mailgres.measure_depth(interval) IS
    'Counts open emails and stores the counts, unless they were stored just before; returns 1 if it did, otherwise 0.';

-- The stored counts, or if there are no recent ones, counts of this moment.
CREATE VIEW mailgres.current_depth_by_template WITH (security_invoker = true) AS
SELECT d.status, d.template_type, d.retries, d.emails, d.due, d.recent, d.parked, d.oldest, d.newest,
       d.oldest_due, d.oldest_lease, d.as_of
FROM mailgres.depth_by_template d
WHERE EXISTS (SELECT FROM mailgres.depth x WHERE mailgres.now() BETWEEN x.as_of AND x.valid_until)
UNION ALL
SELECT c.status, c.template_type, c.retries, c.emails, c.due, c.recent, c.parked, c.oldest, c.newest,
       c.oldest_due, c.oldest_lease, mailgres.now()
FROM mailgres.count_depth() c
WHERE c.template_type IS NOT NULL
  AND NOT EXISTS (SELECT FROM mailgres.depth x WHERE mailgres.now() BETWEEN x.as_of AND x.valid_until);

COMMENT ON VIEW mailgres.current_depth_by_template IS
    'Open emails by status, template and retries: the stored counts if they are recent, otherwise counted now.';

CREATE VIEW mailgres.current_depth_by_tenant WITH (security_invoker = true) AS
SELECT d.route, d.tenant_id, d.emails, d.due, d.oldest_due, d.last_due, d.claim_number, d.as_of
FROM mailgres.depth_by_tenant d
WHERE EXISTS (SELECT FROM mailgres.depth x WHERE mailgres.now() BETWEEN x.as_of AND x.valid_until)
UNION ALL
SELECT c.route, c.tenant_id, c.emails, c.due, c.oldest_due, c.last_due, NULL, mailgres.now()
FROM mailgres.count_depth() c
WHERE c.tenant_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM mailgres.depth x WHERE mailgres.now() BETWEEN x.as_of AND x.valid_until);

COMMENT ON VIEW mailgres.current_depth_by_tenant IS
    'Waiting emails by route and tenant: the stored counts if they are recent, otherwise counted now.';

-- ---- sql/30_engine/50_counting/20_counted.sql

-- The rollups plus the deltas that are not yet added to them: always exact. A cell may have
-- several rows, so every query has to sum them.

CREATE VIEW mailgres.counted_by_template WITH (security_invoker = true) AS
SELECT r.hour, r.template_type, r.status, r.emails FROM mailgres.rollup_by_template r
UNION ALL
SELECT d.hour, d.template_type, d.status, d.emails FROM mailgres.rollup_deltas d WHERE d.emails <> 0;

CREATE VIEW mailgres.counted_by_tenant WITH (security_invoker = true) AS
SELECT r.hour, r.tenant_id, r.status, r.emails FROM mailgres.rollup_by_tenant r
UNION ALL
SELECT d.hour, d.tenant_id, d.status, d.emails FROM mailgres.rollup_deltas d WHERE d.emails <> 0;

CREATE VIEW mailgres.counted_by_provider WITH (security_invoker = true) AS
SELECT r.hour, r.provider, r.error_code, r.status, r.emails FROM mailgres.rollup_by_provider r
UNION ALL
SELECT d.hour, d.provider, d.error_code, d.status, d.emails FROM mailgres.rollup_deltas d WHERE d.emails <> 0;

CREATE VIEW mailgres.counted_by_retries WITH (security_invoker = true) AS
SELECT r.hour, r.status, r.retries, r.within, r.emails, r.seconds FROM mailgres.rollup_by_retries r
UNION ALL
SELECT d.hour, d.status, d.retries, d.within, d.emails, d.seconds FROM mailgres.rollup_deltas d;

CREATE VIEW mailgres.counted_by_status WITH (security_invoker = true) AS
SELECT r.hour, r.status, r.emails, r.oldest, r.newest FROM mailgres.rollup_by_status r
UNION ALL
SELECT d.hour, d.status, d.here, d.oldest, d.newest FROM mailgres.rollup_deltas d WHERE d.here <> 0;

CREATE VIEW mailgres.counted_dead WITH (security_invoker = true) AS
SELECT r.hour, r.tenant_id, r.error_code, r.dead_reason, r.emails FROM mailgres.rollup_dead r
UNION ALL
SELECT d.dead_hour, d.tenant_id, d.error_code, d.dead_reason, d.here FROM mailgres.rollup_deltas d
WHERE d.status = 'failed' AND d.here <> 0;

CREATE VIEW mailgres.counted_by_minute WITH (security_invoker = true) AS
SELECT r.minute, r.outcome, r.provider, r.emails FROM mailgres.rollup_by_minute r
UNION ALL
SELECT date_trunc('minute', d.at, 'UTC'), d.event, d.provider, d.emails FROM mailgres.attempt_deltas d
WHERE d.event <> 'claimed';

CREATE VIEW mailgres.counted_by_attempt WITH (security_invoker = true) AS
SELECT r.hour, r.attempt, r.outcome, r.attempts, r.seconds FROM mailgres.rollup_by_attempt r
UNION ALL
SELECT date_trunc('hour', d.at, 'UTC'), d.attempt, d.event, d.emails, d.seconds FROM mailgres.attempt_deltas d
WHERE d.event = 'claimed' OR d.claimed_at IS NOT NULL AND d.event IN ('sent', 'retry', 'dead', 'deferred');

CREATE VIEW mailgres.counted_by_fault WITH (security_invoker = true) AS
SELECT r.hour, r.provider, r.error_class, r.error_code, r.outcome, r.attempts FROM mailgres.rollup_by_fault r
UNION ALL
SELECT date_trunc('hour', d.at, 'UTC'), d.provider, d.error_class, d.error_code, d.event, d.emails
FROM mailgres.attempt_deltas d
WHERE d.claimed_at IS NOT NULL AND d.event IN ('retry', 'dead', 'deferred');

CREATE VIEW mailgres.counted_tenants WITH (security_invoker = true) AS
SELECT a.tenant_id, a.processed, a.claimed_at, a.batch, a.claim_number FROM mailgres.tenant_activity a
UNION ALL
SELECT d.tenant_id, d.emails, d.claimed_at, d.emails, d.claim_number FROM mailgres.attempt_deltas d
WHERE d.claimed_at IS NOT NULL AND d.event IN ('sent', 'retry', 'dead', 'deferred');

COMMENT ON VIEW mailgres.counted_by_template IS 'Emails by hour of creation, template and status; sum them.';
COMMENT ON VIEW mailgres.counted_by_tenant IS 'Emails by hour of creation, tenant and status; sum them.';
COMMENT ON VIEW mailgres.counted_by_provider IS
    'Emails by hour of creation, provider, error code and status; sum them.';
COMMENT ON VIEW mailgres.counted_by_retries IS
    'Emails by hour of creation, status, retries and time to delivery; sum them.';
COMMENT ON VIEW mailgres.counted_by_status IS
    'Settled emails in the queue by hour of creation and status; sum them.';
COMMENT ON VIEW mailgres.counted_dead IS
    'Dead letters in the queue by the hour in which they died, tenant, error code and reason; sum them.';
COMMENT ON VIEW mailgres.counted_by_minute IS 'What happened to emails in each minute; sum them.';
COMMENT ON VIEW mailgres.counted_by_attempt IS 'Attempts by hour, number of the attempt and outcome; sum them.';
COMMENT ON VIEW mailgres.counted_by_fault IS
    'Failed attempts by hour, provider, and class and code of the fault; sum them.';
COMMENT ON VIEW mailgres.counted_tenants IS
    'Attempts made for each tenant, and the size of its last claim: sum processed, and batch of the newest claimed_at.';

-- ---- sql/30_engine/50_counting/30_fold_rollups.sql

-- Adds the deltas to the rollups, a limited number at a time.

CREATE FUNCTION mailgres.fold_counts(p_limit int) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    WITH taken AS MATERIALIZED (
        DELETE FROM mailgres.rollup_deltas d
        WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM mailgres.rollup_deltas x LIMIT p_limit))
        RETURNING d.*
    ), by_template AS (
        INSERT INTO mailgres.rollup_by_template AS r (hour, template_type, status, emails)
        SELECT t.hour, t.template_type, t.status, sum(t.emails)
        FROM taken t GROUP BY 1, 2, 3 HAVING sum(t.emails) <> 0
        ON CONFLICT (hour, template_type, status) DO UPDATE SET emails = r.emails + excluded.emails
    ), by_tenant AS (
        INSERT INTO mailgres.rollup_by_tenant AS r (hour, tenant_id, status, emails)
        SELECT t.hour, t.tenant_id, t.status, sum(t.emails)
        FROM taken t GROUP BY 1, 2, 3 HAVING sum(t.emails) <> 0
        ON CONFLICT (hour, tenant_id, status) DO UPDATE SET emails = r.emails + excluded.emails
    ), by_provider AS (
        INSERT INTO mailgres.rollup_by_provider AS r (hour, provider, error_code, status, emails)
        SELECT t.hour, t.provider, t.error_code, t.status, sum(t.emails)
        FROM taken t GROUP BY 1, 2, 3, 4 HAVING sum(t.emails) <> 0
        ON CONFLICT (hour, provider, error_code, status) DO UPDATE SET emails = r.emails + excluded.emails
    ), by_retries AS (
        INSERT INTO mailgres.rollup_by_retries AS r (hour, status, retries, within, emails, seconds)
        SELECT t.hour, t.status, t.retries, t.within, sum(t.emails), sum(t.seconds)
        FROM taken t GROUP BY 1, 2, 3, 4 HAVING sum(t.emails) <> 0 OR sum(t.seconds) <> 0
        ON CONFLICT (hour, status, retries, within) DO UPDATE
            SET emails = r.emails + excluded.emails, seconds = r.seconds + excluded.seconds
    ), by_status AS (
        INSERT INTO mailgres.rollup_by_status AS r (hour, status, emails, oldest, newest)
        SELECT t.hour, t.status, sum(t.here), min(t.oldest), max(t.newest)
        FROM taken t WHERE t.here <> 0 GROUP BY 1, 2
        ON CONFLICT (hour, status) DO UPDATE
            SET emails = r.emails + excluded.emails,
                oldest = least(r.oldest, excluded.oldest), newest = greatest(r.newest, excluded.newest)
    ), dead AS (
        INSERT INTO mailgres.rollup_dead AS r (hour, tenant_id, error_code, dead_reason, emails)
        SELECT t.dead_hour, t.tenant_id, t.error_code, t.dead_reason, sum(t.here)
        FROM taken t WHERE t.status = 'failed' AND t.here <> 0 GROUP BY 1, 2, 3, 4 HAVING sum(t.here) <> 0
        ON CONFLICT (hour, tenant_id, error_code, dead_reason) DO UPDATE SET emails = r.emails + excluded.emails
    )
    SELECT count(*) INTO v_count FROM taken;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.fold_counts(int) IS
    'Adds deltas of the outcomes of emails to the rollups; returns how many.';

CREATE FUNCTION mailgres.fold_attempts(p_limit int) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    WITH taken AS MATERIALIZED (
        DELETE FROM mailgres.attempt_deltas d
        WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM mailgres.attempt_deltas x LIMIT p_limit))
        RETURNING d.*
    ), by_minute AS (
        INSERT INTO mailgres.rollup_by_minute AS r (minute, outcome, provider, emails)
        SELECT date_trunc('minute', t.at, 'UTC'), t.event, t.provider, sum(t.emails)
        FROM taken t WHERE t.event <> 'claimed' GROUP BY 1, 2, 3
        ON CONFLICT (minute, outcome, provider) DO UPDATE SET emails = r.emails + excluded.emails
    ), by_attempt AS (
        INSERT INTO mailgres.rollup_by_attempt AS r (hour, attempt, outcome, attempts, seconds)
        SELECT date_trunc('hour', t.at, 'UTC'), t.attempt, t.event, sum(t.emails), sum(t.seconds)
        FROM taken t
        WHERE t.event = 'claimed' OR t.claimed_at IS NOT NULL AND t.event IN ('sent', 'retry', 'dead', 'deferred')
        GROUP BY 1, 2, 3
        ON CONFLICT (hour, attempt, outcome) DO UPDATE
            SET attempts = r.attempts + excluded.attempts, seconds = r.seconds + excluded.seconds
    ), by_fault AS (
        INSERT INTO mailgres.rollup_by_fault AS r (hour, provider, error_class, error_code, outcome, attempts)
        SELECT date_trunc('hour', t.at, 'UTC'), t.provider, t.error_class, t.error_code, t.event, sum(t.emails)
        FROM taken t WHERE t.claimed_at IS NOT NULL AND t.event IN ('retry', 'dead', 'deferred')
        GROUP BY 1, 2, 3, 4, 5
        ON CONFLICT (hour, provider, error_class, error_code, outcome) DO UPDATE SET attempts = r.attempts + excluded.attempts
    ), of_tenants AS (
        INSERT INTO mailgres.tenant_activity AS r (tenant_id, processed, claimed_at, batch, claim_number)
        SELECT x.tenant_id, sum(x.emails), max(x.claimed_at), sum(x.emails) FILTER (WHERE x.is_last), max(x.claim_number)
        FROM (
            SELECT t.tenant_id, t.emails, t.claimed_at, t.claim_number,
                   t.claimed_at = max(t.claimed_at) OVER (PARTITION BY t.tenant_id) AS is_last
            FROM taken t
            WHERE t.claimed_at IS NOT NULL AND t.event IN ('sent', 'retry', 'dead', 'deferred')
        ) x
        GROUP BY 1
        ON CONFLICT (tenant_id) DO UPDATE
            SET processed = r.processed + excluded.processed,
                claimed_at = greatest(r.claimed_at, excluded.claimed_at),
                batch = CASE WHEN excluded.claimed_at > r.claimed_at THEN excluded.batch
                             WHEN excluded.claimed_at = r.claimed_at THEN r.batch + excluded.batch
                             ELSE r.batch END,
                claim_number = greatest(r.claim_number, excluded.claim_number)
    )
    SELECT count(*) INTO v_count FROM taken;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.fold_attempts(int) IS
    'Adds deltas of events to the rollups; returns how many.';

CREATE FUNCTION mailgres.fold_rollups(p_limit int DEFAULT 10000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- One at a time: two folds would lock the same rollup rows in different orders.
    IF NOT pg_try_advisory_xact_lock(hashtext('mailgres.fold_rollups')) THEN
        RETURN 0;
    END IF;
    RETURN greatest(mailgres.fold_counts(p_limit), mailgres.fold_attempts(p_limit));
END
$$;

COMMENT ON FUNCTION mailgres.fold_rollups(int) IS
    'Adds deltas to the rollups; returns how many of the kind that had more.';

-- Counts expire, too. Counts of the queue are deleted when their hour has no emails left, minutes
-- after eight days.
CREATE FUNCTION mailgres.delete_expired_rollups(p_limit int DEFAULT 10000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_hour    constant timestamptz := (SELECT mailgres.now() - s.counts_ttl FROM mailgres.settings s);
    v_minute  constant timestamptz := mailgres.now() - interval '8 days';
    v_table   text;
    v_only    text;
    v_count   int;
    v_total   int := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('mailgres.fold_rollups')) THEN
        RETURN 0;
    END IF;
    FOR v_table, v_only IN VALUES
        ('rollup_by_template', 'hour < $1'), ('rollup_by_tenant', 'hour < $1'),
        ('rollup_by_provider', 'hour < $1'), ('rollup_by_retries', 'hour < $1'),
        ('rollup_by_attempt', 'hour < $1'), ('rollup_by_fault', 'hour < $1'),
        ('rollup_by_minute', 'minute < $2'), ('tenant_activity', 'claimed_at < $1'),
        ('rollup_by_status', 'hour < $2 AND emails = 0'), ('rollup_dead', 'hour < $2 AND emails = 0')
    LOOP
        EXECUTE format(
            'DELETE FROM mailgres.%1$I WHERE ctid = ANY (ARRAY(SELECT ctid FROM mailgres.%1$I WHERE %2$s LIMIT $3))',
            v_table, v_only) USING v_hour, v_minute, p_limit - v_total;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_total := v_total + v_count;
    END LOOP;
    RETURN v_total;
END
$$;

COMMENT ON FUNCTION mailgres.delete_expired_rollups(int) IS
    'Deletes counts that have expired; returns how many.';

-- ---- sql/30_engine/50_counting/40_eta.sql

-- When the backlog will be drained. An estimate from the current state: the first usable provider
-- of a route, its limits and quotas, and the recent throughput. Other providers of the route may
-- make it sooner, new emails and faults later.

CREATE FUNCTION mailgres.usable_at(p mailgres.providers) RETURNS timestamptz
    LANGUAGE sql STABLE
RETURN CASE WHEN p.enabled THEN greatest(
    mailgres.now(), p.paused_until, p.limited_until,
    CASE p.circuit WHEN 'open' THEN coalesce(p.circuit_until, 'infinity')
                   WHEN 'half_open' THEN p.probe_until END) ELSE 'infinity' END;

COMMENT ON FUNCTION mailgres.usable_at(mailgres.providers) IS
    'When a provider can be used again, as far as is known; infinity means not without action.';

CREATE FUNCTION mailgres.unusable_because(p mailgres.providers) RETURNS text
    LANGUAGE sql STABLE
RETURN CASE
    WHEN NOT p.enabled THEN 'disabled'
    WHEN p.paused_until > mailgres.now() THEN 'paused'
    WHEN p.circuit <> 'closed' THEN 'circuit'
    WHEN p.limited_until > mailgres.now() THEN p.limited_by END;

COMMENT ON FUNCTION mailgres.unusable_because(mailgres.providers) IS
    'Why a provider cannot be used now: disabled, paused, circuit, quota or rate; null if it can.';

-- Emails per second by the limits of a provider, otherwise the rate of the last 15 minutes.
CREATE FUNCTION mailgres.send_rate_of(p mailgres.providers, OUT per_second double precision, OUT why text)
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    SELECT min(CASE WHEN b.name LIKE 'calls:%' THEN b.per_second * p.batch_size ELSE b.per_second END), 'rate'
    INTO per_second, why
    FROM mailgres.buckets b WHERE b.name IN ('calls:' || p.name, 'emails:' || p.name);
    IF per_second IS NULL THEN
        SELECT sum(c.emails) / greatest(date_part('epoch', mailgres.now() - min(c.minute)), 1), 'throughput'
        INTO per_second, why
        FROM mailgres.counted_by_minute c
        WHERE c.minute > mailgres.now() - interval '15 minutes' AND c.outcome = 'sent' AND c.provider = p.name;
        IF coalesce(per_second, 0) = 0 THEN
            per_second := NULL;
            why := 'unknown';
        END IF;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.send_rate_of(mailgres.providers) IS
    'How many emails per second a provider accepts, by its limits or by the last 15 minutes.';

-- Computed day by day, because of the quotas.
CREATE FUNCTION mailgres.drained_at(
    p mailgres.providers, p_emails bigint, p_starts timestamptz, OUT at timestamptz, OUT why text
)
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c_years   constant int := 10;
    v_rate    double precision;
    v_rest    double precision := p_emails;
    v_from    timestamptz := p_starts;
    v_ends    timestamptz;
    v_day     double precision := p.daily_quota;
    v_month   double precision := p.monthly_quota;
    v_can     double precision;
BEGIN
    SELECT x.per_second, x.why INTO v_rate, why FROM mailgres.send_rate_of(p) x;
    SELECT p.daily_quota - coalesce(max(mailgres.used_of_quota(u, p_starts)) FILTER (WHERE u.period = 'day'), 0),
           p.monthly_quota - coalesce(max(u.emails) FILTER (WHERE u.period = 'month'), 0)
    INTO v_day, v_month
    FROM mailgres.quota_usage u
    WHERE u.provider = p.name AND u.starts = date_trunc(u.period, p_starts, 'UTC');

    FOR v_number IN 1 .. c_years * 366 LOOP
        v_ends := date_trunc('day', v_from, 'UTC') + interval '24 hours';
        v_can := least(v_day, v_month, v_rate * date_part('epoch', v_ends - v_from));
        IF v_can < 0 THEN
            v_can := 0;  -- a quota that was lowered
        END IF;
        IF v_can IS NULL OR v_rest <= v_can THEN
            IF v_rate IS NOT NULL OR why = 'quota' THEN
                at := v_from + coalesce(v_rest / v_rate, 0) * interval '1 second';
            END IF;
            RETURN;
        END IF;
        IF v_can >= greatest(least(v_day, v_month), 0) AND num_nonnulls(v_day, v_month) > 0 THEN
            why := 'quota';
        END IF;
        v_rest := v_rest - v_can;
        v_day := p.daily_quota;
        v_month := CASE WHEN date_trunc('month', v_ends, 'UTC') = v_ends THEN p.monthly_quota ELSE v_month - v_can END;
        v_from := v_ends;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.drained_at(mailgres.providers, bigint, timestamptz) IS
    'When this many emails will have been sent through a provider; null if it cannot be estimated.';

CREATE FUNCTION mailgres.eta()
    RETURNS TABLE (
        route text, emails bigint, later bigint, provider text, starts timestamptz, at timestamptz, why text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v          record;
    v_drained  record;
    v_because  text;
BEGIN
    FOR v IN
        WITH by_route AS (
            SELECT t.route, sum(t.emails)::bigint AS emails, sum(t.emails - t.due)::bigint AS later,
                   max(t.last_due) AS last_due,
                   max(mailgres.now() + (t.emails - mailgres.tokens_of(b)) / b.per_second * interval '1 second')
                       AS tenants_at
            FROM mailgres.current_depth_by_tenant t
            LEFT JOIN mailgres.buckets b ON b.name = 'tenant:' || t.tenant_id
            GROUP BY 1
        )
        SELECT w.*, r.paused, x.provider, mailgres.usable_at(x.provider) AS starts,
               sum(w.emails) OVER (PARTITION BY r.paused, (x.provider).name)::bigint AS ahead
        FROM by_route w
        JOIN mailgres.routes r ON r.route = w.route
        LEFT JOIN LATERAL (
            SELECT p AS provider FROM mailgres.route_providers rp
            JOIN mailgres.providers p ON p.name = rp.provider
            WHERE rp.route = w.route
            ORDER BY mailgres.needs_fallback(p), CASE WHEN mailgres.needs_fallback(p) THEN mailgres.usable_at(p) END, rp.position
            LIMIT 1) x ON true
        ORDER BY w.route
    LOOP
        route := v.route;
        emails := v.emails;
        later := v.later;
        provider := (v.provider).name;
        starts := NULL;
        at := NULL;
        IF v.paused THEN
            why := 'route paused';
        ELSIF provider IS NULL THEN
            why := 'no provider';
        ELSE
            v_because := mailgres.unusable_because(v.provider);
            why := v_because;
            IF isfinite(v.starts) THEN
                starts := v.starts;
                SELECT * INTO v_drained FROM mailgres.drained_at(v.provider, v.ahead, v.starts);
                at := v_drained.at;
                why := CASE WHEN v_drained.why = 'quota' OR v_because IS NULL THEN v_drained.why ELSE v_because END;
                IF v.tenants_at > at THEN
                    at := v.tenants_at;
                    why := 'rate of a tenant';
                END IF;
                IF v.last_due > at THEN
                    at := v.last_due;
                    why := 'schedule';
                END IF;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.eta() IS
    'For each route with waiting emails: how many, when they will have been sent, and what that depends on.';

-- ---- sql/30_engine/60_notify/10_alert_rules.sql

-- What operators set about alerts.

CREATE FUNCTION mailgres.set_alert_rule(
    p_name text, p_threshold double precision DEFAULT NULL, p_time_window interval DEFAULT NULL,
    p_severity text DEFAULT NULL, p_enabled boolean DEFAULT NULL
) RETURNS mailgres.alert_rules
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_rule mailgres.alert_rules;
BEGIN
    SELECT * INTO v_rule FROM mailgres.alert_rules r WHERE r.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG090', format('there is no alert rule %L', left(p_name, 100)),
            format('Known rules: %s.', (SELECT string_agg(r.name, ', ' ORDER BY r.name) FROM mailgres.alert_rules r)));
    ELSIF NOT coalesce(p_threshold >= 0 AND p_threshold < 'infinity'
                       AND (v_rule.unit <> '%' OR p_threshold <= 100), true) THEN
        PERFORM mailgres.refuse('MG091', format('%s is no threshold of %s', p_threshold, p_name),
            format('Give a number of %s, 0 or more%s.', v_rule.unit, CASE v_rule.unit WHEN '%' THEN ', at most 100' ELSE '' END));
    ELSIF p_time_window IS NOT NULL AND v_rule.time_window IS NULL THEN
        PERFORM mailgres.refuse('MG091', format('%s has no window', p_name), 'Set its threshold instead.');
    ELSIF p_time_window <= '0' OR p_time_window > '7 days' THEN
        PERFORM mailgres.refuse('MG091', 'a window is longer than nothing and at most 7 days',
            format('It is %s now.', v_rule.time_window));
    ELSIF p_severity NOT IN ('info', 'warning', 'critical') THEN
        PERFORM mailgres.refuse('MG091', format('%L is no severity', left(p_severity, 100)),
            'Give info, warning or critical.');
    END IF;
    UPDATE mailgres.alert_rules r
    SET threshold = coalesce(p_threshold, r.threshold), time_window = coalesce(p_time_window, r.time_window),
        severity = coalesce(p_severity, r.severity), enabled = coalesce(p_enabled, r.enabled)
    WHERE r.name = p_name
    RETURNING * INTO v_rule;
    RETURN v_rule;
END
$$;

COMMENT ON FUNCTION mailgres.set_alert_rule(text, double precision, interval, text, boolean) IS
    'Changes a rule; what is null stays. Returns it.';

-- ---- sql/30_engine/60_notify/20_alert_figures.sql

-- What the rules of alerts look at. Each of these functions gives figures for some rules
-- and whatever they fire for, and reads rollups, small tables and short stretches of
-- indexes: never the queue, however large it is. Nothing is written, so that they also
-- answer on a standby, and for an analyst when no worker lives.

CREATE TYPE mailgres.alert_figure AS (
    rule     text,
    subject  text,
    figure   double precision,
    sample   bigint,       -- how much there was to judge by; null: it needs no minimum
    since    timestamptz   -- when it began, if that is known
);

CREATE FUNCTION mailgres.alert_window(p_rule text) RETURNS interval
    LANGUAGE sql STABLE
RETURN (SELECT r.time_window FROM mailgres.alert_rules r WHERE r.name = p_rule);

COMMENT ON FUNCTION mailgres.alert_window(text) IS 'The window of a rule.';

CREATE FUNCTION mailgres.minutes(p_since timestamptz) RETURNS double precision
    LANGUAGE sql STABLE
RETURN CASE WHEN p_since IS NOT NULL THEN date_part('epoch', mailgres.now() - greatest(p_since, 'epoch')) / 60 END;

COMMENT ON FUNCTION mailgres.minutes(timestamptz) IS 'Minutes from then to now.';

-- Since when the oldest email of each tenant is due: as counted lately, if all were counted.
-- Else those that are ready, by a step of the index for each tenant and priority, whatever they
-- have, and no more than 5,000 of them: slow only while an old transaction keeps vacuum from it.
CREATE FUNCTION mailgres.oldest_waiting() RETURNS TABLE (route text, tenant_id text, oldest timestamptz)
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    IF EXISTS (SELECT FROM mailgres.depth d WHERE mailgres.now() BETWEEN d.as_of AND d.valid_until AND NOT d.capped) THEN
        RETURN QUERY SELECT d.route, d.tenant_id, d.oldest_due FROM mailgres.depth_by_tenant d WHERE d.due > 0;
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk AS (
        (SELECT q.route, q.tenant_id, q.priority, q.next_retry_at, 1 AS step
         FROM public.email_queue q WHERE q.ready
         ORDER BY q.route, q.tenant_id, q.priority, q.next_retry_at LIMIT 1)
        UNION ALL
        SELECT n.route, n.tenant_id, n.priority, n.next_retry_at, w.step + 1
        FROM walk w
        CROSS JOIN LATERAL (
            SELECT q.route, q.tenant_id, q.priority, q.next_retry_at
            FROM public.email_queue q
            WHERE q.ready AND (q.route, q.tenant_id, q.priority) > (w.route, w.tenant_id, w.priority)
            ORDER BY q.route, q.tenant_id, q.priority, q.next_retry_at LIMIT 1) n
        WHERE w.step < 5000
    )
    SELECT w.route::text, w.tenant_id::text, min(w.next_retry_at) FROM walk w GROUP BY w.route, w.tenant_id;
END
$$;

COMMENT ON FUNCTION mailgres.oldest_waiting() IS
    'Since when the oldest email of each route and tenant is due.';

CREATE TYPE mailgres.waiting_tenant AS (
    tenant_id  text,
    oldest     timestamptz,
    usable     boolean   -- neither the tenant nor the route is paused, and a provider can send
);

CREATE FUNCTION mailgres.waiting_tenants() RETURNS mailgres.waiting_tenant[]
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW(w.tenant_id, w.oldest,
                   t.paused_at IS NULL AND NOT s.paused AND cardinality(s.usable) > 0)::mailgres.waiting_tenant
        FROM mailgres.oldest_waiting() w
        JOIN mailgres.route_states() s ON s.route = w.route
        LEFT JOIN mailgres.tenants t ON t.tenant_id = w.tenant_id);
END
$$;

COMMENT ON FUNCTION mailgres.waiting_tenants() IS
    'Tenants with emails that are due, since when the oldest of each is, and whether it could be taken.';

-- What is counted one by one is counted no further than any rule asks, or 10,000.
CREATE FUNCTION mailgres.most_counted() RETURNS int
    LANGUAGE sql STABLE
RETURN (SELECT least(greatest(max(r.threshold), 10000), 1000000)::int + 1 FROM mailgres.alert_rules r);

COMMENT ON FUNCTION mailgres.most_counted() IS 'How far emails are counted for alerts.';

-- The last that was seen of anybody who takes emails; of processors without a heartbeat
-- only whether they took any within so many minutes.
CREATE FUNCTION mailgres.last_seen(p_minutes double precision) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_since  timestamptz := mailgres.now() - p_minutes * interval '1 minute';
    v_seen   timestamptz := (SELECT max(w.seen_at) FROM mailgres.workers w);
BEGIN
    IF v_seen >= v_since THEN
        RETURN v_seen;
    END IF;
    RETURN greatest(
        v_seen,
        (SELECT max(q.leased_at) FROM public.email_queue q WHERE q.status = 'sending' AND q.due_at IS NOT NULL),
        (SELECT l.at FROM public.email_logs l WHERE l.at >= v_since AND l.claimed_at IS NOT NULL LIMIT 1));
END
$$;

COMMENT ON FUNCTION mailgres.last_seen(double precision) IS
    'When a worker or processor was last seen.';

-- Who waits though others are served. A tenant with a rate limit of its own waits for that.
CREATE FUNCTION mailgres.figures_of_starving(p_waiting mailgres.waiting_tenant[]) RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE SET enable_nestloop = off SET enable_seqscan = on
AS $$
DECLARE
    v_limit  double precision := (SELECT r.threshold FROM mailgres.alert_rules r WHERE r.name = 'tenant_starved');
BEGIN
    RETURN QUERY
    WITH served AS MATERIALIZED (
        SELECT x.tenant_id, max(x.claimed_at) AS claimed_at FROM mailgres.counted_tenants x GROUP BY 1
    )
    SELECT 'tenant_starved', w.tenant_id, mailgres.minutes(greatest(min(w.oldest), max(c.claimed_at))),
           NULL::bigint, NULL::timestamptz
    FROM unnest(p_waiting) w
    LEFT JOIN served c ON c.tenant_id = w.tenant_id
    WHERE (SELECT mailgres.minutes(max(s.claimed_at)) <= v_limit FROM served s)
      AND w.usable AND mailgres.minutes(w.oldest) > v_limit
      AND NOT EXISTS (SELECT FROM mailgres.buckets b WHERE b.name = 'tenant:' || w.tenant_id)
    GROUP BY w.tenant_id;
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_starving(mailgres.waiting_tenant[]) IS
    'Figures for alerts about tenants that wait though others are served.';

CREATE FUNCTION mailgres.figures_of_waiting() RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_look     constant int := 2000;
    v_most     constant int := mailgres.most_counted();
    v_limit    double precision := (SELECT r.threshold FROM mailgres.alert_rules r WHERE r.name = 'no_processor');
    v_waiting  mailgres.waiting_tenant[] := mailgres.waiting_tenants();
    v_oldest   timestamptz;  -- of all that are due
    v_usable     timestamptz;  -- of those that somebody could take
    v_promote  timestamptz;  -- of those that nobody has made ready yet
    v_seen     timestamptz;
BEGIN
    SELECT min(w.oldest), min(w.oldest) FILTER (WHERE w.usable) INTO v_oldest, v_usable FROM unnest(v_waiting) w;
    SELECT min(x.due_at) INTO v_promote FROM (
        SELECT q.due_at, q.ready FROM public.email_queue q
        WHERE q.status = 'pending' AND q.due_at <= mailgres.now() ORDER BY q.due_at LIMIT c_look) x
    WHERE NOT x.ready;
    v_oldest := least(v_oldest, v_promote);
    v_usable := least(v_usable, v_promote);

    IF v_oldest <= mailgres.now() - mailgres.alert_window('backlog') THEN
        RETURN QUERY SELECT 'backlog', '', (
            (SELECT count(*) FROM (SELECT FROM public.email_queue q WHERE q.ready LIMIT v_most) x)
            + (SELECT count(*) FROM (
                SELECT q.ready FROM public.email_queue q
                WHERE q.status = 'pending' AND q.due_at <= mailgres.now() LIMIT v_most) x WHERE NOT x.ready)
            )::double precision, NULL::bigint, v_oldest + mailgres.alert_window('backlog');
    END IF;
    IF mailgres.minutes(v_usable) > v_limit THEN
        v_seen := greatest(mailgres.last_seen(v_limit), v_usable);
        RETURN QUERY SELECT 'no_processor', '', mailgres.minutes(v_seen), NULL::bigint,
                            v_seen + v_limit * interval '1 minute';
    END IF;
    RETURN QUERY SELECT * FROM mailgres.figures_of_starving(v_waiting);
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_waiting() IS 'Figures for alerts about emails that are due and not taken.';

CREATE FUNCTION mailgres.figures_of_emails() RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_most   constant int := mailgres.most_counted();
    v_stuck  constant interval := mailgres.alert_window('stuck_sending');
BEGIN
    RETURN QUERY SELECT 'stuck_sending', '', count(*)::double precision, NULL::bigint,
                        min(x.leased_at) + v_stuck
    FROM (
        SELECT q.leased_at FROM public.email_queue q
        WHERE q.status = 'sending' AND q.due_at IS NOT NULL
          AND q.leased_at <= mailgres.now() - v_stuck LIMIT v_most) x;

    RETURN QUERY SELECT 'parked', x.tenant_id::text, count(*)::double precision, NULL::bigint, min(x.parked_since)
    FROM (
        SELECT q.tenant_id, q.parked_since FROM public.email_queue q
        WHERE q.status = 'pending' AND q.parked_since IS NOT NULL LIMIT v_most) x
    GROUP BY 2;
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_emails() IS 'Figures for alerts about emails that are parked or stuck.';

-- Of tries by the minute in which they ended, of templates by the hour of enqueuing.
CREATE FUNCTION mailgres.figures_of_outcomes() RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_first  constant timestamptz := mailgres.now() - (
        SELECT max(r.time_window) FROM mailgres.alert_rules r WHERE r.name IN ('failure_rate', 'dead_letter_rate'));
    v_since  constant timestamptz := mailgres.now() - mailgres.alert_window('template_failing') - interval '1 hour';
    v_most   constant double precision := (
        SELECT r.threshold FROM mailgres.alert_rules r WHERE r.name = 'tenant_dead_letters');
BEGIN
    RETURN QUERY
    WITH minutes AS MATERIALIZED (
        SELECT m.minute, m.outcome, sum(m.emails) AS emails FROM mailgres.counted_by_minute m
        WHERE m.minute > v_first AND m.outcome IN ('sent', 'dead', 'retry') GROUP BY 1, 2
    )
    SELECT r.name, '', 100.0::double precision * coalesce(sum(m.emails) FILTER (WHERE m.outcome <> 'sent'), 0)
                            / nullif(sum(m.emails), 0), sum(m.emails)::bigint, NULL::timestamptz
    FROM mailgres.alert_rules r
    JOIN minutes m ON m.minute > mailgres.now() - r.time_window
        -- a try that will be repeated failed, but the email is not dead
        AND (m.outcome <> 'retry' OR r.name = 'failure_rate')
    WHERE r.name IN ('failure_rate', 'dead_letter_rate')
    GROUP BY 1;

    RETURN QUERY SELECT 'template_failing', t.template_type,
        100.0::double precision * coalesce(sum(t.emails) FILTER (WHERE t.status = 'failed'), 0) / nullif(sum(t.emails), 0),
        sum(t.emails)::bigint, NULL::timestamptz
    FROM mailgres.counted_by_template t
    WHERE t.hour > v_since
      AND t.status IN ('sent', 'failed')
    GROUP BY 2;

    RETURN QUERY
    WITH dead AS MATERIALIZED (
        SELECT d.tenant_id, sum(d.emails)::double precision AS emails FROM mailgres.counted_dead d GROUP BY 1
    )
    SELECT 'tenant_dead_letters', d.tenant_id, d.emails, NULL::bigint, NULL::timestamptz
    FROM dead d WHERE d.emails > v_most
    UNION ALL
    SELECT r.name, '', (SELECT coalesce(sum(d.emails), 0) FROM dead d), NULL, NULL
    FROM mailgres.alert_rules r WHERE r.name IN ('dead_letters', 'dead_letters_ceiling');
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_outcomes() IS 'Figures for alerts about how emails ended.';

CREATE FUNCTION mailgres.figures_of_providers() RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY SELECT 'circuit_open', p.name, greatest(p.reopened, 1)::double precision, NULL::bigint,
                        NULL::timestamptz
    FROM mailgres.providers p WHERE p.circuit <> 'closed' AND p.enabled;

    RETURN QUERY SELECT 'provider_missing', m.provider, mailgres.minutes(m.since), NULL::bigint, m.since
    FROM mailgres.missing_providers() m;

    RETURN QUERY SELECT r.name, s.provider, greatest(
        100.0 * s.used_today / nullif(s.daily_quota, 0), 100.0 * s.used_this_month / nullif(s.monthly_quota, 0)
        )::double precision, NULL::bigint, NULL::timestamptz
    FROM mailgres.provider_states() s, mailgres.alert_rules r
    WHERE s.enabled AND r.name IN ('quota_80', 'quota_90');

    RETURN QUERY SELECT 'webhook_off', '', n.webhook_failures::double precision, NULL::bigint, n.webhook_off_since
    FROM mailgres.notification_state n WHERE n.audience = 'operators' AND n.webhook_off_since IS NOT NULL;

    RETURN QUERY SELECT 'janitor_failing', j.janitor, j.failures::double precision, NULL::bigint, j.since
    FROM mailgres.failing_janitors() j;
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_providers() IS 'Figures for alerts about providers, the webhook and janitors.';

-- By the real time, as PostgreSQL tells it. Of sessions of other users it tells only who
-- has pg_read_all_stats, or owns the database as a superuser.
CREATE FUNCTION mailgres.figures_of_database() RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY SELECT r.name, '', 100.0::double precision * pg_database_size(current_database()) / s.database_capacity,
                        NULL::bigint, NULL::timestamptz
    FROM mailgres.settings s, mailgres.alert_rules r
    WHERE r.name IN ('database_80', 'database_90') AND s.database_capacity IS NOT NULL;

    RETURN QUERY SELECT 'dead_tuples', c.oid::regclass::text,
                        100.0::double precision * x.dead / nullif(x.dead + x.live, 0), x.dead, NULL::timestamptz
    FROM pg_class c
    CROSS JOIN LATERAL (SELECT pg_stat_get_dead_tuples(c.oid) AS dead, pg_stat_get_live_tuples(c.oid) AS live) x
    WHERE c.relkind = 'r' AND (c.relnamespace = 'mailgres'::regnamespace OR c.oid = ANY (
        '{public.email_queue,public.email_logs,public.email_suppressions,public.email_templates}'::regclass[]));

    RETURN QUERY SELECT 'old_transaction', '', (date_part('epoch', max(x.age)) / 60)::double precision,
                        NULL::bigint, NULL::timestamptz
    FROM (
        SELECT clock_timestamp() - a.xact_start AS age FROM pg_stat_activity a
        WHERE a.datname = current_database() AND num_nonnulls(a.backend_xmin, a.backend_xid) > 0
          AND a.backend_type <> 'autovacuum worker' AND a.pid <> pg_backend_pid()
        UNION ALL
        SELECT clock_timestamp() - p.prepared FROM pg_prepared_xacts p WHERE p.database = current_database()
    ) x;
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_database() IS
    'Figures for alerts about the size of the database and what keeps vacuum from its work.';

-- ---- sql/30_engine/60_notify/30_alerts.sql

-- Which alerts fire, and telling of them: each once when it fires, once when it is over.
-- It is over when it was not so for five minutes, and is told of again after 15 at the
-- earliest, so what comes and goes makes no storm. All that is to be told at a time is
-- one message; the next comes after five minutes, unless something critical fires.

CREATE FUNCTION mailgres.rounded(p_figure double precision) RETURNS numeric
    LANGUAGE sql IMMUTABLE
RETURN trim_scale(round(p_figure::numeric, 1));

COMMENT ON FUNCTION mailgres.rounded(double precision) IS 'A figure for people.';

CREATE FUNCTION mailgres.alerts_now()
    RETURNS TABLE (
        rule text, subject text, severity text, figure numeric, threshold numeric, unit text,
        since timestamptz, means text, runbook text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.name, f.subject, r.severity, mailgres.rounded(f.figure), mailgres.rounded(r.threshold), r.unit,
           coalesce(a.since, f.since, mailgres.now()), r.means, r.runbook
    FROM (
        SELECT * FROM mailgres.figures_of_waiting()
        UNION ALL SELECT * FROM mailgres.figures_of_emails()
        UNION ALL SELECT * FROM mailgres.figures_of_outcomes()
        UNION ALL SELECT * FROM mailgres.figures_of_providers()
        UNION ALL SELECT * FROM mailgres.figures_of_database()
    ) f
    JOIN mailgres.alert_rules r ON r.name = f.rule
    LEFT JOIN mailgres.alerts a ON a.rule = f.rule AND a.subject = f.subject AND a.resolved_at IS NULL
    WHERE r.enabled AND (f.sample IS NULL OR f.sample >= r.least)
      AND (f.figure > r.threshold OR f.figure = r.threshold AND r.reaches)
    ORDER BY array_position('{critical,warning,info}', r.severity), r.name, f.figure DESC, f.subject;
END
$$;

COMMENT ON FUNCTION mailgres.alerts_now() IS
    'The alerts that fire at this moment, the most severe first.';

-- Keeps what fires and what is over.
CREATE FUNCTION mailgres.update_alerts() RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    c_settles constant interval := '5 minutes';
BEGIN
    INSERT INTO mailgres.alerts AS a (rule, subject, figure, since, seen_at)
    SELECT n.rule, n.subject, n.figure, n.since, mailgres.now() FROM mailgres.alerts_now() n
    ON CONFLICT (rule, subject) DO UPDATE
        SET figure = excluded.figure, seen_at = excluded.seen_at, resolved_at = NULL,
            since = CASE WHEN a.resolved_at IS NULL THEN a.since ELSE excluded.since END;
    UPDATE mailgres.alerts a SET resolved_at = mailgres.now()
    WHERE a.resolved_at IS NULL AND a.seen_at <= mailgres.now() - c_settles;
    -- Of a rule that was switched off nobody wants to hear.
    DELETE FROM mailgres.alerts a
    WHERE a.notified <> 'firing' AND a.resolved_at <= mailgres.now() - interval '7 days'
       OR NOT (SELECT r.enabled FROM mailgres.alert_rules r WHERE r.name = a.rule);
END
$$;

COMMENT ON FUNCTION mailgres.update_alerts() IS 'Keeps which alerts fire now and which are over.';

-- What has to be told. Of an alert that was over before anybody was told, nobody is.
CREATE FUNCTION mailgres.unnotified_alerts() RETURNS jsonb
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_agg(to_jsonb(x) ORDER BY x.rank, x.rule, x.figure DESC, x.subject), '[]')
        FROM (
            SELECT a.rule, r.about, a.subject, s.state, r.severity,
                   array_position('{critical,warning,info}', r.severity) AS rank,
                   mailgres.rounded(a.figure) AS figure, mailgres.rounded(r.threshold) AS threshold, r.unit,
                   a.since, a.resolved_at, r.means, r.runbook
            FROM mailgres.alerts a
            JOIN mailgres.alert_rules r ON r.name = a.rule
            CROSS JOIN LATERAL (SELECT CASE WHEN a.resolved_at IS NULL THEN 'firing' ELSE 'resolved' END AS state) s
            WHERE CASE s.state
                WHEN 'firing' THEN a.notified <> 'firing'
                    AND (a.notified_at IS NULL OR a.notified_at <= mailgres.now() - interval '15 minutes')
                ELSE a.notified = 'firing' END
        ) x);
END
$$;

COMMENT ON FUNCTION mailgres.unnotified_alerts() IS 'Alerts that people have to be to_log of: they fire, or are over.';

-- One message for one audience, with no more than 20 that fire and 20 that are over.
CREATE FUNCTION mailgres.alert_notification(p_audience text, p_alerts jsonb) RETURNS jsonb
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c_most  constant int := 20;
    v       record;
BEGIN
    SELECT coalesce(jsonb_agg(x.alert ORDER BY x.ord) FILTER (WHERE x.state = 'firing' AND x.number <= c_most), '[]')
               AS firing,
           coalesce(jsonb_agg(x.alert ORDER BY x.ord) FILTER (WHERE x.state = 'resolved' AND x.number <= c_most), '[]')
               AS resolved,
           count(*) FILTER (WHERE x.number > c_most) AS more,
           count(*) FILTER (WHERE x.state = 'firing') AS fire
    INTO v
    FROM (
        SELECT e.alert - 'state' - 'rank' AS alert, e.alert ->> 'state' AS state, e.ord,
               row_number() OVER (PARTITION BY e.alert ->> 'state' ORDER BY e.ord) AS number
        FROM jsonb_array_elements(p_alerts) WITH ORDINALITY AS e(alert, ord)
        WHERE p_audience = 'operators'
           OR e.alert ->> 'about' = 'tenant' AND 'tenant:' || (e.alert ->> 'subject') = p_audience
    ) x;
    RETURN jsonb_build_object(
        'event', 'Alerts', 'audience', p_audience, 'at', mailgres.now(), 'new', v.fire,
        'firing', v.firing, 'resolved', v.resolved, 'more', v.more);
END
$$;

COMMENT ON FUNCTION mailgres.alert_notification(text, jsonb) IS 'What an audience is to_log of alerts.';

-- An email about emails of this kind that fail would fail, too.
CREATE FUNCTION mailgres.is_worth_email(p_alerts jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN EXISTS (
    SELECT FROM jsonb_array_elements(p_alerts) e
    WHERE NOT (e ->> 'about' = 'template' AND e ->> 'subject' = 'mailgres_alert'));

COMMENT ON FUNCTION mailgres.is_worth_email(jsonb) IS 'Whether alerts are about anything but the emails that tell of them.';

CREATE FUNCTION mailgres.check_alerts(p_email text DEFAULT NULL, OUT handled int, OUT to_log jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_state  mailgres.notification_state := mailgres.lock_notification_state();
    v_unnotified   jsonb;
    v          record;
BEGIN
    handled := 0;
    to_log := '[]';
    PERFORM mailgres.update_alerts();
    v_unnotified := mailgres.unnotified_alerts();
    IF v_unnotified = '[]' OR v_state.alerts_at > mailgres.now() - interval '5 minutes'
       AND NOT v_unnotified @> '[{"state": "firing", "severity": "critical"}]' THEN
        RETURN;
    END IF;

    to_log := to_log || mailgres.notify(
        mailgres.alert_notification('operators', v_unnotified), CASE WHEN mailgres.is_worth_email(v_unnotified) THEN p_email END);
    FOR v IN
        SELECT DISTINCT t.tenant_id, t.contact_email
        FROM jsonb_array_elements(v_unnotified) e
        JOIN mailgres.tenants t ON t.tenant_id = e ->> 'subject'
        WHERE e ->> 'about' = 'tenant' AND mailgres.is_address(t.contact_email)
        ORDER BY t.tenant_id
    LOOP
        to_log := to_log || mailgres.notify(mailgres.alert_notification('tenant:' || v.tenant_id, v_unnotified), v.contact_email);
    END LOOP;

    UPDATE mailgres.alerts a SET notified = e ->> 'state', notified_at = mailgres.now()
    FROM jsonb_array_elements(v_unnotified) e
    WHERE a.rule = e ->> 'rule' AND a.subject = e ->> 'subject';
    GET DIAGNOSTICS handled = ROW_COUNT;
    UPDATE mailgres.notification_state n SET alerts_at = mailgres.now() WHERE n.audience = 'operators';
END
$$;

COMMENT ON FUNCTION mailgres.check_alerts(text) IS
    'Finds which alerts fire and which are over, and tells people what they do not know; returns how many, and what to log.';

-- ---- sql/30_engine/60_notify/40_channels.sql

-- How people are told, whatever of: by an email through the queue, which is part of the
-- transaction that finds the news, and by a webhook, which is called when that is
-- committed. A webhook that fails ten times in a row is switched off.

CREATE FUNCTION mailgres.enqueue_alert(p_to text, p_payload jsonb) RETURNS text
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_to IS NOT NULL THEN
        PERFORM public.enqueue_email(NULL, 'mailgres_alert', p_to, p_payload, p_priority => 2);
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;  -- the log and the webhook have to do
END
$$;

COMMENT ON FUNCTION mailgres.enqueue_alert(text, jsonb) IS
    'Enqueues an alert; returns why it could not, or null.';

-- Operators by email and webhook, a tenant's contact by email.
CREATE FUNCTION mailgres.notify(p_notice jsonb, p_email text) RETURNS jsonb
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_notice ->> 'audience' = 'operators' THEN
        INSERT INTO mailgres.notifications (body) VALUES (p_notice);
    END IF;
    RETURN p_notice || jsonb_build_object('mail', mailgres.enqueue_alert(p_email, p_notice));
END
$$;

COMMENT ON FUNCTION mailgres.notify(jsonb, text) IS
    'Tells people by email and, operators, by the webhook; returns what to log.';

-- The one row that holds what operators were told, locked: one at a time tells.
CREATE FUNCTION mailgres.lock_notification_state() RETURNS mailgres.notification_state
    LANGUAGE plpgsql
AS $$
DECLARE
    v_state mailgres.notification_state;
BEGIN
    INSERT INTO mailgres.notification_state (audience) VALUES ('operators') ON CONFLICT DO NOTHING;
    SELECT * INTO v_state FROM mailgres.notification_state n WHERE n.audience = 'operators' FOR UPDATE;
    RETURN v_state;
END
$$;

COMMENT ON FUNCTION mailgres.lock_notification_state() IS 'What the operators were told, locked.';

-- News that are an hour old are none. Who takes some has a minute to tell them.
CREATE FUNCTION mailgres.deliver_notifications(p_webhook text, OUT handled int, OUT notifications jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_old int;
BEGIN
    DELETE FROM mailgres.notifications n WHERE n.at <= mailgres.now() - interval '1 hour';
    GET DIAGNOSTICS v_old = ROW_COUNT;
    WITH taken AS (
        UPDATE mailgres.notifications n SET taken_until = mailgres.now() + interval '1 minute'
        WHERE p_webhook IS NOT NULL
          AND n.id = ANY (ARRAY(
            SELECT x.id FROM mailgres.notifications x
            WHERE (x.taken_until IS NULL OR x.taken_until <= mailgres.now())
              AND NOT EXISTS (
                SELECT FROM mailgres.notification_state o
                WHERE o.audience = 'operators' AND o.webhook = p_webhook AND o.webhook_off_since IS NOT NULL)
            ORDER BY x.id LIMIT 5
            FOR UPDATE SKIP LOCKED))
        RETURNING n.id, n.body
    )
    SELECT v_old + count(*), coalesce(jsonb_agg(t.body || jsonb_build_object('id', t.id) ORDER BY t.id), '[]')
    INTO handled, notifications FROM taken t;
END
$$;

COMMENT ON FUNCTION mailgres.deliver_notifications(text) IS
    'Takes news for the webhook with that digest, unless it is switched off.';

CREATE FUNCTION mailgres.record_webhook_result(p_webhook text, p_ok boolean, p_notification bigint DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    c_most      constant int := 10;
    c_attempts     constant int := 3;
    v_failures  int;
BEGIN
    PERFORM mailgres.lock_notification_state();
    DELETE FROM mailgres.notifications n WHERE n.id = p_notification AND (p_ok OR n.attempts >= c_attempts - 1);
    UPDATE mailgres.notifications n
    SET attempts = n.attempts + 1, taken_until = mailgres.now() + interval '1 minute'
    WHERE n.id = p_notification;
    UPDATE mailgres.notification_state n
    SET webhook = p_webhook,
        webhook_failures = CASE WHEN p_ok THEN 0 WHEN n.webhook = p_webhook THEN n.webhook_failures ELSE 0 END
                           + (NOT p_ok)::int,
        webhook_off_since = CASE WHEN n.webhook = p_webhook AND NOT p_ok THEN n.webhook_off_since END
    WHERE n.audience = 'operators'
    RETURNING n.webhook_failures INTO v_failures;
    IF v_failures IS DISTINCT FROM c_most THEN
        RETURN false;
    END IF;
    UPDATE mailgres.notification_state n SET webhook_off_since = mailgres.now() WHERE n.audience = 'operators';
    RETURN true;
END
$$;

COMMENT ON FUNCTION mailgres.record_webhook_result(text, boolean, bigint) IS
    'Notes whether a call of the webhook succeeded; returns whether it is switched off by that.';

CREATE FUNCTION mailgres.reset_webhook() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.notification_state n SET webhook_failures = 0, webhook_off_since = NULL
    WHERE n.audience = 'operators' AND n.webhook_off_since IS NOT NULL;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.reset_webhook() IS
    'Lets the alert webhook be called again; false if it was not switched off.';

-- ---- sql/30_engine/60_notify/50_dead_letters.sql

-- Whoever takes a death writes it into the log of its process, as JobFailed: the worker that
-- made the last try, else a janitor. Nobody else gets it, so each is told once; and one whose
-- transaction took long is found when it is committed.

CREATE FUNCTION mailgres.log_dead_letters(
    p_limit int DEFAULT 1000, p_ids uuid[] DEFAULT NULL, OUT handled int, OUT to_log jsonb
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
BEGIN
    WITH taken AS (
        DELETE FROM mailgres.dead_letters_to_log d
        WHERE (d.queue_id, d.log_id) IN (
            SELECT x.queue_id, x.log_id FROM mailgres.dead_letters_to_log x
            WHERE p_ids IS NULL OR x.queue_id = ANY (p_ids)
            LIMIT p_limit FOR UPDATE SKIP LOCKED)
        RETURNING d.queue_id, d.log_id
    )
    SELECT count(*), coalesce(jsonb_agg(jsonb_build_object(
               'jobId', l.queue_id, 'companyId', l.tenant_id, 'attempt', l.attempt,
               'maxAttempts', q.max_retries + 1, 'errorCode', l.error_code, 'errorReason', l.error_message,
               'errorClass', l.error_class, 'deadReason', l.dead_reason, 'template', l.template_type,
               'provider', l.provider) ORDER BY l.id), '[]')
    INTO handled, to_log
    FROM taken t
    JOIN public.email_logs l ON l.queue_id = t.queue_id AND l.id = t.log_id
    JOIN public.email_queue q ON q.id = t.queue_id;
END
$$;

COMMENT ON FUNCTION mailgres.log_dead_letters(int, uuid[]) IS
    'Takes deaths that nobody has told of, of these emails or of any; returns how many, and what to log.';

-- What the dead letters of a time have in common, most frequent first.
CREATE FUNCTION mailgres.dead_reasons(p_since timestamptz, p_until timestamptz, p_tenant text) RETURNS jsonb
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_agg(to_jsonb(r)), '[]')
        FROM (
            SELECT d.dead_reason AS reason, d.error_code AS code, d.template_type AS template, count(*) AS emails
            FROM (
                SELECT q.dead_reason, q.error_code, q.template_type
                FROM public.email_queue q
                WHERE q.status = 'failed' AND q.due_at > p_since AND q.due_at <= p_until
                  AND q.template_type <> 'mailgres_alert' AND (p_tenant IS NULL OR q.tenant_id = p_tenant)
                ORDER BY q.due_at DESC LIMIT 10000
            ) d
            GROUP BY 1, 2, 3 ORDER BY count(*) DESC, 1, 2, 3 LIMIT 10
        ) r);
END
$$;

COMMENT ON FUNCTION mailgres.dead_reasons(timestamptz, timestamptz, text) IS
    'Reasons, codes and templates of the dead letters of a time.';

-- Counts those that are new, for whom they concern.
CREATE FUNCTION mailgres.count_new_dead_letters(p_since timestamptz, p_until timestamptz) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    WITH dead AS MATERIALIZED (
        SELECT q.tenant_id::text AS tenant_id, count(*) AS emails
        FROM public.email_queue q
        WHERE q.status = 'failed' AND q.due_at > p_since AND q.due_at <= p_until
          AND q.template_type <> 'mailgres_alert'
        GROUP BY 1
    ), of_tenants AS (
        INSERT INTO mailgres.notification_state AS n (audience, seen_until, waiting)
        SELECT 'tenant:' || d.tenant_id, p_since, d.emails
        FROM dead d JOIN mailgres.tenants t ON t.tenant_id = d.tenant_id
        WHERE mailgres.is_address(t.contact_email)
        ON CONFLICT (audience) DO UPDATE
            SET waiting = n.waiting + excluded.waiting,
                seen_until = CASE WHEN n.waiting = 0 THEN excluded.seen_until ELSE n.seen_until END
    )
    UPDATE mailgres.notification_state n
    SET waiting = n.waiting + (SELECT coalesce(sum(d.emails), 0) FROM dead d), seen_until = p_until
    WHERE n.audience = 'operators'
    RETURNING (SELECT coalesce(sum(d.emails), 0) FROM dead d) INTO v_count;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.count_new_dead_letters(timestamptz, timestamptz) IS
    'Counts new dead letters for the operators and for tenants with a contact.';

-- Emails die at the start of the transaction that gives them up, and are seen at its end.
-- One that has only read so far may yet do so; but a long report, or a session whose times
-- are hidden from the owner of this function, holds up nobody for more than a minute.
CREATE FUNCTION mailgres.dead_letters_complete_until() RETURNS timestamptz
    LANGUAGE sql STABLE
RETURN mailgres.now() - (
    SELECT greatest(interval '10 seconds', interval '1 microsecond' + max(
        least(mailgres.now() - a.xact_start,
              CASE WHEN a.backend_xid IS NULL THEN interval '1 minute' ELSE interval '1 hour' END)))
    FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
      AND a.backend_type IS DISTINCT FROM 'autovacuum worker'  -- nothing dies of a vacuum
      AND (a.xact_start IS NOT NULL OR a.query = '<insufficient privilege>'));

COMMENT ON FUNCTION mailgres.dead_letters_complete_until() IS
    'Up to when all that died are seen; what takes longer than an hour is not waited for.';

CREATE FUNCTION mailgres.notify_dead_letters(
    p_limit int DEFAULT 10000, p_email text DEFAULT NULL, OUT handled int, OUT to_log jsonb
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    -- Who died in a transaction that is not over yet is found the next time.
    v_until  timestamptz := mailgres.dead_letters_complete_until();
    v_since  timestamptz := (mailgres.lock_notification_state()).seen_until;
    v_first  timestamptz;
    v        record;
BEGIN
    to_log := '[]';
    v_first := (
        SELECT q.due_at FROM public.email_queue q
        WHERE q.status = 'failed' AND q.due_at > v_since AND q.due_at <= v_until
        ORDER BY q.due_at OFFSET p_limit - 1 LIMIT 1);
    handled := mailgres.count_new_dead_letters(v_since, greatest(coalesce(v_first, v_until), v_since));
    IF v_first IS NOT NULL THEN
        handled := greatest(handled, p_limit);
        RETURN;  -- there are more: tell of all of them at once
    END IF;

    FOR v IN
        SELECT n.*, t.tenant_id, t.contact_email, n.audience = 'operators' AS is_operators
        FROM mailgres.notification_state n
        LEFT JOIN mailgres.tenants t ON n.audience = 'tenant:' || t.tenant_id
        WHERE n.waiting > 0 AND (n.notified_at IS NULL OR n.notified_at <= mailgres.now() - interval '15 minutes')
        ORDER BY n.audience
        FOR UPDATE OF n
    LOOP
        to_log := to_log || mailgres.notify(
            jsonb_build_object(
                'event', 'DeadLetters', 'audience', v.audience, 'at', mailgres.now(), 'new', v.waiting,
                'reasons', mailgres.dead_reasons(
                    CASE WHEN v.is_operators THEN v.notified_until ELSE v.seen_until END, v_until, v.tenant_id)),
            CASE WHEN v.is_operators THEN p_email ELSE v.contact_email END);
        UPDATE mailgres.notification_state n SET waiting = 0, notified_at = mailgres.now(), notified_until = v_until WHERE n.audience = v.audience;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.notify_dead_letters(int, text) IS
    'Tells people of new dead letters: enqueues emails and news; returns how many were new, and what to log.';

-- ---- sql/30_engine/70_admin/10_providers.sql

-- Settings and states of providers, for operators; and the providers that a worker reports.

CREATE FUNCTION mailgres.require_provider(p_name text) RETURNS mailgres.providers
    LANGUAGE plpgsql
AS $$
DECLARE
    v_provider mailgres.providers;
BEGIN
    SELECT * INTO v_provider FROM mailgres.providers p WHERE p.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG070', format('there is no provider %L', p_name),
            format('Known providers: %s.', (SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM mailgres.providers p)));
    END IF;
    RETURN v_provider;
END
$$;

COMMENT ON FUNCTION mailgres.require_provider(text) IS 'The provider, locked; refuses an unknown name.';

CREATE FUNCTION mailgres.register_providers(p_providers jsonb) RETURNS text[]
    LANGUAGE sql
AS $$
    WITH given AS (
        SELECT x.name, x.kind, coalesce(x.captures, false) AS captures, x.idempotent, x.batch_size,
               coalesce(x.fixed_batches, false) AS fixed_batches
        FROM jsonb_to_recordset(p_providers)
            AS x(name text, kind text, captures boolean, idempotent boolean, batch_size int, fixed_batches boolean)
    ), registered AS (
        INSERT INTO mailgres.providers AS p (name, kind, captures, idempotent, batch_size, fixed_batches)
        SELECT g.* FROM given g
        -- a restart with the same settings writes nothing
        WHERE NOT EXISTS (
            SELECT FROM mailgres.providers k
            WHERE (k.name, k.kind, k.captures, k.idempotent, k.batch_size, k.fixed_batches)
                  = (g.name, g.kind, g.captures, g.idempotent, g.batch_size, g.fixed_batches))
        ORDER BY g.name
        ON CONFLICT (name) DO UPDATE
            SET kind = excluded.kind, captures = excluded.captures, idempotent = excluded.idempotent,
                batch_size = excluded.batch_size, fixed_batches = excluded.fixed_batches
        RETURNING p.name, p.xmax = 0 AS is_new
    )
    SELECT coalesce(array_agg(r.name) FILTER (WHERE r.is_new), '{}') FROM registered r
$$;

COMMENT ON FUNCTION mailgres.register_providers(jsonb) IS
    'Registers providers; returns the names of the new ones.';

-- At its start a worker reports its providers, in order of preference:
-- [{name, kind, captures, idempotent, batch_size, fixed_batches, emails_per_second, own_route}].
-- They are registered. A provider with own_route (the account of some tenants) gets a route of the
-- same name. The default route and the rate limits are shared by all workers: the first worker sets
-- them, if the route is still as the migration created it; after that only commands change them,
-- and the worker gets the differences from its own settings.
CREATE FUNCTION mailgres.use_providers(
    p_providers jsonb,
    OUT was_initial boolean, OUT wanted text[], OUT actual text[], OUT other_limits jsonb
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_new  constant text[] := mailgres.register_providers(p_providers);
BEGIN
    WITH fresh AS (
        INSERT INTO mailgres.routes (route, description)
        SELECT x.name, 'The account of this name.'
        FROM jsonb_to_recordset(p_providers) AS x(name text, own_route boolean)
        WHERE x.own_route AND NOT EXISTS (SELECT FROM mailgres.routes r WHERE r.route = x.name)
        ORDER BY x.name
        ON CONFLICT DO NOTHING RETURNING route
    )
    INSERT INTO mailgres.route_providers (route, position, provider) SELECT f.route, 1, f.route FROM fresh f;

    wanted := ARRAY(
        SELECT x.value ->> 'name' FROM jsonb_array_elements(p_providers) WITH ORDINALITY x
        WHERE NOT coalesce((x.value ->> 'own_route')::boolean, false) ORDER BY x.ordinality);
    was_initial := mailgres.set_initial_route(wanted);
    actual := mailgres.providers_of('default');

    PERFORM mailgres.set_bucket('emails:' || x.name, x.emails_per_second)
    FROM jsonb_to_recordset(p_providers) AS x(name text, emails_per_second double precision)
    WHERE x.emails_per_second IS NOT NULL AND (was_initial OR x.name = ANY (v_new));
    SELECT coalesce(jsonb_object_agg(x.name, b.per_second), '{}') INTO other_limits
    FROM jsonb_to_recordset(p_providers) AS x(name text, emails_per_second double precision)
    LEFT JOIN mailgres.buckets b ON b.name = 'emails:' || x.name
    WHERE x.emails_per_second IS NOT NULL AND b.per_second IS DISTINCT FROM x.emails_per_second;
END
$$;

COMMENT ON FUNCTION mailgres.use_providers(jsonb) IS
    'Registers the providers of a worker; sets the default route if it is still as the migration created it, and returns the actual route.';

-- The limits that a provider reported to a worker; null: not reported. The provider's daily count
-- covers the last 24 hours or starts at its own midnight, so it is used for an hour.
CREATE FUNCTION mailgres.learn_limits(
    p_name text, p_calls_per_second double precision, p_daily int, p_monthly int, p_sent_today int
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- The provider before its usage, as finish locks them. A claim that has locked the bucket does
    -- not wait for the provider.
    PERFORM mailgres.require_provider(p_name);
    UPDATE mailgres.providers p
    SET daily_quota = coalesce(p_daily, p.daily_quota), monthly_quota = coalesce(p_monthly, p.monthly_quota)
    WHERE p.name = p_name
      AND (p.daily_quota, p.monthly_quota) IS DISTINCT FROM
          (coalesce(p_daily, p.daily_quota), coalesce(p_monthly, p.monthly_quota));
    IF p_calls_per_second BETWEEN 0.000001 AND 1000000 THEN
        PERFORM mailgres.set_bucket('calls:' || p_name, p_calls_per_second);
    END IF;
    INSERT INTO mailgres.quota_usage (provider, period, starts, emails, reported, reported_until)
    SELECT p.name, 'day', date_trunc('day', mailgres.now(), 'UTC'), 0, p_sent_today,
           mailgres.now() + interval '1 hour'
    FROM mailgres.providers p WHERE p.name = p_name AND p.daily_quota IS NOT NULL AND p_sent_today IS NOT NULL
    ON CONFLICT (provider, period, starts) DO UPDATE
        SET reported = excluded.reported, reported_until = excluded.reported_until;
    PERFORM mailgres.apply_quotas(p, NULL) FROM mailgres.providers p WHERE p.name = p_name;
END
$$;

COMMENT ON FUNCTION mailgres.learn_limits(text, double precision, int, int, int) IS
    'Stores the limits that a provider reported, for all workers.';

-- Emails that wait because of a provider wait until their time, even when an operator knows that
-- the cause is gone: a larger plan was bought, a fault was fixed. Only the time is changed: an
-- uncertain email keeps its provider, key and batch, and a batch is released as a whole or not at
-- all. Emails that another session has locked are skipped: a claim may hold them and wait for the
-- provider.
CREATE FUNCTION mailgres.release_waiting(p mailgres.providers, p_limits_only boolean) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_now   constant timestamptz := mailgres.now();
    v_ids   uuid[];
BEGIN
    v_ids := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.status = 'pending' AND NOT q.ready AND q.due_at > v_now AND q.provider = p.name
          AND (q.error_class IN ('rate', 'quota')
               -- a probe, which waits longer than its policy says
               OR NOT p_limits_only AND p.circuit <> 'closed' AND q.last_attempt_at >= p.circuit_since
                  AND q.error_class IN ('transient', 'ambiguous')));
    IF NOT p_limits_only THEN
        v_ids := v_ids || ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE (q.uncertain_since IS NOT NULL OR q.parked_since IS NOT NULL AND q.status = 'pending')
              AND q.status = 'pending' AND NOT q.ready AND q.provider = p.name);
    END IF;
    v_ids := mailgres.with_whole_batches(ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (v_ids) AND q.status = 'pending' AND q.next_retry_at > v_now
          AND (q.scheduled_for IS NULL OR q.scheduled_for <= v_now)  -- otherwise it waits for that time
        ORDER BY q.id FOR UPDATE SKIP LOCKED));
    UPDATE public.email_queue q SET next_retry_at = v_now WHERE q.id = ANY (v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.release_waiting(mailgres.providers, boolean) IS
    'Releases emails that wait because of a provider: because of its limits only, or for any reason.';

CREATE FUNCTION mailgres.limit_provider(
    p_name text, p_emails_per_second double precision, p_daily int, p_monthly int
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_provider mailgres.providers := mailgres.require_provider(p_name);
BEGIN
    IF p_emails_per_second NOT BETWEEN 0.000001 AND 1000000 OR p_daily < 1 OR p_monthly < 1 THEN
        PERFORM mailgres.refuse('MG071', 'a limit is above zero', 'To stop a provider, pause it.');
    END IF;
    PERFORM mailgres.set_bucket('emails:' || p_name, p_emails_per_second);
    UPDATE mailgres.providers p SET daily_quota = p_daily, monthly_quota = p_monthly WHERE p.name = p_name;
    -- The reason to wait may be gone.
    IF v_provider.limited_by = 'quota' THEN
        PERFORM mailgres.release_waiting(v_provider, true);
    END IF;
    UPDATE mailgres.providers p SET limited_until = NULL, limited_by = NULL
    WHERE p.name = p_name AND p.limited_by = 'quota';
    PERFORM mailgres.apply_quotas(p, NULL) FROM mailgres.providers p WHERE p.name = p_name;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.limit_provider(text, double precision, int, int) IS
    'Sets how many emails may be sent through a provider in a second, a day and a month; null means no limit.';

CREATE FUNCTION mailgres.pause_provider(
    p_name text, p_until timestamptz DEFAULT 'infinity', p_reason text DEFAULT NULL
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.require_provider(p_name);
    IF p_until <= mailgres.now() THEN
        PERFORM mailgres.refuse('MG073', 'the pause would be over already',
            'Give a time in the future, or none to pause until it is resumed.');
    END IF;
    UPDATE mailgres.providers p SET paused_until = coalesce(p_until, 'infinity'), pause_reason = p_reason
    WHERE p.name = p_name;
    INSERT INTO mailgres.provider_events (provider, event, reason) VALUES (p_name, 'Paused', p_reason);
END
$$;

COMMENT ON FUNCTION mailgres.pause_provider(text, timestamptz, text) IS
    'Stops claims for a provider until then; emails that are being sent are finished.';

CREATE FUNCTION mailgres.resume_provider(p_name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.require_provider(p_name);
    UPDATE mailgres.providers p SET paused_until = NULL, pause_reason = NULL WHERE p.name = p_name;
    INSERT INTO mailgres.provider_events (provider, event) VALUES (p_name, 'Resumed');
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.resume_provider(text) IS 'Ends the pause of a provider.';

CREATE FUNCTION mailgres.reset_provider(p_name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_provider mailgres.providers := mailgres.require_provider(p_name);
BEGIN
    PERFORM mailgres.release_waiting(v_provider, false);
    UPDATE mailgres.providers p
    SET limited_until = NULL, limited_by = NULL, failures = 0, failed_at = '{}'
    WHERE p.name = p_name;
    IF v_provider.circuit <> 'closed' THEN
        PERFORM mailgres.set_circuit(p_name, 'closed', 'by hand', NULL);
    END IF;
    -- A quota that is used up stays used up.
    PERFORM mailgres.apply_quotas(p, NULL) FROM mailgres.providers p WHERE p.name = p_name;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.reset_provider(text) IS
    'Resets the failures and limits of a provider, closes its circuit, and releases the emails that wait for it.';

CREATE FUNCTION mailgres.provider_states()
    RETURNS TABLE (
        provider        text,
        kind            text,
        enabled         boolean,
        usable          boolean,
        circuit         text,
        circuit_since   timestamptz,
        circuit_until   timestamptz,
        circuit_reason  text,
        failures        int,
        paused_until    timestamptz,
        pause_reason    text,
        limited_until     timestamptz,
        limited_by       text,
        emails_per_second  double precision,
        email_tokens    double precision,
        calls_per_second   double precision,
        call_tokens     double precision,
        used_today      int,
        daily_quota     int,
        used_this_month int,
        monthly_quota   int,
        routes          text[])
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.name, p.kind, p.enabled, mailgres.is_usable(p),
           p.circuit, p.circuit_since, CASE WHEN p.circuit = 'open' THEN p.circuit_until END,
           mailgres.redact_addresses(p.circuit_reason),
           p.failures,
           CASE WHEN p.paused_until > mailgres.now() THEN p.paused_until END,
           CASE WHEN p.paused_until > mailgres.now() THEN p.pause_reason END,
           CASE WHEN p.limited_until > mailgres.now() THEN p.limited_until END,
           CASE WHEN p.limited_until > mailgres.now() THEN p.limited_by END,
           e.per_second, mailgres.tokens_of(e), c.per_second, mailgres.tokens_of(c),
           CASE WHEN p.daily_quota IS NOT NULL THEN coalesce(mailgres.used_of_quota(d, mailgres.now()), 0) END, p.daily_quota,
           CASE WHEN p.monthly_quota IS NOT NULL THEN coalesce(m.emails, 0) END, p.monthly_quota,
           ARRAY(SELECT rp.route FROM mailgres.route_providers rp WHERE rp.provider = p.name ORDER BY rp.route)
    FROM mailgres.providers p
    LEFT JOIN mailgres.buckets e ON e.name = 'emails:' || p.name
    LEFT JOIN mailgres.buckets c ON c.name = 'calls:' || p.name
    LEFT JOIN mailgres.quota_usage d
        ON d.provider = p.name AND d.period = 'day' AND d.starts = date_trunc('day', mailgres.now(), 'UTC')
    LEFT JOIN mailgres.quota_usage m
        ON m.provider = p.name AND m.period = 'month' AND m.starts = date_trunc('month', mailgres.now(), 'UTC')
    ORDER BY p.name
$$;

COMMENT ON FUNCTION mailgres.provider_states() IS
    'Every provider: circuit, pause, limits, free tokens, quotas, routes.';

-- ---- sql/30_engine/70_admin/20_routes.sql

-- Settings and states of routes, for operators.

CREATE FUNCTION mailgres.require_route(p_route text) RETURNS mailgres.routes
    LANGUAGE plpgsql
AS $$
DECLARE
    v_route mailgres.routes;
BEGIN
    SELECT * INTO v_route FROM mailgres.routes r WHERE r.route = p_route FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG011', format('there is no route %L', p_route),
            format('Known routes: %s.', (SELECT string_agg(r.route, ', ' ORDER BY r.route) FROM mailgres.routes r)));
    END IF;
    RETURN v_route;
END
$$;

COMMENT ON FUNCTION mailgres.require_route(text) IS 'The route, locked; refuses an unknown name.';

CREATE FUNCTION mailgres.providers_of(p_route text) RETURNS text[]
    LANGUAGE sql STABLE
RETURN ARRAY(SELECT rp.provider FROM mailgres.route_providers rp WHERE rp.route = p_route ORDER BY rp.position);

COMMENT ON FUNCTION mailgres.providers_of(text) IS 'The providers of a route in order of preference.';

CREATE FUNCTION mailgres.set_initial_route(p_providers text[]) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    -- First without a lock: when the second worker starts, the route is no longer initial.
    IF NOT EXISTS (SELECT FROM mailgres.routes r WHERE r.route = 'default' AND r.initial) THEN
        RETURN false;
    END IF;
    -- One at a time: the workers of a fleet start together.
    PERFORM FROM mailgres.routes r WHERE r.route = 'default' AND r.initial FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE mailgres.routes r SET initial = false WHERE r.route = 'default';
    IF mailgres.providers_of('default') <> '{capture}' THEN
        RETURN false;  -- it was set by hand
    END IF;
    DELETE FROM mailgres.route_providers rp WHERE rp.route = 'default';
    INSERT INTO mailgres.route_providers (route, position, provider)
    SELECT 'default', x.ordinality, x.name FROM unnest(p_providers) WITH ORDINALITY x(name);
    RETURN true;
END
$$;

COMMENT ON FUNCTION mailgres.set_initial_route(text[]) IS
    'Sets the default route if it is still as the migration created it; returns whether it was.';

CREATE FUNCTION mailgres.set_route(p_route text, p_providers text[], p_description text DEFAULT NULL)
    RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(p_route, '') !~ '^[a-z][a-z0-9_-]{0,62}$' OR coalesce(cardinality(p_providers), 0) = 0 THEN
        PERFORM mailgres.refuse('MG072', 'a route needs a name and at least one provider',
            'Names are lower-case letters, digits, - and _; name the providers in the order of preference.');
    END IF;
    PERFORM mailgres.require_provider(x.name)
    FROM (SELECT n AS name FROM unnest(p_providers) n ORDER BY n) x;  -- the order in which all sessions lock them
    INSERT INTO mailgres.routes AS r (route, description) VALUES (p_route, coalesce(p_description, ''))
    ON CONFLICT (route) DO UPDATE SET description = coalesce(p_description, r.description), initial = false;
    DELETE FROM mailgres.route_providers rp WHERE rp.route = p_route;
    INSERT INTO mailgres.route_providers (route, position, provider)
    SELECT p_route, min(x.position), x.name FROM unnest(p_providers) WITH ORDINALITY AS x(name, position)
    GROUP BY x.name;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.set_route(text, text[], text) IS
    'Creates a route, or sets the providers of an existing one.';

CREATE FUNCTION mailgres.pause_route(p_route text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.require_route(p_route);
    UPDATE mailgres.routes r SET paused = true WHERE r.route = p_route;
END
$$;

COMMENT ON FUNCTION mailgres.pause_route(text) IS
    'Stops claims for a route until it is resumed; emails that are being sent are finished.';

CREATE FUNCTION mailgres.resume_route(p_route text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.require_route(p_route);
    UPDATE mailgres.routes r SET paused = false WHERE r.route = p_route;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.resume_route(text) IS 'Ends the pause of a route.';

CREATE FUNCTION mailgres.route_states()
    RETURNS TABLE (route text, paused boolean, providers text[], usable text[], tenants bigint, description text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.route, r.paused,
           coalesce(array_agg(p.name ORDER BY rp.position) FILTER (WHERE p.name IS NOT NULL), '{}'),
           coalesce(array_agg(p.name ORDER BY rp.position) FILTER (WHERE mailgres.is_usable(p)), '{}'),
           (SELECT count(*) FROM mailgres.tenants t WHERE t.route = r.route), r.description
    FROM mailgres.routes r
    LEFT JOIN mailgres.route_providers rp ON rp.route = r.route
    LEFT JOIN mailgres.providers p ON p.name = rp.provider
    GROUP BY r.route
    ORDER BY r.route
$$;

COMMENT ON FUNCTION mailgres.route_states() IS
    'Every route: whether it is paused, its providers, and which of them can send now.';

-- ---- sql/30_engine/70_admin/30_tenants.sql

-- Settings and states of tenants, for operators.

CREATE FUNCTION mailgres.limit_tenant(p_tenant text, p_emails_per_second double precision) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(p_tenant, '') = '' OR p_emails_per_second NOT BETWEEN 0.000001 AND 1000000 THEN
        PERFORM mailgres.refuse('MG071', 'a limit needs a tenant and is above zero', 'To stop a tenant, pause it.');
    END IF;
    PERFORM mailgres.set_bucket('tenant:' || p_tenant, p_emails_per_second);
END
$$;

COMMENT ON FUNCTION mailgres.limit_tenant(text, double precision) IS
    'Sets how many emails of a tenant may be sent in a second; null means no limit.';

CREATE FUNCTION mailgres.pause_tenant(p_tenant text, p_reason text DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.set_tenant(p_tenant, '{}');
    UPDATE mailgres.tenants t SET paused_at = coalesce(t.paused_at, mailgres.now()), pause_reason = p_reason
    WHERE t.tenant_id = p_tenant;
END
$$;

COMMENT ON FUNCTION mailgres.pause_tenant(text, text) IS
    'Stops claims for a tenant until it is resumed; emails that are being sent are finished.';

CREATE FUNCTION mailgres.resume_tenant(p_tenant text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.tenants t SET paused_at = NULL, pause_reason = NULL
    WHERE t.tenant_id = p_tenant AND t.paused_at IS NOT NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify('mailgres', '');
    RETURN true;
END
$$;

COMMENT ON FUNCTION mailgres.resume_tenant(text) IS 'Ends the pause of a tenant; false if it was not paused.';

CREATE FUNCTION mailgres.set_tenant_weight(p_tenant text, p_weight int) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_weight IS NULL OR p_weight NOT BETWEEN 1 AND 100 THEN
        PERFORM mailgres.refuse('MG071', 'a weight is a whole number from 1 to 100', 'To stop a tenant, pause it.');
    END IF;
    PERFORM mailgres.set_tenant(p_tenant, '{}');
    UPDATE mailgres.tenants t SET weight = p_weight WHERE t.tenant_id = p_tenant;
END
$$;

COMMENT ON FUNCTION mailgres.set_tenant_weight(text, int) IS
    'Sets the weight of a tenant: it gets this many times three emails per turn while other tenants wait.';

-- Tenants with settings, with emails settled in the last days, or with ready emails.
CREATE FUNCTION mailgres.tenant_states(p_days int DEFAULT 7) RETURNS TABLE (
    tenant text, weight int, paused_at timestamptz, pause_reason text, emails_per_second double precision,
    route text, contact_email text, sent bigint, failed bigint, cancelled bigint
)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH settled AS (
        SELECT x.tenant_id,
               coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0)::bigint AS sent,
               coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0)::bigint AS failed,
               coalesce(sum(x.emails) FILTER (WHERE x.status = 'cancelled'), 0)::bigint AS cancelled
        FROM mailgres.counted_by_tenant x
        WHERE x.hour > mailgres.now() - p_days * interval '1 day'
        GROUP BY x.tenant_id
    ), waiting AS (
        SELECT DISTINCT w.tenant FROM mailgres.routes r CROSS JOIN LATERAL (
            WITH RECURSIVE walk AS (
                SELECT mailgres.next_tenant(r.route, '', false) AS tenant
                UNION ALL
                SELECT mailgres.next_tenant(r.route, k.tenant, false) FROM walk k WHERE k.tenant IS NOT NULL
            )
            SELECT k.tenant FROM walk k WHERE k.tenant IS NOT NULL
        ) w
    ), known AS (
        SELECT t.tenant_id FROM mailgres.tenants t
        UNION SELECT substr(b.name, 8) FROM mailgres.buckets b WHERE b.name LIKE 'tenant:%'
        UNION SELECT s.tenant_id FROM settled s
        UNION SELECT w.tenant FROM waiting w
    )
    SELECT k.tenant_id, coalesce(t.weight, 1), t.paused_at, t.pause_reason, b.per_second, t.route, t.contact_email,
           coalesce(s.sent, 0), coalesce(s.failed, 0), coalesce(s.cancelled, 0)
    FROM known k
    LEFT JOIN mailgres.tenants t ON t.tenant_id = k.tenant_id
    LEFT JOIN mailgres.buckets b ON b.name = 'tenant:' || k.tenant_id
    LEFT JOIN settled s ON s.tenant_id = k.tenant_id
    ORDER BY k.tenant_id
$$;

COMMENT ON FUNCTION mailgres.tenant_states(int) IS
    'The tenants: their settings, and the outcomes of their emails of the last days.';

-- p_settings: an object with the settings to change, `route` or `contact_email`; null removes one.
CREATE FUNCTION mailgres.set_tenant(p_tenant text, p_settings jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_route    constant text := p_settings ->> 'route';
    v_contact  constant text := p_settings ->> 'contact_email';
BEGIN
    IF coalesce(length(p_tenant), 0) NOT BETWEEN 1 AND 200 THEN
        PERFORM mailgres.refuse('MG013', 'the tenant is not valid', 'tenant_id takes 1 to 200 characters.');
    END IF;
    IF v_route IS NOT NULL THEN
        PERFORM mailgres.require_route(v_route);
    END IF;
    IF NOT mailgres.is_address(v_contact) THEN
        PERFORM mailgres.refuse('MG002', 'the contact is not an email address',
            'Give one plain address such as ana@example.com.');
    END IF;
    INSERT INTO mailgres.tenants AS t (tenant_id, route, contact_email) VALUES (p_tenant, v_route, v_contact)
    ON CONFLICT (tenant_id) DO UPDATE
        SET route = CASE WHEN p_settings ? 'route' THEN excluded.route ELSE t.route END,
            contact_email = CASE WHEN p_settings ? 'contact_email' THEN excluded.contact_email
                                 ELSE t.contact_email END;
END
$$;

COMMENT ON FUNCTION mailgres.set_tenant(text, jsonb) IS
    'Sets the route or the contact of a tenant; settings that are not named stay.';

-- ---- sql/30_engine/70_admin/40_policies.sql

-- Retry policies, and the defaults of emails that set no value of their own. The first worker sets
-- the defaults from its own settings; after that only a command changes them.

CREATE FUNCTION mailgres.require_policy(p_name text) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM mailgres.retry_policies p WHERE p.name = p_name) THEN
        PERFORM mailgres.refuse('MG010', format('there is no retry policy %L', left(p_name, 100)),
            format('Known policies: %s.',
                   (SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM mailgres.retry_policies p)));
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.require_policy(text) IS 'Refuses the name of an unknown policy.';

-- p_settings: the columns of retry_policies to change; others stay. Setting steps removes base,
-- and setting base removes steps.
CREATE FUNCTION mailgres.set_policy(p_name text, p_settings jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_policy  mailgres.retry_policies;
BEGIN
    SELECT * INTO v_policy FROM mailgres.retry_policies p WHERE p.name = p_name FOR UPDATE;
    IF NOT FOUND AND NOT (p_settings ? 'max_retries' AND (p_settings ? 'steps' OR p_settings ? 'base')) THEN
        PERFORM mailgres.refuse('MG010', format('there is no retry policy %L', p_name),
            format('To make it, give its retries and its waits. Known policies: %s.',
                   (SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM mailgres.retry_policies p)));
    END IF;
    v_policy.factor := coalesce(v_policy.factor, 2);
    v_policy.cap := coalesce(v_policy.cap, '1 day');
    v_policy.jitter_down := coalesce(v_policy.jitter_down, 0);
    v_policy.jitter_up := coalesce(v_policy.jitter_up, 0);
    v_policy.description := coalesce(v_policy.description, '');
    IF p_settings ? 'steps' THEN
        v_policy.base := NULL;
    ELSIF p_settings ? 'base' THEN
        v_policy.steps := NULL;
    END IF;
    v_policy := jsonb_populate_record(v_policy, p_settings || jsonb_build_object('name', p_name));
    INSERT INTO mailgres.retry_policies SELECT v_policy.*
    ON CONFLICT (name) DO UPDATE
        SET (max_retries, steps, base, factor, cap, jitter_down, jitter_up, description)
            = (excluded.max_retries, excluded.steps, excluded.base, excluded.factor, excluded.cap,
               excluded.jitter_down, excluded.jitter_up, excluded.description);
EXCEPTION
    WHEN check_violation OR not_null_violation OR data_exception THEN
        PERFORM mailgres.refuse('MG074', format('the retry policy %L is not valid', p_name),
            'It takes a name of lower-case letters, 0 to 100 retries, and waits above zero: a list of them, or a first one with a factor from 1 to 10; jitter is a fraction from 0 to 1.');
END
$$;

COMMENT ON FUNCTION mailgres.set_policy(text, jsonb) IS 'Creates a retry policy, or changes one.';

CREATE FUNCTION mailgres.use_defaults(
    p_retry_policy text, p_expires_after interval,
    OUT was_initial boolean, OUT retry_policy text, OUT expires_after interval
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.require_policy(p_retry_policy);
    was_initial := false;
    IF EXISTS (SELECT FROM mailgres.settings s WHERE s.initial) THEN
        UPDATE mailgres.settings s
        SET initial = false, retry_policy = p_retry_policy, expires_after = p_expires_after
        WHERE s.initial AND s.retry_policy = 'stepped' AND s.expires_after IS NULL;
        was_initial := FOUND;
    END IF;
    SELECT s.retry_policy, s.expires_after INTO retry_policy, expires_after FROM mailgres.settings s;
END
$$;

COMMENT ON FUNCTION mailgres.use_defaults(text, interval) IS
    'Sets the defaults to those of a worker if they are still as the migration created them; returns the actual ones.';

-- p_settings: an object with the settings to change, `retry_policy` or `expires_after`; others stay.
-- A null expires_after means that emails never expire.
CREATE FUNCTION mailgres.set_defaults(p_settings jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_settings ? 'retry_policy' THEN
        PERFORM mailgres.require_policy(p_settings ->> 'retry_policy');
    END IF;
    IF (p_settings ->> 'expires_after')::interval <= '0' THEN
        PERFORM mailgres.refuse('MG074', 'emails expire after a time above zero', 'Give none to keep them for ever.');
    END IF;
    UPDATE mailgres.settings s
    SET initial = false,
        retry_policy = coalesce(p_settings ->> 'retry_policy', s.retry_policy),
        expires_after = CASE WHEN p_settings ? 'expires_after' THEN (p_settings ->> 'expires_after')::interval
                             ELSE s.expires_after END;
END
$$;

COMMENT ON FUNCTION mailgres.set_defaults(jsonb) IS
    'Sets the retry policy or the expiry of emails that set none of their own.';

-- ---- sql/30_engine/70_admin/50_suppressions.sql

-- Addresses that get no email.

-- p_entries: an array of {recipient_email, tenant_id?, reason?, detail?}. Returns for each entry, by
-- its place from 1, whether it was added, was known, or which field is not valid. Entries that are
-- not valid are not stored; the caller decides whether to keep the others.
CREATE FUNCTION mailgres.suppress(p_entries jsonb) RETURNS TABLE (place bigint, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT e.place, e.entry ->> 'recipient_email' AS given,
               mailgres.canonical_address(e.entry ->> 'recipient_email') AS address,
               coalesce(nullif(e.entry ->> 'tenant_id', ''), '*') AS tenant,
               coalesce(nullif(e.entry ->> 'reason', ''), 'manual') AS reason, nullif(e.entry ->> 'detail', '') AS detail
        FROM jsonb_array_elements(p_entries) WITH ORDINALITY e(entry, place)
    ), checked AS MATERIALIZED (
        SELECT g.*, CASE
            WHEN mailgres.is_address(g.given) IS NOT TRUE THEN 'address'
            WHEN g.reason NOT IN ('bounced', 'complained', 'unsubscribed', 'manual') THEN 'reason'
            WHEN length(g.tenant) > 200 THEN 'tenant'
            WHEN length(g.detail) > 1000 THEN 'detail' END AS fault
        FROM given g
    ), added AS (
        INSERT INTO public.email_suppressions (recipient_email, tenant_id, reason, detail)
        SELECT DISTINCT ON (c.address, c.tenant) c.address, c.tenant, c.reason, c.detail
        FROM checked c WHERE c.fault IS NULL ORDER BY c.address, c.tenant, c.place
        ON CONFLICT DO NOTHING
        RETURNING recipient_email, tenant_id
    )
    SELECT c.place, coalesce(c.fault, CASE WHEN a.recipient_email IS NOT NULL
                                            AND row_number() OVER (PARTITION BY c.address, c.tenant ORDER BY c.place) = 1
                                           THEN 'added' ELSE 'known' END)
    FROM checked c
    LEFT JOIN added a ON a.recipient_email = c.address AND a.tenant_id = c.tenant
    ORDER BY c.place;
END
$$;

COMMENT ON FUNCTION mailgres.suppress(jsonb) IS
    'Suppresses addresses; returns for each entry whether it was added or known, or which field is not valid.';

CREATE FUNCTION mailgres.unsuppress(p_addresses text[], p_tenant text DEFAULT '*') RETURNS SETOF text
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH removed AS (
        DELETE FROM public.email_suppressions s
        WHERE s.recipient_email IN (SELECT mailgres.canonical_address(a) FROM unnest(p_addresses) a)
          AND s.tenant_id = coalesce(p_tenant, '*')
        RETURNING s.recipient_email
    )
    SELECT a FROM unnest(p_addresses) a
    WHERE mailgres.canonical_address(a) IN (SELECT r.recipient_email FROM removed r)
$$;

COMMENT ON FUNCTION mailgres.unsuppress(text[], text) IS
    'Removes suppressions of one tenant, or (*) those for all tenants; returns the given addresses that were suppressed.';

-- ---- sql/30_engine/70_admin/60_senders.sql

-- Settings of senders and producers, for operators: docs/senders.md.

CREATE FUNCTION mailgres.require_sender(p_sender text) RETURNS text
    LANGUAGE plpgsql
AS $$
DECLARE
    -- a domain is checked as part of an address
    v_address constant text := CASE WHEN p_sender LIKE '%@%' THEN p_sender
                                    ELSE 'x@' || CASE WHEN p_sender LIKE '*.%' THEN substr(p_sender, 3)
                                                      ELSE p_sender END END;
BEGIN
    IF mailgres.is_address(v_address) IS NOT TRUE THEN
        PERFORM mailgres.refuse('MG075', 'the sender is neither a domain nor an address',
            'Give a domain such as example.com, *.example.com for all its subdomains, or one plain address.');
    END IF;
    RETURN CASE WHEN p_sender LIKE '%@%' THEN mailgres.canonical_address(p_sender)
                WHEN p_sender LIKE '*.%' THEN '*.' || mailgres.canonical_address(substr(p_sender, 3))
                ELSE mailgres.canonical_address(p_sender) END;
END
$$;

COMMENT ON FUNCTION mailgres.require_sender(text) IS
    'A domain or an address in the form of the list of senders; refuses anything else.';

CREATE FUNCTION mailgres.allow_sender(p_tenant text, p_sender text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(length(p_tenant), 0) NOT BETWEEN 1 AND 200 THEN
        PERFORM mailgres.refuse('MG013', 'the tenant is not valid', 'tenant_id takes 1 to 200 characters; * means the list of tenants without one.');
    END IF;
    INSERT INTO mailgres.senders (tenant_id, sender) VALUES (p_tenant, mailgres.require_sender(p_sender))
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.allow_sender(text, text) IS
    'Allows a domain or an address as sender for a tenant (* for tenants without a list); false if it was allowed before.';

CREATE FUNCTION mailgres.disallow_sender(p_tenant text, p_sender text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM mailgres.senders s
    WHERE s.tenant_id = p_tenant AND s.sender = mailgres.require_sender(p_sender);
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.disallow_sender(text, text) IS
    'Removes a domain or an address from the list of a tenant; false if it was not on it. Without a list any sender is accepted.';

CREATE FUNCTION mailgres.bind_producer(p_role text, p_tenant text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = p_role) THEN
        PERFORM mailgres.refuse('MG076', format('there is no role %L', p_role),
            'Give the name of a role as pg_roles has it: the one that logs in, or the one that sessions switch to.');
    END IF;
    IF coalesce(length(p_tenant), 0) NOT BETWEEN 1 AND 200 OR p_tenant = '*' THEN
        PERFORM mailgres.refuse('MG013', 'the tenant is not valid', 'tenant_id takes 1 to 200 characters; a role is bound to one.');
    END IF;
    INSERT INTO mailgres.producers AS b (role_name, tenant_id) VALUES (p_role, p_tenant)
    ON CONFLICT (role_name) DO UPDATE SET tenant_id = excluded.tenant_id, bound_at = excluded.bound_at
    WHERE b.tenant_id <> excluded.tenant_id;
END
$$;

COMMENT ON FUNCTION mailgres.bind_producer(text, text) IS
    'Binds a role to one tenant, for which alone it may enqueue. This applies to that role, not to its members.';

CREATE FUNCTION mailgres.unbind_producer(p_role text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM mailgres.producers b WHERE b.role_name = p_role;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.unbind_producer(text) IS
    'Lets a role enqueue for any tenant again; false if it was not bound.';

-- ---- sql/30_engine/70_admin/70_templates.sql

-- Templates are pushed: new content becomes a version that never changes, the same content again
-- changes nothing. Content is {locale: {subject, html, text}}; html is optional, text is not,
-- because every email has a text part.

CREATE FUNCTION mailgres.template_contents(p_template_type text, p_version int) RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN (
    SELECT jsonb_object_agg(v.locale, jsonb_build_object(
        'subject', v.subject, 'html', v.html, 'text', v.text, 'default', v.is_default))
    FROM mailgres.template_versions v
    WHERE v.template_type = p_template_type AND v.version = p_version);

COMMENT ON FUNCTION mailgres.template_contents(text, int) IS
    'The content of a version of a template, by locale; null if there is no such version.';

-- Removes white space at the end and empty lines at the start, and makes line ends uniform, so that
-- files and database can be compared.
CREATE FUNCTION mailgres.clean_source(p_source text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN nullif(rtrim(regexp_replace(replace(p_source, E'\r\n', E'\n'), '^([ \t]*\n)+', ''), E' \t\r\n'), '');

COMMENT ON FUNCTION mailgres.clean_source(text) IS 'A part of a template in the form in which it is stored; null if it is empty.';

CREATE FUNCTION mailgres.fault_of_contents(p_contents jsonb) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF jsonb_typeof(p_contents) IS DISTINCT FROM 'object' OR p_contents = '{}' THEN
        RETURN 'the contents are not an object with a locale or more';
    END IF;
    RETURN (
        SELECT format('the content for %L %s', e.key, f.fault)
        FROM jsonb_each(p_contents) e
        CROSS JOIN LATERAL (SELECT CASE
            WHEN e.key !~ '^[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*$' THEN 'is for no locale such as en or pt-BR'
            WHEN jsonb_typeof(e.value) <> 'object' THEN 'is not an object'
            WHEN e.value - '{subject,html,text}'::text[] <> '{}' THEN 'has more than subject, html and text'
            WHEN jsonb_path_exists(e.value, '$.* ? (@.type() != "string" && @.type() != "null")')
                THEN 'has a part that is not a string'
            WHEN mailgres.clean_source(e.value ->> 'subject') IS NULL THEN 'has no subject'
            WHEN mailgres.clean_source(e.value ->> 'subject') ~ E'[\n\r]' THEN 'has a subject of several lines'
            WHEN mailgres.clean_source(e.value ->> 'text') IS NULL THEN 'has no text'
            WHEN octet_length(e.value ->> 'subject') > 4096 OR octet_length(e.value ->> 'html') > 524288
                 OR octet_length(e.value ->> 'text') > 524288 THEN 'is too long'
        END AS fault) f
        WHERE f.fault IS NOT NULL
        ORDER BY e.key LIMIT 1);
END
$$;

COMMENT ON FUNCTION mailgres.fault_of_contents(jsonb) IS 'What is wrong with the contents of a template, or null.';

CREATE FUNCTION mailgres.fault_of_settings(t public.email_templates) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE
        WHEN array_position(t.required_variables, NULL) IS NOT NULL THEN 'required_variables holds a null'
        WHEN NOT mailgres.is_sender(t.from_email) THEN 'from_email is not an email address'
        WHEN NOT mailgres.is_sender(t.reply_to) THEN 'reply_to is not an email address'
        WHEN t.route IS NOT NULL AND NOT EXISTS (
            SELECT FROM mailgres.routes r WHERE r.route = t.route) THEN format('there is no route %L', t.route)
        WHEN t.retry_policy IS NOT NULL AND NOT EXISTS (
            SELECT FROM mailgres.retry_policies p WHERE p.name = t.retry_policy)
            THEN format('there is no retry policy %L', t.retry_policy)
        WHEN t.priority NOT BETWEEN 1 AND 9 THEN 'priority is not 1 (urgent) to 9 (bulk)'
        WHEN t.expires_after <= '0' THEN 'expires_after is not positive'
        WHEN t.on_uncertain NOT IN ('hold', 'resend') THEN 'on_uncertain is neither hold nor resend'
        WHEN jsonb_typeof(t.sample) <> 'object' THEN 'sample is not an object'
    END;
END
$$;

COMMENT ON FUNCTION mailgres.fault_of_settings(public.email_templates) IS
    'What is wrong with the settings of a template, or null.';

-- Settings that are given replace those of the template; null sets the default.
CREATE FUNCTION mailgres.with_settings(t public.email_templates, p_settings jsonb) RETURNS public.email_templates
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c_keys constant text[] := '{description,required_variables,from_email,reply_to,route,priority,
        retry_policy,expires_after,on_uncertain,sample}';
    v_fault text;
BEGIN
    IF jsonb_typeof(p_settings) IS DISTINCT FROM 'object' OR p_settings - c_keys <> '{}' THEN
        v_fault := 'the settings are not an object, or have an unknown key';
    ELSE
        BEGIN
            t := jsonb_populate_record(t, p_settings);
            t.description := coalesce(t.description, '');
            t.required_variables := coalesce(t.required_variables, '{}');
            t.on_uncertain := coalesce(t.on_uncertain, 'hold');
            t.sample := coalesce(t.sample, '{}');
            v_fault := mailgres.fault_of_settings(t);
        EXCEPTION WHEN data_exception THEN
            v_fault := format('a setting has the wrong type: %s', SQLERRM);
        END;
    END IF;
    IF v_fault IS NOT NULL THEN
        PERFORM mailgres.refuse('MG060', format('template %L: %s', t.template_type, v_fault),
            format('The settings are %s.', array_to_string(c_keys, ', ')));
    END IF;
    RETURN t;
END
$$;

COMMENT ON FUNCTION mailgres.with_settings(public.email_templates, jsonb) IS 'The template with the given settings.';

CREATE FUNCTION mailgres.add_version(p_template_type text, p_contents jsonb, p_default_locale text) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_version constant int := 1 + coalesce((
        SELECT max(v.version) FROM mailgres.template_versions v WHERE v.template_type = p_template_type), 0);
BEGIN
    INSERT INTO mailgres.template_versions (template_type, version, locale, subject, html, text, is_default)
    SELECT p_template_type, v_version, c.key, c.value ->> 'subject', c.value ->> 'html', c.value ->> 'text',
           c.key = p_default_locale
    FROM jsonb_each(p_contents) c;
    RETURN v_version;
END
$$;

COMMENT ON FUNCTION mailgres.add_version(text, jsonb, text) IS 'Writes the next version of a template.';

CREATE FUNCTION mailgres.push_template(
    p_template_type text,
    p_contents jsonb,
    p_settings jsonb DEFAULT '{}',
    p_default_locale text DEFAULT NULL
) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_fault     text := mailgres.fault_of_contents(p_contents);
    v_default   text;
    v_contents  jsonb;
    v_before    public.email_templates;
    v_after     public.email_templates;
BEGIN
    IF (p_template_type ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$') IS NOT TRUE THEN
        v_fault := 'a name has letters, digits and _ . : -, at most 100, and begins with a letter or digit';
    ELSIF v_fault IS NULL AND NOT p_contents ? p_default_locale THEN
        v_fault := format('there is no content for the default locale %L', p_default_locale);
    END IF;
    IF v_fault IS NOT NULL THEN
        PERFORM mailgres.refuse('MG060', format('template %L: %s', p_template_type, v_fault),
            'The contents are {locale: {subject, html, text}}: a subject of one line, a text, and html or none; at most 512 KiB each.');
    END IF;

    SELECT coalesce(p_default_locale, min(c.key) FILTER (WHERE c.key = 'en'), min(c.key)) INTO v_default
    FROM jsonb_each(p_contents) c;
    SELECT jsonb_object_agg(c.key, jsonb_build_object(
        'subject', ltrim(mailgres.clean_source(c.value ->> 'subject')), 'html', mailgres.clean_source(c.value ->> 'html'),
        'text', mailgres.clean_source(c.value ->> 'text'), 'default', c.key = v_default)) INTO v_contents
    FROM jsonb_each(p_contents) c;

    -- A session that pushes the same template at the same time waits here and then sees this version.
    INSERT INTO public.email_templates (template_type) VALUES (p_template_type) ON CONFLICT DO NOTHING;
    SELECT * INTO v_before FROM public.email_templates t WHERE t.template_type = p_template_type FOR UPDATE;
    v_after := mailgres.with_settings(v_before, p_settings);
    v_after.retired_at := NULL;
    IF mailgres.template_contents(p_template_type, v_before.active_version) IS DISTINCT FROM v_contents THEN
        v_after.active_version := mailgres.add_version(p_template_type, v_contents, v_default);
    END IF;

    IF v_after IS DISTINCT FROM v_before THEN
        UPDATE public.email_templates t
        SET (description, active_version, required_variables, from_email, reply_to, route, priority,
             retry_policy, expires_after, on_uncertain, sample, retired_at, updated_at)
            = (v_after.description, v_after.active_version, v_after.required_variables, v_after.from_email,
               v_after.reply_to, v_after.route, v_after.priority, v_after.retry_policy, v_after.expires_after,
               v_after.on_uncertain, v_after.sample, v_after.retired_at, mailgres.now())
        WHERE t.template_type = p_template_type;
    END IF;
    RETURN v_after.active_version;
END
$$;

COMMENT ON FUNCTION mailgres.push_template(text, jsonb, jsonb, text) IS
    'Makes this the active content of a template and returns its version: a new one only if it differs. Settings that are given replace those of the template.';

CREATE FUNCTION mailgres.retire_template(p_template_type text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE public.email_templates t SET retired_at = mailgres.now(), updated_at = mailgres.now()
    WHERE t.template_type = p_template_type AND t.retired_at IS NULL;
    IF FOUND THEN
        RETURN true;
    END IF;
    IF NOT EXISTS (SELECT FROM public.email_templates t WHERE t.template_type = p_template_type) THEN
        PERFORM mailgres.refuse('MG001', format('there is no template %L', p_template_type),
            'Look for its name in email_templates.');
    END IF;
    RETURN false;
END
$$;

COMMENT ON FUNCTION mailgres.retire_template(text) IS
    'Refuses new emails for a template; those in the queue are still sent. False if it was retired before.';

-- ---- sql/30_engine/70_admin/80_find.sql

-- Finds emails: the filter of the command line, whether it lists, retries or cancels. It is a JSON
-- object; a key that is missing does not restrict the result:
--
--   status, template, tenant, error_code, provider, dead_reason   lists: one of these
--   error_code     "none" finds emails without a code
--   recipient      a list of addresses, in any case; "@example.com" is a whole domain
--   since, until   when the email was enqueued: from since on, before until
--
-- There is no index for this alone, because every email would pay for it. Ids are ordered by time,
-- so a period is a range of the primary key. Emails that are dead or being sent are found by
-- email_queue_due_idx, waiting emails by that and email_queue_ready_idx. Statements are planned for
-- each filter (force_custom_plan), so that keys which are missing add no condition to the plan.

CREATE TYPE mailgres.filter AS (
    status       text[],
    template     text[],
    tenant       text[],
    recipient    text[],
    domain       text[],
    error_code   text[],
    provider     text[],
    dead_reason  text[],
    since        timestamptz,
    until        timestamptz
);

CREATE FUNCTION mailgres.read_filter(p_filter jsonb) RETURNS mailgres.filter
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c_statuses constant text[] := '{pending,sending,sent,failed,cancelled}';
    v_filter   mailgres.filter;
    v_unknown  text;
BEGIN
    SELECT k INTO v_unknown FROM jsonb_object_keys(p_filter) k
    WHERE k <> ALL ('{status,template,tenant,recipient,error_code,provider,dead_reason,since,until}');
    IF FOUND THEN
        PERFORM mailgres.refuse('MG080', format('the filter has no %s', v_unknown),
            'Filter by status, template, tenant, recipient, error_code, provider, dead_reason, since or until.');
    END IF;
    v_filter := jsonb_populate_record(NULL::mailgres.filter, p_filter);
    IF v_filter.recipient IS NOT NULL THEN
        v_filter.domain := nullif(ARRAY(
            SELECT mailgres.canonical_address(substr(r, 2)) FROM unnest(v_filter.recipient) r WHERE r LIKE '@%'), '{}');
        v_filter.recipient := ARRAY(
            SELECT mailgres.canonical_address(r) FROM unnest(v_filter.recipient) r WHERE r NOT LIKE '@%');
        IF v_filter.recipient = '{}' AND v_filter.domain IS NOT NULL THEN
            v_filter.recipient := NULL;
        END IF;
    END IF;
    IF NOT v_filter.status <@ c_statuses THEN
        PERFORM mailgres.refuse('MG080', 'there is no such status',
            'Give pending, sending, sent, failed or cancelled.');
    ELSIF v_filter.since >= v_filter.until THEN
        PERFORM mailgres.refuse('MG080', 'the window of time ends before it begins',
            'Let since be earlier than until.');
    END IF;
    RETURN v_filter;
EXCEPTION WHEN data_exception THEN
    PERFORM mailgres.refuse('MG080', 'a value of the filter is not of its kind',
        'Times are ISO 8601, all others are lists of texts.');
END
$$;

COMMENT ON FUNCTION mailgres.read_filter(jsonb) IS 'A filter as it is given, checked.';

-- The range of ids that a period can have. An id is never older than created_at, which is the time
-- of the transaction; it is younger by at most the length of the transaction, for which a day is
-- enough. The period is relative to mailgres.now(), which tests change; ids always use the server's
-- clock.
--
-- An application may set random ids of its own, which say nothing about time: some of them are
-- older than mailgres, most are later than tomorrow. If there are any, all ids are searched.
CREATE FUNCTION mailgres.id_range_of(
    p_since timestamptz, p_until timestamptz, OUT first_id uuid, OUT last_id uuid)
    LANGUAGE plpgsql STABLE SET enable_seqscan = off
AS $$
DECLARE
    c_origin   constant uuid := mailgres.first_id_of('2025-01-01Z');
    v_tomorrow constant uuid := mailgres.first_id_of(clock_timestamp() + interval '1 day');
    v_travel   constant interval := now() - mailgres.now();
BEGIN
    first_id := '00000000-0000-0000-0000-000000000000';
    last_id := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    IF EXISTS (SELECT FROM public.email_queue q WHERE q.id < c_origin)
       OR EXISTS (SELECT FROM public.email_queue q WHERE q.id > v_tomorrow) THEN
        RETURN;
    END IF;
    IF p_since IS NOT NULL THEN
        first_id := mailgres.first_id_of(p_since + v_travel);
    END IF;
    IF p_until IS NOT NULL THEN
        last_id := mailgres.first_id_of(p_until + v_travel + interval '1 day');
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.id_range_of(timestamptz, timestamptz) IS
    'The range of ids of the emails of a period; imported older emails count from the time of the import.';

-- One SELECT, so that it is inlined where it is used. The conditions on due_at and ready follow
-- from the status: they make the partial indexes usable. A dead email died after it was enqueued,
-- and a lease ends after that, too.
CREATE FUNCTION mailgres.matching_emails(p_filter mailgres.filter, p_first_id uuid, p_last_id uuid)
    RETURNS SETOF public.email_queue
    LANGUAGE sql STABLE
AS $$
    SELECT q.*
    FROM public.email_queue q
    WHERE (p_filter.status IS NULL OR q.status = ANY (p_filter.status))
      AND (p_filter.status <@ '{failed,sending}' IS NOT TRUE
           OR q.due_at >= coalesce(p_filter.since, '-infinity'))
      AND ((p_filter.status <@ '{failed,sending,pending}' AND 'pending' = ANY (p_filter.status)) IS NOT TRUE
           OR q.ready OR q.due_at IS NOT NULL)
      AND (p_filter.template IS NULL OR q.template_type = ANY (p_filter.template))
      AND (p_filter.tenant IS NULL OR q.tenant_id = ANY (p_filter.tenant))
      AND (p_filter.error_code IS NULL OR coalesce(q.error_code, 'none') = ANY (p_filter.error_code))
      AND (p_filter.provider IS NULL OR q.provider = ANY (p_filter.provider))
      AND (p_filter.dead_reason IS NULL OR q.dead_reason = ANY (p_filter.dead_reason))
      AND (p_filter.recipient IS NULL AND p_filter.domain IS NULL
           OR p_filter.recipient IS NOT NULL
              -- Comparing lengths rules out most emails and is cheaper than lower(). Beyond ASCII the
              -- spellings of one address have different lengths.
              AND (octet_length(q.recipient_email) = ANY (ARRAY(SELECT octet_length(x) FROM unnest(p_filter.recipient) x))
                   OR octet_length(q.recipient_email) > length(q.recipient_email))
              AND mailgres.canonical_address(q.recipient_email) = ANY (p_filter.recipient)
           OR p_filter.domain IS NOT NULL
              AND split_part(mailgres.canonical_address(q.recipient_email), '@', 2) = ANY (p_filter.domain))
      AND (p_filter.since IS NULL OR q.created_at >= p_filter.since)
      AND (p_filter.until IS NULL OR q.created_at < p_filter.until)
      AND q.id BETWEEN p_first_id AND p_last_id
$$;

COMMENT ON FUNCTION mailgres.matching_emails(mailgres.filter, uuid, uuid) IS
    'The emails that match a filter, in a range of ids.';

CREATE FUNCTION mailgres.find_emails(
    p_filter jsonb DEFAULT '{}',
    p_after uuid DEFAULT NULL,
    p_limit int DEFAULT 100,
    p_sort text DEFAULT 'newest'
) RETURNS SETOF uuid
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    v_filter constant mailgres.filter := mailgres.read_filter(p_filter);
    v_first  uuid;
    v_last   uuid;
BEGIN
    IF p_sort <> ALL ('{newest,oldest,due,retries,priority}') OR p_after IS NOT NULL AND p_sort <> ALL ('{newest,oldest}') THEN
        PERFORM mailgres.refuse('MG080', 'emails cannot be sorted like this',
            'Sort by newest or oldest; or, without pages, by due, retries or priority.');
    END IF;
    SELECT i.first_id, i.last_id INTO v_first, v_last FROM mailgres.id_range_of(v_filter.since, v_filter.until) i;
    v_first := CASE WHEN p_sort = 'oldest' THEN greatest(v_first, p_after) ELSE v_first END;
    v_last := CASE WHEN p_sort = 'newest' THEN least(v_last, p_after) ELSE v_last END;
    RETURN QUERY
        SELECT q.id FROM mailgres.matching_emails(v_filter, v_first, v_last) q
        WHERE p_after IS NULL OR q.id <> p_after
        ORDER BY CASE WHEN p_sort = 'due' THEN q.next_retry_at END,
                 CASE WHEN p_sort = 'priority' THEN q.priority END,
                 CASE WHEN p_sort = 'retries' THEN q.retries END DESC,
                 CASE WHEN p_sort = 'oldest' THEN q.id END,
                 q.id DESC
        LIMIT p_limit;
END
$$;

COMMENT ON FUNCTION mailgres.find_emails(jsonb, uuid, int, text) IS
    'The ids of the emails that match a filter, newest (or oldest) first; p_after: the last id of the page before.';

CREATE FUNCTION mailgres.count_emails(p_filter jsonb DEFAULT '{}', p_most int DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    v_filter constant mailgres.filter := mailgres.read_filter(p_filter);
    v_first  uuid;
    v_last   uuid;
BEGIN
    SELECT i.first_id, i.last_id INTO v_first, v_last FROM mailgres.id_range_of(v_filter.since, v_filter.until) i;
    RETURN (SELECT count(*) FROM (
        SELECT FROM mailgres.matching_emails(v_filter, v_first, v_last) LIMIT p_most) x);
END
$$;

COMMENT ON FUNCTION mailgres.count_emails(jsonb, int) IS
    'How many emails match a filter; counts at most p_most.';

-- ---- sql/40_api/10_request.sql

-- The request that enqueue_email and enqueue_emails share. Its fields are the arguments of
-- enqueue_email without `p_`. Which values a column accepts, from every writer, is in
-- 20_tables/55_fields.sql.

CREATE TYPE mailgres.request AS (
    user_id          uuid,
    template_type    text,
    recipient_email  text,
    payload          jsonb,
    tenant_id        text,
    priority         int,
    scheduled_for    timestamptz,
    expires_at       timestamptz,
    idempotency_key  text,
    correlation_id   text,
    route            text,
    retry_policy     text,
    max_retries      int,
    retry_delay      interval,
    max_retry_delay  interval,
    from_email       text,
    reply_to         text,
    subject          text,
    html             text,
    text             text,
    headers          jsonb,
    tags             jsonb,
    cc               text[],
    bcc              text[],
    attachments      jsonb,
    also_to          text[]
);

-- An array of {filename, content (base64), content_type?, content_id?}, 40 MB in all.
CREATE FUNCTION mailgres.are_attachments(p_attachments jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN jsonb_typeof(p_attachments) = 'array' AND octet_length(p_attachments::text) <= 56 * 1024 * 1024
    AND NOT EXISTS (
        SELECT FROM jsonb_array_elements(
            CASE WHEN jsonb_typeof(p_attachments) = 'array' THEN p_attachments END) a
        WHERE jsonb_typeof(a) <> 'object'
           OR coalesce(a ->> 'filename', '') !~ '^[^\x01-\x1f\x7f-\x9f\u2028\u2029/\\]{1,255}$'
           OR coalesce(a ->> 'content_type', 'a/b') !~ '^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+$'
           OR coalesce(a ->> 'content_id', 'x') !~ '^[A-Za-z0-9@._-]{1,128}$'
           OR coalesce(a ->> 'content', '?') !~ '^[A-Za-z0-9+/\s]*={0,2}\s*$'
           OR length(regexp_replace(a ->> 'content', '\s', '', 'g')) % 4 <> 0);

COMMENT ON FUNCTION mailgres.are_attachments(jsonb) IS 'Whether this is an array of attachments, 40 MB in all.';

-- ---- sql/40_api/15_senders.sql

-- The two checks of docs/senders.md at enqueue: whether the tenant's email may have this sender, and
-- for which tenant the caller may enqueue.

-- The plain address of a sender: `Example <mail@example.com>` has a name before it.
CREATE FUNCTION mailgres.address_of(p_sender text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(substring(p_sender FROM '^[^<>]*<([^<>]*)>$'), p_sender);

COMMENT ON FUNCTION mailgres.address_of(text) IS 'The plain address of a sender with or without a display name.';

CREATE FUNCTION mailgres.may_send_as(p_tenant text, p_sender text) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_address  constant text := mailgres.canonical_address(mailgres.address_of(p_sender));
    v_domain   constant text := substring(v_address FROM '[^@]*$');
    v_may      boolean;
BEGIN
    -- The tenant's own list counts, if there is one. No row of either list: null, and any sender is allowed.
    SELECT bool_or(s.sender IN (v_address, v_domain)
                   OR s.sender LIKE '*.%' AND right(v_domain, length(s.sender) - 1) = substr(s.sender, 2))
    INTO v_may
    FROM mailgres.senders s
    WHERE s.tenant_id IN ('*', p_tenant)
    GROUP BY s.tenant_id
    ORDER BY s.tenant_id = p_tenant DESC
    LIMIT 1;
    RETURN coalesce(v_may, true);
END
$$;

COMMENT ON FUNCTION mailgres.may_send_as(text, text) IS
    'Whether an email of a tenant may have this sender.';

-- In a function with the rights of its owner, current_user is not the caller: session_user is the
-- role that logged in, and the setting `role` the one of SET ROLE. The binding of either applies,
-- so that a bound role cannot escape by switching to another role.
CREATE FUNCTION mailgres.tenant_for(p_named text, p_bound text, p_also text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_bound IS NULL THEN p_named
            WHEN p_bound = p_also AND p_named IN ('default', p_bound) THEN p_bound END;

COMMENT ON FUNCTION mailgres.tenant_for(text, text, text) IS
    'The tenant for which a caller enqueues that named p_named and is bound to tenants; null: not allowed. The name default counts as none.';

-- p_many: the error says which element of the array it is about.
CREATE FUNCTION mailgres.for_caller(p_requests mailgres.request[], p_many boolean) RETURNS mailgres.request[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_bound   text;
    v_also    text;
    v_other   record;
BEGIN
    SELECT min(b.tenant_id), max(b.tenant_id) INTO v_bound, v_also
    FROM mailgres.producers b WHERE b.role_name IN (session_user, current_setting('role'));
    IF v_bound IS NULL THEN
        RETURN p_requests;
    END IF;
    SELECT r.ordinality - 1 AS place INTO v_other
    FROM unnest(p_requests) WITH ORDINALITY r
    WHERE mailgres.tenant_for(r.tenant_id, v_bound, v_also) IS NULL
    ORDER BY r.ordinality LIMIT 1;
    IF FOUND THEN
        PERFORM mailgres.refuse_request('MG019', NULL, CASE WHEN p_many THEN v_other.place END);
    END IF;
    RETURN ARRAY(
        SELECT jsonb_populate_record(r, jsonb_build_object('tenant_id', v_bound)) FROM unnest(p_requests) r);
END
$$;

COMMENT ON FUNCTION mailgres.for_caller(mailgres.request[], boolean) IS
    'The requests with the tenant that the calling role is bound to, if any; refuses requests for another tenant.';

-- ---- sql/40_api/20_fault_of.sql

-- What is wrong with a request: the SQLSTATE with which it is refused, or null. One expression, so
-- that it is inlined into the statements that enqueue; fields that few requests have are checked by
-- a function that is called for those requests only.

CREATE FUNCTION mailgres.fault_of_options(r mailgres.request) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE
        WHEN r.priority NOT BETWEEN 1 AND 9 THEN 'MG006'
        WHEN r.max_retries NOT BETWEEN 0 AND 100
             OR r.retry_delay NOT BETWEEN '0' AND '30 days'
             OR r.max_retry_delay NOT BETWEEN '0' AND '30 days' THEN 'MG007'
        WHEN r.expires_at <= greatest(r.scheduled_for, mailgres.now()) THEN 'MG008'
        WHEN r.retry_policy IS NOT NULL AND NOT EXISTS (
            SELECT FROM mailgres.retry_policies p WHERE p.name = r.retry_policy) THEN 'MG010'
        WHEN r.route IS NOT NULL AND NOT EXISTS (
            SELECT FROM mailgres.routes x WHERE x.route = r.route) THEN 'MG011'
        WHEN (r.subject IS NOT NULL OR r.html IS NOT NULL OR r.text IS NOT NULL)
             AND (r.subject IS NULL OR (r.html IS NULL AND r.text IS NULL)
                  OR length(r.subject) NOT BETWEEN 1 AND 998 OR r.subject ~ E'[\\x01-\\x1f\\x7f-\\x9f\\u2028\\u2029]'
                  OR octet_length(r.html) > 5242880 OR octet_length(r.text) > 5242880
                  OR r.template_type !~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$') THEN 'MG012'
        WHEN length(r.idempotency_key) NOT BETWEEN 1 AND 256
             OR length(r.correlation_id) NOT BETWEEN 1 AND 256 THEN 'MG013'
        WHEN NOT mailgres.are_attachments(r.attachments) THEN 'MG014'
        WHEN NOT mailgres.is_sender(r.from_email) OR NOT mailgres.is_sender(r.reply_to)
             OR NOT mailgres.are_addresses(r.cc) OR NOT mailgres.are_addresses(r.bcc)
             OR NOT mailgres.are_addresses(r.also_to) OR cardinality(r.also_to) > 49 THEN 'MG016'
        WHEN r.from_email IS NOT NULL AND NOT mailgres.may_send_as(r.tenant_id, r.from_email) THEN 'MG018'
        WHEN NOT mailgres.are_headers(r.headers) OR NOT mailgres.are_tags(r.tags) THEN 'MG017'
    END;
END
$$;

COMMENT ON FUNCTION mailgres.fault_of_options(mailgres.request) IS
    'The SQLSTATE with which a request is refused for its optional fields, or null.';

CREATE FUNCTION mailgres.fault_of(r mailgres.request, t public.email_templates) RETURNS text
    LANGUAGE sql STABLE
RETURN CASE
    WHEN (t.template_type IS NULL OR t.retired_at IS NOT NULL)
         AND r.subject IS NULL AND r.html IS NULL AND r.text IS NULL THEN 'MG001'
    WHEN mailgres.is_address(r.recipient_email) IS NOT TRUE THEN 'MG002'
    WHEN jsonb_typeof(r.payload) IS DISTINCT FROM 'object' THEN 'MG003'
    WHEN octet_length(r.payload::text) > 1048576 THEN 'MG004'
    WHEN NOT r.payload ?& t.required_variables
         AND r.subject IS NULL AND r.html IS NULL AND r.text IS NULL THEN 'MG005'
    WHEN r.tenant_id IS NULL OR length(r.tenant_id) NOT BETWEEN 1 AND 200 THEN 'MG013'
    WHEN num_nonnulls(
        r.priority, r.scheduled_for, r.expires_at, r.idempotency_key, r.correlation_id, r.route,
        r.retry_policy, r.max_retries, r.retry_delay, r.max_retry_delay, r.from_email, r.reply_to,
        r.subject, r.html, r.text, r.headers, r.tags, r.cc, r.bcc, r.attachments, r.also_to) > 0
        THEN mailgres.fault_of_options(r)
END;

COMMENT ON FUNCTION mailgres.fault_of(mailgres.request, public.email_templates) IS
    'The SQLSTATE with which a request is refused, or null.';

-- The error message and hint. They do not quote the address, because errors end up in logs.
CREATE FUNCTION mailgres.refuse_request(p_sqlstate text, r mailgres.request, p_place bigint) RETURNS boolean
    LANGUAGE plpgsql
AS $$
DECLARE
    v_said text[] := CASE p_sqlstate
        WHEN 'MG001' THEN ARRAY[
            -- arguments get swapped, so a text that is not a name may be an address
            CASE WHEN r.template_type ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$'
                 THEN format('there is no template %L', r.template_type)
                 ELSE 'template_type is not the name of a template' END,
            format('Known templates: %s. Or bring your own content: a subject with html or text.', (
                SELECT coalesce(string_agg(k.template_type, ', '), 'none') FROM (
                    SELECT t.template_type FROM public.email_templates t
                    WHERE t.retired_at IS NULL ORDER BY t.template_type LIMIT 10) k))]
        WHEN 'MG002' THEN ARRAY[
            'recipient_email is not an email address',
            'Give one plain address such as ana@example.com: no display name, no spaces or line breaks, at most 254 bytes.']
        WHEN 'MG003' THEN ARRAY[
            format('the payload is %s, not a JSON object', coalesce('a JSON ' || jsonb_typeof(r.payload), 'null')),
            'Give an object with the variables of the template; {} when there are none.']
        WHEN 'MG004' THEN ARRAY[
            format('the payload is %s bytes long', octet_length(r.payload::text)),
            'At most 1 MiB (1048576 bytes) is taken; send files as attachments or link to them.']
        WHEN 'MG005' THEN ARRAY[
            format('the payload lacks %s, which the template %L needs', (
                SELECT string_agg(quote_literal(v), ', ') FROM public.email_templates t, unnest(t.required_variables) v
                WHERE t.template_type = r.template_type AND NOT r.payload ? v), r.template_type),
            'Add the missing keys to the payload.']
        WHEN 'MG006' THEN ARRAY[
            format('priority %s is out of range', r.priority),
            'Give 1 (urgent) to 9 (bulk); 5 is the default.']
        WHEN 'MG007' THEN ARRAY[
            'max_retries, retry_delay or max_retry_delay is out of range',
            'max_retries is 0 to 100; delays are not negative and at most 30 days.']
        WHEN 'MG008' THEN ARRAY[
            format('it would expire (%s) before it could be sent', mailgres.time_text(r.expires_at)),
            'Let expires_at be later than scheduled_for and later than now.']
        WHEN 'MG009' THEN ARRAY[
            'the idempotency key was used before for another email', 'Use a new key for new content.']
        WHEN 'MG010' THEN ARRAY[
            format('there is no retry policy %L', r.retry_policy),
            format('Known policies: %s.', (SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM mailgres.retry_policies p))]
        WHEN 'MG011' THEN ARRAY[
            format('there is no route %L', r.route),
            format('Known routes: %s.', (SELECT string_agg(x.route, ', ' ORDER BY x.route) FROM mailgres.routes x))]
        WHEN 'MG012' THEN ARRAY[
            'the content of the email is not complete or not valid',
            'Its own content needs a subject of one line (at most 998 characters) and html or text of at most 5 MiB each.']
        WHEN 'MG013' THEN ARRAY[
            'tenant_id, idempotency_key or correlation_id is empty or too long',
            'tenant_id takes 1 to 200 characters, the others 1 to 256.']
        WHEN 'MG014' THEN ARRAY[
            'the attachments are not valid',
            'Give an array of objects with filename (no slashes), content (base64) and optionally content_type and content_id; 40 MB in all.']
        WHEN 'MG016' THEN ARRAY[
            'from_email, reply_to, also_to, cc or bcc is not valid',
            'Sender and reply address may have a display name, as in Example <mail@example.com>; also_to, cc and bcc are arrays (of one dimension) of at most 50 plain addresses, also_to of 49. No line breaks.']
        WHEN 'MG017' THEN ARRAY[
            'headers or tags are not valid',
            'Both are objects of strings without line breaks: at most 50 headers, 16 KB in all, and at most 40 tags of letters, digits, _ and -. Headers that mailgres, servers or providers set themselves or act on (From, Resent-*, Content-*, X-SES-* and the like) are not taken.']
        WHEN 'MG018' THEN ARRAY[
            'from_email is not an allowed sender of this tenant',
            'Leave it out, or have its domain allowed: `mailgres senders allow`.']
        WHEN 'MG019' THEN ARRAY[
            'this role may not enqueue for that tenant',
            'It is bound to one tenant: leave tenant_id out. `mailgres producers list` shows which role is bound to which.']
        ELSE ARRAY['the request is not valid', 'See the documentation of enqueue_email.']
    END;
BEGIN
    RETURN mailgres.refuse(
        p_sqlstate,
        v_said[1] || coalesce(' (element ' || p_place || ' of the array, counting from 0)', ''),
        v_said[2]);
END
$$;

COMMENT ON FUNCTION mailgres.refuse_request(text, mailgres.request, bigint) IS
    'Raises the error for a request, with its place in the array if there were many.';

-- ---- sql/40_api/30_enqueue_many.sql

-- Enqueues many emails at once, by joins. It accepts the same requests as enqueue_email:
-- mailgres.fault_of() checks them for both.

-- The requests with their template, policy and fault. One SELECT, so that it is inlined where it is
-- used.
CREATE FUNCTION mailgres.resolve(p_requests mailgres.request[])
    RETURNS TABLE (
        place int, request mailgres.request, template public.email_templates,
        policy mailgres.retry_policies, starts_at timestamptz, expires_after interval, fault text)
    LANGUAGE sql STABLE
AS $$
    SELECT r.place, r.request, t, policy, greatest((r.request).scheduled_for, mailgres.now()),
           coalesce(t.expires_after, s.expires_after),
           mailgres.fault_of(r.request, t)
    FROM (
        SELECT unnest(p_requests) AS request, generate_series(1, cardinality(p_requests)) AS place
    ) r
    CROSS JOIN mailgres.settings s
    LEFT JOIN public.email_templates t ON t.template_type = (r.request).template_type
    LEFT JOIN mailgres.retry_policies policy
        ON policy.name = coalesce((r.request).retry_policy, t.retry_policy, s.retry_policy)
$$;

COMMENT ON FUNCTION mailgres.resolve(mailgres.request[]) IS
    'Requests with their template, policy and fault.';

CREATE FUNCTION mailgres.enqueue_many(p_requests mailgres.request[], p_attachments boolean) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count     constant int := cardinality(p_requests);
    v_ids       constant uuid[] := ARRAY(SELECT mailgres.uuid_v7() FROM generate_series(1, v_count));
    v_inserted  int;
    v_bad       record;
BEGIN
    INSERT INTO public.email_queue
        (id, user_id, template_type, recipient_email, payload, max_retries, next_retry_at, ready,
         tenant_id, priority, route, scheduled_for, expires_at, idempotency_key, correlation_id,
         retry_policy, retry_delay, max_retry_delay,
         from_email, reply_to, subject, html, text, headers, tags, cc, bcc, also_to, has_attachments)
    SELECT v_ids[x.place], (x.request).user_id, coalesce((x.request).template_type, 'inline'),
           (x.request).recipient_email, (x.request).payload,
           coalesce((x.request).max_retries, (x.policy).max_retries),
           x.starts_at, x.starts_at <= mailgres.now(),
           (x.request).tenant_id, coalesce((x.request).priority, (x.template).priority, 5),
           coalesce(
               (x.request).route, (x.template).route,
               CASE WHEN (x.request).tenant_id <> 'default' THEN (
                   SELECT n.route FROM mailgres.tenants n WHERE n.tenant_id = (x.request).tenant_id) END,
               'default'),
           (x.request).scheduled_for,
           coalesce((x.request).expires_at, x.starts_at + x.expires_after),
           (x.request).idempotency_key, (x.request).correlation_id, (x.policy).name,
           (x.request).retry_delay, (x.request).max_retry_delay,
           (x.request).from_email, (x.request).reply_to, (x.request).subject, (x.request).html,
           (x.request).text, (x.request).headers, (x.request).tags, (x.request).cc, (x.request).bcc,
           (x.request).also_to, (x.request).attachments IS NOT NULL
    FROM mailgres.resolve(p_requests) x
    WHERE x.fault IS NULL
    ORDER BY (x.request).idempotency_key, x.place  -- the same order for all, so that no two wait for each other
    ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
    GET DIAGNOSTICS v_inserted = ROW_COUNT;

    IF v_inserted < v_count THEN
        SELECT x.fault, x.request, x.place - 1 AS place INTO v_bad
        FROM mailgres.resolve(p_requests) x WHERE x.fault IS NOT NULL ORDER BY x.place LIMIT 1;
        IF FOUND THEN
            PERFORM mailgres.refuse_request(v_bad.fault, v_bad.request, v_bad.place);
        END IF;
    END IF;
    IF p_attachments THEN
        PERFORM mailgres.attach(p_requests, v_ids);
    END IF;
    RETURN CASE WHEN v_inserted = v_count THEN v_ids ELSE mailgres.first_ids(p_requests, v_ids, true) END;
END
$$;

COMMENT ON FUNCTION mailgres.enqueue_many(mailgres.request[], boolean) IS
    'Enqueues requests, all or none, and returns their ids in order; p_attachments says whether any has some.';

CREATE FUNCTION mailgres.attach(p_requests mailgres.request[], p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO mailgres.attachments (queue_id, position, filename, content_type, content_id, content)
    SELECT q.id, a.position, a.value ->> 'filename',
           coalesce(a.value ->> 'content_type', 'application/octet-stream'),
           a.value ->> 'content_id', decode(a.value ->> 'content', 'base64')
    FROM unnest(p_requests) WITH ORDINALITY r
    JOIN public.email_queue q ON q.id = p_ids[r.ordinality]
    CROSS JOIN LATERAL jsonb_array_elements(r.attachments) WITH ORDINALITY a(value, position)
    WHERE r.attachments IS NOT NULL;
END
$$;

COMMENT ON FUNCTION mailgres.attach(mailgres.request[], uuid[]) IS
    'Stores the attachments of the requests that were enqueued.';

CREATE FUNCTION mailgres.has_attachments(p_queue_id uuid, p_attachments jsonb) RETURNS boolean
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT ARRAY(
        SELECT ROW(a.filename, a.content_type, a.content_id, md5(a.content))::text
        FROM mailgres.attachments a WHERE a.queue_id = p_queue_id ORDER BY a.position)
    = ARRAY(
        SELECT ROW(a.value ->> 'filename', coalesce(a.value ->> 'content_type', 'application/octet-stream'),
                   a.value ->> 'content_id', md5(decode(a.value ->> 'content', 'base64')))::text
        FROM jsonb_array_elements(coalesce(p_attachments, '[]')) WITH ORDINALITY a ORDER BY a.ordinality);
END;

COMMENT ON FUNCTION mailgres.has_attachments(uuid, jsonb) IS
    'Whether an email has exactly these attachments.';

-- For a repeated idempotency key the id of the first email is returned, if the content is the same.
-- If it differs, the error says nothing about the first email: the caller may not be the one that
-- used the key. p_many: the error says which element of the array it is about.
CREATE FUNCTION mailgres.first_ids(p_requests mailgres.request[], p_ids uuid[], p_many boolean) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_ids    uuid[] := p_ids;
    v_repeat record;
BEGIN
    FOR v_repeat IN
        SELECT r.ordinality AS place, q.id,
               (q.template_type, q.recipient_email, q.payload, q.from_email, q.reply_to, q.subject,
                q.html, q.text, q.headers, q.tags, q.cc, q.bcc, q.also_to)
               IS NOT DISTINCT FROM
               (coalesce(r.template_type, 'inline'), r.recipient_email, r.payload, r.from_email,
                r.reply_to, r.subject, r.html, r.text, r.headers, r.tags, r.cc, r.bcc, r.also_to)
               AND mailgres.has_attachments(q.id, r.attachments) AS same
        FROM unnest(p_requests) WITH ORDINALITY r
        JOIN public.email_queue q
            ON q.tenant_id = r.tenant_id AND q.idempotency_key = r.idempotency_key
        WHERE r.idempotency_key IS NOT NULL AND q.id <> p_ids[r.ordinality]
        ORDER BY r.ordinality
    LOOP
        IF NOT v_repeat.same THEN
            PERFORM mailgres.refuse_request('MG009', NULL, CASE WHEN p_many THEN v_repeat.place - 1 END);
        END IF;
        v_ids[v_repeat.place] := v_repeat.id;
    END LOOP;

    IF EXISTS (SELECT FROM unnest(v_ids) i WHERE NOT EXISTS (
        SELECT FROM public.email_queue q WHERE q.id = i)) THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
            MESSAGE = 'the email with this idempotency key was removed at this moment', HINT = 'Try again.';
    END IF;
    RETURN v_ids;
END
$$;

COMMENT ON FUNCTION mailgres.first_ids(mailgres.request[], uuid[], boolean) IS
    'The ids of the requests; for a key that was used before, the id of the first email.';

-- ---- sql/40_api/40_enqueue_email.sql

CREATE FUNCTION public.enqueue_email(
    p_user_id uuid,
    p_template_type text,
    p_recipient_email text,
    p_payload jsonb DEFAULT '{}',
    p_tenant_id text DEFAULT 'default',
    p_priority int DEFAULT NULL,
    p_scheduled_for timestamptz DEFAULT NULL,
    p_expires_at timestamptz DEFAULT NULL,
    p_idempotency_key text DEFAULT NULL,
    p_correlation_id text DEFAULT NULL,
    p_route text DEFAULT NULL,
    p_retry_policy text DEFAULT NULL,
    p_max_retries int DEFAULT NULL,
    p_retry_delay interval DEFAULT NULL,
    p_max_retry_delay interval DEFAULT NULL,
    p_from_email text DEFAULT NULL,
    p_reply_to text DEFAULT NULL,
    p_subject text DEFAULT NULL,
    p_html text DEFAULT NULL,
    p_text text DEFAULT NULL,
    p_headers jsonb DEFAULT NULL,
    p_tags jsonb DEFAULT NULL,
    p_cc text[] DEFAULT NULL,
    p_bcc text[] DEFAULT NULL,
    p_attachments jsonb DEFAULT NULL,
    p_also_to text[] DEFAULT NULL
) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_id      constant uuid := mailgres.uuid_v7();
    v_starts  constant timestamptz := greatest(p_scheduled_for, mailgres.now());
    v_request mailgres.request;
    v_fault   text;
BEGIN
    INSERT INTO public.email_queue
        (id, user_id, template_type, recipient_email, payload, max_retries, next_retry_at, ready,
         tenant_id, priority, route, scheduled_for, expires_at, idempotency_key, correlation_id,
         retry_policy, retry_delay, max_retry_delay,
         from_email, reply_to, subject, html, text, headers, tags, cc, bcc, also_to, has_attachments)
    SELECT v_id, p_user_id, coalesce(p_template_type, 'inline'), p_recipient_email, p_payload,
           coalesce(p_max_retries, policy.max_retries), v_starts, v_starts <= mailgres.now(),
           tenant.id, coalesce(p_priority, t.priority, 5), coalesce(
               p_route, t.route,
               CASE WHEN tenant.id <> 'default' THEN (
                   SELECT x.route FROM mailgres.tenants x WHERE x.tenant_id = tenant.id) END,
               'default'),
           p_scheduled_for,
           coalesce(p_expires_at, v_starts + coalesce(t.expires_after, s.expires_after)),
           p_idempotency_key, p_correlation_id, policy.name, p_retry_delay, p_max_retry_delay,
           p_from_email, p_reply_to, p_subject, p_html, p_text, p_headers, p_tags, p_cc, p_bcc,
           p_also_to, p_attachments IS NOT NULL
    FROM mailgres.settings s
    CROSS JOIN (  -- as mailgres.for_caller; cheapest inside this statement
        SELECT mailgres.tenant_for(p_tenant_id, min(b.tenant_id), max(b.tenant_id)) AS id
        FROM mailgres.producers b WHERE b.role_name IN (session_user, current_setting('role'))
    ) tenant
    LEFT JOIN public.email_templates t ON t.template_type = p_template_type
    LEFT JOIN mailgres.retry_policies policy
        ON policy.name = coalesce(p_retry_policy, t.retry_policy, s.retry_policy)
    WHERE mailgres.fault_of(ROW(
        p_user_id, p_template_type, p_recipient_email, p_payload, tenant.id, p_priority,
        p_scheduled_for, p_expires_at, p_idempotency_key, p_correlation_id, p_route, p_retry_policy,
        p_max_retries, p_retry_delay, p_max_retry_delay, p_from_email, p_reply_to, p_subject,
        p_html, p_text, p_headers, p_tags, p_cc, p_bcc, p_attachments, p_also_to)::mailgres.request, t) IS NULL
    ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
    IF FOUND AND p_attachments IS NULL THEN
        RETURN v_id;
    END IF;

    -- attachments, a fault, or a key that was used before
    v_request := ROW(
        p_user_id, p_template_type, p_recipient_email, p_payload, p_tenant_id, p_priority,
        p_scheduled_for, p_expires_at, p_idempotency_key, p_correlation_id, p_route, p_retry_policy,
        p_max_retries, p_retry_delay, p_max_retry_delay, p_from_email, p_reply_to, p_subject,
        p_html, p_text, p_headers, p_tags, p_cc, p_bcc, p_attachments, p_also_to);
    v_request := (mailgres.for_caller(ARRAY[v_request], false))[1];
    SELECT x.fault INTO v_fault FROM mailgres.resolve(ARRAY[v_request]) x;
    IF v_fault IS NOT NULL THEN
        PERFORM mailgres.refuse_request(v_fault, v_request, NULL);
    END IF;
    PERFORM mailgres.attach(ARRAY[v_request], ARRAY[v_id]);
    RETURN (mailgres.first_ids(ARRAY[v_request], ARRAY[v_id], false))[1];
END
$$;

COMMENT ON FUNCTION public.enqueue_email IS
    'Puts an email into the queue, in the caller''s transaction, and returns its id.';

-- ---- sql/40_api/41_enqueue_emails.sql

-- Thousands of emails in one call, all or none. An element has the names of enqueue_email's
-- arguments without `p_`, and the same defaults.

CREATE FUNCTION public.enqueue_emails(p_emails jsonb) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    c_most     constant int := 50000;
    v_defaults mailgres.request;
    v_requests mailgres.request[];
    v_keys     text[];
    v_bad      record;
BEGIN
    v_defaults.payload := '{}';
    v_defaults.tenant_id := 'default';
    v_keys := ARRAY(SELECT json_object_keys(row_to_json(v_defaults)));
    IF p_emails IS NULL OR jsonb_typeof(p_emails) <> 'array' OR jsonb_array_length(p_emails) > c_most THEN
        PERFORM mailgres.refuse('MG015', 'the emails are not an array of objects, or too many',
            format('Give a JSON array of at most %s objects, one for each email.', c_most));
    END IF;
    SELECT e.ordinality - 1 AS place, e.value INTO v_bad
    FROM jsonb_array_elements(p_emails) WITH ORDINALITY e
    WHERE CASE WHEN jsonb_typeof(e.value) = 'object' THEN e.value - v_keys <> '{}' ELSE true END
    LIMIT 1;
    IF FOUND THEN
        PERFORM mailgres.refuse('MG015',
            format('element %s of the array (counting from 0) is not an object or has an unknown key', v_bad.place),
            format('Known keys: %s.', array_to_string(v_keys, ', ')));
    END IF;

    BEGIN
        v_requests := ARRAY(SELECT r FROM jsonb_populate_recordset(v_defaults, p_emails) r);
    EXCEPTION WHEN data_exception THEN
        PERFORM mailgres.refuse('MG015', format('a value has the wrong type: %s', mailgres.redact_addresses(SQLERRM)),
            'Compare the types of the arguments of enqueue_email.');
    END;
    v_requests := mailgres.for_caller(v_requests, true);
    RETURN QUERY SELECT unnest(mailgres.enqueue_many(v_requests, p_emails @? '$[*].attachments'));
END
$$;

COMMENT ON FUNCTION public.enqueue_emails(jsonb) IS
    'Puts many emails into the queue, all or none, and returns their ids in order.';

-- ---- sql/40_api/42_check_emails.sql

-- Returns everything that enqueue_emails would refuse, without writing: for a file, all bad lines
-- are reported at once. An idempotency key that was used for another email is not detected here,
-- because that needs the rows.

CREATE FUNCTION mailgres.check_emails(p_emails jsonb)
    RETURNS TABLE (place int, code text, message text, hint text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_defaults mailgres.request;
    v_request  mailgres.request;
    v_fault    text;
BEGIN
    v_defaults.payload := '{}';
    v_defaults.tenant_id := 'default';
    BEGIN
        -- Usually no email is bad. (Unknown keys are ignored here.)
        PERFORM FROM mailgres.resolve(mailgres.for_caller(ARRAY(
            SELECT r FROM jsonb_populate_recordset(v_defaults, p_emails) r), true)) x
        WHERE x.fault IS NOT NULL LIMIT 1;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    EXCEPTION WHEN data_exception OR SQLSTATE 'MG019' THEN
        NULL;  -- a value has the wrong type, or an email is of another tenant: found below
    END;
    FOR v_place IN 0 .. jsonb_array_length(p_emails) - 1 LOOP
        place := v_place;
        BEGIN
            v_request := jsonb_populate_record(v_defaults, p_emails -> v_place);
            v_request := (mailgres.for_caller(ARRAY[v_request], false))[1];
            SELECT x.fault INTO v_fault FROM mailgres.resolve(ARRAY[v_request]) x;
            IF v_fault IS NOT NULL THEN
                PERFORM mailgres.refuse_request(v_fault, v_request, NULL);
            END IF;
        EXCEPTION
            WHEN data_exception THEN
                code := 'MG015';
                message := format('a value has the wrong type: %s', mailgres.redact_addresses(SQLERRM));
                hint := 'Compare the types of the arguments of enqueue_email.';
                RETURN NEXT;
            WHEN OTHERS THEN
                IF SQLSTATE NOT LIKE 'MG%' THEN
                    RAISE;
                END IF;
                GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
                RETURN NEXT;
        END;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.check_emails(jsonb) IS
    'Which of these emails enqueue_emails would refuse, by their places, and why; writes nothing.';

-- ---- sql/40_api/50_operate.sql

-- What people do with an email by hand: cancel, retry, reschedule. Each function locks the row
-- first, so that a worker that claims at the same time either has it already or does not get it.

CREATE FUNCTION mailgres.lock_email(p_queue_id uuid) RETURNS public.email_queue
    LANGUAGE plpgsql
AS $$
DECLARE
    v_email public.email_queue;
BEGIN
    SELECT * INTO v_email FROM public.email_queue q WHERE q.id = p_queue_id FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG020', format('there is no email %s in the queue', coalesce(p_queue_id::text, 'null')),
            'Check the id; an email leaves the queue when its retention is over.');
    END IF;
    RETURN v_email;
END
$$;

COMMENT ON FUNCTION mailgres.lock_email(uuid) IS 'The email, locked; refuses an unknown id.';

-- Why an action is refused; all null: it is not.
CREATE TYPE mailgres.refusal AS (code text, message text, hint text);

CREATE FUNCTION mailgres.refuse_if(p_refusal mailgres.refusal) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_refusal.code IS NOT NULL THEN
        PERFORM mailgres.refuse(p_refusal.code, p_refusal.message, p_refusal.hint);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.refuse_if(mailgres.refusal) IS 'Raises the refusal, if there is one.';

CREATE FUNCTION mailgres.is_held_without_token(q public.email_queue) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN q.status = 'sending' AND q.lease_is_tokenless;

COMMENT ON FUNCTION mailgres.is_held_without_token(public.email_queue) IS
    'Whether a processor that does not use tokens holds the email.';

CREATE FUNCTION mailgres.cancel_refusal(p_email public.email_queue) RETURNS mailgres.refusal
    LANGUAGE sql STABLE
RETURN CASE
    WHEN p_email.status = 'cancelled' THEN
        ('MG021', 'the email was cancelled before', 'There is nothing to do.')::mailgres.refusal
    WHEN p_email.status = 'sent' THEN
        ('MG021', 'the email has been sent', 'A sent email cannot be cancelled.')::mailgres.refusal
    WHEN p_email.attempt_started_at IS NOT NULL OR mailgres.is_held_without_token(p_email) THEN
        ('MG022', 'the email is being sent', 'Wait for the outcome: if it fails, cancel it then.')::mailgres.refusal
    WHEN p_email.uncertain_since IS NOT NULL THEN
        ('MG023', 'an earlier attempt may have arrived, so the email cannot be cancelled',
         'Wait until its outcome is known, or settle it with record_email_event.')::mailgres.refusal
END;

COMMENT ON FUNCTION mailgres.cancel_refusal(public.email_queue) IS 'Why an email cannot be cancelled, or null.';

CREATE FUNCTION mailgres.cancel_these(p_ids uuid[], p_reason text) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE public.email_queue q
    SET status = 'cancelled', ready = false, dead_at = NULL, dead_reason = NULL,
        error_message = coalesce(nullif(p_reason, ''), 'cancelled by hand'),
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL
    WHERE q.id = ANY (p_ids);
END
$$;

COMMENT ON FUNCTION mailgres.cancel_these(uuid[], text) IS
    'Cancels emails that the caller has locked and checked.';

CREATE FUNCTION public.cancel_email(p_queue_id uuid, p_reason text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_email public.email_queue := mailgres.lock_email(p_queue_id);
BEGIN
    IF v_email.status = 'cancelled' THEN
        RETURN false;
    END IF;
    PERFORM mailgres.refuse_if(mailgres.cancel_refusal(v_email));
    PERFORM mailgres.cancel_these(ARRAY[p_queue_id], p_reason);
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.cancel_email(uuid, text) IS
    'Cancels an email whose call has not started; false if it was cancelled before.';

-- A dead or cancelled email goes back to the queue with all its retries. It gets a new key, unless it
-- is uncertain: then the key is kept while it protects, and afterwards the caller has to accept a
-- possible duplicate. The key of a batch no longer protects when some of its emails are settled: the
-- call cannot be repeated.

-- One transaction at a time per batch: two that lock its emails would deadlock. Taken before the rows
-- are locked, and in one order.
CREATE FUNCTION mailgres.lock_batches(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(b.lock)
    FROM (
        SELECT DISTINCT hashtextextended('mailgres batch ' || q.batch_id, 0) AS lock
        FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.uncertain_since IS NOT NULL AND q.batch_id IS NOT NULL
        ORDER BY 1
    ) b;
END
$$;

COMMENT ON FUNCTION mailgres.lock_batches(uuid[]) IS
    'Waits for the locks of the uncertain batches of these emails.';

CREATE FUNCTION mailgres.key_protects(p_email public.email_queue) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM mailgres.providers p
        WHERE p.name = p_email.provider AND p.idempotent
          AND p_email.uncertain_since + p.key_window > mailgres.now()) THEN
        RETURN false;
    END IF;
    RETURN p_email.batch_id IS NULL OR p_email.batch_size <= (
        SELECT count(*) FROM public.email_queue q
        WHERE q.batch_id = p_email.batch_id AND q.uncertain_since IS NOT NULL
          AND (q.status NOT IN ('sent', 'cancelled') OR q.id = p_email.id)
    ) + (
        SELECT count(*) FROM public.email_queue q
        WHERE q.status = 'sending' AND q.due_at IS NOT NULL
          AND q.batch_id = p_email.batch_id AND q.uncertain_since IS NULL);
END
$$;

COMMENT ON FUNCTION mailgres.key_protects(public.email_queue) IS
    'Whether an uncertain email can be sent again under its key and be delivered once.';

CREATE FUNCTION mailgres.duplicate_refusal() RETURNS mailgres.refusal
    LANGUAGE sql IMMUTABLE
RETURN ('MG024', 'an earlier attempt may have arrived: sending again may deliver it twice',
        'Look it up at the provider and settle it with record_email_event, or call retry_email with p_accept_duplicate => true.')::mailgres.refusal;

COMMENT ON FUNCTION mailgres.duplicate_refusal() IS
    'The refusal to send an uncertain email again.';

CREATE FUNCTION mailgres.is_suppressed(q public.email_queue) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM public.email_suppressions s
        WHERE s.recipient_email = mailgres.canonical_address(q.recipient_email)
          AND s.tenant_id IN ('*', q.tenant_id));
END
$$;

COMMENT ON FUNCTION mailgres.is_suppressed(public.email_queue) IS
    'Whether the address of an email is suppressed for its tenant.';

CREATE FUNCTION mailgres.retry_refusal(p_email public.email_queue, p_accept_duplicate boolean)
    RETURNS mailgres.refusal
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_email.status = 'sent' THEN
        RETURN ('MG021', 'the email has been sent', 'To send it again, enqueue it again.')::mailgres.refusal;
    ELSIF p_email.status = 'sending' THEN
        RETURN ('MG022', 'the email is being sent',
                'Wait for the outcome: it is retried by its policy if it fails.')::mailgres.refusal;
    ELSIF NOT mailgres.is_in_uncertain_batch(p_email) AND mailgres.is_suppressed(p_email) THEN
        -- a worker would not send it; with the rest of an uncertain batch it would
        RETURN ('MG028', 'the address is suppressed',
                'If it may get email again, remove it with mailgres suppressions remove, then retry.')::mailgres.refusal;
    ELSIF p_email.uncertain_since IS NOT NULL AND NOT coalesce(p_accept_duplicate, false)
          AND NOT mailgres.key_protects(p_email) THEN
        RETURN mailgres.duplicate_refusal();
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION mailgres.retry_refusal(public.email_queue, boolean) IS
    'Why an email cannot be retried, or null.';

-- Events settle emails without the lock of their batch. So key_protects() is checked again when
-- the rest of the batch is locked, and only emails for which a duplicate is accepted
-- (p_accept_duplicate) are sent under a new key.
CREATE FUNCTION mailgres.reopen(p_ids uuid[], p_accept_duplicate boolean) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_kept     uuid[];
    v_rest     uuid[];
    v_renewed  uuid[];
BEGIN
    v_kept := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.uncertain_since IS NOT NULL AND mailgres.key_protects(q));
    -- An uncertain batch is sent again as a whole or not at all.
    IF cardinality(v_kept) > 0 THEN
        v_rest := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id IN (SELECT k.batch_id FROM public.email_queue k WHERE k.id = ANY (v_kept))
              AND q.uncertain_since IS NOT NULL AND q.status IN ('pending', 'failed') AND q.id <> ALL (v_kept)
            ORDER BY q.id FOR UPDATE);
        v_kept := ARRAY(
            SELECT q.id FROM public.email_queue q WHERE q.id = ANY (v_kept) AND mailgres.key_protects(q));
        v_kept := v_kept || ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.id = ANY (v_rest)
              AND q.batch_id IN (SELECT k.batch_id FROM public.email_queue k WHERE k.id = ANY (v_kept)));
    END IF;
    IF NOT coalesce(p_accept_duplicate, false) THEN
        p_ids := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.id = ANY (p_ids) AND (q.uncertain_since IS NULL OR q.id = ANY (v_kept)));
    END IF;
    p_ids := ARRAY(SELECT unnest(p_ids) UNION SELECT unnest(v_kept));
    -- A waiting email whose attempts all definitely failed keeps its key.
    v_renewed := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.id <> ALL (v_kept)
          AND (q.status <> 'pending' OR q.uncertain_since IS NOT NULL));

    UPDATE public.email_queue q
    SET status = 'pending', ready = true, next_retry_at = mailgres.now(), retries = 0,
        dead_at = NULL, dead_reason = NULL, lease_losses = 0, parked_since = NULL,
        expires_at = CASE WHEN q.expires_at > mailgres.now() THEN q.expires_at END,
        generation = q.generation + (q.id = ANY (v_renewed))::int,
        uncertain_since = CASE WHEN q.id <> ALL (v_renewed) THEN q.uncertain_since END,
        first_attempt_at = CASE WHEN q.id <> ALL (v_renewed) THEN q.first_attempt_at END,
        batch_id = CASE WHEN q.id <> ALL (v_renewed) THEN q.batch_id END,
        -- so that it uses a template that was fixed since
        template_version = CASE WHEN q.id <> ALL (v_renewed) THEN q.template_version END
    WHERE q.id = ANY (p_ids);
    RETURN p_ids;
END
$$;

COMMENT ON FUNCTION mailgres.reopen(uuid[], boolean) IS
    'Puts emails that the caller has locked and checked back into the queue, and the rest of their uncertain batches; returns all of them. Leaves out emails that might be delivered twice, unless that is accepted.';

CREATE FUNCTION public.retry_email(p_queue_id uuid, p_accept_duplicate boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM mailgres.lock_batches(ARRAY[p_queue_id]);
    PERFORM mailgres.refuse_if(mailgres.retry_refusal(mailgres.lock_email(p_queue_id), p_accept_duplicate));
    IF p_queue_id <> ALL (mailgres.reopen(ARRAY[p_queue_id], p_accept_duplicate)) THEN
        PERFORM mailgres.refuse_if(mailgres.duplicate_refusal());
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.retry_email(uuid, boolean) IS
    'Puts a dead, cancelled or waiting email back into the queue, to be sent now, with all its retries.';

CREATE FUNCTION mailgres.reschedule_refusal(p_email public.email_queue, p_scheduled_for timestamptz)
    RETURNS mailgres.refusal
    LANGUAGE sql STABLE
RETURN CASE
    WHEN p_email.status = 'sending' THEN
        ('MG022', 'the email is being sent', 'Wait for the outcome.')::mailgres.refusal
    WHEN p_email.status <> 'pending' THEN
        ('MG021', format('the email is %s, not pending', p_email.status),
         'Only waiting emails can be rescheduled; a dead or cancelled one is first retried.')::mailgres.refusal
    WHEN p_scheduled_for IS NULL OR p_email.expires_at <= p_scheduled_for THEN
        ('MG008', 'it would expire before it could be sent', 'Give a time before it expires.')::mailgres.refusal
END;

COMMENT ON FUNCTION mailgres.reschedule_refusal(public.email_queue, timestamptz) IS
    'Why an email cannot be rescheduled, or null.';

CREATE FUNCTION mailgres.reschedule_these(p_ids uuid[], p_scheduled_for timestamptz) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE public.email_queue q
    SET scheduled_for = p_scheduled_for,
        next_retry_at = greatest(p_scheduled_for, mailgres.now()),
        ready = p_scheduled_for <= mailgres.now()
    WHERE q.id = ANY (p_ids);
END
$$;

COMMENT ON FUNCTION mailgres.reschedule_these(uuid[], timestamptz) IS
    'Reschedules emails that the caller has locked and checked.';

CREATE FUNCTION public.reschedule_email(p_queue_id uuid, p_scheduled_for timestamptz) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM mailgres.refuse_if(mailgres.reschedule_refusal(mailgres.lock_email(p_queue_id), p_scheduled_for));
    PERFORM mailgres.reschedule_these(ARRAY[p_queue_id], p_scheduled_for);
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.reschedule_email(uuid, timestamptz) IS
    'Changes the time at which a waiting email is sent.';

-- ---- sql/40_api/55_operate_many.sql

-- The same for hundreds of emails, for operators' commands: cancel, retry and reschedule in one short
-- transaction, and report the result of each email. A refusal is reported, not raised, so that the
-- other emails are handled. No function here waits for a row: an email that another session has
-- locked is reported, too, and the caller can repeat it. So there is no deadlock with claim and
-- finish.
--
-- p_statuses: handle only emails that still have one of these statuses, as they had when the caller
-- chose them; null means any.

CREATE TYPE mailgres.action_result AS (id uuid, code text, message text, hint text);

CREATE FUNCTION mailgres.take_emails(p_ids uuid[], p_statuses text[]) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
BEGIN
    RETURN ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND (p_statuses IS NULL OR q.status = ANY (p_statuses))
        ORDER BY q.id FOR UPDATE SKIP LOCKED);
END
$$;

COMMENT ON FUNCTION mailgres.take_emails(uuid[], text[]) IS
    'Locks those of the given emails that no other session has locked and that have one of the statuses.';

-- An uncertain batch is sent again as a whole: if another session has locked one of its emails, none
-- is taken. It does not wait for the lock of the batch either, because that comes after the rows'.
CREATE FUNCTION mailgres.with_whole_batches(p_taken uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_batch   record;
    v_all     bigint;
    v_locked  uuid[];
BEGIN
    FOR v_batch IN
        SELECT q.batch_id AS id, array_agg(q.id) AS taken
        FROM public.email_queue q
        WHERE q.id = ANY (p_taken) AND mailgres.is_in_uncertain_batch(q) AND mailgres.key_protects(q)
        GROUP BY q.batch_id
    LOOP
        v_all := (
            SELECT count(*) FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status IN ('pending', 'failed'));
        v_locked := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status IN ('pending', 'failed')
            ORDER BY q.id FOR UPDATE SKIP LOCKED);
        IF NOT mailgres.try_lock_batch(v_batch.id) OR cardinality(v_locked) < v_all THEN
            p_taken := ARRAY(SELECT unnest(p_taken) EXCEPT SELECT unnest(v_batch.taken));
        END IF;
    END LOOP;
    RETURN p_taken;
END
$$;

COMMENT ON FUNCTION mailgres.with_whole_batches(uuid[]) IS
    'Locks the rest of uncertain batches, which are sent again as a whole; leaves out emails of which another session has locked the rest.';

CREATE FUNCTION mailgres.not_taken(p_ids uuid[], p_taken uuid[], p_statuses text[]) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    SELECT i.id,
           CASE WHEN q.id IS NULL THEN 'MG020' ELSE 'MG026' END,
           CASE WHEN q.id IS NULL THEN 'there is no such email in the queue'
                WHEN p_statuses IS NULL OR q.status = ANY (p_statuses)
                THEN 'somebody else is changing the email at this moment'
                ELSE format('the email is %s now', q.status) END,
           CASE WHEN q.id IS NULL THEN 'Check the id; an email leaves the queue when its retention is over.'
                ELSE 'Look at it again, and repeat what is still to be done.' END
    FROM unnest(p_ids) i(id)
    LEFT JOIN public.email_queue q ON q.id = i.id
    WHERE i.id <> ALL (p_taken);
END
$$;

COMMENT ON FUNCTION mailgres.not_taken(uuid[], uuid[], text[]) IS
    'Why emails could not be taken: unknown, locked by another session, or changed since.';

CREATE FUNCTION mailgres.cancel_emails(p_ids uuid[], p_reason text DEFAULT NULL, p_statuses text[] DEFAULT NULL)
    RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_taken    constant uuid[] := mailgres.take_emails(p_ids, p_statuses);
    v_results  constant mailgres.action_result[] := ARRAY(
        SELECT (q.id, r.code, r.message, r.hint)::mailgres.action_result
        FROM public.email_queue q CROSS JOIN LATERAL mailgres.cancel_refusal(q) r
        WHERE q.id = ANY (v_taken));
BEGIN
    PERFORM mailgres.cancel_these(ARRAY(SELECT x.id FROM unnest(v_results) x WHERE x.code IS NULL), p_reason);
    RETURN QUERY
    SELECT x.* FROM unnest(v_results) x UNION ALL SELECT n.* FROM mailgres.not_taken(p_ids, v_taken, p_statuses) n;
END
$$;

COMMENT ON FUNCTION mailgres.cancel_emails(uuid[], text, text[]) IS
    'cancel_email for many: a row for each email, with the code of its refusal, or null.';

-- Also returns the rest of batches that were reopened with one of these emails.
CREATE FUNCTION mailgres.retry_emails(
    p_ids uuid[], p_accept_duplicates boolean DEFAULT false, p_statuses text[] DEFAULT NULL
) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_taken      constant uuid[] := mailgres.with_whole_batches(mailgres.take_emails(p_ids, p_statuses));
    v_results    constant mailgres.action_result[] := ARRAY(
        SELECT (q.id, r.code, r.message, r.hint)::mailgres.action_result
        FROM public.email_queue q CROSS JOIN LATERAL mailgres.retry_refusal(q, p_accept_duplicates) r
        WHERE q.id = ANY (v_taken));
    v_accepted   constant uuid[] := ARRAY(SELECT x.id FROM unnest(v_results) x WHERE x.code IS NULL);
    v_reopened   constant uuid[] := mailgres.reopen(v_accepted, p_accept_duplicates);
    v_duplicate  constant mailgres.refusal := mailgres.duplicate_refusal();
BEGIN
    RETURN QUERY SELECT i, NULL::text, NULL::text, NULL::text FROM unnest(v_reopened) i;
    RETURN QUERY SELECT x.* FROM unnest(v_results) x WHERE x.code IS NOT NULL AND x.id <> ALL (v_reopened);
    RETURN QUERY
    SELECT i, v_duplicate.code, v_duplicate.message, v_duplicate.hint
    FROM unnest(v_accepted) i WHERE i <> ALL (v_reopened);
    RETURN QUERY SELECT n.* FROM mailgres.not_taken(p_ids, v_taken || v_reopened, p_statuses) n;
END
$$;

COMMENT ON FUNCTION mailgres.retry_emails(uuid[], boolean, text[]) IS
    'retry_email for many: a row for each email, with the code of its refusal, or null.';

CREATE FUNCTION mailgres.reschedule_emails(
    p_ids uuid[], p_scheduled_for timestamptz, p_statuses text[] DEFAULT NULL
) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_taken    constant uuid[] := mailgres.take_emails(p_ids, p_statuses);
    v_results  constant mailgres.action_result[] := ARRAY(
        SELECT (q.id, r.code, r.message, r.hint)::mailgres.action_result
        FROM public.email_queue q CROSS JOIN LATERAL mailgres.reschedule_refusal(q, p_scheduled_for) r
        WHERE q.id = ANY (v_taken));
BEGIN
    PERFORM mailgres.reschedule_these(ARRAY(SELECT x.id FROM unnest(v_results) x WHERE x.code IS NULL), p_scheduled_for);
    RETURN QUERY
    SELECT x.* FROM unnest(v_results) x UNION ALL SELECT n.* FROM mailgres.not_taken(p_ids, v_taken, p_statuses) n;
END
$$;

COMMENT ON FUNCTION mailgres.reschedule_emails(uuid[], timestamptz, text[]) IS
    'reschedule_email for many: a row for each email, with the code of its refusal, or null.';

-- ---- sql/40_api/60_processors.sql

-- For processors that an application already has: an edge function, a cron job. They do not use
-- tokens, so their claims have a lease of 15 minutes that never counts as a crash, and whether their
-- reports are accepted depends on who holds the email.

CREATE FUNCTION public.process_pending_emails_for_retry(batch_size int DEFAULT 10)
    RETURNS TABLE (queue_id uuid, user_id uuid, template_type text, recipient_email text, payload jsonb, retries int)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
    SELECT q.id, q.user_id, q.template_type::text, q.recipient_email::text, q.payload::jsonb, q.retries::int
    FROM mailgres.claim('processor', batch_size, '15 minutes', p_tokenless => true) q;
END
$$;

COMMENT ON FUNCTION public.process_pending_emails_for_retry(int) IS
    'Claims due emails for a processor that does not use tokens, for 15 minutes.';

CREATE FUNCTION public.get_pending_emails_for_retry(batch_size int DEFAULT 10)
    RETURNS TABLE (queue_id uuid, user_id uuid, template_type text, recipient_email text, payload jsonb, retries int)
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
    SELECT * FROM public.process_pending_emails_for_retry(batch_size)
$$;

COMMENT ON FUNCTION public.get_pending_emails_for_retry(int) IS
    'The same as process_pending_emails_for_retry: emails that are returned are claimed.';

-- With the provider's id the report is always accepted, whoever holds the email, because it was sent.
-- Without one it only settles emails that no worker holds.
CREATE FUNCTION public.mark_email_sent(p_queue_id uuid, p_resend_id text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_id text := nullif(p_resend_id, '');
BEGIN
    PERFORM mailgres.commit_durably();
    UPDATE public.email_queue q
    SET status = 'sent', ready = false, sent_at = coalesce(q.sent_at, mailgres.now()),
        last_attempt_at = coalesce(q.last_attempt_at, mailgres.now()),
        provider = CASE WHEN v_id IS NOT NULL THEN 'resend' END,
        provider_message_id = v_id, resend_id = v_id,
        dead_at = NULL, dead_reason = NULL, uncertain_since = NULL, parked_since = NULL,
        error_message = NULL, error_class = NULL, error_code = NULL, error_detail = NULL,
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
    WHERE q.id = p_queue_id AND q.status <> 'sent'
      AND (v_id IS NOT NULL OR q.status = 'pending' OR mailgres.is_held_without_token(q));
    RETURN FOUND OR EXISTS (
        SELECT FROM public.email_queue q WHERE q.id = p_queue_id AND q.status = 'sent');
END
$$;

COMMENT ON FUNCTION public.mark_email_sent(uuid, text) IS
    'Marks an email as sent; with the provider''s id always, without it only if no worker holds it. True if it is sent now.';

CREATE FUNCTION public.mark_email_failed(p_queue_id uuid, p_error_message text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_email     public.email_queue;
    v_decision  mailgres.retry_decision;
BEGIN
    SELECT * INTO v_email FROM public.email_queue q
    WHERE q.id = p_queue_id AND (q.status = 'pending' OR mailgres.is_held_without_token(q))
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_decision := mailgres.decide_retry(v_email, 'transient', NULL, false, false);
    UPDATE public.email_queue q
    SET status = CASE WHEN v_decision.dead_reason IS NULL THEN 'pending' ELSE 'failed' END,
        ready = false,
        retries = q.retries + v_decision.spent,
        last_attempt_at = mailgres.now(),
        next_retry_at = coalesce(v_decision.next_retry_at, q.next_retry_at),
        dead_at = CASE WHEN v_decision.dead_reason IS NOT NULL THEN mailgres.now() END,
        dead_reason = v_decision.dead_reason,
        error_class = 'transient', error_code = NULL, send_alone = false, error_detail = left(p_error_message, 4000),
        error_message = coalesce(nullif(p_error_message, ''), 'failed without a message'),
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
    WHERE q.id = p_queue_id;
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.mark_email_failed(uuid, text) IS
    'Reports a failed attempt for an email that no worker holds: it is retried by its policy, or dies after the last retry. False if nothing was changed.';

CREATE FUNCTION public.calculate_next_retry_time(retry_count int) RETURNS timestamptz
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN mailgres.now() + mailgres.retry_delay(p, least(coalesce(retry_count, 0), 1000) + 1)
    FROM mailgres.settings s
    JOIN mailgres.retry_policies p ON p.name = s.retry_policy;
END
$$;

COMMENT ON FUNCTION public.calculate_next_retry_time(int) IS
    'When an email would be retried after this many retries, by the default policy.';

-- ---- sql/40_api/70_record_email_event.sql

-- Reports that a provider makes later, by webhook: delivered, bounced, complained, failed. The event
-- is logged; it settles an uncertain email; a bounce or a complaint suppresses the address. The email
-- is identified by our id (which the provider has as a tag) or by the provider's.

CREATE FUNCTION mailgres.log_event(q public.email_queue, p_event text, p_message_id text, p_detail text)
    RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO public.email_logs
        (queue_id, event, from_status, to_status, tenant_id, template_type, provider,
         provider_message_id, error_message, error_detail)
    VALUES
        (q.id, p_event, q.status, q.status, q.tenant_id, q.template_type, q.provider,
         coalesce(p_message_id, q.provider_message_id),
         mailgres.redact_recipients(p_detail, q.recipient_email, q.also_to, q.cc, q.bcc), left(p_detail, 4000));
END
$$;

COMMENT ON FUNCTION mailgres.log_event(public.email_queue, text, text, text) IS
    'Logs what a provider reported about an email.';

CREATE FUNCTION public.record_email_event(
    p_event text,
    p_queue_id uuid DEFAULT NULL,
    p_provider_message_id text DEFAULT NULL,
    p_detail text DEFAULT NULL,
    p_suppress boolean DEFAULT true
) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_id     uuid := p_queue_id;
    v_email  public.email_queue;
    v_went   constant boolean := p_event IN ('delivered', 'bounced', 'complained');
BEGIN
    IF p_event IS NULL OR p_event NOT IN ('delivered', 'bounced', 'complained', 'failed') THEN
        PERFORM mailgres.refuse('MG025', format('%s is not an event', coalesce(quote_literal(p_event), 'null')),
            'Give delivered, bounced, complained or failed.');
    END IF;
    IF v_id IS NULL THEN
        SELECT l.queue_id INTO v_id FROM public.email_logs l
        WHERE l.provider_message_id = p_provider_message_id ORDER BY l.id DESC LIMIT 1;
    END IF;
    SELECT * INTO v_email FROM public.email_queue q WHERE q.id = v_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;

    -- A failure is logged before the change that it causes, other events after it.
    IF NOT v_went THEN
        PERFORM mailgres.log_event(v_email, p_event, p_provider_message_id, p_detail);
    END IF;
    IF coalesce(p_suppress, true) AND p_event IN ('bounced', 'complained') THEN
        INSERT INTO public.email_suppressions (recipient_email, tenant_id, reason, detail, queue_id)
        VALUES (mailgres.canonical_address(v_email.recipient_email),
                CASE p_event WHEN 'complained' THEN v_email.tenant_id ELSE '*' END,
                p_event, mailgres.redact_addresses(p_detail), v_id)
        ON CONFLICT DO NOTHING;
    END IF;

    IF v_went AND v_email.status <> 'sent'
       AND coalesce(v_email.uncertain_since, v_email.attempt_started_at) IS NOT NULL THEN
        UPDATE public.email_queue q
        SET status = 'sent', ready = false, sent_at = mailgres.now(), uncertain_since = NULL,
            provider_message_id = coalesce(p_provider_message_id, q.provider_message_id, q.id::text),
            dead_at = NULL, dead_reason = NULL,
            error_message = NULL, error_class = NULL, error_code = NULL, error_detail = NULL,
            lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
        WHERE q.id = v_id;
    ELSIF p_event = 'failed' AND (v_email.status = 'sent'
        OR (v_email.uncertain_since IS NOT NULL AND v_email.status IN ('pending', 'failed'))) THEN
        UPDATE public.email_queue q
        SET status = 'failed', ready = false, dead_at = coalesce(q.dead_at, mailgres.now()),
            dead_reason = coalesce(nullif(q.dead_reason, 'uncertain'), 'permanent'), uncertain_since = NULL,
            sent_at = NULL, error_class = 'permanent', error_code = 'failed',
            error_detail = left(p_detail, 4000),
            error_message = coalesce(nullif(p_detail, ''), 'the provider reported that it was not sent')
        WHERE q.id = v_id;
    END IF;

    -- A sent email that bounced was not delivered: counted once, until it is sent again.
    SELECT * INTO v_email FROM public.email_queue q WHERE q.id = v_id;
    IF p_event = 'bounced' AND v_email.status = 'sent' AND NOT mailgres.has_bounced(v_id) THEN
        PERFORM mailgres.count_email(v_email, 'bounced', 1, 0);
    END IF;
    IF v_went THEN
        PERFORM mailgres.log_event(v_email, p_event, p_provider_message_id, p_detail);
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.record_email_event(text, uuid, text, text, boolean) IS
    'Records what a provider reports about an email; false if the email is not known.';

-- ---- sql/40_api/80_dead_letters.sql

-- Dead letters for people: those in the queue and those in the archive. The reader needs the right to
-- read the tables below. An attempt that a processor reports without having claimed the email counts
-- as an attempt, too.

CREATE VIEW public.email_dead_letters WITH (security_invoker = true) AS
SELECT q.id, q.tenant_id::text, q.user_id, q.template_type, q.recipient_email, q.payload,
       t.attempt_times, coalesce(cardinality(t.attempt_times), 0) AS attempts,
       q.dead_reason::text, q.error_class::text, q.error_code, q.error_message, q.error_detail,
       q.provider, q.correlation_id,
       q.created_at AS enqueued_at, q.dead_at, NULL::timestamptz AS archived_at,
       q.dead_at + s.dead_letter_ttl AS expires_at,
       to_jsonb(q) AS email
FROM public.email_queue q
CROSS JOIN mailgres.settings s
CROSS JOIN LATERAL (
    SELECT array_agg(coalesce(l.claimed_at, l.at) ORDER BY l.id) AS attempt_times
    FROM public.email_logs l
    WHERE l.queue_id = q.id
      AND (l.event = 'retry' OR l.dead_reason = 'exhausted'
           OR l.event <> 'given_back' AND l.claimed_at IS NOT NULL)
) t
WHERE q.status = 'failed' AND q.due_at IS NOT NULL
UNION ALL
SELECT d.queue_id, d.tenant_id, (d.email ->> 'user_id')::uuid, d.template_type,
       d.email ->> 'recipient_email', d.email -> 'payload',
       t.attempt_times, coalesce(cardinality(t.attempt_times), 0),
       d.dead_reason, d.email ->> 'error_class', d.error_code, d.email ->> 'error_message',
       d.email ->> 'error_detail', d.email ->> 'provider', d.email ->> 'correlation_id',
       (d.email ->> 'created_at')::timestamptz, d.dead_at, d.archived_at, d.expires_at,
       d.email
FROM mailgres.dead_letters d
CROSS JOIN LATERAL (
    SELECT array_agg(coalesce(l ->> 'claimed_at', l ->> 'at')::timestamptz ORDER BY n) AS attempt_times
    FROM jsonb_array_elements(d.log) WITH ORDINALITY x(l, n)
    WHERE l ->> 'event' = 'retry' OR l ->> 'dead_reason' = 'exhausted'
       OR l ->> 'event' <> 'given_back' AND l ->> 'claimed_at' IS NOT NULL
) t;

COMMENT ON VIEW public.email_dead_letters IS
    'Dead emails, in the queue and in the archive: what they were, why they died, every attempt. For operators.';
COMMENT ON COLUMN public.email_dead_letters.attempt_times IS 'When each attempt was claimed.';
COMMENT ON COLUMN public.email_dead_letters.attempts IS 'How many attempts were made.';
COMMENT ON COLUMN public.email_dead_letters.error_message IS 'The last reason; never empty.';
COMMENT ON COLUMN public.email_dead_letters.error_detail IS
    'The provider''s text, unchanged; for a fault of mailgres itself, the places in the code.';
COMMENT ON COLUMN public.email_dead_letters.enqueued_at IS 'When it was enqueued.';
COMMENT ON COLUMN public.email_dead_letters.dead_at IS 'When it became a dead letter.';
COMMENT ON COLUMN public.email_dead_letters.archived_at IS
    'When it left the queue for the archive; null: it is still in the queue, where it can be retried.';
COMMENT ON COLUMN public.email_dead_letters.expires_at IS
    'When it moves to the archive; in the archive, when it is deleted.';
COMMENT ON COLUMN public.email_dead_letters.email IS 'The whole email, as it is in the queue.';

-- ---- sql/40_api/85_find_dead_letters.sql

-- Finds and purges dead letters by the thousand, for operators' commands.

-- The newest first. The rows are narrow, so that a million of them are found quickly;
-- email_dead_letters has everything about one. p_place: queue, archive, or null for both. p_code:
-- none means dead letters without a code.
CREATE FUNCTION mailgres.find_dead_letters(
    p_tenant text DEFAULT NULL, p_template text DEFAULT NULL, p_code text DEFAULT NULL, p_reason text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL, p_place text DEFAULT NULL,
    p_limit int DEFAULT NULL
) RETURNS TABLE (
    id uuid, tenant_id text, template_type text, error_code text, dead_reason text, dead_at timestamptz,
    archived boolean
)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
BEGIN
    -- Planned at each call, and each half has the limit: the newest of a million come from an index.
    RETURN QUERY
    (SELECT q.id, q.tenant_id::text, q.template_type::text, q.error_code, q.dead_reason::text, q.dead_at, false
     FROM public.email_queue q
     WHERE q.status = 'failed' AND q.due_at >= coalesce(p_since, '-infinity') AND q.due_at < coalesce(p_until, 'infinity')
       AND (p_tenant IS NULL OR q.tenant_id = p_tenant)
       AND (p_template IS NULL OR q.template_type = p_template)
       AND (p_code IS NULL OR q.error_code = p_code OR p_code = 'none' AND q.error_code IS NULL)
       AND (p_reason IS NULL OR q.dead_reason = p_reason)
       AND p_place IS DISTINCT FROM 'archive'
     ORDER BY q.due_at DESC, q.id LIMIT p_limit)
    UNION ALL
    (SELECT d.queue_id, d.tenant_id, d.template_type, d.error_code, d.dead_reason, d.dead_at, true
     FROM mailgres.dead_letters d
     WHERE d.dead_at >= coalesce(p_since, '-infinity') AND d.dead_at < coalesce(p_until, 'infinity')
       AND (p_tenant IS NULL OR d.tenant_id = p_tenant)
       AND (p_template IS NULL OR d.template_type = p_template)
       AND (p_code IS NULL OR d.error_code = p_code OR p_code = 'none' AND d.error_code IS NULL)
       AND (p_reason IS NULL OR d.dead_reason = p_reason)
       AND p_place IS DISTINCT FROM 'queue'
     ORDER BY d.dead_at DESC, d.queue_id LIMIT p_limit)
    ORDER BY 6 DESC, 1
    LIMIT p_limit;
END
$$;

COMMENT ON FUNCTION mailgres.find_dead_letters(text, text, text, text, timestamptz, timestamptz, text, int) IS
    'Dead letters in the queue and in the archive, the newest first.';

-- A dead letter is identified by the email and its time of death: an email that was retried and died
-- again is another dead letter, which the caller has not seen. Exports have no attachments, so dead
-- letters in the queue that have some are kept, unless p_with_attachments is true; the archive has no
-- attachments.
CREATE FUNCTION mailgres.purge_dead_letters(
    p_ids uuid[], p_dead_at timestamptz[], p_with_attachments boolean DEFAULT false
) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_queued    uuid[];
    v_archived  uuid[];
    v_spared    uuid[];
BEGIN
    v_queued := ARRAY(
        SELECT q.id FROM public.email_queue q
        JOIN unnest(p_ids, p_dead_at) x(id, dead_at) ON x.id = q.id
        WHERE q.id = ANY (p_ids) AND q.status = 'failed' AND q.dead_at = x.dead_at
        ORDER BY q.id FOR UPDATE OF q SKIP LOCKED);
    v_spared := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (v_queued) AND q.has_attachments AND p_with_attachments IS NOT TRUE);
    v_queued := ARRAY(SELECT unnest(v_queued) EXCEPT SELECT unnest(v_spared));
    PERFORM mailgres.delete_emails(v_queued);
    v_archived := ARRAY(
        SELECT d.queue_id FROM mailgres.dead_letters d
        JOIN unnest(p_ids, p_dead_at) x(id, dead_at) ON x.id = d.queue_id
        WHERE d.queue_id = ANY (p_ids) AND d.dead_at = x.dead_at
        ORDER BY d.queue_id FOR UPDATE OF d SKIP LOCKED);
    DELETE FROM mailgres.dead_letters d WHERE d.queue_id = ANY (v_archived);

    RETURN QUERY SELECT DISTINCT i, NULL::text, NULL::text, NULL::text FROM unnest(v_queued || v_archived) i;
    RETURN QUERY
    SELECT i, 'MG027', 'it has attachments, and those are in no export',
           'Save what is needed of them and give --with-attachments, or leave it: the archive takes it without them.'
    FROM unnest(v_spared) i WHERE i <> ALL (v_archived);
    RETURN QUERY
    SELECT i.id,
           CASE WHEN x.there THEN 'MG026' ELSE 'MG020' END,
           CASE WHEN x.there THEN 'it was changed since, or somebody else is changing it'
                ELSE 'there is no such dead letter' END,
           CASE WHEN x.there THEN 'Export it again.' ELSE 'It was purged, or is of another database.' END
    FROM unnest(p_ids) i(id)
    CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT FROM public.email_queue q WHERE q.id = i.id)
            OR EXISTS (SELECT FROM mailgres.dead_letters d WHERE d.queue_id = i.id) AS there
    ) x
    WHERE i.id <> ALL (v_queued || v_archived || v_spared);
END
$$;

COMMENT ON FUNCTION mailgres.purge_dead_letters(uuid[], timestamptz[], boolean) IS
    'Deletes dead letters, in the queue or in the archive, that died at the given times: a row for each, with the code of its refusal, or null.';

-- ---- sql/45_views/10_queue.sql

-- Views for analysts and dashboards. Each answers one question, which is the first line of its
-- comment; email_monitoring lists them. They read the rollups and the depth, never the whole queue,
-- so their cost does not grow with it. All are security_invoker: they show what the reader may see of
-- the tables below, so a grant on a view alone, given by accident, shows nothing.

CREATE VIEW public.email_queue_state WITH (security_invoker = true) AS
SELECT s.status, coalesce(x.emails, 0)::bigint AS emails, x.oldest, x.newest,
       coalesce(x.at_least, false) AS at_least, coalesce(x.as_of, d.as_of, mailgres.now()) AS as_of
FROM (VALUES (1, 'pending'), (2, 'sending'), (3, 'sent'), (4, 'failed'), (5, 'cancelled')) s(place, status)
LEFT JOIN mailgres.depth d ON s.place < 3 AND mailgres.now() BETWEEN d.as_of AND d.valid_until
LEFT JOIN (
    SELECT o.status, sum(o.emails) AS emails, min(o.oldest) AS oldest, max(o.newest) AS newest, max(o.as_of) AS as_of,
           (SELECT d.capped AND d.as_of = max(o.as_of) FROM mailgres.depth d) AS at_least
    FROM mailgres.current_depth_by_template o
    GROUP BY o.status
    UNION ALL
    SELECT c.status, sum(c.emails), min(c.oldest), max(c.newest), mailgres.now(), false
    FROM (
        SELECT r.status, sum(r.emails) AS emails, min(r.oldest) AS oldest, max(r.newest) AS newest
        FROM mailgres.counted_by_status r
        GROUP BY r.hour, r.status
        HAVING sum(r.emails) > 0
    ) c
    GROUP BY c.status
) x ON x.status = s.status
ORDER BY s.place;

COMMENT ON VIEW public.email_queue_state IS
'How many emails are in each status, and how old are they?
Waiting emails are counted at as_of, at most 15 seconds ago; all other counts are exact.
Example: SELECT * FROM email_queue_state;';
COMMENT ON COLUMN public.email_queue_state.status IS 'pending, sending, sent, failed (dead) or cancelled.';
COMMENT ON COLUMN public.email_queue_state.emails IS 'How many are in the queue.';
COMMENT ON COLUMN public.email_queue_state.oldest IS
    'When the oldest was created; for settled emails rounded to the hour, if some of that hour were deleted.';
COMMENT ON COLUMN public.email_queue_state.newest IS 'When the newest was created.';
COMMENT ON COLUMN public.email_queue_state.at_least IS 'Whether there are more than were counted: beyond two million, or if counting took too long.';
COMMENT ON COLUMN public.email_queue_state.as_of IS 'When they were counted.';

CREATE VIEW public.email_pending_by_template WITH (security_invoker = true) AS
SELECT o.template_type, sum(o.emails)::bigint AS pending_count,
       round(sum(o.emails * o.retries) / sum(o.emails), 2) AS avg_retries,
       min(o.oldest) AS oldest, max(o.newest) AS newest,
       sum(o.due)::bigint AS due_count, min(o.oldest_due) AS oldest_due,
       sum(o.parked)::bigint AS parked_count, max(o.as_of) AS as_of
FROM mailgres.current_depth_by_template o
WHERE o.status = 'pending'
GROUP BY o.template_type;

COMMENT ON VIEW public.email_pending_by_template IS
'Which emails are waiting, by template, and for how long?
Example: SELECT * FROM email_pending_by_template ORDER BY pending_count DESC;';
COMMENT ON COLUMN public.email_pending_by_template.template_type IS 'The template.';
COMMENT ON COLUMN public.email_pending_by_template.pending_count IS 'Waiting emails.';
COMMENT ON COLUMN public.email_pending_by_template.avg_retries IS 'Average number of their retries.';
COMMENT ON COLUMN public.email_pending_by_template.oldest IS 'When the oldest of them was created.';
COMMENT ON COLUMN public.email_pending_by_template.newest IS 'When the newest of them was created.';
COMMENT ON COLUMN public.email_pending_by_template.due_count IS 'Emails that could be sent now.';
COMMENT ON COLUMN public.email_pending_by_template.oldest_due IS 'Since when the first of these could be sent.';
COMMENT ON COLUMN public.email_pending_by_template.parked_count IS
    'Emails that wait until the sender''s configuration is fixed.';
COMMENT ON COLUMN public.email_pending_by_template.as_of IS 'When they were counted.';

CREATE VIEW public.email_throughput WITH (security_invoker = true) AS
SELECT m.minute,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'sent'), 0)::bigint AS sent,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'retry'), 0)::bigint AS retried,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'deferred'), 0)::bigint AS deferred,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'dead'), 0)::bigint AS dead,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'cancelled'), 0)::bigint AS cancelled,
       round(100.0 * coalesce(sum(c.emails) FILTER (WHERE c.outcome IN ('retry', 'dead')), 0)
             / nullif(sum(c.emails) FILTER (WHERE c.outcome IN ('sent', 'retry', 'dead')), 0), 2) AS failure_rate
FROM generate_series(date_trunc('minute', mailgres.now(), 'UTC') - interval '59 minutes',
                     date_trunc('minute', mailgres.now(), 'UTC'), '1 minute') m(minute)
LEFT JOIN (
    SELECT x.minute, x.outcome, x.emails FROM mailgres.counted_by_minute x
    WHERE x.minute >= date_trunc('minute', mailgres.now(), 'UTC') - interval '59 minutes'
) c ON c.minute = m.minute
GROUP BY m.minute
ORDER BY m.minute DESC;

COMMENT ON VIEW public.email_throughput IS
'How many emails are sent per minute, and how many fail?
The last sixty minutes, newest first; the current minute is not complete.
Example: SELECT * FROM email_throughput LIMIT 15;';
COMMENT ON COLUMN public.email_throughput.minute IS 'The start of the minute.';
COMMENT ON COLUMN public.email_throughput.sent IS 'Emails that a provider accepted.';
COMMENT ON COLUMN public.email_throughput.retried IS 'Attempts that failed and will be retried.';
COMMENT ON COLUMN public.email_throughput.deferred IS
    'Emails deferred without spending a retry: rate limits, quotas, a sender''s configuration.';
COMMENT ON COLUMN public.email_throughput.dead IS 'Emails that became dead letters.';
COMMENT ON COLUMN public.email_throughput.cancelled IS 'Emails that were cancelled.';
COMMENT ON COLUMN public.email_throughput.failure_rate IS
    'retried and dead as a percentage of these and sent; null if there were none.';

CREATE VIEW public.email_workers WITH (security_invoker = true) AS
SELECT w.worker, w.version, w.started_at, w.seen_at,
       w.seen_at > mailgres.now() - interval '45 seconds' AS alive,
       greatest(mailgres.now() - w.seen_at, '0') AS silent_for, w.providers, w.on_demand
FROM mailgres.workers w
WHERE w.stopped_at IS NULL
  AND (NOT w.on_demand OR w.seen_at > mailgres.now() - interval '45 seconds')
ORDER BY w.worker;

COMMENT ON VIEW public.email_workers IS
'Which workers are alive?
A worker reports every 10 seconds and signs off when it stops; a worker that died is listed for a day.
Example: SELECT * FROM email_workers WHERE alive;';
COMMENT ON COLUMN public.email_workers.worker IS 'Its name.';
COMMENT ON COLUMN public.email_workers.version IS 'The version of mailgres that it runs.';
COMMENT ON COLUMN public.email_workers.started_at IS 'When it was first seen.';
COMMENT ON COLUMN public.email_workers.seen_at IS 'When it was last seen.';
COMMENT ON COLUMN public.email_workers.alive IS 'Whether it was seen in the last 45 seconds.';
COMMENT ON COLUMN public.email_workers.silent_for IS 'How long ago it was last seen.';
COMMENT ON COLUMN public.email_workers.providers IS 'The providers that it can send through; null: it did not report them.';
COMMENT ON COLUMN public.email_workers.on_demand IS
    'Whether it works only when it is called (mailgres process, the HTTP service), and is listed only then.';

CREATE VIEW public.email_providers WITH (security_invoker = true) AS
SELECT p.provider, p.kind, p.enabled, p.usable, p.circuit, p.circuit_since, p.circuit_until, p.circuit_reason,
       p.paused_until, p.pause_reason, p.limited_until, p.limited_by,
       round(p.email_tokens::numeric, 1) AS email_tokens, p.emails_per_second,
       round(p.call_tokens::numeric, 1) AS call_tokens, p.calls_per_second,
       p.used_today, p.daily_quota, p.used_this_month, p.monthly_quota,
       round(100.0 * greatest(p.used_today::numeric / nullif(p.daily_quota, 0),
                              p.used_this_month::numeric / nullif(p.monthly_quota, 0)), 1) AS quota_used,
       coalesce(c.sent, 0)::bigint AS sent_24h, coalesce(c.failed, 0)::bigint AS failed_24h, p.routes
FROM mailgres.provider_states() p
LEFT JOIN (
    SELECT x.provider, sum(x.emails) FILTER (WHERE x.outcome = 'sent') AS sent,
           sum(x.emails) FILTER (WHERE x.outcome IN ('retry', 'dead')) AS failed
    FROM mailgres.counted_by_minute x
    WHERE x.minute >= date_trunc('minute', mailgres.now() - interval '24 hours', 'UTC')
    GROUP BY x.provider
) c ON c.provider = p.provider
ORDER BY p.provider;

COMMENT ON VIEW public.email_providers IS
'Which providers can send now, and why can the others not?
Example: SELECT provider, usable, circuit, paused_until, limited_by, quota_used FROM email_providers;';
COMMENT ON COLUMN public.email_providers.provider IS 'Its name.';
COMMENT ON COLUMN public.email_providers.kind IS 'The kind of provider, such as resend, ses, smtp or capture.';
COMMENT ON COLUMN public.email_providers.enabled IS 'Whether it is used at all.';
COMMENT ON COLUMN public.email_providers.usable IS 'Whether emails may be sent through it now.';
COMMENT ON COLUMN public.email_providers.circuit IS
    'closed: in use; open: failing, not used; half_open: one call probes whether it works again.';
COMMENT ON COLUMN public.email_providers.circuit_since IS 'Since when the circuit has this state.';
COMMENT ON COLUMN public.email_providers.circuit_until IS
    'When an open circuit allows one call; null: not without action.';
COMMENT ON COLUMN public.email_providers.circuit_reason IS 'Why the circuit has this state.';
COMMENT ON COLUMN public.email_providers.paused_until IS 'Until when an operator paused it.';
COMMENT ON COLUMN public.email_providers.pause_reason IS 'The reason that the operator gave.';
COMMENT ON COLUMN public.email_providers.limited_until IS 'Until when it is rate-limited or out of quota.';
COMMENT ON COLUMN public.email_providers.limited_by IS 'Which of the two: rate or quota.';
COMMENT ON COLUMN public.email_providers.email_tokens IS 'Emails that its rate limit allows now; null: no limit.';
COMMENT ON COLUMN public.email_providers.emails_per_second IS 'Its rate limit in emails.';
COMMENT ON COLUMN public.email_providers.call_tokens IS 'Calls that its rate limit allows now; null: no limit.';
COMMENT ON COLUMN public.email_providers.calls_per_second IS 'Its rate limit in calls.';
COMMENT ON COLUMN public.email_providers.used_today IS 'Emails of today (UTC) that count against its quota.';
COMMENT ON COLUMN public.email_providers.daily_quota IS 'Emails that it accepts in a day.';
COMMENT ON COLUMN public.email_providers.used_this_month IS 'Emails of this month that count against its quota.';
COMMENT ON COLUMN public.email_providers.monthly_quota IS 'Emails that it accepts in a month.';
COMMENT ON COLUMN public.email_providers.quota_used IS 'How much of the tighter quota is used, in percent.';
COMMENT ON COLUMN public.email_providers.sent_24h IS 'Emails that it accepted in the last 24 hours.';
COMMENT ON COLUMN public.email_providers.failed_24h IS 'Attempts through it that failed in the last 24 hours.';
COMMENT ON COLUMN public.email_providers.routes IS 'The routes that use it.';

CREATE VIEW public.email_eta WITH (security_invoker = true) AS
SELECT e.route, e.emails AS waiting, e.later AS not_due_yet, e.provider, e.starts AS starts_at, e.at AS out_at,
       e.why AS depends_on
FROM mailgres.eta() e;

COMMENT ON VIEW public.email_eta IS
'When will the backlog be sent?
An estimate from limits, quotas, pauses, and the throughput of the last 15 minutes.
Example: SELECT * FROM email_eta;';
COMMENT ON COLUMN public.email_eta.route IS 'The route.';
COMMENT ON COLUMN public.email_eta.waiting IS 'Emails that wait on it.';
COMMENT ON COLUMN public.email_eta.not_due_yet IS 'Those of them that are not due yet.';
COMMENT ON COLUMN public.email_eta.provider IS 'The provider that will probably send them.';
COMMENT ON COLUMN public.email_eta.starts_at IS 'When it can start; null: not without action.';
COMMENT ON COLUMN public.email_eta.out_at IS 'When the last of them will have been sent; null: unknown.';
COMMENT ON COLUMN public.email_eta.depends_on IS
    'What limits it: throughput, rate, quota, schedule, circuit, paused, disabled, rate of a tenant, route paused, no provider, unknown.';

-- ---- sql/45_views/20_outcomes.sql

-- Outcomes of emails.

CREATE VIEW public.email_failure_rate_by_template WITH (security_invoker = true) AS
SELECT x.template_type, sum(x.emails)::bigint AS total,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0)::bigint AS sent,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0)::bigint AS failed,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'cancelled'), 0)::bigint AS cancelled,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'open'), 0)::bigint AS waiting,
       round(100.0 * coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0) / sum(x.emails), 2) AS failure_rate
FROM (
    SELECT c.template_type, c.status, c.emails
    FROM mailgres.counted_by_template c
    WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC') AND c.status <> 'bounced'
    UNION ALL
    SELECT o.template_type, 'open', o.recent FROM mailgres.current_depth_by_template o
) x
GROUP BY x.template_type
HAVING sum(x.emails) > 0;

COMMENT ON VIEW public.email_failure_rate_by_template IS
'How often do the emails of each template fail, over the last 7 days?
Emails created in that time, from the full hour on, with their current status.
Example: SELECT * FROM email_failure_rate_by_template ORDER BY failure_rate DESC;';
COMMENT ON COLUMN public.email_failure_rate_by_template.template_type IS 'The template.';
COMMENT ON COLUMN public.email_failure_rate_by_template.total IS 'Emails created in the last 7 days.';
COMMENT ON COLUMN public.email_failure_rate_by_template.sent IS 'Of these, sent.';
COMMENT ON COLUMN public.email_failure_rate_by_template.failed IS 'Of these, dead.';
COMMENT ON COLUMN public.email_failure_rate_by_template.cancelled IS 'Of these, cancelled.';
COMMENT ON COLUMN public.email_failure_rate_by_template.waiting IS
    'Of these, waiting or being sent; counted at most 15 seconds ago.';
COMMENT ON COLUMN public.email_failure_rate_by_template.failure_rate IS 'failed as a percentage of total.';

CREATE VIEW public.email_kpis WITH (security_invoker = true) AS
WITH c AS (
    SELECT coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0) AS sent,
           coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0) AS failed,
           coalesce(sum(x.emails) FILTER (WHERE x.status = 'bounced'), 0) AS bounced,
           coalesce(sum(x.seconds) FILTER (WHERE x.status = 'sent'), 0) AS seconds,
           coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent' AND x.retries > 0), 0) AS recovered,
           coalesce(sum(x.emails) FILTER (WHERE x.status IN ('sent', 'failed') AND x.retries > 0), 0) AS retried
    FROM mailgres.counted_by_retries x
    WHERE x.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC')
)
SELECT k.name, k.value, k.unit, k.target,
       CASE WHEN k.value IS NULL THEN 'no data' WHEN k.met THEN 'met' ELSE 'missed' END AS verdict,
       k.emails
FROM c
CROSS JOIN LATERAL (
    VALUES
        (1, 'delivered', round(100 * (c.sent - c.bounced) / nullif(c.sent + c.failed, 0), 2), '%', '> 98',
         (c.sent - c.bounced) > 0.98 * (c.sent + c.failed), (c.sent + c.failed)::bigint),
        (2, 'time to delivery', round(c.seconds::numeric / nullif(c.sent, 0), 2), 's', '< 300',
         c.seconds < 300 * c.sent, c.sent::bigint),
        (3, 'recovered after a failure', round(100 * c.recovered / nullif(c.retried, 0), 2), '%', '> 90',
         c.recovered > 0.9 * c.retried, c.retried::bigint),
        (4, 'dead', round(100 * c.failed / nullif(c.sent + c.failed, 0), 2), '%', '< 2',
         c.failed < 0.02 * (c.sent + c.failed), (c.sent + c.failed)::bigint)
) k(place, name, value, unit, target, met, emails)
ORDER BY k.place;

COMMENT ON VIEW public.email_kpis IS
'Do we meet our targets?
Emails created in the last 7 days, from the full hour on, with their current status: a dead letter that was retried and sent counts as delivered, an email that bounced later does not. Time to delivery is the time from when an email was due until the provider accepted it. The recovery rate is the share of sent emails among those that were retried and settled.
Example: SELECT * FROM email_kpis;';
COMMENT ON COLUMN public.email_kpis.name IS 'What is measured.';
COMMENT ON COLUMN public.email_kpis.value IS 'Its value; null if there is nothing to measure.';
COMMENT ON COLUMN public.email_kpis.unit IS 'Percent or seconds.';
COMMENT ON COLUMN public.email_kpis.target IS 'The target.';
COMMENT ON COLUMN public.email_kpis.verdict IS 'met, missed or no data.';
COMMENT ON COLUMN public.email_kpis.emails IS 'How many emails were measured.';

CREATE VIEW public.email_delivery_times WITH (security_invoker = true) AS
SELECT nullif(x.within, 2147483647) AS within_seconds, x.emails,
       round(100 * sum(x.emails) OVER (ORDER BY x.within) / sum(x.emails) OVER (), 2) AS cumulative
FROM (
    SELECT c.within, sum(c.emails)::bigint AS emails
    FROM mailgres.counted_by_retries c
    WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC') AND c.status = 'sent'
    GROUP BY c.within
    HAVING sum(c.emails) > 0
) x
ORDER BY x.within;

COMMENT ON VIEW public.email_delivery_times IS
'How long do emails take?
Emails created in the last 7 days and sent, by the time from when they were due until the provider accepted them.
Example: SELECT * FROM email_delivery_times;';
COMMENT ON COLUMN public.email_delivery_times.within_seconds IS
    'They took at most this long, and longer than in the row before; null: longer than a day.';
COMMENT ON COLUMN public.email_delivery_times.emails IS 'How many.';
COMMENT ON COLUMN public.email_delivery_times.cumulative IS 'How many took at most this long, as a percentage of all.';

-- ---- sql/45_views/30_retries.sql

-- Attempts, retries and why they fail.

-- An address as analysts see it: a***@example.com. A local part of one letter is hidden completely.
CREATE FUNCTION mailgres.mask_email(p_email text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_email ~ '^[^@]+@[^@]+$' THEN left(split_part(p_email, '@', 1), (strpos(p_email, '@') > 2)::int) || '***@' || split_part(p_email, '@', 2)
            WHEN p_email IS NOT NULL THEN '***' END;

COMMENT ON FUNCTION mailgres.mask_email(text) IS
    'An address with all but its first letter and its domain hidden.';

-- For views: the reader sees the masked address without the right to read the address.
CREATE FUNCTION mailgres.masked_recipient(p_queue_id uuid) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT mailgres.mask_email(q.recipient_email) FROM public.email_queue q WHERE q.id = p_queue_id $$;

COMMENT ON FUNCTION mailgres.masked_recipient(uuid) IS 'The recipient of an email, masked.';

CREATE VIEW public.email_retried WITH (security_invoker = true) AS
SELECT q.id, q.tenant_id::text AS tenant_id, q.template_type, mailgres.masked_recipient(q.id) AS recipient,
       q.status::text AS status, q.retries::int AS retries, q.max_retries::int AS max_retries,
       l.at AS failed_at, l.error_class, l.error_code, l.error_message, l.provider,
       CASE WHEN q.status = 'pending' THEN q.next_retry_at END AS next_retry_at, q.created_at
FROM public.email_logs l
JOIN public.email_queue q ON q.id = l.queue_id
WHERE l.event = 'retry' AND l.at > mailgres.now() - interval '24 hours'
  AND NOT EXISTS (
      SELECT FROM public.email_logs x WHERE x.queue_id = l.queue_id AND x.id > l.id AND x.event = 'retry');

COMMENT ON VIEW public.email_retried IS
'Which emails needed a retry in the last 24 hours?
One row for each, with its last failure that led to a retry.
Example: SELECT * FROM email_retried ORDER BY failed_at DESC LIMIT 100;';
COMMENT ON COLUMN public.email_retried.id IS 'The email.';
COMMENT ON COLUMN public.email_retried.tenant_id IS 'Its tenant.';
COMMENT ON COLUMN public.email_retried.template_type IS 'Its template.';
COMMENT ON COLUMN public.email_retried.recipient IS 'Its recipient, masked.';
COMMENT ON COLUMN public.email_retried.status IS 'Its current status.';
COMMENT ON COLUMN public.email_retried.retries IS 'Retries made so far.';
COMMENT ON COLUMN public.email_retried.max_retries IS 'Retries allowed.';
COMMENT ON COLUMN public.email_retried.failed_at IS 'When the last attempt failed that led to a retry.';
COMMENT ON COLUMN public.email_retried.error_class IS 'The class of that fault.';
COMMENT ON COLUMN public.email_retried.error_code IS 'The provider''s code for it.';
COMMENT ON COLUMN public.email_retried.error_message IS 'Its text, with addresses replaced by placeholders.';
COMMENT ON COLUMN public.email_retried.provider IS 'The provider of that attempt.';
COMMENT ON COLUMN public.email_retried.next_retry_at IS 'When the next attempt will be made, if it waits.';
COMMENT ON COLUMN public.email_retried.created_at IS 'When it was enqueued.';

CREATE VIEW public.email_recovery_by_retries WITH (security_invoker = true) AS
SELECT x.retries, sum(x.emails)::bigint AS emails,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0)::bigint AS sent,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0)::bigint AS failed,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'open'), 0)::bigint AS waiting,
       round(100.0 * coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0)
             / nullif(sum(x.emails) FILTER (WHERE x.status IN ('sent', 'failed')), 0), 2) AS recovery_rate
FROM (
    SELECT c.retries, c.status, c.emails
    FROM mailgres.counted_by_retries c
    WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '30 days', 'UTC')
      AND c.retries > 0 AND c.status <> 'bounced'
    UNION ALL
    SELECT o.retries, 'open', o.emails FROM mailgres.current_depth_by_template o WHERE o.retries > 0
) x
GROUP BY x.retries
HAVING sum(x.emails) > 0
ORDER BY x.retries;

COMMENT ON VIEW public.email_recovery_by_retries IS
'Do retries help: how many emails are sent after one retry, after two, after three?
Emails created in the last 30 days, from the full hour on, and all that wait.
Example: SELECT * FROM email_recovery_by_retries;';
COMMENT ON COLUMN public.email_recovery_by_retries.retries IS 'Retries made.';
COMMENT ON COLUMN public.email_recovery_by_retries.emails IS 'Emails with this number of retries.';
COMMENT ON COLUMN public.email_recovery_by_retries.sent IS 'Of these, sent in the end.';
COMMENT ON COLUMN public.email_recovery_by_retries.failed IS 'Of these, dead.';
COMMENT ON COLUMN public.email_recovery_by_retries.waiting IS
    'Of these, waiting or being sent; counted at most 15 seconds ago.';
COMMENT ON COLUMN public.email_recovery_by_retries.recovery_rate IS 'sent as a percentage of sent and failed.';

CREATE VIEW public.email_success_by_attempt WITH (security_invoker = true) AS
SELECT c.attempt, sum(c.attempts)::bigint AS attempts,
       coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'sent'), 0)::bigint AS sent,
       coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'retry'), 0)::bigint AS retried,
       coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'dead'), 0)::bigint AS dead,
       round(100.0 * coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'sent'), 0) / sum(c.attempts), 2) AS success_rate
FROM mailgres.counted_by_attempt c
WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC')
  AND c.outcome IN ('sent', 'retry', 'dead')
GROUP BY c.attempt
ORDER BY c.attempt;

COMMENT ON VIEW public.email_success_by_attempt IS
'How often does the first attempt succeed, the second, the third?
Attempts made in the last 7 days, from the full hour on. Emails that were only deferred (a rate limit, a quota) do not count.
Example: SELECT * FROM email_success_by_attempt;';
COMMENT ON COLUMN public.email_success_by_attempt.attempt IS 'Number of the attempt, the first being 1.';
COMMENT ON COLUMN public.email_success_by_attempt.attempts IS 'How many there were.';
COMMENT ON COLUMN public.email_success_by_attempt.sent IS 'Of these, accepted by the provider.';
COMMENT ON COLUMN public.email_success_by_attempt.retried IS 'Of these, failed and to be retried.';
COMMENT ON COLUMN public.email_success_by_attempt.dead IS 'Of these, failed as the last attempt.';
COMMENT ON COLUMN public.email_success_by_attempt.success_rate IS 'sent as a percentage of attempts.';

CREATE VIEW public.email_time_between_attempts WITH (security_invoker = true) AS
SELECT c.attempt, sum(c.attempts)::bigint AS retries,
       date_trunc('second', make_interval(secs => sum(c.seconds) / sum(c.attempts)) + interval '0.5 seconds') AS mean_wait
FROM mailgres.counted_by_attempt c
WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC') AND c.outcome = 'claimed'
GROUP BY c.attempt
ORDER BY c.attempt;

COMMENT ON VIEW public.email_time_between_attempts IS
'How much time really passes between an attempt and its retry?
From claim to claim, for retries of the last 7 days, from the full hour on.
Example: SELECT * FROM email_time_between_attempts;';
COMMENT ON COLUMN public.email_time_between_attempts.attempt IS 'Number of the later attempt: 2 is the first retry.';
COMMENT ON COLUMN public.email_time_between_attempts.retries IS 'How many were claimed.';
COMMENT ON COLUMN public.email_time_between_attempts.mean_wait IS 'The mean time since the attempt before, to the second.';

CREATE VIEW public.email_error_codes WITH (security_invoker = true) AS
SELECT x.provider, x.error_class, x.error_code, x.attempts, x.retried, x.dead, x.deferred,
       round(100.0 * x.attempts / sum(x.attempts) OVER (), 2) AS share
FROM (
    SELECT c.provider, c.error_class, c.error_code, sum(c.attempts)::bigint AS attempts,
           coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'retry'), 0)::bigint AS retried,
           coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'dead'), 0)::bigint AS dead,
           coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'deferred'), 0)::bigint AS deferred
    FROM mailgres.counted_by_fault c
    WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC')
    GROUP BY c.provider, c.error_class, c.error_code
) x
ORDER BY x.attempts DESC, x.provider, x.error_class, x.error_code;

COMMENT ON VIEW public.email_error_codes IS
'Which error codes do attempts end with, and how often?
Failed attempts of the last 7 days, from the full hour on.
Example: SELECT * FROM email_error_codes LIMIT 20;';
COMMENT ON COLUMN public.email_error_codes.provider IS 'The provider; empty if none was called.';
COMMENT ON COLUMN public.email_error_codes.error_class IS
    'transient, rate, quota, config, permanent or ambiguous; empty if unknown.';
COMMENT ON COLUMN public.email_error_codes.error_code IS 'The provider''s code; empty if there is none.';
COMMENT ON COLUMN public.email_error_codes.attempts IS 'How many attempts ended with it.';
COMMENT ON COLUMN public.email_error_codes.retried IS 'Of these, to be retried.';
COMMENT ON COLUMN public.email_error_codes.dead IS 'Of these, the last attempt of the email.';
COMMENT ON COLUMN public.email_error_codes.deferred IS 'Of these, deferred without spending a retry.';
COMMENT ON COLUMN public.email_error_codes.share IS 'attempts as a percentage of all failed attempts.';

CREATE VIEW public.email_common_errors WITH (security_invoker = true) AS
SELECT x.error_message, count(*) AS emails,
       array_agg(DISTINCT x.error_code) FILTER (WHERE x.error_code IS NOT NULL) AS error_codes,
       array_agg(DISTINCT x.dead_reason) AS dead_reasons,
       min(x.due_at) AS first_at, max(x.due_at) AS last_at
FROM (
    SELECT q.error_message, q.error_code, q.dead_reason::text AS dead_reason, q.due_at
    FROM public.email_queue q
    WHERE q.status = 'failed' AND q.due_at IS NOT NULL
    ORDER BY q.due_at DESC
    LIMIT 10000
) x
GROUP BY x.error_message
ORDER BY count(*) DESC, max(x.due_at) DESC, x.error_message;

COMMENT ON VIEW public.email_common_errors IS
'What are the most common reasons why emails die?
The newest 10,000 dead letters in the queue, by their last error.
Example: SELECT * FROM email_common_errors LIMIT 10;';
COMMENT ON COLUMN public.email_common_errors.error_message IS 'The error, with addresses replaced by placeholders.';
COMMENT ON COLUMN public.email_common_errors.emails IS 'How many emails died of it.';
COMMENT ON COLUMN public.email_common_errors.error_codes IS 'The provider''s codes for it.';
COMMENT ON COLUMN public.email_common_errors.dead_reasons IS 'The reasons for which they died.';
COMMENT ON COLUMN public.email_common_errors.first_at IS 'When the first of them died.';
COMMENT ON COLUMN public.email_common_errors.last_at IS 'When the last of them died.';

-- ---- sql/45_views/40_dead_letters.sql

-- Dead letters without personal data: email_dead_letters is for operators.

CREATE VIEW public.email_dlq_entries WITH (security_invoker = true) AS
SELECT q.id, q.tenant_id::text AS tenant_id, q.template_type, mailgres.masked_recipient(q.id) AS recipient,
       q.dead_reason::text AS dead_reason, q.error_class::text AS error_class, q.error_code, q.error_message,
       q.provider, q.retries::int AS retries, q.created_at, q.due_at AS dead_at
FROM public.email_queue q
WHERE q.status = 'failed' AND q.due_at IS NOT NULL;

COMMENT ON VIEW public.email_dlq_entries IS
'Which emails are dead letters, and why?
Dead letters in the queue; after 7 days they move to an archive, which operators see (email_dead_letters).
Example: SELECT * FROM email_dlq_entries ORDER BY dead_at DESC LIMIT 100;';
COMMENT ON COLUMN public.email_dlq_entries.id IS 'The email.';
COMMENT ON COLUMN public.email_dlq_entries.tenant_id IS 'Its tenant.';
COMMENT ON COLUMN public.email_dlq_entries.template_type IS 'Its template.';
COMMENT ON COLUMN public.email_dlq_entries.recipient IS 'Its recipient, masked.';
COMMENT ON COLUMN public.email_dlq_entries.dead_reason IS 'exhausted, permanent, expired, uncertain or crashed.';
COMMENT ON COLUMN public.email_dlq_entries.error_class IS 'The class of the last fault.';
COMMENT ON COLUMN public.email_dlq_entries.error_code IS 'The provider''s code for it.';
COMMENT ON COLUMN public.email_dlq_entries.error_message IS 'Its text, with addresses replaced by placeholders.';
COMMENT ON COLUMN public.email_dlq_entries.provider IS 'The provider of the last attempt.';
COMMENT ON COLUMN public.email_dlq_entries.retries IS 'Retries made.';
COMMENT ON COLUMN public.email_dlq_entries.created_at IS 'When it was enqueued.';
COMMENT ON COLUMN public.email_dlq_entries.dead_at IS 'When it became a dead letter.';

-- For roles that may not read the queue, such as a worker that serves metrics.
CREATE FUNCTION mailgres.oldest_dead() RETURNS timestamptz
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT q.due_at FROM public.email_queue q
    WHERE q.status = 'failed' AND q.due_at IS NOT NULL ORDER BY q.due_at LIMIT 1
$$;

CREATE FUNCTION mailgres.newest_dead() RETURNS timestamptz
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT q.due_at FROM public.email_queue q
    WHERE q.status = 'failed' AND q.due_at IS NOT NULL ORDER BY q.due_at DESC LIMIT 1
$$;

COMMENT ON FUNCTION mailgres.oldest_dead() IS 'When the oldest dead letter in the queue died.';
COMMENT ON FUNCTION mailgres.newest_dead() IS 'When the newest dead letter in the queue died.';

CREATE VIEW public.email_dlq_size WITH (security_invoker = true) AS
SELECT coalesce(sum(d.emails), 0)::bigint AS emails,
       mailgres.oldest_dead() AS oldest, mailgres.newest_dead() AS newest
FROM mailgres.counted_dead d;

COMMENT ON VIEW public.email_dlq_size IS
'How many dead letters are there?
Dead letters in the queue.
Example: SELECT * FROM email_dlq_size;';
COMMENT ON COLUMN public.email_dlq_size.emails IS 'How many.';
COMMENT ON COLUMN public.email_dlq_size.oldest IS 'When the oldest died.';
COMMENT ON COLUMN public.email_dlq_size.newest IS 'When the newest died.';

CREATE VIEW public.email_dlq_per_hour WITH (security_invoker = true) AS
SELECT h.hour, coalesce(c.dead, 0)::bigint AS entered, coalesce(c.sent, 0)::bigint AS sent,
       round(100.0 * coalesce(c.dead, 0) / nullif(coalesce(c.dead, 0) + coalesce(c.sent, 0), 0), 2) AS share
FROM generate_series(date_trunc('hour', mailgres.now(), 'UTC') - interval '23 hours',
                     date_trunc('hour', mailgres.now(), 'UTC'), '1 hour') h(hour)
LEFT JOIN (
    SELECT date_trunc('hour', x.minute, 'UTC') AS hour,
           sum(x.emails) FILTER (WHERE x.outcome = 'dead') AS dead,
           sum(x.emails) FILTER (WHERE x.outcome = 'sent') AS sent
    FROM mailgres.counted_by_minute x
    WHERE x.minute >= date_trunc('hour', mailgres.now(), 'UTC') - interval '23 hours' AND x.outcome IN ('sent', 'dead')
    GROUP BY 1
) c ON c.hour = h.hour
ORDER BY h.hour DESC;

COMMENT ON VIEW public.email_dlq_per_hour IS
'How many emails become dead letters per hour?
The last 24 hours, newest first; the current hour is not complete. Dead letters that were retried since still count.
Example: SELECT * FROM email_dlq_per_hour;';
COMMENT ON COLUMN public.email_dlq_per_hour.hour IS 'The start of the hour.';
COMMENT ON COLUMN public.email_dlq_per_hour.entered IS 'Emails that died in it.';
COMMENT ON COLUMN public.email_dlq_per_hour.sent IS 'Emails that were sent in it.';
COMMENT ON COLUMN public.email_dlq_per_hour.share IS 'entered as a percentage of entered and sent.';

CREATE VIEW public.email_dlq_by_code WITH (security_invoker = true) AS
SELECT d.error_code, d.dead_reason, sum(d.emails)::bigint AS emails,
       round(100.0 * sum(d.emails) / sum(sum(d.emails)) OVER (), 2) AS share
FROM mailgres.counted_dead d
GROUP BY d.error_code, d.dead_reason
HAVING sum(d.emails) > 0
ORDER BY sum(d.emails) DESC, d.error_code, d.dead_reason;

COMMENT ON VIEW public.email_dlq_by_code IS
'Which error codes do the dead letters have?
Dead letters in the queue.
Example: SELECT * FROM email_dlq_by_code LIMIT 20;';
COMMENT ON COLUMN public.email_dlq_by_code.error_code IS 'The provider''s code for the last fault; empty if there is none.';
COMMENT ON COLUMN public.email_dlq_by_code.dead_reason IS 'exhausted, permanent, expired, uncertain or crashed.';
COMMENT ON COLUMN public.email_dlq_by_code.emails IS 'How many.';
COMMENT ON COLUMN public.email_dlq_by_code.share IS 'Percentage of all dead letters.';

CREATE VIEW public.email_dlq_by_tenant WITH (security_invoker = true) AS
SELECT d.tenant_id, sum(d.emails)::bigint AS emails,
       round(100.0 * sum(d.emails) / sum(sum(d.emails)) OVER (), 2) AS share,
       max(d.hour) AS newest_hour
FROM mailgres.counted_dead d
GROUP BY d.tenant_id
HAVING sum(d.emails) > 0
ORDER BY sum(d.emails) DESC, d.tenant_id;

COMMENT ON VIEW public.email_dlq_by_tenant IS
'Which tenants have the dead letters?
Dead letters in the queue.
Example: SELECT * FROM email_dlq_by_tenant LIMIT 20;';
COMMENT ON COLUMN public.email_dlq_by_tenant.tenant_id IS 'The tenant.';
COMMENT ON COLUMN public.email_dlq_by_tenant.emails IS 'How many it has.';
COMMENT ON COLUMN public.email_dlq_by_tenant.share IS 'Percentage of all dead letters.';
COMMENT ON COLUMN public.email_dlq_by_tenant.newest_hour IS 'The last hour in which one of them died.';

CREATE VIEW public.email_dlq_by_age WITH (security_invoker = true) AS
SELECT a.age, coalesce(sum(d.emails), 0)::bigint AS emails
FROM (VALUES
    (1, 'up to 1 hour', interval '0', interval '1 hour'),
    (2, 'up to 6 hours', interval '1 hour', interval '6 hours'),
    (3, 'up to 1 day', interval '6 hours', interval '24 hours'),
    (4, 'up to 3 days', interval '24 hours', interval '72 hours'),
    (5, 'up to 7 days', interval '72 hours', interval '168 hours'),
    (6, 'longer', interval '168 hours', NULL)
) a(place, age, more_than, at_most)
LEFT JOIN (
    SELECT date_trunc('hour', mailgres.now(), 'UTC') - c.hour AS hours, sum(c.emails) AS emails
    FROM mailgres.counted_dead c
    GROUP BY c.hour
) d ON (d.hours >= a.more_than OR a.place = 1) AND (d.hours < a.at_most OR a.at_most IS NULL)
GROUP BY a.place, a.age
ORDER BY a.place;

COMMENT ON VIEW public.email_dlq_by_age IS
'How long have the dead letters been dead?
Dead letters in the queue, by the hour in which they died.
Example: SELECT * FROM email_dlq_by_age;';
COMMENT ON COLUMN public.email_dlq_by_age.age IS 'How long: at most this, and more than in the row before.';
COMMENT ON COLUMN public.email_dlq_by_age.emails IS 'How many.';

-- ---- sql/45_views/50_tenants.sql

-- Fairness between tenants: each claim is a round, and the tenant that has waited longest is next.
-- The claim itself goes round by its index; this view shows the result.

CREATE FUNCTION mailgres.round_robin_priority(p_rounds bigint) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN greatest(1, 5 - least(greatest(p_rounds, 0), 4))::int;

COMMENT ON FUNCTION mailgres.round_robin_priority(bigint) IS
    'How urgent a tenant is after waiting for this many rounds: 5, rising to 1.';

CREATE VIEW public.email_tenant_fairness WITH (security_invoker = true) AS
SELECT x.tenant_id, x.last_processed_at, x.rounds AS rounds_without_processing,
       mailgres.round_robin_priority(x.rounds) AS current_priority,
       x.processed AS total_processed, x.batch AS consecutive_batch,
       coalesce(t.weight, 1) AS weight, t.paused_at IS NOT NULL AS paused,
       x.backlog, x.due, x.oldest_due, x.as_of
FROM (
    SELECT coalesce(a.tenant_id, o.tenant_id) AS tenant_id, a.claimed_at AS last_processed_at,
           coalesce(a.processed, 0)::bigint AS processed, coalesce(a.batch, 0)::bigint AS batch,
           coalesce(o.emails, 0)::bigint AS backlog, coalesce(o.due, 0)::bigint AS due, o.oldest_due,
           coalesce(o.as_of, mailgres.now()) AS as_of,
           CASE WHEN o.due > 0 THEN greatest(r.claim_number - greatest(a.claim_number, o.claim_number), 0) ELSE 0 END AS rounds
    FROM (
        SELECT c.tenant_id, sum(c.processed) AS processed, max(c.claimed_at) AS claimed_at, max(c.claim_number) AS claim_number,
               sum(c.batch) FILTER (WHERE c.is_last) AS batch
        FROM (
            SELECT y.*, y.claimed_at = max(y.claimed_at) OVER (PARTITION BY y.tenant_id) AS is_last
            FROM mailgres.counted_tenants y
        ) c
        GROUP BY c.tenant_id
    ) a
    FULL JOIN (
        SELECT w.tenant_id, sum(w.emails) AS emails, sum(w.due) AS due, min(w.oldest_due) AS oldest_due,
               min(w.claim_number) FILTER (WHERE w.due > 0) AS claim_number, max(w.as_of) AS as_of
        FROM mailgres.current_depth_by_tenant w
        GROUP BY w.tenant_id
    ) o ON o.tenant_id = a.tenant_id
    -- counted at the same time as the backlog
    CROSS JOIN (
        SELECT coalesce(
            (SELECT d.claim_number FROM mailgres.depth d WHERE mailgres.now() BETWEEN d.as_of AND d.valid_until),
            mailgres.claim_number()) AS claim_number
    ) r
) x
LEFT JOIN mailgres.tenants t ON t.tenant_id = x.tenant_id;

COMMENT ON VIEW public.email_tenant_fairness IS
'Does every tenant get its turn?
Tenants that have waiting emails or had emails processed. Backlogs are counted at as_of, at most 15 seconds ago.
Example: SELECT * FROM email_tenant_fairness ORDER BY rounds_without_processing DESC, backlog DESC, tenant_id LIMIT 100;';
COMMENT ON COLUMN public.email_tenant_fairness.tenant_id IS 'The tenant.';
COMMENT ON COLUMN public.email_tenant_fairness.last_processed_at IS 'When the emails of its last attempts were claimed.';
COMMENT ON COLUMN public.email_tenant_fairness.rounds_without_processing IS
    'Claims since then, or since one of its emails was due; 0 if none is due.';
COMMENT ON COLUMN public.email_tenant_fairness.current_priority IS
    'How urgent it is because of that: 5, rising by one with each round to 1.';
COMMENT ON COLUMN public.email_tenant_fairness.total_processed IS 'Attempts made for its emails.';
COMMENT ON COLUMN public.email_tenant_fairness.consecutive_batch IS
    'How many of its emails its last claim had: up to 3 x weight per turn while other tenants wait.';
COMMENT ON COLUMN public.email_tenant_fairness.weight IS 'Its weight.';
COMMENT ON COLUMN public.email_tenant_fairness.paused IS 'Whether an operator paused it.';
COMMENT ON COLUMN public.email_tenant_fairness.backlog IS 'Its waiting emails.';
COMMENT ON COLUMN public.email_tenant_fairness.due IS 'Those of them that could be sent now.';
COMMENT ON COLUMN public.email_tenant_fairness.oldest_due IS 'Since when the first of these could be sent.';
COMMENT ON COLUMN public.email_tenant_fairness.as_of IS 'When the backlog was counted.';

-- ---- sql/45_views/60_alerts.sql

-- Computed when it is read, so that it is right even when no worker runs.

CREATE VIEW public.email_alerts WITH (security_invoker = true) AS
SELECT a.rule, a.subject, a.severity, a.since, a.figure, a.threshold, a.unit, a.means, a.runbook AS what_to_do
FROM mailgres.alerts_now() a
LIMIT 1000;

COMMENT ON VIEW public.email_alerts IS
'What needs a person now?
The alerts that fire, most severe first: since when, the figure, its threshold, and what to do; at most 1,000.
Example: SELECT rule, subject, severity, since, figure, threshold, unit, what_to_do FROM email_alerts;';
COMMENT ON COLUMN public.email_alerts.rule IS 'The rule of mailgres.alert_rules that fires.';
COMMENT ON COLUMN public.email_alerts.subject IS 'The tenant, template or provider it is about; empty: the queue.';
COMMENT ON COLUMN public.email_alerts.severity IS 'critical, warning or info.';
COMMENT ON COLUMN public.email_alerts.since IS 'Since when it fires; if no worker has checked it yet, since when the condition holds, or now.';
COMMENT ON COLUMN public.email_alerts.figure IS 'The value that was counted or measured.';
COMMENT ON COLUMN public.email_alerts.threshold IS 'The threshold of the rule.';
COMMENT ON COLUMN public.email_alerts.unit IS 'The unit of figure and threshold.';
COMMENT ON COLUMN public.email_alerts.means IS 'What the alert means, in a sentence.';
COMMENT ON COLUMN public.email_alerts.what_to_do IS 'The section of the runbook.';

-- ---- sql/45_views/90_monitoring.sql

-- The list of these views, from their comments: views whose comment has an example.

CREATE VIEW public.email_monitoring WITH (security_invoker = true) AS
SELECT v.name::text AS name, split_part(v.comment, E'\n', 1) AS question, split_part(v.comment, 'Example: ', 2) AS example
FROM (
    SELECT c.relname AS name, obj_description(c.oid, 'pg_class') AS comment
    FROM pg_catalog.pg_class c
    WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'public')
      AND c.relkind = 'v' AND starts_with(c.relname, 'email_')
) v
WHERE v.comment LIKE '%Example: %'
ORDER BY v.name;

COMMENT ON VIEW public.email_monitoring IS
'Which views are there?
The views for analysts and dashboards.
Example: SELECT name, question FROM email_monitoring;';
COMMENT ON COLUMN public.email_monitoring.name IS 'The view.';
COMMENT ON COLUMN public.email_monitoring.question IS 'The question that it answers.';
COMMENT ON COLUMN public.email_monitoring.example IS 'A query to start with.';

-- ---- sql/50_seed/10_retry_policies.sql

INSERT INTO mailgres.retry_policies
    (name, max_retries, steps, base, factor, cap, jitter_down, jitter_up, description)
VALUES
    ('stepped', 3, '{1 minute,5 minutes,15 minutes}', NULL, 2, '1 day', 0, 0, 'Waits of 1, 5 and 15 minutes.'),
    ('gateway', 4, NULL, '1 second', 2, '60 seconds', 0.25, 0.25, 'Five attempts, 1 s doubling to 60 s.'),
    ('smtp', 4, NULL, '1 second', 2, '300 seconds', 0.25, 0.25, 'Five attempts, 1 s doubling to 300 s.'),
    ('development', 2, NULL, '500 milliseconds', 2, '30 seconds', 0, 0, 'Three quick attempts.'),
    ('patient', 2, NULL, '5 minutes', 2, '24 hours', 0, 0, 'Three attempts, 5 min doubling to 24 h.'),
    ('integration', 2, '{60 seconds,300 seconds}', NULL, 2, '1 day', 0, 0.2, 'Waits of 60 and 300 s and up to a fifth more.');

INSERT INTO mailgres.settings (retry_policy) VALUES ('stepped');

-- ---- sql/50_seed/20_routes.sql

-- The default route uses `capture`, which keeps emails in the database: a new queue sends nothing
-- until a provider is configured.

INSERT INTO mailgres.providers (name, kind, captures, idempotent, batch_size) VALUES ('capture', 'capture', true, true, 100);
INSERT INTO mailgres.routes (route, description, initial) VALUES ('default', 'Emails that name no other route.', true);
INSERT INTO mailgres.route_providers (route, position, provider) VALUES ('default', 1, 'capture');

-- One for each concurrent claim; more than that wait for a slot.
INSERT INTO mailgres.claim_slots (slot) SELECT generate_series(1, 32);

-- ---- sql/50_seed/30_starter_templates.sql

-- Two templates to start with, so that the first call works on an empty project. Every
-- variable has a fallback. Never edited by hand: scripts/starter_templates.py writes it
-- from src/mailgres/starter/.

DO $seed$ BEGIN PERFORM mailgres.push_template($mail$signup_confirmation$mail$,
p_default_locale => $mail$en$mail$,
p_settings => $mail${"description": "Asks a new user to confirm the address. Variables: name, product, confirmation_url, valid_for.", "required_variables": [], "on_uncertain": "resend", "sample": {"name": "João", "product": "Acme", "confirmation_url": "https://acme.example.com/confirm/4fd1c2", "valid_for": "24 hours"}}$mail$,
p_contents => jsonb_build_object(
'en', jsonb_build_object(
'subject', $mail$Confirm your email address{% if product is defined %} for {{ product }}{% endif %}$mail$,
'html', $mail$<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>Confirm your email address</title>
<style>
@media (prefers-color-scheme: dark) {
  .page { background: #14181f !important; color: #e6e9ee !important; }
  .card { background: #1e242e !important; }
  .quiet { color: #9aa5b4 !important; }
  .line { border-color: #333c49 !important; }
}
</style>
</head>
<body class="page" style="margin:0;padding:0;background:#f3f5f8;color:#1d2733;-webkit-text-size-adjust:100%">
<div style="display:none;max-height:0;overflow:hidden;opacity:0">One click, and your account is ready.</div>
<div class="page" style="padding:32px 16px;background:#f3f5f8;color:#1d2733;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:16px;line-height:1.6">
<div style="max-width:560px;margin:0 auto">
<p style="margin:0 0 16px;padding:0 8px;font-size:18px;font-weight:700">{{ product | default("our service") }}</p>
<div class="card" style="padding:32px 28px;background:#ffffff;border-radius:12px">
<h1 style="margin:0 0 16px;font-size:24px;line-height:1.3">Confirm your email address</h1>
<p style="margin:0 0 16px">Hello{% if name is defined %} {{ name }}{% endif %},</p>
<p style="margin:0 0 16px">please confirm that this address is yours, to finish signing up to {{ product | default("our service") }}.</p>
{% if confirmation_url is defined %}
<p style="margin:24px 0"><a href="{{ confirmation_url }}" style="display:inline-block;padding:14px 24px;background:#1f5fd6;color:#ffffff;font-weight:600;text-decoration:none;border-radius:8px">Confirm address</a></p>
<p style="margin:0 0 16px"><span class="quiet" style="color:#5f6b7a;font-size:14px">If the button does not work, copy this address into your browser:<br><a href="{{ confirmation_url }}" style="color:#1f5fd6;word-break:break-all">{{ confirmation_url }}</a></span></p>
{% endif %}
{% if valid_for is defined %}
<p style="margin:0 0 16px">The link is valid for {{ valid_for }}.</p>
{% endif %}
<p class="quiet line" style="margin:24px 0 0;padding-top:20px;border-top:1px solid #e3e8ee;color:#5f6b7a;font-size:14px">You did not sign up? Then ignore this email: nothing will happen, and we will not write again.</p>
</div>
<div class="quiet" style="padding:20px 8px 0;color:#5f6b7a;font-size:13px;line-height:1.5">
<p style="margin:0">You receive this email because this address was entered at {{ product | default("our service") }}.</p>
</div>
</div>
</div>
</body>
</html>$mail$,
'text', $mail$Hello{% if name is defined %} {{ name }}{% endif %},

please confirm that this address is yours, to finish signing up to {{ product | default("our service") }}.

{% if confirmation_url is defined %}
Confirm address: {{ confirmation_url }}
{% endif %}

{% if valid_for is defined %}
The link is valid for {{ valid_for }}.
{% endif %}

You did not sign up? Then ignore this email: nothing will happen, and we will not write again.

-- 
You receive this email because this address was entered at {{ product | default("our service") }}.$mail$),
'pt', jsonb_build_object(
'subject', $mail$Confirme seu endereço de e-mail{% if product is defined %}: {{ product }}{% endif %}$mail$,
'html', $mail$<!doctype html>
<html lang="pt">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>Confirme seu endereço de e-mail</title>
<style>
@media (prefers-color-scheme: dark) {
  .page { background: #14181f !important; color: #e6e9ee !important; }
  .card { background: #1e242e !important; }
  .quiet { color: #9aa5b4 !important; }
  .line { border-color: #333c49 !important; }
}
</style>
</head>
<body class="page" style="margin:0;padding:0;background:#f3f5f8;color:#1d2733;-webkit-text-size-adjust:100%">
<div style="display:none;max-height:0;overflow:hidden;opacity:0">Um clique, e sua conta está pronta.</div>
<div class="page" style="padding:32px 16px;background:#f3f5f8;color:#1d2733;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:16px;line-height:1.6">
<div style="max-width:560px;margin:0 auto">
<p style="margin:0 0 16px;padding:0 8px;font-size:18px;font-weight:700">{{ product | default("nosso serviço") }}</p>
<div class="card" style="padding:32px 28px;background:#ffffff;border-radius:12px">
<h1 style="margin:0 0 16px;font-size:24px;line-height:1.3">Confirme seu endereço de e-mail</h1>
<p style="margin:0 0 16px">Olá{% if name is defined %}, {{ name }}{% endif %}!</p>
<p style="margin:0 0 16px">Confirme que este endereço é seu para concluir o cadastro{% if product is defined %} em {{ product }}{% endif %}.</p>
{% if confirmation_url is defined %}
<p style="margin:24px 0"><a href="{{ confirmation_url }}" style="display:inline-block;padding:14px 24px;background:#1f5fd6;color:#ffffff;font-weight:600;text-decoration:none;border-radius:8px">Confirmar endereço</a></p>
<p style="margin:0 0 16px"><span class="quiet" style="color:#5f6b7a;font-size:14px">Se o botão não funcionar, copie este endereço no seu navegador:<br><a href="{{ confirmation_url }}" style="color:#1f5fd6;word-break:break-all">{{ confirmation_url }}</a></span></p>
{% endif %}
{% if valid_for is defined %}
<p style="margin:0 0 16px">Validade do link: {{ valid_for }}.</p>
{% endif %}
<p class="quiet line" style="margin:24px 0 0;padding-top:20px;border-top:1px solid #e3e8ee;color:#5f6b7a;font-size:14px">Não foi você? Então ignore este e-mail: nada vai acontecer, e não escreveremos de novo.</p>
</div>
<div class="quiet" style="padding:20px 8px 0;color:#5f6b7a;font-size:13px;line-height:1.5">
<p style="margin:0">Você recebeu este e-mail porque este endereço foi informado no cadastro{% if product is defined %} em {{ product }}{% endif %}.</p>
</div>
</div>
</div>
</body>
</html>$mail$,
'text', $mail$Olá{% if name is defined %}, {{ name }}{% endif %}!

Confirme que este endereço é seu para concluir o cadastro{% if product is defined %} em {{ product }}{% endif %}.

{% if confirmation_url is defined %}
Confirmar endereço: {{ confirmation_url }}
{% endif %}

{% if valid_for is defined %}
Validade do link: {{ valid_for }}.
{% endif %}

Não foi você? Então ignore este e-mail: nada vai acontecer, e não escreveremos de novo.

-- 
Você recebeu este e-mail porque este endereço foi informado no cadastro{% if product is defined %} em {{ product }}{% endif %}.$mail$))); END $seed$;

DO $seed$ BEGIN PERFORM mailgres.push_template($mail$welcome_user$mail$,
p_default_locale => $mail$en$mail$,
p_settings => $mail${"description": "Greets a new user. Variables: name (or user_data.full_name), product, url, support_email.", "required_variables": [], "on_uncertain": "hold", "sample": {"name": "Ana", "product": "Acme", "url": "https://acme.example.com/start", "support_email": "help@acme.example.com"}}$mail$,
p_contents => jsonb_build_object(
'en', jsonb_build_object(
'subject', $mail$Welcome to {{ product | default("our service") }}$mail$,
'html', $mail$<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>Welcome to {{ product | default("our service") }}</title>
<style>
@media (prefers-color-scheme: dark) {
  .page { background: #14181f !important; color: #e6e9ee !important; }
  .card { background: #1e242e !important; }
  .quiet { color: #9aa5b4 !important; }
  .line { border-color: #333c49 !important; }
}
</style>
</head>
<body class="page" style="margin:0;padding:0;background:#f3f5f8;color:#1d2733;-webkit-text-size-adjust:100%">
<div style="display:none;max-height:0;overflow:hidden;opacity:0">Your account is ready. Here is how to get started.</div>
<div class="page" style="padding:32px 16px;background:#f3f5f8;color:#1d2733;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:16px;line-height:1.6">
<div style="max-width:560px;margin:0 auto">
<p style="margin:0 0 16px;padding:0 8px;font-size:18px;font-weight:700">{{ product | default("our service") }}</p>
<div class="card" style="padding:32px 28px;background:#ffffff;border-radius:12px">
<h1 style="margin:0 0 16px;font-size:24px;line-height:1.3">Welcome{% set who = name | default("", true) or (user_data | default({}, true)).full_name | default("", true) %}{% if who %}, {{ who }}{% endif %}!</h1>
<p style="margin:0 0 16px">Thank you for joining {{ product | default("our service") }}. Your account is ready, and you can start right away.</p>
{% if url is defined %}
<p style="margin:24px 0"><a href="{{ url }}" style="display:inline-block;padding:14px 24px;background:#1f5fd6;color:#ffffff;font-weight:600;text-decoration:none;border-radius:8px">Get started</a></p>
<p style="margin:0 0 16px"><span class="quiet" style="color:#5f6b7a;font-size:14px">If the button does not work, copy this address into your browser:<br><a href="{{ url }}" style="color:#1f5fd6;word-break:break-all">{{ url }}</a></span></p>
{% endif %}
<p class="quiet line" style="margin:24px 0 0;padding-top:20px;border-top:1px solid #e3e8ee;color:#5f6b7a;font-size:14px">Questions? {% if support_email is defined %}Write to <a href="mailto:{{ support_email }}" style="color:#1f5fd6">{{ support_email }}</a>.{% else %}Just reply to this email.{% endif %} We are happy to help.</p>
</div>
<div class="quiet" style="padding:20px 8px 0;color:#5f6b7a;font-size:13px;line-height:1.5">
<p style="margin:0">You receive this email because an account at {{ product | default("our service") }} was created with this address.</p>
</div>
</div>
</div>
</body>
</html>$mail$,
'text', $mail$Welcome{% set who = name | default("", true) or (user_data | default({}, true)).full_name | default("", true) %}{% if who %}, {{ who }}{% endif %}!

Thank you for joining {{ product | default("our service") }}. Your account is ready, and you can start right away.

{% if url is defined %}
Get started: {{ url }}
{% endif %}

Questions? {% if support_email is defined %}Write to {{ support_email }}.{% else %}Just reply to this email.{% endif %} We are happy to help.

-- 
You receive this email because an account at {{ product | default("our service") }} was created with this address.$mail$),
'pt', jsonb_build_object(
'subject', $mail${% if product is defined %}Boas-vindas: {{ product }}{% else %}Boas-vindas ao nosso serviço{% endif %}$mail$,
'html', $mail$<!doctype html>
<html lang="pt">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>Boas-vindas</title>
<style>
@media (prefers-color-scheme: dark) {
  .page { background: #14181f !important; color: #e6e9ee !important; }
  .card { background: #1e242e !important; }
  .quiet { color: #9aa5b4 !important; }
  .line { border-color: #333c49 !important; }
}
</style>
</head>
<body class="page" style="margin:0;padding:0;background:#f3f5f8;color:#1d2733;-webkit-text-size-adjust:100%">
<div style="display:none;max-height:0;overflow:hidden;opacity:0">Sua conta está pronta. Veja como começar.</div>
<div class="page" style="padding:32px 16px;background:#f3f5f8;color:#1d2733;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:16px;line-height:1.6">
<div style="max-width:560px;margin:0 auto">
<p style="margin:0 0 16px;padding:0 8px;font-size:18px;font-weight:700">{{ product | default("nosso serviço") }}</p>
<div class="card" style="padding:32px 28px;background:#ffffff;border-radius:12px">
<h1 style="margin:0 0 16px;font-size:24px;line-height:1.3">Boas-vindas{% set who = name | default("", true) or (user_data | default({}, true)).full_name | default("", true) %}{% if who %}, {{ who }}{% endif %}!</h1>
<p style="margin:0 0 16px">Obrigado por criar uma conta{% if product is defined %} em {{ product }}{% endif %}. Ela está pronta, e você já pode começar.</p>
{% if url is defined %}
<p style="margin:24px 0"><a href="{{ url }}" style="display:inline-block;padding:14px 24px;background:#1f5fd6;color:#ffffff;font-weight:600;text-decoration:none;border-radius:8px">Começar</a></p>
<p style="margin:0 0 16px"><span class="quiet" style="color:#5f6b7a;font-size:14px">Se o botão não funcionar, copie este endereço no seu navegador:<br><a href="{{ url }}" style="color:#1f5fd6;word-break:break-all">{{ url }}</a></span></p>
{% endif %}
<p class="quiet line" style="margin:24px 0 0;padding-top:20px;border-top:1px solid #e3e8ee;color:#5f6b7a;font-size:14px">Dúvidas? {% if support_email is defined %}Escreva para <a href="mailto:{{ support_email }}" style="color:#1f5fd6">{{ support_email }}</a>.{% else %}Basta responder a este e-mail.{% endif %} Teremos prazer em ajudar.</p>
</div>
<div class="quiet" style="padding:20px 8px 0;color:#5f6b7a;font-size:13px;line-height:1.5">
<p style="margin:0">Você recebeu este e-mail porque uma conta{% if product is defined %} em {{ product }}{% endif %} foi criada com este endereço.</p>
</div>
</div>
</div>
</body>
</html>$mail$,
'text', $mail$Boas-vindas{% set who = name | default("", true) or (user_data | default({}, true)).full_name | default("", true) %}{% if who %}, {{ who }}{% endif %}!

Obrigado por criar uma conta{% if product is defined %} em {{ product }}{% endif %}. Ela está pronta, e você já pode começar.

{% if url is defined %}
Começar: {{ url }}
{% endif %}

Dúvidas? {% if support_email is defined %}Escreva para {{ support_email }}.{% else %}Basta responder a este e-mail.{% endif %} Teremos prazer em ajudar.

-- 
Você recebeu este e-mail porque uma conta{% if product is defined %} em {{ product }}{% endif %} foi criada com este endereço.$mail$))); END $seed$;

-- ---- sql/50_seed/40_alert_template.sql

-- The template of notification emails. Push another version to change it.

DO $seed$ BEGIN PERFORM mailgres.push_template('mailgres_alert', p_default_locale => 'en',
p_settings => $mail${"description": "Notifies operators and tenants about alerts and dead letters.", "on_uncertain": "resend",
"sample": {"event": "DeadLetters", "audience": "operators", "new": 3,
"reasons": [{"reason": "permanent", "code": "no_mailbox", "template": "welcome_user", "emails": 3}]}}$mail$,
p_contents => jsonb_build_object('en', jsonb_build_object(
'subject', $mail${% if event == "DeadLetters" %}mailgres: {{ new }} new dead letters{% elif new %}mailgres: {{ firing[0].severity }}: {{ firing[0].rule }}{% if firing[0].subject %} ({{ firing[0].subject }}){% endif %}{% if new > 1 %} and {{ new - 1 }} more{% endif %}{% else %}mailgres: resolved: {{ resolved[0].rule }}{% if resolved[0].subject %} ({{ resolved[0].subject }}){% endif %}{% if resolved | length > 1 %} and {{ resolved | length - 1 }} more{% endif %}{% endif %}$mail$,
'text', $mail${% if event == "DeadLetters" %}
{{ new }} emails{% if audience != "operators" %} of {{ audience | replace("tenant:", "") }}{% endif %} became dead letters since the last notification:

{% for each in reasons %}
- {{ each.emails }} of the template {{ each.template }}: {{ each.reason }}{% if each.code %} ({{ each.code }}){% endif %}

{% endfor %}
{% if audience == "operators" %}
List them:  SELECT * FROM email_dead_letters ORDER BY dead_at DESC;
Retry one:  SELECT retry_email('…');
{% endif %}
{% else %}
{% for each in firing %}
{{ each.severity }}: {{ each.rule }}{% if each.subject %} ({{ each.about }} {{ each.subject }}){% endif %}

  {{ each.means }}
  {{ each.figure }} {{ each.unit }}, threshold {{ each.threshold }}; since {{ each.since }}
{% if audience == "operators" %}
  What to do: {{ each.runbook }}
{% endif %}

{% endfor %}
{% if resolved %}
Resolved:
{% for each in resolved %}
- {{ each.rule }}{% if each.subject %} ({{ each.about }} {{ each.subject }}){% endif %}, since {{ each.since }}
{% endfor %}

{% endif %}
{% if more %}
And {{ more }} more.
{% endif %}
{% if audience == "operators" %}
All firing alerts:  SELECT * FROM email_alerts;
{% endif %}
{% endif %}
$mail$),
'pt', jsonb_build_object(
'subject', $mail${% if event == "DeadLetters" %}mailgres: {{ new }} novas mensagens não entregues{% elif new %}mailgres: {{ {"critical": "crítico", "warning": "aviso", "info": "informação"}[firing[0].severity] }}: {{ firing[0].rule }}{% if firing[0].subject %} ({{ firing[0].subject }}){% endif %}{% if new > 1 %} e mais {{ new - 1 }}{% endif %}{% else %}mailgres: resolvido: {{ resolved[0].rule }}{% if resolved[0].subject %} ({{ resolved[0].subject }}){% endif %}{% if resolved | length > 1 %} e mais {{ resolved | length - 1 }}{% endif %}{% endif %}$mail$,
'text', $mail${% if event == "DeadLetters" %}
{{ new }} emails{% if audience != "operators" %} de {{ audience | replace("tenant:", "") }}{% endif %} não foram entregues desde a última mensagem:

{% for each in reasons %}
- {{ each.emails }} do modelo {{ each.template }}: {{ each.reason }}{% if each.code %} ({{ each.code }}){% endif %}

{% endfor %}
{% if audience == "operators" %}
Ver:              SELECT * FROM email_dead_letters ORDER BY dead_at DESC;
Enviar de novo:   SELECT retry_email('…');
{% endif %}
{% else %}
{% for each in firing %}
{{ {"critical": "crítico", "warning": "aviso", "info": "informação"}[each.severity] }}: {{ each.rule }}{% if each.subject %} ({{ each.about }} {{ each.subject }}){% endif %}

  {{ each.means }}
  {{ each.figure }} {{ each.unit }}, limite {{ each.threshold }}; desde {{ each.since }}
{% if audience == "operators" %}
  O que fazer: {{ each.runbook }}
{% endif %}

{% endfor %}
{% if resolved %}
Resolvido:
{% for each in resolved %}
- {{ each.rule }}{% if each.subject %} ({{ each.about }} {{ each.subject }}){% endif %}, desde {{ each.since }}
{% endfor %}

{% endif %}
{% if more %}
E mais {{ more }}.
{% endif %}
{% if audience == "operators" %}
Todos os alertas ativos:  SELECT * FROM email_alerts;
{% endif %}
{% endif %}
$mail$))); END $seed$;

-- ---- sql/50_seed/45_alert_rules.sql

-- The alert rules. docs/runbook.md has a section for each.

INSERT INTO mailgres.alert_rules
    (name, threshold, unit, reaches, time_window, least, severity, about, means)
VALUES
    ('failure_rate', 10, '%', false, '1 hour', 20, 'critical', 'queue',
     'Too many recent attempts failed.'),
    ('dead_letters', 100, 'emails', false, NULL, 0, 'warning', 'queue',
     'Too many dead letters wait for a person.'),
    ('dead_letters_ceiling', 10000, 'emails', false, NULL, 0, 'critical', 'queue',
     'There are more dead letters than people can handle. None is deleted.'),
    ('dead_letter_rate', 2, '%', false, '24 hours', 50, 'warning', 'queue',
     'Too many of the emails that were recently settled are dead.'),
    ('tenant_dead_letters', 50, 'emails', false, NULL, 0, 'warning', 'tenant',
     'One tenant has too many dead letters.'),
    ('backlog', 50, 'emails', false, '5 minutes', 0, 'warning', 'queue',
     'Emails are due and are not claimed: too many wait, some for longer than the window.'),
    ('template_failing', 50, '%', false, '2 hours', 5, 'critical', 'template',
     'Too many emails of one template are dead.'),
    ('no_processor', 10, 'minutes', false, NULL, 0, 'critical', 'queue',
     'Emails are due, and no worker or processor has been seen for too long.'),
    ('stuck_sending', 0, 'emails', false, '5 minutes', 0, 'warning', 'queue',
     'Workers have held emails for longer than the window.'),
    ('circuit_open', 0, 'openings', false, NULL, 0, 'critical', 'provider',
     'A provider fails and is not used: its circuit is open. The figure is how often it opened since the provider last worked.'),
    ('provider_missing', 5, 'minutes', false, NULL, 0, 'critical', 'provider',
     'A route has a provider that no live worker has: its emails wait.'),
    ('quota_80', 80, '%', true, NULL, 0, 'warning', 'provider',
     'The daily or monthly quota of a provider is nearly used up.'),
    ('quota_90', 90, '%', true, NULL, 0, 'critical', 'provider',
     'The daily or monthly quota of a provider is nearly used up.'),
    ('tenant_starved', 15, 'minutes', false, NULL, 0, 'warning', 'tenant',
     'No email of a tenant has been claimed for too long, although some are due and other tenants are served.'),
    ('parked', 0, 'emails', false, NULL, 0, 'warning', 'tenant',
     'Emails of a tenant wait until the sender''s configuration is fixed, such as an unverified domain.'),
    ('database_80', 80, '%', true, NULL, 0, 'warning', 'queue',
     'The database uses most of mailgres.settings.database_capacity.'),
    ('database_90', 90, '%', true, NULL, 0, 'critical', 'queue',
     'The database uses most of mailgres.settings.database_capacity.'),
    ('dead_tuples', 20, '%', false, NULL, 100000, 'warning', 'table',
     'Too much of a table is dead rows: vacuum does not keep up.'),
    ('old_transaction', 30, 'minutes', false, NULL, 0, 'warning', 'session',
     'A transaction has been open for too long: vacuum cannot remove rows that it might still see.'),
    ('webhook_off', 0, 'failures', false, NULL, 0, 'warning', 'queue',
     'The alert webhook failed ten times in a row and is no longer called.'),
    ('janitor_failing', 3, 'failures', true, NULL, 0, 'critical', 'janitor',
     'A janitor failed several times in a row: its work is not done.');

-- ---- sql/50_seed/90_analyze.sql

-- These tables stay too small for autovacuum to analyze them, and every enqueue reads them: without
-- statistics its plan takes several times as long to start.

ANALYZE mailgres.settings, mailgres.retry_policies, mailgres.routes, mailgres.providers,
    mailgres.route_providers, public.email_templates;

-- ---- sql/60_security/10_roles.sql

-- Four roles, for the whole cluster. If the migrating role may not create roles, the queue works
-- without them, for its owner.

DO $$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY[
        'mailgres_producer', 'mailgres_worker', 'mailgres_operator', 'mailgres_analyst']
    LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = v_role);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'role % was not created: % may not create roles. Have it created and migrate again, or do without it.',
                    v_role, current_user;
            WHEN duplicate_object OR unique_violation THEN
                NULL;  -- created at the same time for another database
        END;
    END LOOP;
END
$$;

-- ---- sql/60_security/20_row_security.sql

-- Row security on every table of the contract, and no policy for PUBLIC. The owner, and Supabase's
-- service_role, bypass it.

ALTER TABLE public.email_queue ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.email_templates ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.email_logs ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.email_suppressions ENABLE ROW LEVEL SECURITY;

-- ---- sql/60_security/25_intended_grants.sql

-- All rights of all roles: the only place that decides them. mailgres.secure() grants what is missing,
-- and mailgres.unintended_grants() lists the rights beyond this list. A right that a later version
-- removes has to be revoked by the revision of that version.

CREATE FUNCTION mailgres.intended_grants()
    RETURNS TABLE (grantee text, privilege text, kind text, object text, column_name text)
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH
-- An application may have its own functions with the same names in public, so these have arguments.
enqueue(names) AS (VALUES ('
    public.enqueue_email(uuid,text,text,jsonb,text,int,timestamptz,timestamptz,text,text,text,text,int,interval,interval,text,text,text,text,text,jsonb,jsonb,text[],text[],jsonb,text[])
    public.enqueue_emails(jsonb)')),
by_hand(names) AS (VALUES ('
    public.cancel_email(uuid,text) public.retry_email(uuid,boolean) public.reschedule_email(uuid,timestamptz)
    public.record_email_event(text,uuid,text,text,boolean) public.process_pending_emails_for_retry(int)
    public.get_pending_emails_for_retry(int) public.mark_email_sent(uuid,text) public.mark_email_failed(uuid,text)
    public.calculate_next_retry_time(int)')),
janitors(names) AS (VALUES ('
    mailgres.reap mailgres.promote mailgres.expire mailgres.fold_rollups mailgres.archive_dead_letters
    mailgres.purge_archive mailgres.delete_expired_emails mailgres.heartbeat mailgres.delete_stale_workers mailgres.notify_dead_letters
    mailgres.check_alerts mailgres.log_dead_letters mailgres.deliver_notifications mailgres.record_webhook_result mailgres.measure_depth
    mailgres.delete_expired_rollups mailgres.template_contents mailgres.unintended_grants mailgres.record_janitor_run
    mailgres.failing_janitors')),
-- functions that a plain INSERT or UPDATE of email_queue calls: defaults, and checks of its columns
called_by_writes(names) AS (VALUES ('
    mailgres.now mailgres.uuid_v7 mailgres.is_address mailgres.is_sender mailgres.are_addresses
    mailgres.are_headers mailgres.are_tags mailgres.is_unambiguous mailgres.invisible_characters')),
-- The views for analysts and the tables below them: figures, no personal data. A view shows what its
-- reader may see of the tables, so analysts need rights on all of them; but they have no right on the
-- schema, so they reach the tables through the views only.
views(names) AS (VALUES ('
    public.email_queue_state public.email_pending_by_template public.email_throughput
    public.email_workers public.email_providers public.email_eta public.email_failure_rate_by_template
    public.email_kpis public.email_delivery_times public.email_retried public.email_recovery_by_retries
    public.email_success_by_attempt public.email_time_between_attempts public.email_error_codes
    public.email_common_errors public.email_dlq_entries public.email_dlq_size public.email_dlq_per_hour
    public.email_dlq_by_code public.email_dlq_by_tenant public.email_dlq_by_age
    public.email_tenant_fairness public.email_alerts public.email_monitoring

    mailgres.rollup_deltas mailgres.attempt_deltas mailgres.rollup_by_template mailgres.rollup_by_tenant
    mailgres.rollup_by_provider mailgres.rollup_by_retries mailgres.rollup_by_status
    mailgres.rollup_dead mailgres.rollup_by_minute mailgres.rollup_by_attempt mailgres.rollup_by_fault
    mailgres.tenant_activity mailgres.depth mailgres.depth_by_template mailgres.depth_by_tenant
    mailgres.current_depth_by_template mailgres.current_depth_by_tenant mailgres.counted_by_template
    mailgres.counted_by_tenant mailgres.counted_by_provider mailgres.counted_by_retries
    mailgres.counted_by_status mailgres.counted_dead mailgres.counted_by_minute
    mailgres.counted_by_attempt mailgres.counted_by_fault mailgres.counted_tenants')),
called_by_views(names) AS (VALUES ('
    mailgres.now mailgres.count_depth mailgres.claim_number mailgres.oldest_dead mailgres.newest_dead
    mailgres.provider_states mailgres.eta mailgres.round_robin_priority mailgres.masked_recipient
    mailgres.alerts_now mailgres.missing_providers')),

matrix(grantees, privileges, kind, objects) AS (
    SELECT 'mailgres_producer mailgres_operator service_role', 'EXECUTE', 'function', e.names FROM enqueue e
    UNION ALL
    SELECT 'mailgres_operator service_role', 'EXECUTE', 'function', b.names FROM by_hand b
    UNION ALL
    SELECT 'mailgres_operator service_role', 'EXECUTE', 'function', c.names FROM called_by_writes c
    UNION ALL
    SELECT 'mailgres_worker mailgres_operator', 'EXECUTE', 'function', j.names FROM janitors j
    UNION ALL
    SELECT 'mailgres_worker mailgres_operator mailgres_analyst service_role', 'SELECT', 'table', v.names FROM views v
    UNION ALL
    SELECT 'mailgres_worker mailgres_operator mailgres_analyst service_role', 'EXECUTE', 'function', c.names
    FROM called_by_views c
    UNION ALL
    VALUES
    ('mailgres_worker mailgres_operator', 'USAGE', 'schema', 'mailgres'),
    ('mailgres_worker', 'EXECUTE', 'function', '
        mailgres.claim mailgres.start_attempts mailgres.finish mailgres.extend mailgres.give_back mailgres.mark_asleep
        mailgres.mark_awake mailgres.capture mailgres.use_providers mailgres.use_defaults mailgres.sign_off mailgres.learn_limits
        mailgres.rate_limit_ends_at'),
    ('mailgres_worker', 'SELECT', 'table', '
        public.email_templates mailgres.schema_version mailgres.template_versions mailgres.attachments
        mailgres.providers mailgres.routes mailgres.route_providers mailgres.tenants mailgres.retry_policies
        mailgres.settings mailgres.provider_events'),
    ('mailgres_worker', 'SELECT INSERT UPDATE DELETE', 'table', 'mailgres.workers mailgres.sleepers'),

    ('mailgres_operator', 'EXECUTE', 'function', '
        mailgres.push_template mailgres.retire_template mailgres.limit_provider
        mailgres.limit_tenant mailgres.pause_provider mailgres.resume_provider mailgres.reset_provider
        mailgres.set_route mailgres.pause_route mailgres.resume_route mailgres.set_tenant mailgres.route_states
        mailgres.find_emails mailgres.count_emails mailgres.check_emails mailgres.cancel_emails
        mailgres.retry_emails mailgres.reschedule_emails mailgres.find_dead_letters mailgres.purge_dead_letters
        mailgres.pause_tenant mailgres.resume_tenant mailgres.set_tenant_weight mailgres.tenant_states
        mailgres.set_policy mailgres.set_defaults mailgres.suppress mailgres.unsuppress mailgres.allow_sender mailgres.disallow_sender
        mailgres.bind_producer mailgres.unbind_producer mailgres.set_alert_rule mailgres.reset_webhook'),
    ('mailgres_operator', 'SELECT', 'table', 'mailgres.* public.email_logs public.email_dead_letters'),
    ('mailgres_operator', 'SELECT INSERT UPDATE DELETE', 'table',
        'public.email_queue public.email_templates public.email_suppressions'),
    ('mailgres_operator', 'INSERT', 'table', 'mailgres.template_versions'),
    ('mailgres_operator', 'INSERT UPDATE DELETE', 'table', '
        mailgres.providers mailgres.route_providers mailgres.tenants mailgres.retry_policies'),
    -- a route is paused, not deleted: emails may be on it
    ('mailgres_operator', 'INSERT UPDATE', 'table', 'mailgres.routes'),
    ('mailgres_operator', 'UPDATE', 'table', 'mailgres.settings mailgres.alert_rules'),

    ('mailgres_analyst', 'SELECT', 'table', 'public.email_templates'),

    ('service_role', 'SELECT INSERT UPDATE DELETE', 'table',
        'public.email_queue public.email_templates public.email_suppressions'),
    ('service_role', 'SELECT', 'table', 'public.email_logs')),

-- the columns without personal data
columns(grantees, object, names) AS (VALUES
    ('mailgres_analyst', 'public.email_queue', '
        id template_type status retries max_retries last_attempt_at next_retry_at error_message created_at
        tenant_id priority route scheduled_for expires_at ready retry_policy retry_delay max_retry_delay sent_at
        dead_at dead_reason error_code error_class provider provider_message_id resend_id generation
        template_version first_attempt_at uncertain_since parked_since last_duration_ms batch_id batch_size
        send_alone leased_at lease_until lease_worker lease_is_tokenless lease_losses attempt_started_at has_attachments due_at'),
    ('mailgres_analyst', 'public.email_logs', '
        id queue_id at event from_status to_status attempt tenant_id template_type claimed_at worker duration_ms
        provider provider_message_id error_class error_code error_message next_retry_at dead_reason'),
    ('mailgres_analyst service_role', 'mailgres.workers', 'worker version started_at seen_at providers on_demand stopped_at'),
    ('mailgres_analyst service_role', 'mailgres.tenants', 'tenant_id weight paused_at'))

SELECT g.grantee, p.privilege, m.kind, o.object, NULL
FROM matrix m
CROSS JOIN LATERAL string_to_table(m.grantees, ' ') g(grantee)
CROSS JOIN LATERAL string_to_table(m.privileges, ' ') p(privilege)
CROSS JOIN LATERAL regexp_split_to_table(btrim(m.objects, E' \n'), E'\\s+') o(object)
UNION
SELECT g.grantee, 'SELECT', 'column', c.object, n.name
FROM columns c
CROSS JOIN LATERAL string_to_table(c.grantees, ' ') g(grantee)
CROSS JOIN LATERAL regexp_split_to_table(btrim(c.names, E' \n'), E'\\s+') n(name)
$$;

COMMENT ON FUNCTION mailgres.intended_grants() IS
    'Every right that a role other than the owner is intended to have. mailgres.* means all tables of that schema.';

-- ---- sql/60_security/26_rights.sql

-- jit = off everywhere here: PostgreSQL overestimates these lists, and would compile for seconds.

-- The rights in the catalog: on everything in the schema mailgres; in public on the objects that
-- intended_grants() names, and on the sequences of those tables.

CREATE FUNCTION mailgres.rights()
    RETURNS TABLE (kind text, object text, column_name text, oid oid, owner oid,
                   grantee oid, grantor oid, privilege text, grantable boolean)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH named AS MATERIALIZED (
    SELECT DISTINCT CASE WHEN g.kind <> 'function' THEN to_regclass(g.object) END AS relation,
                    CASE WHEN g.kind = 'function' THEN to_regprocedure(g.object) END AS routine
    FROM mailgres.intended_grants() g
    WHERE starts_with(g.object, 'public.')
), relations AS MATERIALIZED (
    SELECT c.* FROM pg_class c
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
      AND (c.relnamespace = 'mailgres'::regnamespace
           OR c.oid IN (SELECT n.relation FROM named n)
           OR c.relkind = 'S' AND EXISTS (
               SELECT FROM pg_depend d JOIN named n ON n.relation = d.refobjid
               WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
                 AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')))
), objects(kind, object, column_name, oid, owner, acl) AS (
    SELECT 'schema', n.nspname::text, NULL::text, n.oid, n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner))
    FROM pg_namespace n WHERE n.nspname = 'mailgres'
    UNION ALL
    SELECT CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, c.oid::regclass::text, NULL, c.oid, c.relowner,
           coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's'::"char" ELSE 'r' END, c.relowner))
    FROM relations c
    UNION ALL
    SELECT 'column', c.oid::regclass::text, a.attname, c.oid, c.relowner, a.attacl
    FROM relations c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE a.attacl IS NOT NULL AND NOT a.attisdropped
    UNION ALL
    SELECT 'function', p.oid::regprocedure::text, NULL, p.oid, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
    FROM pg_proc p
    WHERE p.pronamespace = 'mailgres'::regnamespace OR p.oid IN (SELECT n.routine FROM named n)
    UNION ALL
    -- not the types of rows and arrays, which have no rights of their own; a domain over an array has
    SELECT 'type', t.oid::regtype::text, NULL, t.oid, t.typowner, coalesce(t.typacl, acldefault('T', t.typowner))
    FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
    WHERE t.typnamespace = 'mailgres'::regnamespace AND (t.typcategory <> 'A' OR t.typtype = 'd') AND (c.relkind IS NULL OR c.relkind = 'c')
)
SELECT o.kind, o.object, o.column_name, o.oid, o.owner, a.grantee, a.grantor, a.privilege_type, a.is_grantable
FROM objects o CROSS JOIN LATERAL aclexplode(o.acl) a
$$;

COMMENT ON FUNCTION mailgres.rights() IS 'Every right on an object of mailgres, the owner''s included.';

-- intended_grants() for the existing roles and objects, in the form of rights().

CREATE FUNCTION mailgres.intended_rights()
    RETURNS TABLE (kind text, object text, column_name text, oid oid, grantee oid, privilege text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH granted AS MATERIALIZED (
    SELECT g.kind, g.object, g.column_name, r.oid AS grantee, g.privilege
    FROM mailgres.intended_grants() g JOIN pg_roles r ON r.rolname = g.grantee
), named AS MATERIALIZED (  -- each name is looked up once
    SELECT x.kind, x.object,
           CASE x.kind WHEN 'schema' THEN to_regnamespace(x.object)::oid
                       WHEN 'function' THEN CASE WHEN strpos(x.object, '(') > 0 THEN to_regprocedure(x.object)::oid
                                                 ELSE to_regproc(x.object)::oid END
                       ELSE to_regclass(x.object)::oid END AS oid
    FROM (SELECT DISTINCT g.kind, g.object FROM granted g WHERE g.object <> 'mailgres.*') x
    UNION ALL
    SELECT 'table', 'mailgres.*', c.oid
    FROM pg_class c WHERE c.relnamespace = 'mailgres'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
)
SELECT DISTINCT g.kind,
       CASE g.kind WHEN 'schema' THEN n.oid::regnamespace::text WHEN 'function' THEN n.oid::regprocedure::text
                   ELSE n.oid::regclass::text END,
       a.attname::text, n.oid, g.grantee, g.privilege
FROM granted g
JOIN named n ON n.kind = g.kind AND n.object = g.object AND n.oid IS NOT NULL
LEFT JOIN pg_attribute a
    ON g.kind = 'column' AND a.attrelid = n.oid AND a.attname = g.column_name AND NOT a.attisdropped
WHERE g.kind <> 'column' OR a.attname IS NOT NULL
$$;

COMMENT ON FUNCTION mailgres.intended_rights() IS
    'intended_grants() for the roles and objects that exist.';

CREATE FUNCTION mailgres.unintended_grants()
    RETURNS TABLE (grantee text, everybody boolean, kind text, object text, column_name text, oid oid,
                   privileges text, passes_on boolean, revoke text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
SELECT g.grantee, g.everybody, g.kind, g.object, g.column_name, g.oid, g.privileges, g.passes_on,
       -- A right that a role passed on is revoked together with its right to pass it on.
       format('REVOKE %s%s ON %s %s FROM %s CASCADE',
              CASE WHEN g.intended OR NOT g.by_owner THEN 'GRANT OPTION FOR ' END,
              CASE WHEN g.column_name IS NULL THEN g.privileges
                   ELSE regexp_replace(g.privileges, E'\\w+', format(E'\\& (%I)', g.column_name), 'g') END,
              CASE g.kind WHEN 'column' THEN 'TABLE' WHEN 'function' THEN 'ROUTINE' ELSE upper(g.kind) END,
              g.object, CASE WHEN g.by_owner THEN g.grantee ELSE g.grantor END)
FROM (
    SELECT coalesce(quote_ident(r.rolname), 'PUBLIC') AS grantee, quote_ident(o.rolname) AS grantor,
           coalesce(r.rolname IN ('anon', 'authenticated'), true) AS everybody,
           x.kind, x.object, x.column_name, x.oid, x.grantor = x.owner AS by_owner, i.oid IS NOT NULL AS intended,
           string_agg(x.privilege, ', ' ORDER BY x.privilege) AS privileges, bool_or(x.grantable) AS passes_on
    FROM mailgres.rights() x
    LEFT JOIN pg_roles r ON r.oid = x.grantee
    LEFT JOIN pg_roles o ON o.oid = x.grantor
    LEFT JOIN mailgres.intended_rights() i
        ON (i.kind, i.oid, i.grantee, i.privilege) = (x.kind, x.oid, x.grantee, x.privilege)
       AND i.column_name IS NOT DISTINCT FROM x.column_name
    WHERE x.grantee <> x.owner AND (i.oid IS NULL OR x.grantable)
    GROUP BY r.rolname, o.rolname, x.kind, x.object, x.column_name, x.oid, x.grantor, x.owner, i.oid IS NOT NULL
) g
$$;

COMMENT ON FUNCTION mailgres.unintended_grants() IS
    'Rights on objects of mailgres beyond intended_grants(), and the statement that revokes each; everybody: PUBLIC, anon, authenticated.';

-- ---- sql/60_security/30_secure.sql

-- Least privilege: roles have the rights of intended_grants() and those that the owner granted in
-- addition, and no others. Three things give rights that nobody decided on: functions and types are
-- open to PUBLIC, Supabase grants to its roles by name, and any role's ALTER DEFAULT PRIVILEGES applies
-- to the objects that we create. So the transaction that creates an object revokes every right beyond
-- the intended ones, from every role; from PUBLIC, anon and authenticated always. Call it again when
-- roles were created later: `mailgres migrate` does.

-- Called before objects are created. Objects that were secured earlier keep the grants that were made
-- since; without this call, no object counts as new.

CREATE FUNCTION mailgres.remember_objects() RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
SELECT set_config('mailgres.known_objects',
    'known ' || (SELECT string_agg(DISTINCT replace(r.kind, 'column', 'table') || r.oid, ' ') FROM mailgres.rights() r),
    true)
$$;

COMMENT ON FUNCTION mailgres.remember_objects() IS
    'Records for this transaction which objects exist, so that secure() recognizes the new ones.';

CREATE FUNCTION mailgres.revoke_unintended() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    -- Empty outside of a migration; 'none' when nothing was secured before.
    v_known    text[] := string_to_array(nullif(current_setting('mailgres.known_objects', true), ''), ' ');
    v_grant    record;
    v_revoked  jsonb := '[]';
    v_line     text;
BEGIN
    FOR v_grant IN
        SELECT u.*, n.is_new
        FROM mailgres.unintended_grants() u
        CROSS JOIN LATERAL (
            SELECT coalesce(replace(u.kind, 'column', 'table') || u.oid <> ALL (v_known), false)) n(is_new)
        WHERE u.everybody OR n.is_new
    LOOP
        EXECUTE v_grant.revoke;
        -- Do not mention that a new function or type was open to PUBLIC.
        IF NOT (v_grant.is_new AND v_grant.grantee = 'PUBLIC' AND v_grant.kind IN ('function', 'type')) THEN
            v_revoked := v_revoked || jsonb_build_object(
                'grantee', v_grant.grantee, 'kind', v_grant.kind, 'object', v_grant.object, 'privileges', v_grant.privileges);
        END IF;
    END LOOP;

    FOR v_line IN
        SELECT format('revoked from %s: %s on %s%s', x.grantee, x.privileges, min(x.object),
                      CASE WHEN count(*) > 1 THEN format(' and %s more (%ss)', count(*) - 1, x.kind) END)
        FROM jsonb_to_recordset(v_revoked) x(grantee text, kind text, object text, privileges text)
        GROUP BY x.grantee, x.kind, x.privileges
        ORDER BY x.grantee, x.kind, x.privileges
    LOOP
        RAISE NOTICE '%', v_line;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.revoke_unintended() IS
    'Revokes rights that nobody decided on: all from PUBLIC, anon and authenticated, and on new objects those beyond intended_grants().';

CREATE FUNCTION mailgres.secure() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    v_grant   record;
    v_policy  record;
BEGIN
    PERFORM mailgres.revoke_unintended();

    FOR v_grant IN
        SELECT string_agg(i.privilege || coalesce(' (' || quote_ident(i.column_name) || ')', ''), ', '
                          ORDER BY i.privilege, i.column_name) AS privileges,
               CASE i.kind WHEN 'column' THEN 'TABLE' WHEN 'function' THEN 'ROUTINE' ELSE upper(i.kind) END AS kind,
               i.object, i.grantee::regrole AS grantee
        FROM mailgres.intended_rights() i
        WHERE NOT EXISTS (
            SELECT FROM mailgres.rights() r
            WHERE (r.kind, r.oid, r.grantee, r.privilege) = (i.kind, i.oid, i.grantee, i.privilege)
              AND r.column_name IS NOT DISTINCT FROM i.column_name)
        GROUP BY i.kind, i.object, i.grantee
        ORDER BY i.kind, i.object, i.grantee  -- a dump has the grants in the order in which they were made
    LOOP
        EXECUTE format('GRANT %s ON %s %s TO %s', v_grant.privileges, v_grant.kind, v_grant.object, v_grant.grantee);
    END LOOP;

    -- The policies allow the roles that have grants; another role sees no row, whatever is granted
    -- to it by accident.
    FOR v_policy IN
        SELECT p.*, r.rolname
        FROM (VALUES
            ('mailgres_operator', 'email_queue', 'ALL'),
            ('mailgres_operator', 'email_templates', 'ALL'),
            ('mailgres_operator', 'email_logs', 'SELECT'),
            ('mailgres_operator', 'email_suppressions', 'ALL'),
            ('mailgres_worker', 'email_templates', 'SELECT'),
            ('mailgres_analyst', 'email_queue', 'SELECT'),
            ('mailgres_analyst', 'email_templates', 'SELECT'),
            ('mailgres_analyst', 'email_logs', 'SELECT')
        ) p(role, tbl, command)
        JOIN pg_catalog.pg_roles r ON r.rolname = p.role
        WHERE NOT EXISTS (
            SELECT FROM pg_catalog.pg_policies x
            WHERE x.schemaname = 'public' AND x.tablename = p.tbl AND x.policyname = p.role)
    LOOP
        EXECUTE format('CREATE POLICY %I ON public.%I FOR %s TO %I USING (true)',
            v_policy.rolname, v_policy.tbl, v_policy.command, v_policy.rolname);
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.secure() IS
    'Revokes rights that nobody decided on, and grants missing ones, for the roles that exist now.';

SELECT mailgres.secure();
