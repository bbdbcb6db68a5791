-- 0001_initial: sql/ as it was when this revision was frozen. Never edited by hand.

-- ---- sql/10_foundation/10_schemas.sql

CREATE SCHEMA IF NOT EXISTS mailgres;

-- ---- sql/10_foundation/15_roles.sql

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

-- ---- sql/10_foundation/20_now.sql

CREATE FUNCTION mailgres.now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN pg_catalog.now();

-- ---- sql/10_foundation/30_uuid_v7.sql

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

-- ---- sql/10_foundation/50_unambiguous.sql

CREATE FUNCTION mailgres.invisible_characters() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '[\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e'
    || '\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff'
    || '\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]';

CREATE FUNCTION mailgres.is_unambiguous(p_text text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN CASE WHEN getdatabaseencoding() = 'UTF8' THEN
    p_text !~ mailgres.invisible_characters()
    AND p_text !~ '\u3002'  -- IDNA reads it as a full stop
    AND normalize(p_text, NFKC) = normalize(p_text, NFC)
    ELSE false END;

-- ---- sql/10_foundation/60_fields.sql

CREATE FUNCTION mailgres.is_address(p_address text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN octet_length(p_address) <= 254
    AND strpos(p_address, '@') <= 65
    AND (
        -- Most addresses have this simple form, which the pattern below accepts, too; it takes half the time.
        p_address ~ '^[A-Za-z0-9](?:[._+-]?[A-Za-z0-9])*@[A-Za-z0-9](?:[.-]?[A-Za-z0-9])*\.[A-Za-z]+$'
        OR p_address ~ (
            '^[^\x01-\x20\x7f-\xa0\u2028\u2029"(),.:;<>@\[\\\]]+(?:\.[^\x01-\x20\x7f-\xa0\u2028\u2029"(),.:;<>@\[\\\]]+)*'
            || '@(?:[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029](?:[^\x01-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029]*[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029])?\.)+'
            || '[^\x01-\x40\x5b-\x60\x7b-\xa0\u2028\u2029](?:[^\x01-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029]*[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029])?$')
        AND (p_address !~ '[^\x01-\x7f]' OR mailgres.is_unambiguous(p_address)));

CREATE FUNCTION mailgres.is_sender(p_sender text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN p_sender !~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]' AND length(p_sender) <= 320
    AND mailgres.is_address(coalesce(substring(p_sender FROM '^[^<>]*<([^<>]*)>$'), p_sender));

CREATE FUNCTION mailgres.are_addresses(p_addresses text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN cardinality(p_addresses) <= 50
    AND coalesce(array_ndims(p_addresses) = 1 AND array_lower(p_addresses, 1) = 1, true)
    AND NOT EXISTS (SELECT FROM unnest(p_addresses) a WHERE mailgres.is_address(a) IS NOT TRUE);

CREATE FUNCTION mailgres.are_headers(p_headers jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN jsonb_typeof(p_headers) = 'object' THEN
    octet_length(p_headers::text) <= 16384
    AND jsonb_array_length(jsonb_path_query_array(p_headers, '$.keyvalue()')) <= 50
    AND NOT jsonb_path_exists(p_headers, '$.keyvalue() ? (
        !(@.key like_regex "^[A-Za-z0-9-]{1,76}$")
        || @.key like_regex "^(?:from|to|cc|bcc|subject|date|message-id|reply-to|sender|return-path|mime-version|delivered-to|dkim-signature|domainkey-signature|authentication-results|x-smtpapi|x-msys-api|received(?:-.*)?|(?:resent|content|arc|x-ses|x-mc|x-pm|x-mailgun|x-mj|x-mailin|x-sg)-.*)$" flag "i"
        || @.value.type() != "string"
        || @.value like_regex "[\u0001-\u0008\u000a-\u001f\u007f-\u009f\u2028\u2029]")')
    WHEN p_headers IS NOT NULL THEN false END;

CREATE FUNCTION mailgres.are_tags(p_tags jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN jsonb_typeof(p_tags) = 'object' THEN
    jsonb_array_length(jsonb_path_query_array(p_tags, '$.keyvalue()')) <= 40
    AND NOT jsonb_path_exists(p_tags, '$.keyvalue() ? (
        !(@.key like_regex "^[A-Za-z0-9_-]{1,255}$")
        || @.value.type() != "string"
        || !(@.value like_regex "^[A-Za-z0-9_-]{1,255}$"))')
    WHEN p_tags IS NOT NULL THEN false END;

CREATE FUNCTION mailgres.is_subject(p_subject text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN length(p_subject) BETWEEN 1 AND 998 AND p_subject !~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]';

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
    CONSTRAINT are_at_most_49 CHECK (cardinality(VALUE) <= 49);

CREATE DOMAIN mailgres.headers AS jsonb
    CONSTRAINT are_headers CHECK (mailgres.are_headers(VALUE));

CREATE DOMAIN mailgres.tags AS jsonb
    CONSTRAINT are_tags CHECK (mailgres.are_tags(VALUE));

CREATE DOMAIN mailgres.subject AS text
    CONSTRAINT is_one_line CHECK (mailgres.is_subject(VALUE));

CREATE DOMAIN mailgres.body AS text
    CONSTRAINT is_at_most_5_mib CHECK (octet_length(VALUE) <= 5242880);

CREATE DOMAIN mailgres.payload AS jsonb
    CONSTRAINT is_an_object CHECK (CASE WHEN jsonb_typeof(VALUE) = 'object'
        THEN pg_column_size(VALUE || '{}') <= 8388608 ELSE VALUE IS NULL END);

CREATE DOMAIN mailgres.delay AS interval
    CONSTRAINT is_at_most_30_days CHECK (VALUE BETWEEN '0' AND '30 days');

CREATE DOMAIN mailgres.priority AS smallint CHECK (VALUE BETWEEN 1 AND 9);

CREATE DOMAIN mailgres.count AS int CHECK (VALUE BETWEEN 0 AND 1000000000);

CREATE DOMAIN mailgres.most_retries AS int CHECK (VALUE BETWEEN 0 AND 100);

CREATE DOMAIN mailgres.moment AS timestamptz
    CONSTRAINT is_in_years_1_to_9999
    CHECK (VALUE <@ tstzrange '[0001-01-01 00:00:00+00, 10000-01-01 00:00:00+00)');

-- ---- sql/10_foundation/70_home.sql

CREATE FUNCTION mailgres.current_home() RETURNS uuid
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT md5(d.oid::text || ' ' || m.xmin::text)::uuid
        FROM mailgres.home_mark m, pg_catalog.pg_database d WHERE d.datname = current_database());
END
$$;

CREATE FUNCTION mailgres.current_server() RETURNS uuid
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_timeline text;
BEGIN
    BEGIN
        v_timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    EXCEPTION WHEN feature_not_supported OR insufficient_privilege OR undefined_function THEN
        v_timeline := '';
    END;
    RETURN (
        SELECT md5(format('%s %s %s', date_part('epoch', pg_postmaster_start_time()), v_timeline,
            CASE WHEN a.stats_reset = b.stats_reset THEN date_part('epoch', a.stats_reset) END))::uuid
        FROM pg_stat_get_archiver() a, pg_stat_get_bgwriter_stat_reset_time() AS b(stats_reset));
END
$$;

-- ---- sql/20_tables/05_schema_objects.sql

CREATE TYPE mailgres.wanted_object AS (
    kind       text,  -- function, view, trigger or comment
    name       text,  -- mailgres.reap(int), public.email_kpis, public.email_queue.wake, COLUMN public.email_queue.id
    statement  text   -- the statement that makes it, or replaces it
);

CREATE TABLE mailgres.schema_objects (
    object       text PRIMARY KEY,
    source       text NOT NULL,
    definition   text NOT NULL,
    fingerprint  text NOT NULL
);

CREATE TABLE mailgres.schema_releases (
    version      text NOT NULL,
    revision     text NOT NULL,
    works_since  text NOT NULL,
    digest       text NOT NULL,
    migrated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_current   boolean NOT NULL DEFAULT true,
    objects      mailgres.wanted_object[] NOT NULL,
    PRIMARY KEY (version, revision)
);

CREATE UNIQUE INDEX schema_releases_one_current ON mailgres.schema_releases (is_current) WHERE is_current;

-- ---- sql/20_tables/10_retry_policies.sql

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

-- ---- sql/20_tables/20_settings.sql

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

-- ---- sql/20_tables/22_home.sql

CREATE TABLE mailgres.home (
    only_row           boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    database           uuid,
    quarantined_since  timestamptz,
    quarantine_reason  text CHECK (length(quarantine_reason) <= 500),
    server             uuid,
    server_since       timestamptz NOT NULL DEFAULT '-infinity',
    CHECK ((quarantined_since IS NULL) = (quarantine_reason IS NULL))
);

CREATE TABLE mailgres.home_mark (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row)
);

-- ---- sql/20_tables/30_providers.sql

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

CREATE TABLE mailgres.routes (
    route       text PRIMARY KEY CHECK (route ~ '^[a-z][a-z0-9_-]{0,62}$'),
    paused      boolean NOT NULL DEFAULT false,
    description text NOT NULL DEFAULT '',
    initial     boolean NOT NULL DEFAULT false
);

CREATE TABLE mailgres.route_providers (
    route     text NOT NULL REFERENCES mailgres.routes ON DELETE CASCADE,
    position  int NOT NULL CHECK (position > 0),
    provider  text NOT NULL REFERENCES mailgres.providers,
    PRIMARY KEY (route, position),
    UNIQUE (route, provider)
);

CREATE TABLE mailgres.provider_events (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT mailgres.now(),
    provider  text NOT NULL,
    event     text NOT NULL,
    reason    text,
    worker    text
);

-- ---- sql/20_tables/35_limits.sql

CREATE TABLE mailgres.buckets (
    name        text PRIMARY KEY,
    per_second  double precision NOT NULL CHECK (per_second > 0),
    tokens      double precision NOT NULL,
    filled_at   timestamptz NOT NULL DEFAULT mailgres.now()
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE mailgres.quota_usage (
    provider        text NOT NULL REFERENCES mailgres.providers ON DELETE CASCADE,
    period          text NOT NULL CHECK (period IN ('day', 'month')),
    starts          timestamptz NOT NULL,
    emails          int NOT NULL,
    reported        int,
    reported_until  timestamptz,
    PRIMARY KEY (provider, period, starts)
) WITH (fillfactor = 20);

-- ---- sql/20_tables/40_tenants.sql

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

CREATE TABLE mailgres.claim_slots (
    slot        int PRIMARY KEY,
    next_route  bigint NOT NULL DEFAULT 0,
    cursors     jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

CREATE SEQUENCE mailgres.claim_numbers;

-- ---- sql/20_tables/45_senders.sql

CREATE TABLE mailgres.senders (
    tenant_id   text NOT NULL CHECK (length(tenant_id) BETWEEN 1 AND 200),
    sender      text NOT NULL,
    allowed_at  timestamptz NOT NULL DEFAULT mailgres.now(),
    PRIMARY KEY (tenant_id, sender)
);

CREATE TABLE mailgres.producers (
    role_name  text PRIMARY KEY,
    tenant_id  text NOT NULL CHECK (length(tenant_id) BETWEEN 1 AND 200),
    bound_at   timestamptz NOT NULL DEFAULT mailgres.now()
);

-- ---- sql/20_tables/50_email_templates.sql

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

-- ---- sql/20_tables/60_email_queue.sql

CREATE DOMAIN mailgres.status AS text
    CHECK (VALUE IN ('pending', 'sending', 'sent', 'failed', 'cancelled'));

CREATE DOMAIN mailgres.dead_reason AS text
    CHECK (VALUE IN ('exhausted', 'permanent', 'expired', 'uncertain', 'crashed', 'quota'));

CREATE DOMAIN mailgres.error_class AS text
    CHECK (VALUE IN ('transient', 'rate', 'quota', 'config', 'permanent', 'ambiguous'));

CREATE FUNCTION mailgres.is_state(
    p_status text, p_ready boolean, p_dead_at timestamptz, p_dead_reason text, p_error_message text,
    p_sent_at timestamptz, p_provider text, p_provider_message_id text,
    p_lease_token uuid, p_leased_at timestamptz, p_lease_until timestamptz, p_lease_worker text
) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN CASE
        WHEN p_status OPERATOR(pg_catalog.=) 'pending' THEN
            p_lease_token IS NULL AND p_lease_until IS NULL AND p_dead_at IS NULL
        WHEN p_ready THEN false
        WHEN p_status OPERATOR(pg_catalog.=) 'sending' THEN
            p_dead_at IS NULL AND p_lease_token IS NOT NULL AND p_leased_at IS NOT NULL
            AND p_lease_until IS NOT NULL AND p_lease_worker IS NOT NULL
        WHEN p_lease_token IS NOT NULL OR p_lease_until IS NOT NULL THEN false
        WHEN p_status OPERATOR(pg_catalog.=) 'failed' THEN
            p_dead_at IS NOT NULL AND p_dead_reason IS NOT NULL
            AND coalesce(p_error_message OPERATOR(pg_catalog.<>) '', false)
        WHEN p_status OPERATOR(pg_catalog.=) 'sent' THEN
            p_dead_at IS NULL AND p_sent_at IS NOT NULL
            AND (p_provider IS NULL OR p_provider_message_id IS NOT NULL)
        ELSE p_dead_at IS NULL
    END;
END
$$;

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
    ignore_suppression   boolean NOT NULL DEFAULT false,

    -- when a janitor has to handle the row: it is due, it expires, its lease expires, or it has
    -- been dead long enough. One index serves all of them.
    -- The CHECK below says that dead_at means failed, lease_until sending, and ready pending: so
    -- the expression is short, and every statement reads it again.
    due_at               timestamptz GENERATED ALWAYS AS (coalesce(
                             dead_at, lease_until,
                             CASE WHEN NOT ready THEN CASE WHEN status = 'pending' THEN next_retry_at END
                                  -- an uncertain email of a batch stays with its batch
                                  WHEN uncertain_since IS NULL OR batch_id IS NULL THEN expires_at
                             END)) STORED,

    CONSTRAINT email_queue_state CHECK (mailgres.is_state(
        status, ready, dead_at, dead_reason, error_message, sent_at, provider, provider_message_id,
        lease_token, leased_at, lease_until, lease_worker))
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

CREATE INDEX email_queue_ready_idx ON public.email_queue
    (route, tenant_id, priority, next_retry_at) WHERE ready;

CREATE INDEX email_queue_urgent_idx ON public.email_queue
    (route, tenant_id, priority, next_retry_at) WHERE ready AND priority <= 2;

CREATE INDEX email_queue_due_idx ON public.email_queue (status, due_at) WHERE due_at IS NOT NULL;

CREATE INDEX email_queue_batch_idx ON public.email_queue (batch_id, parked_since)
    WHERE uncertain_since IS NOT NULL OR parked_since IS NOT NULL AND status = 'pending';

CREATE UNIQUE INDEX email_queue_idempotency_idx ON public.email_queue
    (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

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

ALTER TABLE mailgres.attachments ALTER COLUMN content SET STORAGE EXTERNAL;

-- ---- sql/20_tables/80_email_logs.sql

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

CREATE INDEX email_logs_retry_idx ON public.email_logs (at) WHERE event = 'retry';

-- ---- sql/20_tables/82_email_events.sql

CREATE TABLE public.email_events (
    id                   bigint GENERATED ALWAYS AS IDENTITY,
    queue_id             uuid NOT NULL,
    provider             text NOT NULL,
    event                text NOT NULL,
    occurred_at          timestamptz NOT NULL,
    received_at          timestamptz NOT NULL DEFAULT mailgres.now(),
    kind                 text CHECK (kind IN ('hard', 'soft', 'undetermined')),
    reason               text,
    tenant_id            text NOT NULL,
    template_type        text NOT NULL,
    provider_message_id  text,
    event_id             text,
    recipient_email      text,
    detail               jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (queue_id, id)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE UNIQUE INDEX email_events_event_idx ON public.email_events (provider, event_id) WHERE event_id IS NOT NULL;

CREATE INDEX email_events_recipient_idx ON public.email_events (recipient_email, occurred_at)
    WHERE recipient_email IS NOT NULL AND event IN ('delivered', 'bounced', 'complained', 'unsubscribed', 'suppressed');

CREATE TABLE mailgres.unmatched_events (
    id                   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider             text NOT NULL,
    event                text NOT NULL,
    provider_message_id  text,
    queue_id             uuid,
    event_id             text,
    occurred_at          timestamptz NOT NULL,
    recipient_email      text,
    detail               jsonb NOT NULL,
    received_at          timestamptz NOT NULL DEFAULT mailgres.now(),
    looked_up            int NOT NULL DEFAULT 0,
    next_lookup_at       timestamptz NOT NULL DEFAULT mailgres.now()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE UNIQUE INDEX unmatched_events_event_idx ON mailgres.unmatched_events (provider, event_id)
    WHERE event_id IS NOT NULL;

CREATE INDEX unmatched_events_due_idx ON mailgres.unmatched_events (next_lookup_at);

CREATE TABLE mailgres.deliveries (
    queue_id         uuid PRIMARY KEY,
    seen             int NOT NULL,
    seen_before      int NOT NULL DEFAULT 0,
    made_dead        boolean NOT NULL DEFAULT false,
    sent_at          timestamptz,
    delivered_at     timestamptz,
    delivered_before timestamptz,
    opened_at        timestamptz,
    clicked_at       timestamptz,
    bounced_at       timestamptz,
    bounce_kind      text,
    bounce_reason    text,
    complained_at    timestamptz,
    unsubscribed_at  timestamptz,
    failed_at        timestamptz,
    state            text NOT NULL GENERATED ALWAYS AS (CASE
        WHEN seen & 2048 <> 0 THEN 'complained'
        WHEN seen & 256 <> 0 THEN 'bounced'
        WHEN seen & 1248 <> 0 THEN 'delivered'  -- an email that was opened was delivered
        WHEN seen & 16 <> 0 THEN 'suppressed'
        WHEN seen & 8 <> 0 THEN 'rejected'
        WHEN seen & 4 <> 0 THEN 'failed'
        WHEN seen & 2 <> 0 THEN 'delayed'
        WHEN seen & 1 <> 0 THEN 'sent'
        ELSE 'unknown' END) STORED
) WITH (fillfactor = 80);

-- ---- sql/20_tables/85_email_suppressions.sql

CREATE TABLE public.email_suppressions (
    recipient_email  text NOT NULL CHECK (recipient_email = lower(recipient_email COLLATE "C")),
    tenant_id        text NOT NULL DEFAULT '*',
    reason           text NOT NULL
                     CHECK (reason IN ('bounced', 'soft_bounced', 'complained', 'unsubscribed', 'manual')),
    detail           text,
    queue_id         uuid,
    created_at       timestamptz NOT NULL DEFAULT mailgres.now(),
    source           text NOT NULL DEFAULT 'operator' CHECK (source IN ('event', 'provider', 'operator', 'import')),
    expires_at       timestamptz,
    note             text,
    PRIMARY KEY (recipient_email, tenant_id)
);

CREATE TABLE mailgres.suppression_rules (
    name            text PRIMARY KEY,
    event           text NOT NULL,
    kind            text,
    except_reasons  text[] NOT NULL DEFAULT '{}',
    needed          int NOT NULL DEFAULT 1 CHECK (needed BETWEEN 1 AND 100),
    reason          text NOT NULL,
    for_all         boolean NOT NULL,
    expires_after   interval CHECK (expires_after > '0' AND expires_after <= '1000 years'),
    enabled         boolean NOT NULL DEFAULT true
);

-- ---- sql/20_tables/90_rollups.sql

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

ALTER TABLE mailgres.rollup_deltas REPLICA IDENTITY FULL;

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

CREATE TABLE mailgres.rollup_by_status (
    hour    timestamptz NOT NULL,
    status  text NOT NULL,
    emails  bigint NOT NULL,
    oldest  timestamptz,
    newest  timestamptz,
    PRIMARY KEY (hour, status)
);

CREATE TABLE mailgres.rollup_dead (
    hour         timestamptz NOT NULL,
    tenant_id    text NOT NULL,
    error_code   text NOT NULL,
    dead_reason  text NOT NULL,
    emails       bigint NOT NULL,
    PRIMARY KEY (hour, tenant_id, error_code, dead_reason)
);

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

-- ---- sql/20_tables/91_depth.sql

CREATE TABLE mailgres.depth (
    only_row      boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    as_of         timestamptz NOT NULL,
    tried_at      timestamptz NOT NULL,
    valid_until   timestamptz NOT NULL,
    took          interval NOT NULL,
    capped        boolean NOT NULL,
    claim_number  bigint NOT NULL
) WITH (fillfactor = 20);

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

-- ---- sql/20_tables/92_event_counts.sql

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

CREATE TABLE mailgres.sleepers (
    worker       text PRIMARY KEY,
    sleeps_until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

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

-- ---- sql/20_tables/96_captured.sql

CREATE TABLE mailgres.captured (
    key          text PRIMARY KEY,
    queue_id     uuid NOT NULL,
    captured_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    message      jsonb NOT NULL,
    report       text CHECK (report IN ('bounced'))
);

CREATE INDEX captured_queue_idx ON mailgres.captured (queue_id);

CREATE INDEX captured_time_idx ON mailgres.captured (captured_at);

CREATE INDEX captured_report_idx ON mailgres.captured (captured_at) WHERE report IS NOT NULL;

CREATE TABLE mailgres.captured_files (
    key           text NOT NULL REFERENCES mailgres.captured ON DELETE CASCADE,
    position      int NOT NULL CHECK (position > 0),
    filename      text NOT NULL,
    content_type  text NOT NULL,
    content_id    text,
    bytes         int NOT NULL,
    content       bytea,
    PRIMARY KEY (key, position)
);

ALTER TABLE mailgres.captured_files ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE mailgres.capture_faults (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fault            text NOT NULL CHECK (fault IN ('bounce', 'timeout', 'reject', 'unanswered')),
    recipient_email  text CHECK (length(recipient_email) BETWEEN 1 AND 254),
    template_type    text CHECK (length(template_type) BETWEEN 1 AND 200),
    created_at       timestamptz NOT NULL DEFAULT mailgres.now()
);

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

CREATE INDEX dead_letters_message_idx ON mailgres.dead_letters ((email ->> 'provider_message_id'))
    WHERE email ->> 'provider_message_id' IS NOT NULL;

CREATE INDEX dead_letters_expires_idx ON mailgres.dead_letters (expires_at);

CREATE TABLE mailgres.dead_letters_to_log (
    queue_id  uuid NOT NULL,
    log_id    bigint NOT NULL,
    PRIMARY KEY (queue_id, log_id)
);

CREATE TABLE mailgres.dead_letters_to_notify (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL DEFAULT mailgres.now(),
    tenant_id      text NOT NULL,
    template_type  text NOT NULL,
    dead_reason    text NOT NULL,
    error_code     text,
    emails         bigint NOT NULL
);

-- ---- sql/20_tables/98_alerts.sql

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
    runbook      text NOT NULL GENERATED ALWAYS AS ('mailgres alerts explain ' || name) STORED,
    CONSTRAINT alert_rules_percent CHECK (unit <> '%' OR threshold <= 100)
);

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

CREATE TABLE mailgres.notifications (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT mailgres.now(),
    body         jsonb NOT NULL,
    attempts     int NOT NULL DEFAULT 0,
    taken_until  timestamptz
);

-- ---- sql/20_tables/98_notification_state.sql

CREATE TABLE mailgres.notification_state (
    only_row           boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    dead_letters_at    timestamptz,
    alerts_at          timestamptz,
    webhook            text,
    webhook_failures   int NOT NULL DEFAULT 0,
    webhook_off_since  timestamptz
);

-- ---- sql/20_tables/99_row_security.sql

ALTER TABLE public.email_queue ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.email_templates ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.email_logs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.email_suppressions ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.email_events ENABLE ROW LEVEL SECURITY;

-- ---- sql/30_engine/20_claim/20_routes.sql

CREATE TYPE mailgres.usable_route AS (
    route      text,
    providers  text[],   -- the providers that can send now, in order of preference
    probe      boolean   -- one email may probe whether the provider works again
);

-- ---- sql/30_engine/20_claim/30_batches.sql

CREATE TYPE mailgres.call_plan AS (ids uuid[], batches uuid[], sizes int[]);

-- ---- sql/30_engine/20_claim/40_pick.sql

CREATE TYPE mailgres.pick_state AS (
    picked    uuid[],  -- the emails picked and locked so far
    taken     jsonb,   -- how many of them each tenant has
    has_more  text[],  -- tenants that used their whole share in this round: they may have more
    cursor    text,    -- the tenant after which the next round starts
    had       jsonb    -- how much of its share that tenant got before the last claim was full
);

-- ---- sql/30_engine/30_outcome/30_provider_state.sql

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

-- ---- sql/30_engine/30_outcome/40_decide_retry.sql

CREATE TYPE mailgres.retry_decision AS (
    spent            int,          -- retries spent: 0 or 1
    next_retry_at    timestamptz,  -- when to retry
    dead_reason      text,         -- or why the email dies
    uncertain_since  timestamptz,
    parked_since     timestamptz
);

-- ---- sql/30_engine/40_upkeep/60_delete_expired_emails.sql

CREATE TABLE mailgres.retention_walk (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    after_id    uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    logs_after  uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
) WITH (fillfactor = 50);

INSERT INTO mailgres.retention_walk DEFAULT VALUES;

-- ---- sql/30_engine/60_notify/20_alert_figures.sql

CREATE TYPE mailgres.alert_figure AS (
    rule     text,
    subject  text,
    figure   double precision,
    sample   bigint,       -- how much there was to judge by; null: it needs no minimum
    since    timestamptz   -- when it began, if that is known
);

CREATE TYPE mailgres.waiting_tenant AS (
    tenant_id  text,
    oldest     timestamptz,
    usable     boolean   -- neither the tenant nor the route is paused, and a provider can send
);

-- ---- sql/30_engine/65_events/10_find.sql

CREATE TYPE mailgres.reported_event AS (
    provider             text,
    event                text,
    provider_message_id  text,
    queue_id             uuid,
    event_id             text,
    occurred_at          timestamptz,
    recipient_email      text,
    detail               jsonb
);

-- ---- sql/30_engine/70_admin/80_find.sql

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
    until        timestamptz,
    died_since   timestamptz,
    died_until   timestamptz
);

-- ---- sql/40_api/10_request.sql

CREATE TYPE mailgres.request AS (
    user_id             uuid,
    template_type       text,
    recipient_email     text,
    payload             jsonb,
    tenant_id           text,
    priority            int,
    scheduled_for       timestamptz,
    expires_at          timestamptz,
    idempotency_key     text,
    correlation_id      text,
    route               text,
    retry_policy        text,
    max_retries         int,
    retry_delay         interval,
    max_retry_delay     interval,
    from_email          text,
    reply_to            text,
    subject             text,
    html                text,
    text                text,
    headers             jsonb,
    tags                jsonb,
    cc                  text[],
    bcc                 text[],
    attachments         jsonb,
    also_to             text[],
    ignore_suppression  boolean
);

-- ---- sql/40_api/50_operate.sql

CREATE TYPE mailgres.refusal AS (code text, message text, hint text);

-- ---- sql/40_api/55_operate_many.sql

CREATE TYPE mailgres.action_result AS (id uuid, code text, message text, hint text);

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

-- ---- sql/50_seed/15_home.sql

INSERT INTO mailgres.home_mark DEFAULT VALUES;

INSERT INTO mailgres.home (database, server) VALUES (mailgres.current_home(), mailgres.current_server());

-- ---- sql/50_seed/15_suppression_rules.sql

INSERT INTO mailgres.suppression_rules (name, event, kind, except_reasons, needed, reason, for_all, expires_after, enabled)
VALUES
    ('hard_bounce', 'bounced', 'hard', '{content,size,reputation,policy}', 1, 'bounced', true, NULL, true),
    ('soft_bounces', 'bounced', 'soft', '{content,size,reputation,policy}', 5, 'soft_bounced', true, '30 days', true),
    ('complaint', 'complained', NULL, '{}', 1, 'complained', false, NULL, true),
    ('unsubscribe', 'unsubscribed', NULL, '{}', 1, 'unsubscribed', false, NULL, true),
    -- the provider has the address on a list of its own
    ('suppressed_by_provider', 'suppressed', NULL, '{}', 1, 'bounced', true, NULL, false);

-- ---- sql/50_seed/20_routes.sql

INSERT INTO mailgres.providers (name, kind, captures, idempotent, batch_size) VALUES ('capture', 'capture', true, true, 100);

INSERT INTO mailgres.routes (route, description, initial) VALUES ('default', 'Emails that name no other route.', true);

INSERT INTO mailgres.route_providers (route, position, provider) VALUES ('default', 1, 'capture');

INSERT INTO mailgres.claim_slots (slot) SELECT generate_series(1, 32);

-- ---- sql/50_seed/30_starter_templates.sql

INSERT INTO public.email_templates (template_type, description, on_uncertain, sample) VALUES
($mail$signup_confirmation$mail$, $mail$Asks a new user to confirm the address. Variables: name, product, confirmation_url, valid_for.$mail$, $mail$resend$mail$, $mail${"name": "João", "product": "Acme", "confirmation_url": "https://acme.example.com/confirm/4fd1c2", "valid_for": "24 hours"}$mail$);

INSERT INTO mailgres.template_versions
(template_type, version, locale, is_default, subject, html, text) VALUES
($mail$signup_confirmation$mail$, 1, 'en', true,
$mail$Confirm your email address{% if product is defined %} for {{ product }}{% endif %}$mail$,
$mail$<!doctype html>
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
$mail$Hello{% if name is defined %} {{ name }}{% endif %},

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
($mail$signup_confirmation$mail$, 1, 'pt', false,
$mail$Confirme seu endereço de e-mail{% if product is defined %}: {{ product }}{% endif %}$mail$,
$mail$<!doctype html>
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
$mail$Olá{% if name is defined %}, {{ name }}{% endif %}!

Confirme que este endereço é seu para concluir o cadastro{% if product is defined %} em {{ product }}{% endif %}.

{% if confirmation_url is defined %}
Confirmar endereço: {{ confirmation_url }}
{% endif %}

{% if valid_for is defined %}
Validade do link: {{ valid_for }}.
{% endif %}

Não foi você? Então ignore este e-mail: nada vai acontecer, e não escreveremos de novo.

-- 
Você recebeu este e-mail porque este endereço foi informado no cadastro{% if product is defined %} em {{ product }}{% endif %}.$mail$);

INSERT INTO public.email_templates (template_type, description, on_uncertain, sample) VALUES
($mail$welcome_user$mail$, $mail$Greets a new user. Variables: name (or user_data.full_name), product, url, support_email.$mail$, $mail$hold$mail$, $mail${"name": "Ana", "product": "Acme", "url": "https://acme.example.com/start", "support_email": "help@acme.example.com"}$mail$);

INSERT INTO mailgres.template_versions
(template_type, version, locale, is_default, subject, html, text) VALUES
($mail$welcome_user$mail$, 1, 'en', true,
$mail$Welcome to {{ product | default("our service") }}$mail$,
$mail$<!doctype html>
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
$mail$Welcome{% set who = name | default("", true) or (user_data | default({}, true)).full_name | default("", true) %}{% if who %}, {{ who }}{% endif %}!

Thank you for joining {{ product | default("our service") }}. Your account is ready, and you can start right away.

{% if url is defined %}
Get started: {{ url }}
{% endif %}

Questions? {% if support_email is defined %}Write to {{ support_email }}.{% else %}Just reply to this email.{% endif %} We are happy to help.

-- 
You receive this email because an account at {{ product | default("our service") }} was created with this address.$mail$),
($mail$welcome_user$mail$, 1, 'pt', false,
$mail${% if product is defined %}Boas-vindas: {{ product }}{% else %}Boas-vindas ao nosso serviço{% endif %}$mail$,
$mail$<!doctype html>
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
$mail$Boas-vindas{% set who = name | default("", true) or (user_data | default({}, true)).full_name | default("", true) %}{% if who %}, {{ who }}{% endif %}!

Obrigado por criar uma conta{% if product is defined %} em {{ product }}{% endif %}. Ela está pronta, e você já pode começar.

{% if url is defined %}
Começar: {{ url }}
{% endif %}

Dúvidas? {% if support_email is defined %}Escreva para {{ support_email }}.{% else %}Basta responder a este e-mail.{% endif %} Teremos prazer em ajudar.

-- 
Você recebeu este e-mail porque uma conta{% if product is defined %} em {{ product }}{% endif %} foi criada com este endereço.$mail$);

-- ---- sql/50_seed/40_alert_template.sql

INSERT INTO public.email_templates (template_type, description, on_uncertain, sample) VALUES ('mailgres_alert',
'Notifies operators and tenants about alerts and dead letters.', 'resend',
'{"event": "DeadLetters", "audience": "operators", "new": 3,
"reasons": [{"reason": "permanent", "code": "no_mailbox", "template": "welcome_user", "emails": 3}]}');

INSERT INTO mailgres.template_versions (template_type, version, locale, is_default, subject, text) VALUES
('mailgres_alert', 1, 'en', true,
$mail${% if event == "DeadLetters" %}mailgres: {{ new }} new dead letters{% elif new %}mailgres: {{ firing[0].severity }}: {{ firing[0].rule }}{% if firing[0].subject %} ({{ firing[0].subject }}){% endif %}{% if new > 1 %} and {{ new - 1 }} more{% endif %}{% else %}mailgres: resolved: {{ resolved[0].rule }}{% if resolved[0].subject %} ({{ resolved[0].subject }}){% endif %}{% if resolved | length > 1 %} and {{ resolved | length - 1 }} more{% endif %}{% endif %}$mail$,
$mail${% if event == "DeadLetters" %}
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
{% endif %}$mail$),
('mailgres_alert', 1, 'pt', false,
$mail${% if event == "DeadLetters" %}mailgres: {{ new }} novas mensagens não entregues{% elif new %}mailgres: {{ {"critical": "crítico", "warning": "aviso", "info": "informação"}[firing[0].severity] }}: {{ firing[0].rule }}{% if firing[0].subject %} ({{ firing[0].subject }}){% endif %}{% if new > 1 %} e mais {{ new - 1 }}{% endif %}{% else %}mailgres: resolvido: {{ resolved[0].rule }}{% if resolved[0].subject %} ({{ resolved[0].subject }}){% endif %}{% if resolved | length > 1 %} e mais {{ resolved | length - 1 }}{% endif %}{% endif %}$mail$,
$mail${% if event == "DeadLetters" %}
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
{% endif %}$mail$);

-- ---- sql/50_seed/45_alert_rules.sql

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
     'A janitor failed several times in a row: its work is not done.'),
    ('quarantined', 5, 'minutes', true, NULL, 0, 'critical', 'queue',
     'Emails are due for too long because the queue is quarantined: by hand, or because this database is a copy.');

-- ---- sql/50_seed/90_analyze.sql

ANALYZE mailgres.settings, mailgres.retry_policies, mailgres.routes, mailgres.providers,
    mailgres.route_providers, public.email_templates;
