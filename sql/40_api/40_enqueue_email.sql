CREATE FUNCTION public.enqueue_email(
    p_user_id uuid,
    p_template_type text,
    p_recipient_email text,
    p_payload jsonb DEFAULT '{}',
    p_tenant_id text DEFAULT 'default',
    p_priority int DEFAULT NULL,
    p_scheduled_for timestamptz DEFAULT NULL,
    p_expires_at timestamptz DEFAULT NULL,
    p_idempotency_key text DEFAULT NULL,
    p_correlation_id text DEFAULT NULL,
    p_route text DEFAULT NULL,
    p_retry_policy text DEFAULT NULL,
    p_max_retries int DEFAULT NULL,
    p_retry_delay interval DEFAULT NULL,
    p_max_retry_delay interval DEFAULT NULL,
    p_from_email text DEFAULT NULL,
    p_reply_to text DEFAULT NULL,
    p_subject text DEFAULT NULL,
    p_html text DEFAULT NULL,
    p_text text DEFAULT NULL,
    p_headers jsonb DEFAULT NULL,
    p_tags jsonb DEFAULT NULL,
    p_cc text[] DEFAULT NULL,
    p_bcc text[] DEFAULT NULL,
    p_attachments jsonb DEFAULT NULL
) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN mailgres.enqueue_one(ROW(
        p_user_id, p_template_type, p_recipient_email, p_payload, p_tenant_id, p_priority,
        p_scheduled_for, p_expires_at, p_idempotency_key, p_correlation_id, p_route, p_retry_policy,
        p_max_retries, p_retry_delay, p_max_retry_delay, p_from_email, p_reply_to, p_subject, p_html,
        p_text, p_headers, p_tags, p_cc, p_bcc, p_attachments)::mailgres.request);
END
$$;

COMMENT ON FUNCTION public.enqueue_email IS
    'Puts an email into the queue, in the caller''s transaction, and returns its id.';
