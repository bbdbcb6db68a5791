CREATE TABLE public.email_suppressions (
    recipient_email  text NOT NULL CHECK (recipient_email = lower(recipient_email)),
    tenant_id        text NOT NULL DEFAULT '*',
    reason           text NOT NULL CHECK (reason IN ('bounced', 'complained', 'unsubscribed', 'manual')),
    detail           text,
    queue_id         uuid,
    created_at       timestamptz NOT NULL DEFAULT mailgres.now(),
    PRIMARY KEY (recipient_email, tenant_id)
);

COMMENT ON TABLE public.email_suppressions IS 'Addresses that get no email; what is queued for them is cancelled.';
COMMENT ON COLUMN public.email_suppressions.recipient_email IS 'The address in lower case.';
COMMENT ON COLUMN public.email_suppressions.tenant_id IS 'The tenant that must not write to it; * means everybody.';
COMMENT ON COLUMN public.email_suppressions.queue_id IS 'The email whose bounce or complaint led to this.';
