-- Enqueues many emails at once, by joins. It accepts the same requests as enqueue_email:
-- mailgres.fault_of() checks them for both.

-- The requests with their template, policy and fault. One SELECT, so that it is inlined where it is
-- used.
CREATE FUNCTION mailgres.resolve(p_requests mailgres.request[])
    RETURNS TABLE (
        place int, request mailgres.request, template public.email_templates,
        policy mailgres.retry_policies, starts_at timestamptz, expires_after interval, fault text)
    LANGUAGE sql STABLE
AS $$
    SELECT r.place, r.request, t, policy, greatest((r.request).scheduled_for, mailgres.now()),
           coalesce(t.expires_after, s.expires_after),
           mailgres.fault_of(r.request, t)
    FROM (
        SELECT unnest(p_requests) AS request, generate_series(1, cardinality(p_requests)) AS place
    ) r
    CROSS JOIN mailgres.settings s
    LEFT JOIN public.email_templates t ON t.template_type = (r.request).template_type
    LEFT JOIN mailgres.retry_policies policy
        ON policy.name = coalesce((r.request).retry_policy, t.retry_policy, s.retry_policy)
$$;

COMMENT ON FUNCTION mailgres.resolve(mailgres.request[]) IS
    'Requests with their template, policy and fault.';

-- The rows of the requests that have no fault. One SELECT, which is inlined, too.
CREATE FUNCTION mailgres.rows_of(p_requests mailgres.request[], p_ids uuid[])
    RETURNS TABLE (
        id uuid, user_id uuid, template_type text, recipient_email text, payload jsonb, max_retries int,
        next_retry_at timestamptz, ready boolean, tenant_id text, priority int, route text,
        scheduled_for timestamptz, expires_at timestamptz, idempotency_key text, correlation_id text,
        retry_policy text, retry_delay interval, max_retry_delay interval,
        from_email text, reply_to text, subject text, html text, text text, headers jsonb, tags jsonb,
        cc text[], bcc text[], also_to text[], has_attachments boolean, ignore_suppression boolean)
    LANGUAGE sql STABLE
AS $$
    SELECT p_ids[x.place], (x.request).user_id, coalesce((x.request).template_type, 'inline'),
           (x.request).recipient_email, (x.request).payload,
           coalesce((x.request).max_retries, (x.policy).max_retries),
           x.starts_at, x.starts_at <= mailgres.now(),
           (x.request).tenant_id, coalesce((x.request).priority, (x.template).priority, 5),
           coalesce(
               (x.request).route, (x.template).route,
               CASE WHEN (x.request).tenant_id <> 'default' THEN (
                   SELECT n.route FROM mailgres.tenants n WHERE n.tenant_id = (x.request).tenant_id) END,
               'default'),
           (x.request).scheduled_for,
           coalesce((x.request).expires_at, x.starts_at + x.expires_after),
           (x.request).idempotency_key, (x.request).correlation_id, (x.policy).name,
           (x.request).retry_delay, (x.request).max_retry_delay,
           (x.request).from_email, (x.request).reply_to, (x.request).subject, (x.request).html,
           (x.request).text, (x.request).headers, (x.request).tags, (x.request).cc, (x.request).bcc,
           (x.request).also_to, (x.request).attachments IS NOT NULL, coalesce((x.request).ignore_suppression, false)
    FROM mailgres.resolve(p_requests) x
    WHERE x.fault IS NULL
$$;

COMMENT ON FUNCTION mailgres.rows_of(mailgres.request[], uuid[]) IS
    'The rows of email_queue for the requests that have no fault.';

-- p_keyed: whether a request may have an idempotency key. ON CONFLICT costs a tenth, and a record
-- in the WAL for every email, so it is left out where nothing can conflict.
CREATE FUNCTION mailgres.enqueue_many(p_requests mailgres.request[], p_keyed boolean, p_attachments boolean)
    RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count     constant int := cardinality(p_requests);
    v_ids       constant uuid[] := ARRAY(SELECT mailgres.uuid_v7() FROM generate_series(1, v_count));
    v_inserted  int;
    v_bad       record;
BEGIN
    IF p_keyed THEN
        INSERT INTO public.email_queue
            (id, user_id, template_type, recipient_email, payload, max_retries, next_retry_at, ready,
             tenant_id, priority, route, scheduled_for, expires_at, idempotency_key, correlation_id,
             retry_policy, retry_delay, max_retry_delay,
             from_email, reply_to, subject, html, text, headers, tags, cc, bcc, also_to, has_attachments,
             ignore_suppression)
        SELECT x.* FROM mailgres.rows_of(p_requests, v_ids) x
        ORDER BY x.idempotency_key, x.id  -- the same order for all, so that no two wait for each other
        ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
    ELSE
        INSERT INTO public.email_queue
            (id, user_id, template_type, recipient_email, payload, max_retries, next_retry_at, ready,
             tenant_id, priority, route, scheduled_for, expires_at, idempotency_key, correlation_id,
             retry_policy, retry_delay, max_retry_delay,
             from_email, reply_to, subject, html, text, headers, tags, cc, bcc, also_to, has_attachments,
             ignore_suppression)
        SELECT x.* FROM mailgres.rows_of(p_requests, v_ids) x;
    END IF;
    GET DIAGNOSTICS v_inserted = ROW_COUNT;

    IF v_inserted < v_count THEN
        SELECT x.fault, x.request, x.place - 1 AS place INTO v_bad
        FROM mailgres.resolve(p_requests) x WHERE x.fault IS NOT NULL ORDER BY x.place LIMIT 1;
        IF FOUND THEN
            PERFORM mailgres.refuse_request(v_bad.fault, v_bad.request, v_bad.place);
        END IF;
    END IF;
    IF p_attachments THEN
        PERFORM mailgres.attach(p_requests, v_ids);
    END IF;
    RETURN CASE WHEN v_inserted = v_count THEN v_ids ELSE mailgres.first_ids(p_requests, v_ids, true) END;
END
$$;

COMMENT ON FUNCTION mailgres.enqueue_many(mailgres.request[], boolean, boolean) IS
    'Enqueues requests, all or none, and returns their ids in order; p_keyed and p_attachments say whether any has a key or attachments.';

CREATE FUNCTION mailgres.attach(p_requests mailgres.request[], p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO mailgres.attachments (queue_id, position, filename, content_type, content_id, content)
    SELECT q.id, a.position, a.value ->> 'filename',
           coalesce(a.value ->> 'content_type', 'application/octet-stream'),
           a.value ->> 'content_id', decode(a.value ->> 'content', 'base64')
    FROM unnest(p_requests) WITH ORDINALITY r
    JOIN public.email_queue q ON q.id = p_ids[r.ordinality]
    CROSS JOIN LATERAL jsonb_array_elements(r.attachments) WITH ORDINALITY a(value, position)
    WHERE r.attachments IS NOT NULL;
END
$$;

COMMENT ON FUNCTION mailgres.attach(mailgres.request[], uuid[]) IS
    'Stores the attachments of the requests that were enqueued.';

CREATE FUNCTION mailgres.has_attachments(p_queue_id uuid, p_attachments jsonb) RETURNS boolean
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT ARRAY(
        SELECT ROW(a.filename, a.content_type, a.content_id, md5(a.content))::text
        FROM mailgres.attachments a WHERE a.queue_id = p_queue_id ORDER BY a.position)
    = ARRAY(
        SELECT ROW(a.value ->> 'filename', coalesce(a.value ->> 'content_type', 'application/octet-stream'),
                   a.value ->> 'content_id', md5(decode(a.value ->> 'content', 'base64')))::text
        FROM jsonb_array_elements(coalesce(p_attachments, '[]')) WITH ORDINALITY a ORDER BY a.ordinality);
END;

COMMENT ON FUNCTION mailgres.has_attachments(uuid, jsonb) IS
    'Whether an email has exactly these attachments.';

-- For a repeated idempotency key the id of the first email is returned, if the content is the same.
-- If it differs, the error says nothing about the first email: the caller may not be the one that
-- used the key. p_many: the error says which element of the array it is about.
CREATE FUNCTION mailgres.first_ids(p_requests mailgres.request[], p_ids uuid[], p_many boolean) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_ids    uuid[] := p_ids;
    v_repeat record;
BEGIN
    FOR v_repeat IN
        SELECT r.ordinality AS place, q.id,
               (q.template_type, q.recipient_email, q.payload, q.from_email, q.reply_to, q.subject,
                q.html, q.text, q.headers, q.tags, q.cc, q.bcc, q.also_to)
               IS NOT DISTINCT FROM
               (coalesce(r.template_type, 'inline'), r.recipient_email, r.payload, r.from_email,
                r.reply_to, r.subject, r.html, r.text, r.headers, r.tags, r.cc, r.bcc, r.also_to)
               AND mailgres.has_attachments(q.id, r.attachments) AS same
        FROM unnest(p_requests) WITH ORDINALITY r
        JOIN public.email_queue q
            ON q.tenant_id = r.tenant_id AND q.idempotency_key = r.idempotency_key
        WHERE r.idempotency_key IS NOT NULL AND q.id <> p_ids[r.ordinality]
        ORDER BY r.ordinality
    LOOP
        IF NOT v_repeat.same THEN
            PERFORM mailgres.refuse_request('MG009', NULL, CASE WHEN p_many THEN v_repeat.place - 1 END);
        END IF;
        v_ids[v_repeat.place] := v_repeat.id;
    END LOOP;

    IF EXISTS (SELECT FROM unnest(v_ids) i WHERE NOT EXISTS (
        SELECT FROM public.email_queue q WHERE q.id = i)) THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
            MESSAGE = 'the email with this idempotency key was removed at this moment', HINT = 'Try again.';
    END IF;
    RETURN v_ids;
END
$$;

COMMENT ON FUNCTION mailgres.first_ids(mailgres.request[], uuid[], boolean) IS
    'The ids of the requests; for a key that was used before, the id of the first email.';
