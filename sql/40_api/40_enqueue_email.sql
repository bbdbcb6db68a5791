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
    -- whether any field is given that few requests have, or a priority to refuse
    v_options constant boolean := coalesce(p_priority, 5) NOT BETWEEN 1 AND 9 OR num_nonnulls(
        p_expires_at, p_idempotency_key, p_correlation_id, p_route,
        p_retry_policy, p_max_retries, p_retry_delay, p_max_retry_delay, p_from_email, p_reply_to,
        p_subject, p_html, p_text, p_headers, p_tags, p_cc, p_bcc, p_attachments, p_also_to) > 0;
    v_none    public.email_queue;  -- nulls of the types of the columns
    v_request mailgres.request;
    v_fault   text;
BEGIN
    -- Most requests. Nothing can conflict without a key. PostgreSQL would prepare the checks of every
    -- column whose type is a domain, also where no value is given; v_none has the type, so it does not.
    IF NOT v_options THEN
        INSERT INTO public.email_queue
            (id, user_id, template_type, recipient_email, payload, max_retries, next_retry_at, ready,
             tenant_id, priority, route, scheduled_for, expires_at, retry_policy, ignore_suppression,
             last_attempt_at, idempotency_key, correlation_id, retry_delay, max_retry_delay, sent_at, dead_at,
             dead_reason, error_class, first_attempt_at, uncertain_since, parked_since, leased_at, lease_until,
             attempt_started_at, from_email, reply_to, subject, html, text, headers, tags, also_to, cc, bcc)
        SELECT v_id, p_user_id, p_template_type, p_recipient_email, p_payload, policy.max_retries,
               v_starts, v_starts <= mailgres.now(), tenant.id, coalesce(p_priority, t.priority, 5), coalesce(
                   t.route, CASE WHEN tenant.id <> 'default' THEN mailgres.route_of_tenant(tenant.id) END, 'default'),
               p_scheduled_for, v_starts + coalesce(t.expires_after, s.expires_after), policy.name,
               coalesce(p_ignore_suppression, false),
               v_none.last_attempt_at, v_none.idempotency_key, v_none.correlation_id, v_none.retry_delay,
               v_none.max_retry_delay, v_none.sent_at, v_none.dead_at, v_none.dead_reason, v_none.error_class,
               v_none.first_attempt_at, v_none.uncertain_since, v_none.parked_since, v_none.leased_at,
               v_none.lease_until, v_none.attempt_started_at, v_none.from_email, v_none.reply_to, v_none.subject,
               v_none.html, v_none.text, v_none.headers, v_none.tags, v_none.also_to, v_none.cc, v_none.bcc
        FROM mailgres.settings s
        CROSS JOIN (  -- as mailgres.for_caller; cheapest inside this statement
            SELECT mailgres.tenant_for(p_tenant_id, min(b.tenant_id), max(b.tenant_id)) AS id
            FROM mailgres.producers b WHERE b.role_name IN (session_user, current_setting('role'))
        ) tenant
        JOIN public.email_templates t ON t.template_type = p_template_type
        LEFT JOIN mailgres.retry_policies policy ON policy.name = coalesce(t.retry_policy, s.retry_policy)
        WHERE mailgres.fault_of_basics(p_recipient_email, p_payload, tenant.id, false, t) IS NULL;
        IF FOUND THEN
            RETURN v_id;
        END IF;
    END IF;

    v_request := ROW(
        p_user_id, p_template_type, p_recipient_email, p_payload, p_tenant_id, p_priority,
        p_scheduled_for, p_expires_at, p_idempotency_key, p_correlation_id, p_route, p_retry_policy,
        p_max_retries, p_retry_delay, p_max_retry_delay, p_from_email, p_reply_to, p_subject,
        p_html, p_text, p_headers, p_tags, p_cc, p_bcc, p_attachments, p_also_to, p_ignore_suppression);
    IF v_options THEN
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
          AND mailgres.fault_of_options(v_request, tenant.id) IS NULL
        ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
        IF FOUND AND p_attachments IS NULL THEN
            RETURN v_id;
        END IF;
    END IF;

    -- attachments, a fault, or a key that was used before
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
