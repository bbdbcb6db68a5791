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
