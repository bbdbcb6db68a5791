CREATE TABLE public.email_suppressions (
    recipient_email  text NOT NULL CHECK (recipient_email = lower(recipient_email COLLATE "C")),
    tenant_id        text NOT NULL DEFAULT '*',
    reason           text NOT NULL CHECK (reason IN ('bounced', 'complained', 'unsubscribed', 'manual')),
    detail           text,
    queue_id         uuid,
    created_at       timestamptz NOT NULL DEFAULT mailgres.now(),
    PRIMARY KEY (recipient_email, tenant_id)
);

-- However it was written, it is the same address.
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

COMMENT ON TABLE public.email_suppressions IS 'Addresses that get no email; what is queued for them is cancelled.';
COMMENT ON COLUMN public.email_suppressions.recipient_email IS
    'The address in the form by which addresses are compared: lower case, the domain in A-labels (xn--).';
COMMENT ON COLUMN public.email_suppressions.tenant_id IS 'The tenant that must not write to it; * means everybody.';
COMMENT ON COLUMN public.email_suppressions.queue_id IS 'The email whose bounce or complaint led to this.';
