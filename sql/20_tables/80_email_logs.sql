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
    'sent, retry, deferred, dead, cancelled, given_back, lost, reopened, rescheduled; copy_refused: another recipient of a sent email was refused. What providers report later is in email_events.';
COMMENT ON COLUMN public.email_logs.attempt IS 'Number of the attempt, the first being 1.';
COMMENT ON COLUMN public.email_logs.claimed_at IS 'When the worker claimed the email for this attempt.';
COMMENT ON COLUMN public.email_logs.error_detail IS 'The provider''s text, unchanged; for operators only.';
COMMENT ON COLUMN public.email_logs.role IS 'The database role that made the change.';
