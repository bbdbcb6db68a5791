-- What is wrong with a request: the SQLSTATE with which it is refused, or null. One expression, so
-- that it is inlined into the statements that enqueue; fields that few requests have are checked by
-- a function that is called for those requests only.

-- Functions of their own, so that fault_of_options() is an expression without a subquery:
-- PL/pgSQL evaluates such an expression without starting the executor.
CREATE FUNCTION mailgres.is_retry_policy(p_name text) RETURNS boolean
    LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM mailgres.retry_policies p WHERE p.name = p_name);
END
$$;

COMMENT ON FUNCTION mailgres.is_retry_policy(text) IS 'Whether there is a retry policy of this name.';

CREATE FUNCTION mailgres.is_route(p_name text) RETURNS boolean
    LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM mailgres.routes r WHERE r.route = p_name);
END
$$;

COMMENT ON FUNCTION mailgres.is_route(text) IS 'Whether there is a route of this name.';

CREATE FUNCTION mailgres.fault_of_options(r mailgres.request, p_tenant text) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE
        WHEN r.priority NOT BETWEEN 1 AND 9 THEN 'MG006'
        WHEN r.max_retries NOT BETWEEN 0 AND 100
             OR r.retry_delay NOT BETWEEN '0' AND '30 days'
             OR r.max_retry_delay NOT BETWEEN '0' AND '30 days' THEN 'MG007'
        WHEN r.expires_at <= greatest(r.scheduled_for, mailgres.now()) THEN 'MG008'
        WHEN NOT mailgres.is_retry_policy(r.retry_policy) THEN 'MG010'
        WHEN NOT mailgres.is_route(r.route) THEN 'MG011'
        WHEN (r.subject IS NOT NULL OR r.html IS NOT NULL OR r.text IS NOT NULL)
             AND (r.subject IS NULL OR (r.html IS NULL AND r.text IS NULL)
                  OR NOT mailgres.is_subject(r.subject)
                  OR octet_length(r.html) > 5242880 OR octet_length(r.text) > 5242880
                  OR r.template_type !~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$') THEN 'MG012'
        WHEN length(r.idempotency_key) NOT BETWEEN 1 AND 256
             OR length(r.correlation_id) NOT BETWEEN 1 AND 256 THEN 'MG013'
        WHEN NOT mailgres.are_attachments(r.attachments) THEN 'MG014'
        WHEN NOT mailgres.is_sender(r.from_email) OR NOT mailgres.is_sender(r.reply_to)
             OR NOT mailgres.are_addresses(r.cc) OR NOT mailgres.are_addresses(r.bcc)
             OR NOT mailgres.are_addresses(r.also_to) OR cardinality(r.also_to) > 49 THEN 'MG016'
        WHEN r.from_email IS NOT NULL AND NOT mailgres.may_send_as(p_tenant, r.from_email) THEN 'MG018'
        WHEN NOT mailgres.are_headers(r.headers) OR NOT mailgres.are_tags(r.tags) THEN 'MG017'
    END;
END
$$;

COMMENT ON FUNCTION mailgres.fault_of_options(mailgres.request, text) IS
    'The SQLSTATE with which a request is refused for its optional fields, or null.';

CREATE FUNCTION mailgres.fault_of_basics(
    p_recipient text, p_payload jsonb, p_tenant text, p_has_content boolean, t public.email_templates
) RETURNS text
    LANGUAGE sql STABLE
RETURN CASE
    WHEN (t.template_type IS NULL OR t.retired_at IS NOT NULL) AND NOT p_has_content THEN 'MG001'
    WHEN mailgres.is_address(p_recipient) IS NOT TRUE THEN 'MG002'
    WHEN jsonb_typeof(p_payload) IS DISTINCT FROM 'object' THEN 'MG003'
    WHEN octet_length(p_payload::text) > 1048576 THEN 'MG004'
    WHEN NOT p_payload ?& t.required_variables AND NOT p_has_content THEN 'MG005'
    WHEN p_tenant IS NULL OR length(p_tenant) NOT BETWEEN 1 AND 200 THEN 'MG013'
END;

COMMENT ON FUNCTION mailgres.fault_of_basics(text, jsonb, text, boolean, public.email_templates) IS
    'The SQLSTATE with which a request is refused for the fields that every request has, or null.';

CREATE FUNCTION mailgres.fault_of(r mailgres.request, t public.email_templates) RETURNS text
    LANGUAGE sql STABLE
RETURN coalesce(
    mailgres.fault_of_basics(
        r.recipient_email, r.payload, r.tenant_id,
        r.subject IS NOT NULL OR r.html IS NOT NULL OR r.text IS NOT NULL, t),
    CASE WHEN num_nonnulls(
        r.priority, r.scheduled_for, r.expires_at, r.idempotency_key, r.correlation_id, r.route,
        r.retry_policy, r.max_retries, r.retry_delay, r.max_retry_delay, r.from_email, r.reply_to,
        r.subject, r.html, r.text, r.headers, r.tags, r.cc, r.bcc, r.attachments, r.also_to) > 0
        THEN mailgres.fault_of_options(r, r.tenant_id) END);

COMMENT ON FUNCTION mailgres.fault_of(mailgres.request, public.email_templates) IS
    'The SQLSTATE with which a request is refused, or null.';

-- The error message and hint. They do not quote the address, because errors end up in logs.
CREATE FUNCTION mailgres.refuse_request(p_sqlstate text, r mailgres.request, p_place bigint) RETURNS boolean
    LANGUAGE plpgsql
AS $$
DECLARE
    v_said text[] := CASE p_sqlstate
        WHEN 'MG001' THEN ARRAY[
            -- arguments get swapped, so a text that is not a name may be an address
            CASE WHEN r.template_type ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$'
                 THEN format('there is no template %L', r.template_type)
                 ELSE 'template_type is not the name of a template' END,
            format('Known templates: %s. Or bring your own content: a subject with html or text.', (
                SELECT coalesce(string_agg(k.template_type, ', '), 'none') FROM (
                    SELECT t.template_type FROM public.email_templates t
                    WHERE t.retired_at IS NULL ORDER BY t.template_type LIMIT 10) k))]
        WHEN 'MG002' THEN ARRAY[
            'recipient_email is not an email address',
            'Give one plain address such as ana@example.com: no display name, no spaces or line breaks, at most 254 bytes.']
        WHEN 'MG003' THEN ARRAY[
            format('the payload is %s, not a JSON object', coalesce('a JSON ' || jsonb_typeof(r.payload), 'null')),
            'Give an object with the variables of the template; {} when there are none.']
        WHEN 'MG004' THEN ARRAY[
            format('the payload is %s bytes long', octet_length(r.payload::text)),
            'At most 1 MiB (1048576 bytes) is taken; send files as attachments or link to them.']
        WHEN 'MG005' THEN ARRAY[
            format('the payload lacks %s, which the template %L needs', (
                SELECT string_agg(quote_literal(v), ', ') FROM public.email_templates t, unnest(t.required_variables) v
                WHERE t.template_type = r.template_type AND NOT r.payload ? v), r.template_type),
            'Add the missing keys to the payload.']
        WHEN 'MG006' THEN ARRAY[
            format('priority %s is out of range', r.priority),
            'Give 1 (urgent) to 9 (bulk); 5 is the default.']
        WHEN 'MG007' THEN ARRAY[
            'max_retries, retry_delay or max_retry_delay is out of range',
            'max_retries is 0 to 100; delays are not negative and at most 30 days.']
        WHEN 'MG008' THEN ARRAY[
            format('it would expire (%s) before it could be sent', mailgres.time_text(r.expires_at)),
            'Let expires_at be later than scheduled_for and later than now.']
        WHEN 'MG009' THEN ARRAY[
            'the idempotency key was used before for another email', 'Use a new key for new content.']
        WHEN 'MG010' THEN ARRAY[
            format('there is no retry policy %L', r.retry_policy),
            format('Known policies: %s.', (SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM mailgres.retry_policies p))]
        WHEN 'MG011' THEN ARRAY[
            format('there is no route %L', r.route),
            format('Known routes: %s.', (SELECT string_agg(x.route, ', ' ORDER BY x.route) FROM mailgres.routes x))]
        WHEN 'MG012' THEN ARRAY[
            'the content of the email is not complete or not valid',
            'Its own content needs a subject of one line (at most 998 characters) and html or text of at most 5 MiB each.']
        WHEN 'MG013' THEN ARRAY[
            'tenant_id, idempotency_key or correlation_id is empty or too long',
            'tenant_id takes 1 to 200 characters, the others 1 to 256.']
        WHEN 'MG014' THEN ARRAY[
            'the attachments are not valid',
            'Give an array of objects with filename (no slashes), content (base64) and optionally content_type and content_id; 40 MB in all.']
        WHEN 'MG016' THEN ARRAY[
            'from_email, reply_to, also_to, cc or bcc is not valid',
            'Sender and reply address may have a display name, as in Example <mail@example.com>; also_to, cc and bcc are arrays (of one dimension) of at most 50 plain addresses, also_to of 49. No line breaks.']
        WHEN 'MG017' THEN ARRAY[
            'headers or tags are not valid',
            'Both are objects of strings without line breaks: at most 50 headers, 16 KB in all, and at most 40 tags of letters, digits, _ and -. Headers that mailgres, servers or providers set themselves or act on (From, Resent-*, Content-*, X-SES-* and the like) are not taken.']
        WHEN 'MG018' THEN ARRAY[
            'from_email is not an allowed sender of this tenant',
            'Leave it out, or have its domain allowed: `mailgres senders allow`.']
        WHEN 'MG019' THEN ARRAY[
            'this role may not enqueue for that tenant',
            'It is bound to one tenant: leave tenant_id out. `mailgres producers list` shows which role is bound to which.']
        ELSE ARRAY['the request is not valid', 'See the documentation of enqueue_email.']
    END;
BEGIN
    RETURN mailgres.refuse(
        p_sqlstate,
        v_said[1] || coalesce(' (element ' || p_place || ' of the array, counting from 0)', ''),
        v_said[2]);
END
$$;

COMMENT ON FUNCTION mailgres.refuse_request(text, mailgres.request, bigint) IS
    'Raises the error for a request, with its place in the array if there were many.';
