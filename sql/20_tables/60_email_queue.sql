-- The queue. One row per message; the status says how far it has come:
--
--   pending -> sending -> sent
--                      -> pending   (a later next_retry_at)
--                      -> failed    (dead: dead_at, dead_reason, error_message)
--   pending -> cancelled | failed   (by hand, suppressed, expired)
--
-- docs/lifecycle.md has a diagram. CHECKs enforce what must hold in each status. Lists of
-- values, and which values a column accepts (60_fields.sql), are domains: a cached plan keeps
-- their checks, while every statement reads the CHECKs of a table again.

CREATE DOMAIN mailgres.status AS text
    CHECK (VALUE IN ('pending', 'sending', 'sent', 'failed', 'cancelled'));
CREATE DOMAIN mailgres.dead_reason AS text
    CHECK (VALUE IN ('exhausted', 'permanent', 'expired', 'uncertain', 'crashed', 'quota'));
CREATE DOMAIN mailgres.error_class AS text
    CHECK (VALUE IN ('transient', 'rate', 'quota', 'config', 'permanent', 'ambiguous'));

-- What must hold in each status. Every statement reads the CHECKs of the table again, and a long
-- one took a tenth of enqueue_email's time, so the CHECK is a call. It runs with the rights of the
-- writer, so the operators have their schema: no search_path changes their meaning.
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

COMMENT ON FUNCTION mailgres.is_state IS 'Whether the columns of an email belong together in its status.';

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
COMMENT ON COLUMN public.email_queue.dead_reason IS 'exhausted, permanent, expired, uncertain, crashed or quota.';
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
COMMENT ON COLUMN public.email_queue.ignore_suppression IS
    'Whether it is sent though the address is suppressed; never after a complaint.';
COMMENT ON COLUMN public.email_queue.due_at IS 'When a janitor handles the row next.';
