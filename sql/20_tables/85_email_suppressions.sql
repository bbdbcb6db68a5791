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
