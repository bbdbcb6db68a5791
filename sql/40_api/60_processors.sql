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
