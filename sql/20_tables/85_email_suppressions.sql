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

CREATE INDEX email_suppressions_expires_at_idx ON public.email_suppressions (expires_at) WHERE expires_at IS NOT NULL;

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
COMMENT ON COLUMN public.email_suppressions.reason IS
    'bounced (the mailbox does not exist), soft_bounced (several soft bounces in a row), complained, unsubscribed or manual.';
COMMENT ON COLUMN public.email_suppressions.detail IS 'What the provider said, with addresses replaced by placeholders.';
COMMENT ON COLUMN public.email_suppressions.queue_id IS 'The email whose bounce or complaint caused the suppression.';
COMMENT ON COLUMN public.email_suppressions.source IS
    'event (a provider reported it), provider (its answer to a call, or its own list), operator or import.';
COMMENT ON COLUMN public.email_suppressions.expires_at IS 'When the suppression ends; null: never.';
COMMENT ON COLUMN public.email_suppressions.note IS 'A remark of a person.';

-- With p_ignore, an email is sent in spite of a suppression, but never after a complaint.
CREATE FUNCTION mailgres.suppresses(s public.email_suppressions, p_ignore boolean) RETURNS boolean
    LANGUAGE sql STABLE
RETURN (s.expires_at IS NULL OR s.expires_at > mailgres.now()) AND (NOT p_ignore OR s.reason = 'complained');

COMMENT ON FUNCTION mailgres.suppresses(public.email_suppressions, boolean) IS
    'Whether a suppression holds now, for an email that ignores suppressions or not.';

-- Of two suppressions of one address and scope, the one with the higher rank is kept.
CREATE FUNCTION mailgres.suppression_rank(p_reason text) RETURNS int
    LANGUAGE sql IMMUTABLE
RETURN CASE p_reason WHEN 'complained' THEN 5 WHEN 'unsubscribed' THEN 4 WHEN 'bounced' THEN 3 WHEN 'manual' THEN 2 ELSE 1 END;

COMMENT ON FUNCTION mailgres.suppression_rank(text) IS 'How strong a reason for a suppression is.';

-- Which events suppress an address. Rules are rows, so that they can be read and changed.
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

COMMENT ON TABLE mailgres.suppression_rules IS 'Which events suppress an address, and for how long.';
COMMENT ON COLUMN mailgres.suppression_rules.event IS 'An event of email_events.';
COMMENT ON COLUMN mailgres.suppression_rules.kind IS 'The kind of a bounce; null: any.';
COMMENT ON COLUMN mailgres.suppression_rules.except_reasons IS
    'Not for these reasons of a bounce: they say nothing about the mailbox.';
COMMENT ON COLUMN mailgres.suppression_rules.needed IS
    'How many emails in a row must have such an event, without a delivery in between.';
COMMENT ON COLUMN mailgres.suppression_rules.reason IS 'The reason of the suppression.';
COMMENT ON COLUMN mailgres.suppression_rules.for_all IS 'Whether it holds for all tenants, or for that of the email.';
COMMENT ON COLUMN mailgres.suppression_rules.expires_after IS 'The suppression ends after this time; null: never.';
