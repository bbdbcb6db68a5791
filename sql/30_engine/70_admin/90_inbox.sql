-- The inbox: what was captured, and what waits or failed on its way there. A queue that also sends
-- shows only emails of routes that capture.

CREATE FUNCTION mailgres.capturing_routes() RETURNS text[]
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(array_agg(x.route), '{}')
    FROM (SELECT r.route FROM mailgres.route_providers r JOIN mailgres.providers p ON p.name = r.provider
          GROUP BY r.route HAVING bool_and(p.captures)) x;
END;

COMMENT ON FUNCTION mailgres.capturing_routes() IS 'The routes on which nothing is sent: all of their providers capture.';

CREATE FUNCTION mailgres.is_in_inbox(q public.email_queue, p_routes text[]) RETURNS boolean
    LANGUAGE sql STABLE
RETURN q.status <> 'sent' AND q.route = ANY (p_routes)
    AND NOT EXISTS (SELECT FROM mailgres.providers p WHERE p.name = q.provider AND NOT p.captures);

COMMENT ON FUNCTION mailgres.is_in_inbox(public.email_queue, text[]) IS
    'Whether an email without a captured message belongs to the inbox: it waits or failed on a route that captures.';

CREATE FUNCTION mailgres.time_of_id(p_id uuid) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE
RETURN to_timestamp(('x0000' || left(replace(p_id::text, '-', ''), 12))::bit(64)::bigint / 1000.0);

COMMENT ON FUNCTION mailgres.time_of_id(uuid) IS 'When a time-ordered uuid was generated, in milliseconds.';

-- Captured messages by their time, others among the newest emails of the queue: so a call reads few
-- rows, however many there are. Of an email that was captured twice, the newer message counts.
-- Others have the time of their id: emails of one transaction share created_at, however long it took,
-- and a page that ends among them has to know where the next one starts.
CREATE FUNCTION mailgres.inbox_index(p_search text, p_before timestamptz, p_limit int, p_before_id uuid DEFAULT NULL)
    RETURNS TABLE (at timestamptz, queue_id uuid, key text, status text, retries int)
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    c_searched  constant int := 2000;  -- messages, and emails of the queue, that a search reads
    c_recent    constant int := 500;   -- emails of the queue that a list reads
    v_search    constant text := lower(nullif(btrim(left(p_search, 200)), ''));
    v_routes    constant text[] := mailgres.capturing_routes();
    v_depth     constant int := CASE WHEN v_search IS NULL THEN c_recent ELSE c_searched END;
    v_before    constant timestamptz := coalesce(p_before, 'infinity');
    v_before_id constant uuid := coalesce(p_before_id, '00000000-0000-0000-0000-000000000000');
BEGIN
    RETURN QUERY
    SELECT * FROM (
        (SELECT c.captured_at, c.queue_id, c.key, q.status::text, q.retries::int
         FROM (SELECT k.* FROM mailgres.captured k
               WHERE (k.captured_at, k.queue_id) < (v_before, v_before_id)
               ORDER BY k.captured_at DESC, k.queue_id DESC LIMIT CASE WHEN v_search IS NULL THEN p_limit ELSE c_searched END) c
         LEFT JOIN public.email_queue q ON q.id = c.queue_id
         WHERE NOT EXISTS (SELECT FROM mailgres.captured n WHERE n.queue_id = c.queue_id AND n.captured_at > c.captured_at)
           AND (v_search IS NULL OR strpos(lower(concat_ws(E'\n',
                c.message ->> 'to', c.message ->> 'also_to', c.message ->> 'cc', c.message ->> 'bcc', c.message ->> 'from',
                c.message ->> 'subject', c.message ->> 'text', q.template_type, q.tenant_id, c.queue_id)), v_search) > 0)
         ORDER BY c.captured_at DESC, c.queue_id DESC LIMIT p_limit)
        UNION ALL
        (SELECT CASE WHEN mailgres.time_of_id(q.id) BETWEEN q.created_at - interval '1 s' AND q.created_at + interval '1 day'
                     THEN mailgres.time_of_id(q.id) ELSE q.created_at END,  -- an id that was not generated here has no time
                q.id, NULL::text, q.status::text, q.retries::int
         FROM (SELECT e.id FROM public.email_queue e
               WHERE e.id < CASE WHEN p_before IS NULL THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid
                            ELSE mailgres.first_id_of(p_before + interval '2 ms') END
                 AND (mailgres.time_of_id(e.id), e.id) < (v_before, v_before_id)
               ORDER BY e.id DESC LIMIT v_depth) r
         JOIN public.email_queue q ON q.id = r.id
         WHERE mailgres.is_in_inbox(q, v_routes)
           AND NOT EXISTS (SELECT FROM mailgres.captured c WHERE c.queue_id = q.id)
           AND (v_search IS NULL OR strpos(lower(concat_ws(E'\n',
                q.recipient_email, q.subject, q.template_type, q.tenant_id, q.error_message, q.id)), v_search) > 0)
         ORDER BY q.id DESC LIMIT p_limit)) x(at, queue_id, key, status, retries)
    ORDER BY x.at DESC, x.queue_id DESC
    LIMIT p_limit;
END
$$;

COMMENT ON FUNCTION mailgres.inbox_index(text, timestamptz, int, uuid) IS 'Which emails a page of the inbox shows, newest first.';

CREATE FUNCTION mailgres.inbox(
    p_search text DEFAULT NULL, p_before timestamptz DEFAULT NULL, p_limit int DEFAULT 50, p_before_id uuid DEFAULT NULL)
    RETURNS TABLE (
        at timestamptz, queue_id uuid, captured boolean, status text, retries int, template_type text, tenant_id text,
        recipient_email text, more_recipients int, from_email text, subject text, preview text, files int,
        error_message text, next_retry_at timestamptz, bounced boolean)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
SELECT i.at, i.queue_id, i.key IS NOT NULL, coalesce(i.status, 'deleted'), i.retries, q.template_type, q.tenant_id,
       coalesce(c.message ->> 'to', q.recipient_email),
       CASE WHEN i.key IS NULL THEN coalesce(cardinality(q.also_to), 0) + coalesce(cardinality(q.cc), 0) + coalesce(cardinality(q.bcc), 0)
            ELSE (SELECT count(*)::int FROM unnest(ARRAY['also_to', 'cc', 'bcc']) f(field),
                  jsonb_array_elements(CASE jsonb_typeof(c.message -> f.field) WHEN 'array' THEN c.message -> f.field ELSE '[]' END)) END,
       coalesce(c.message ->> 'from', q.from_email), coalesce(c.message ->> 'subject', q.subject),
       left(btrim(regexp_replace(left(c.message ->> 'text', 400), '[[:space:]]+', ' ', 'g')), 160),
       (SELECT count(*)::int FROM mailgres.captured_files f WHERE f.key = i.key),
       q.error_message, nullif(q.next_retry_at, 'infinity'),
       EXISTS (SELECT FROM mailgres.deliveries d WHERE d.queue_id = i.queue_id AND d.bounced_at IS NOT NULL)
FROM mailgres.inbox_index(p_search, p_before, least(p_limit, 200), p_before_id) i
LEFT JOIN public.email_queue q ON q.id = i.queue_id
LEFT JOIN mailgres.captured c ON c.key = i.key
ORDER BY i.at DESC, i.queue_id DESC
$$;

COMMENT ON FUNCTION mailgres.inbox(text, timestamptz, int, uuid) IS
    'Captured emails, and those that wait or failed on a route that captures, newest first; p_before, p_before_id: time and id of the last one on the page before.';

CREATE FUNCTION mailgres.inbox_state(p_id uuid DEFAULT NULL) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
SELECT md5(concat_ws('|',
    (SELECT string_agg(concat_ws(',', i.queue_id, i.key, i.status, i.retries,
                                 (SELECT max(e.id) FROM public.email_events e WHERE e.queue_id = i.queue_id)), ';')
     FROM mailgres.inbox_index(NULL, NULL, 50) i),
    (SELECT string_agg(f.id::text, ';' ORDER BY f.id) FROM mailgres.capture_faults f),
    (SELECT concat_ws(',', q.status, q.retries) FROM public.email_queue q WHERE q.id = p_id),
    (SELECT count(*) FROM mailgres.captured c WHERE c.queue_id = p_id),
    (SELECT count(*) FROM public.email_logs l WHERE l.queue_id = p_id),
    (SELECT count(*) FROM public.email_events e WHERE e.queue_id = p_id)))
$$;

COMMENT ON FUNCTION mailgres.inbox_state(uuid) IS
    'A text that changes when the first page of the inbox, or the page of this email, looks different.';

CREATE FUNCTION mailgres.inbox_email(p_id uuid) RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
SELECT jsonb_build_object(
    'now', mailgres.now(),
    'email', to_jsonb(q) - '{html,text,payload,headers,lease_token,error_detail}'::text[],
    'captured_at', c.captured_at, 'key', c.key, 'message', c.message,
    'files', (SELECT coalesce(jsonb_agg(to_jsonb(f) - '{content,key}'::text[] || jsonb_build_object('kept', f.content IS NOT NULL)
                                        ORDER BY f.position), '[]')
              FROM mailgres.captured_files f WHERE f.key = c.key),
    'log', (SELECT coalesce(jsonb_agg(to_jsonb(l) ORDER BY l.id), '[]')
            FROM (SELECT x.* FROM public.email_logs x WHERE x.queue_id = p_id ORDER BY x.id LIMIT 200) l),
    'events', (SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.id), '[]')
               FROM (SELECT x.* FROM public.email_events x WHERE x.queue_id = p_id ORDER BY x.id LIMIT 200) e))
FROM (VALUES (p_id)) given(id)
LEFT JOIN public.email_queue q ON q.id = given.id
LEFT JOIN LATERAL (
    SELECT k.* FROM mailgres.captured k WHERE k.queue_id = given.id ORDER BY k.captured_at DESC LIMIT 1) c ON true
WHERE c.key IS NOT NULL OR mailgres.is_in_inbox(q, mailgres.capturing_routes())
$$;

COMMENT ON FUNCTION mailgres.inbox_email(uuid) IS
    'An email of the inbox: the row, the captured message, its files without their content, its log; null if it is not there.';

CREATE FUNCTION mailgres.inbox_file(p_id uuid, p_position int)
    RETURNS TABLE (filename text, content_type text, content_id text, content bytea)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
SELECT f.filename, f.content_type, f.content_id, f.content
FROM (SELECT k.key FROM mailgres.captured k WHERE k.queue_id = p_id ORDER BY k.captured_at DESC LIMIT 1) c
JOIN mailgres.captured_files f USING (key)
WHERE f.position = p_position
$$;

COMMENT ON FUNCTION mailgres.inbox_file(uuid, int) IS 'An attachment of a captured message; its content is null if it was not kept.';

CREATE FUNCTION mailgres.delete_from_inbox(p_ids uuid[] DEFAULT NULL, p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    v_routes  constant text[] := mailgres.capturing_routes();
    v_shown   uuid[];
    v_ids     uuid[];
BEGIN
    v_shown := coalesce(p_ids, ARRAY(SELECT i.queue_id FROM mailgres.inbox_index(NULL, NULL, p_limit) i));
    -- An email under a lease stays: its worker would report to nobody.
    v_ids := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (v_shown) AND q.status <> 'sending'
          AND (mailgres.is_in_inbox(q, v_routes)
               OR (EXISTS (SELECT FROM mailgres.captured c WHERE c.queue_id = q.id)
                   AND NOT EXISTS (SELECT FROM mailgres.providers p WHERE p.name = q.provider AND NOT p.captures)))
        FOR UPDATE SKIP LOCKED);
    v_shown := ARRAY(
        SELECT c.queue_id FROM mailgres.captured c
        WHERE c.queue_id = ANY (v_shown)
          AND NOT EXISTS (SELECT FROM public.email_queue q WHERE q.id = c.queue_id AND q.status = 'sending')
        UNION SELECT unnest(v_ids));
    DELETE FROM mailgres.captured c WHERE c.queue_id = ANY (v_shown);
    PERFORM mailgres.delete_emails(v_ids);
    RETURN cardinality(v_shown);
END
$$;

COMMENT ON FUNCTION mailgres.delete_from_inbox(uuid[], int) IS
    'Deletes captured messages and their emails, or the newest of all; emails that other providers sent, and those under a lease, stay. Returns how many.';

CREATE FUNCTION mailgres.set_capture_fault(p_fault text, p_recipient text DEFAULT NULL, p_template text DEFAULT NULL)
    RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    c_most  constant int := 100;
    v_id    bigint;
BEGIN
    IF p_fault IS NULL OR p_fault NOT IN ('bounce', 'timeout', 'reject', 'unanswered') THEN
        PERFORM mailgres.refuse('MG077', 'there is no such fault', 'Give bounce, timeout, reject or unanswered.');
    ELSIF length(p_recipient) NOT BETWEEN 1 AND 254 OR length(p_template) NOT BETWEEN 1 AND 200 THEN
        PERFORM mailgres.refuse('MG077', 'the address or the template of the fault is not valid',
            'Give one plain address, one template, or null for any.');
    ELSIF (SELECT count(*) FROM mailgres.capture_faults) >= c_most THEN
        PERFORM mailgres.refuse('MG077', format('%s faults are waiting for an email', c_most), 'Remove some first.');
    END IF;
    INSERT INTO mailgres.capture_faults (fault, recipient_email, template_type)
    VALUES (p_fault, p_recipient, p_template) RETURNING id INTO v_id;
    RETURN v_id;
END
$$;

COMMENT ON FUNCTION mailgres.set_capture_fault(text, text, text) IS
    'Lets the provider capture fail once: with the next email to this address and of this template (null: any). Returns its id.';

CREATE FUNCTION mailgres.remove_capture_fault(p_id bigint) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH gone AS (DELETE FROM mailgres.capture_faults f WHERE f.id = p_id RETURNING f.id)
SELECT EXISTS (SELECT FROM gone)
$$;

COMMENT ON FUNCTION mailgres.remove_capture_fault(bigint) IS 'Removes a fault that has not happened yet; false if there is none.';
