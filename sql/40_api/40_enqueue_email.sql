-- A function of its own: a subquery in the INSERT would be prepared by every call, whether the
-- tenant is the default one or not.
CREATE FUNCTION mailgres.route_of_tenant(p_tenant text) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT t.route FROM mailgres.tenants t WHERE t.tenant_id = p_tenant);
END
$$;

COMMENT ON FUNCTION mailgres.route_of_tenant(text) IS 'The route of a tenant''s emails; null if it has none of its own.';

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
    p_attachments jsonb DEFAULT NULL,
    p_also_to text[] DEFAULT NULL,
    p_ignore_suppression boolean DEFAULT NULL
) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_id      constant uuid := mailgres.uuid_v7();
    v_starts  constant timestamptz := greatest(p_scheduled_for, mailgres.now());
    -- whether any field is given that few requests have
    v_options constant boolean := num_nonnulls(
        p_priority, p_scheduled_for, p_expires_at, p_idempotency_key, p_correlation_id, p_route,
        p_retry_policy, p_max_retries, p_retry_delay, p_max_retry_delay, p_from_email, p_reply_to,
        p_subject, p_html, p_text, p_headers, p_tags, p_cc, p_bcc, p_attachments, p_also_to) > 0;
    v_request mailgres.request;
    v_fault   text;
BEGIN
    IF v_options THEN
        v_request := ROW(
            p_user_id, p_template_type, p_recipient_email, p_payload, p_tenant_id, p_priority,
            p_scheduled_for, p_expires_at, p_idempotency_key, p_correlation_id, p_route, p_retry_policy,
            p_max_retries, p_retry_delay, p_max_retry_delay, p_from_email, p_reply_to, p_subject,
            p_html, p_text, p_headers, p_tags, p_cc, p_bcc, p_attachments, p_also_to, p_ignore_suppression);
    END IF;
    INSERT INTO public.email_queue
        (id, user_id, template_type, recipient_email, payload, max_retries, next_retry_at, ready,
         tenant_id, priority, route, scheduled_for, expires_at, idempotency_key, correlation_id,
         retry_policy, retry_delay, max_retry_delay,
         from_email, reply_to, subject, html, text, headers, tags, cc, bcc, also_to, has_attachments, ignore_suppression)
    SELECT v_id, p_user_id, coalesce(p_template_type, 'inline'), p_recipient_email, p_payload,
           coalesce(p_max_retries, policy.max_retries), v_starts, v_starts <= mailgres.now(),
           tenant.id, coalesce(p_priority, t.priority, 5), coalesce(
               p_route, t.route,
               CASE WHEN tenant.id <> 'default' THEN mailgres.route_of_tenant(tenant.id) END,
               'default'),
           p_scheduled_for,
           coalesce(p_expires_at, v_starts + coalesce(t.expires_after, s.expires_after)),
           p_idempotency_key, p_correlation_id, policy.name, p_retry_delay, p_max_retry_delay,
           p_from_email, p_reply_to, p_subject, p_html, p_text, p_headers, p_tags, p_cc, p_bcc,
           p_also_to, p_attachments IS NOT NULL, coalesce(p_ignore_suppression, false)
    FROM mailgres.settings s
    CROSS JOIN (  -- as mailgres.for_caller; cheapest inside this statement
        SELECT mailgres.tenant_for(p_tenant_id, min(b.tenant_id), max(b.tenant_id)) AS id
        FROM mailgres.producers b WHERE b.role_name IN (session_user, current_setting('role'))
    ) tenant
    LEFT JOIN public.email_templates t ON t.template_type = p_template_type
    LEFT JOIN mailgres.retry_policies policy
        ON policy.name = coalesce(p_retry_policy, t.retry_policy, s.retry_policy)
    WHERE mailgres.fault_of_basics(
              p_recipient_email, p_payload, tenant.id,
              p_subject IS NOT NULL OR p_html IS NOT NULL OR p_text IS NOT NULL, t) IS NULL
      AND (NOT v_options OR mailgres.fault_of_options(v_request, tenant.id) IS NULL)
    ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
    IF FOUND AND p_attachments IS NULL THEN
        RETURN v_id;
    END IF;

    -- attachments, a fault, or a key that was used before
    IF NOT v_options THEN
        v_request.template_type := p_template_type;
        v_request.recipient_email := p_recipient_email;
        v_request.payload := p_payload;
        v_request.tenant_id := p_tenant_id;
    END IF;
    v_request := (mailgres.for_caller(ARRAY[v_request], false))[1];
    SELECT x.fault INTO v_fault FROM mailgres.resolve(ARRAY[v_request]) x;
    IF v_fault IS NOT NULL THEN
        PERFORM mailgres.refuse_request(v_fault, v_request, NULL);
    END IF;
    PERFORM mailgres.attach(ARRAY[v_request], ARRAY[v_id]);
    RETURN (mailgres.first_ids(ARRAY[v_request], ARRAY[v_id], false))[1];
END
$$;

COMMENT ON FUNCTION public.enqueue_email IS
    'Puts an email into the queue, in the caller''s transaction, and returns its id.';
