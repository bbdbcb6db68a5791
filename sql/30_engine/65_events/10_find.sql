-- Which email an event is about.

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

-- A provider may only report about emails that it got: whoever has the secret of one account must not
-- change the emails of another. Emails that a processor sent by itself have no provider.
CREATE FUNCTION mailgres.email_of_event(p_provider text, p_queue_id uuid, p_message_id text) RETURNS uuid
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_id uuid;
BEGIN
    IF p_queue_id IS NOT NULL THEN
        SELECT q.id INTO v_id FROM public.email_queue q
        WHERE q.id = p_queue_id AND (
            p_provider IS NULL OR q.provider = p_provider
            OR q.provider IS NULL AND (q.status = 'sent' OR q.last_attempt_at IS NOT NULL)
            OR EXISTS (SELECT FROM public.email_logs l WHERE l.queue_id = p_queue_id AND l.provider = p_provider));
        IF NOT FOUND THEN
            SELECT d.queue_id INTO v_id FROM mailgres.dead_letters d
            WHERE d.queue_id = p_queue_id
              AND (p_provider IS NULL OR coalesce(d.email ->> 'provider', p_provider) = p_provider);
        END IF;
        IF v_id IS NOT NULL THEN
            RETURN v_id;
        END IF;
    END IF;
    IF p_message_id IS NOT NULL THEN
        SELECT l.queue_id INTO v_id FROM public.email_logs l
        WHERE l.provider_message_id = p_message_id
          AND (p_provider IS NULL OR l.provider = p_provider OR l.provider IS NULL)
        ORDER BY l.provider IS NULL, l.id DESC LIMIT 1;
        IF NOT FOUND THEN
            SELECT d.queue_id INTO v_id FROM mailgres.dead_letters d
            WHERE d.email ->> 'provider_message_id' = p_message_id
              AND (p_provider IS NULL OR coalesce(d.email ->> 'provider', p_provider) = p_provider)
            ORDER BY d.dead_at DESC LIMIT 1;
        END IF;
    END IF;
    RETURN v_id;
END
$$;

COMMENT ON FUNCTION mailgres.email_of_event(text, uuid, text) IS
    'The email in the queue or in the archive that an event of this provider is about, or null.';

-- With several recipients, the provider has to say which one it means.
CREATE FUNCTION mailgres.recipient_of_event(
    p_given text, p_unknown boolean, p_recipient text, p_others int
) RETURNS text
    LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN p_given IS NOT NULL AND NOT (p_unknown AND p_others > 0) THEN
        mailgres.canonical_address(left(coalesce(substring(p_given FROM '<([^<>]*)>\s*$'), btrim(p_given)), 254))
    WHEN p_others = 0 THEN mailgres.canonical_address(p_recipient) END;

COMMENT ON FUNCTION mailgres.recipient_of_event(text, boolean, text, int) IS
    'The recipient whom an event concerns, or null if it does not say which of several.';

CREATE FUNCTION mailgres.event_bits(p_event text, p_kind text, p_reason text) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE p_event
    WHEN 'sent' THEN 1
    WHEN 'delayed' THEN 2
    WHEN 'failed' THEN CASE WHEN p_reason = 'quota' THEN 4100 ELSE 4 END
    WHEN 'rejected' THEN 8
    WHEN 'suppressed' THEN 16
    WHEN 'delivered' THEN 32
    WHEN 'opened' THEN 64
    WHEN 'clicked' THEN 128
    WHEN 'bounced' THEN CASE WHEN p_kind = 'hard' THEN 768 ELSE 256 END
    WHEN 'unsubscribed' THEN 1024
    WHEN 'complained' THEN 2048
    ELSE 0
END;

COMMENT ON FUNCTION mailgres.event_bits(text, text, text) IS
    'The bits of an event in mailgres.deliveries.seen; 0 for an event that changes nothing.';

CREATE FUNCTION mailgres.kind_rank(p_kind text) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE p_kind WHEN 'hard' THEN 3 WHEN 'soft' THEN 2 WHEN 'undetermined' THEN 1 ELSE 0 END;

COMMENT ON FUNCTION mailgres.kind_rank(text) IS 'Which of two bounces of an email decides: the one with the higher rank.';
