-- The queries of the operator's page. Each transaction starts with `limits`, then `reader` or `writer`,
-- so that it runs with the rights of a database role.

-- limits --
SELECT pg_catalog.set_config('statement_timeout', '5s', true), pg_catalog.set_config('jit', 'off', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)

-- reader --
SELECT pg_catalog.set_config('role', %(role)s, true), pg_catalog.set_config('transaction_read_only', 'on', true)

-- writer --
SELECT pg_catalog.set_config('role', %(role)s, true), pg_catalog.set_config('mailgres.actor', %(actor)s, true)

-- overview --
-- Views of public only: the same for viewers and operators, and no personal data.
SELECT jsonb_build_object(
    'at', statement_timestamp(),
    'states', (SELECT jsonb_agg(to_jsonb(s)) FROM public.email_queue_state s),
    'due', (SELECT jsonb_build_object('emails', coalesce(sum(p.due_count), 0), 'oldest', min(p.oldest_due),
                                      'parked', coalesce(sum(p.parked_count), 0))
            FROM public.email_pending_by_template p),
    'day', (SELECT jsonb_agg(to_jsonb(t) ORDER BY t.since) FROM public.email_throughput_24h t),
    'minute', (SELECT to_jsonb(t) FROM public.email_throughput t ORDER BY t.minute DESC OFFSET 1 LIMIT 1),
    'providers', (SELECT coalesce(jsonb_agg(to_jsonb(p) ORDER BY p.provider), '[]') FROM public.email_providers p),
    'routes', (SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.route), '[]') FROM public.email_eta e),
    'tenants', (SELECT coalesce(jsonb_agg(to_jsonb(t)), '[]') FROM (
        SELECT f.* FROM public.email_tenant_fairness f
        ORDER BY f.backlog DESC, f.total_processed DESC, f.tenant_id LIMIT 8) t),
    'workers', (SELECT coalesce(jsonb_agg(to_jsonb(w) ORDER BY w.worker), '[]') FROM public.email_workers w),
    'alerts', (SELECT coalesce(jsonb_agg(to_jsonb(a) ORDER BY a.severity, a.rule, a.subject), '[]')
               FROM public.email_alerts a)) AS overview

-- has_foreign_ids --
-- Ids of an application's own say nothing about time: then a period is no range of ids.
SELECT EXISTS (SELECT FROM public.email_queue q WHERE q.id < %(origin)s)
       OR EXISTS (SELECT FROM public.email_queue q WHERE q.id > %(tomorrow)s) AS has

-- open_ids --
-- All emails that are not settled, and dead ones, by their partial indexes, if they are few.
SELECT x.id FROM (
    (SELECT q.id FROM public.email_queue q WHERE q.ready AND 'pending' = ANY (%(status)s) LIMIT %(most)s)
    UNION ALL
    (SELECT q.id FROM public.email_queue q
     WHERE q.status = ANY (%(status)s) AND q.due_at IS NOT NULL LIMIT %(most)s)) x
LIMIT %(most)s

-- search --
WITH scanned AS MATERIALIZED (
    SELECT q.id, q.created_at,
           (%(status)s::text[] IS NULL OR q.status = ANY (%(status)s))
           AND (%(template)s::text IS NULL OR q.template_type = %(template)s)
           AND (%(tenant)s::text IS NULL OR q.tenant_id = %(tenant)s)
           AND (%(code)s::text IS NULL OR coalesce(q.error_code, 'none') = %(code)s)
           AND (%(provider)s::text IS NULL OR q.provider = %(provider)s)
           AND (%(reason)s::text IS NULL OR q.dead_reason = %(reason)s)
           AND (%(since)s::timestamptz IS NULL OR q.created_at >= %(since)s)
           AND (%(until)s::timestamptz IS NULL OR q.created_at < %(until)s) AS matches
    FROM public.email_queue q
    WHERE q.id < %(before)s AND q.id >= %(first)s
    ORDER BY q.id DESC LIMIT %(step)s)
SELECT (SELECT count(*) FROM scanned) AS examined,
       ARRAY(SELECT s.id FROM scanned s WHERE s.matches ORDER BY s.id DESC LIMIT %(limit)s) AS ids,
       last.id AS last_id, last.created_at AS reached
FROM (VALUES (1)) one LEFT JOIN (SELECT s.id, s.created_at FROM scanned s ORDER BY s.id LIMIT 1) last ON true

-- search_recipient --
WITH scanned AS MATERIALIZED (
    SELECT q.id, q.created_at,
           (%(status)s::text[] IS NULL OR q.status = ANY (%(status)s))
           AND (%(template)s::text IS NULL OR q.template_type = %(template)s)
           AND (%(tenant)s::text IS NULL OR q.tenant_id = %(tenant)s)
           AND (%(code)s::text IS NULL OR coalesce(q.error_code, 'none') = %(code)s)
           AND (%(provider)s::text IS NULL OR q.provider = %(provider)s)
           AND (%(reason)s::text IS NULL OR q.dead_reason = %(reason)s)
           AND (%(since)s::timestamptz IS NULL OR q.created_at >= %(since)s)
           AND (%(until)s::timestamptz IS NULL OR q.created_at < %(until)s)
           AND (lower(q.recipient_email) = %(recipient)s
                OR left(%(recipient)s, 1) = '@' AND lower(q.recipient_email) LIKE '%%' || %(suffix)s) AS matches
    FROM public.email_queue q
    WHERE q.id < %(before)s AND q.id >= %(first)s
    ORDER BY q.id DESC LIMIT %(step)s)
SELECT (SELECT count(*) FROM scanned) AS examined,
       ARRAY(SELECT s.id FROM scanned s WHERE s.matches ORDER BY s.id DESC LIMIT %(limit)s) AS ids,
       last.id AS last_id, last.created_at AS reached
FROM (VALUES (1)) one LEFT JOIN (SELECT s.id, s.created_at FROM scanned s ORDER BY s.id LIMIT 1) last ON true

-- search_open --
SELECT ARRAY(
    SELECT q.id FROM public.email_queue q
    WHERE q.id = ANY (%(ids)s) AND q.id < %(before)s AND q.status = ANY (%(status)s)
      AND (%(template)s::text IS NULL OR q.template_type = %(template)s)
      AND (%(tenant)s::text IS NULL OR q.tenant_id = %(tenant)s)
      AND (%(code)s::text IS NULL OR coalesce(q.error_code, 'none') = %(code)s)
      AND (%(provider)s::text IS NULL OR q.provider = %(provider)s)
      AND (%(reason)s::text IS NULL OR q.dead_reason = %(reason)s)
      AND (%(since)s::timestamptz IS NULL OR q.created_at >= %(since)s)
      AND (%(until)s::timestamptz IS NULL OR q.created_at < %(until)s)
    ORDER BY q.id DESC LIMIT %(limit)s) AS ids

-- emails_as_viewer --
SELECT q.id, q.status::text AS status, q.template_type::text AS template, q.tenant_id::text AS tenant,
       q.retries::int AS retries, q.created_at, q.next_retry_at::text AS next_retry_at, q.error_code,
       q.error_message, q.dead_reason::text AS dead_reason, q.provider, r.recipient
FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY i(id, place)
JOIN public.email_queue q ON q.id = i.id
CROSS JOIN LATERAL (SELECT x.recipient FROM public.email_recipients x WHERE x.id = i.id) r
ORDER BY i.place

-- emails_as_operator --
SELECT q.id, q.status::text AS status, q.template_type::text AS template, q.tenant_id::text AS tenant,
       q.retries::int AS retries, q.created_at, q.next_retry_at::text AS next_retry_at, q.error_code,
       q.error_message, q.dead_reason::text AS dead_reason, q.provider, q.recipient_email::text AS recipient
FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY i(id, place)
JOIN public.email_queue q ON q.id = i.id
ORDER BY i.place

-- email_as_viewer --
SELECT jsonb_build_object(
    'now', statement_timestamp(), 'archived_at', NULL, 'message', NULL, 'files', '[]'::jsonb,
    'email', (SELECT to_jsonb(x) FROM (
        SELECT q.id, q.status, q.template_type, q.tenant_id, q.priority, q.route, q.retries, q.max_retries,
               q.created_at, q.scheduled_for, q.expires_at, q.next_retry_at, q.sent_at, q.dead_at, q.dead_reason,
               q.error_class, q.error_code, q.error_message, q.provider, q.provider_message_id, q.retry_policy,
               q.template_version, q.uncertain_since, q.lease_worker, q.lease_until, q.has_attachments) x),
    'recipient', (SELECT r.recipient FROM public.email_recipients r WHERE r.id = q.id),
    'log', (SELECT coalesce(jsonb_agg(to_jsonb(l) ORDER BY l.id), '[]') FROM (
        SELECT x.id, x.at, x.event, x.attempt, x.claimed_at, x.worker, x.duration_ms, x.provider,
               x.provider_message_id, x.error_class, x.error_code, x.error_message, x.next_retry_at, x.dead_reason
        FROM public.email_logs x WHERE x.queue_id = q.id ORDER BY x.id DESC LIMIT 500) l),
    'events', (SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.id), '[]') FROM (
        SELECT x.id, x.provider, x.event, x.occurred_at, x.received_at, x.kind, x.reason
        FROM public.email_events x WHERE x.queue_id = q.id ORDER BY x.id DESC LIMIT 500) e)) AS email
FROM public.email_queue q
WHERE q.id = %(id)s

-- email_as_operator --
SELECT jsonb_build_object(
    'now', mailgres.now(), 'archived_at', NULL, 'email', to_jsonb(q) - '{lease_token,html,text}'::text[],
    'recipient', q.recipient_email,
    'message', coalesce(
        (SELECT c.message FROM mailgres.captured c WHERE c.queue_id = q.id ORDER BY c.captured_at DESC LIMIT 1),
        CASE WHEN q.html IS NOT NULL OR q.text IS NOT NULL THEN
            jsonb_build_object('subject', q.subject, 'html', q.html, 'text', q.text, 'from', q.from_email,
                               'headers', q.headers) END),
    'files', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                  'position', a.position, 'filename', a.filename, 'content_type', a.content_type,
                  'content_id', a.content_id, 'bytes', octet_length(a.content), 'kept', true) ORDER BY a.position), '[]')
              FROM mailgres.attachments a WHERE a.queue_id = q.id),
    'log', (SELECT coalesce(jsonb_agg(to_jsonb(l) ORDER BY l.id), '[]') FROM (
        SELECT x.* FROM public.email_logs x WHERE x.queue_id = q.id ORDER BY x.id DESC LIMIT 500) l),
    'events', (SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.id), '[]') FROM (
        SELECT x.* FROM public.email_events x WHERE x.queue_id = q.id ORDER BY x.id DESC LIMIT 500) e)) AS email
FROM public.email_queue q
WHERE q.id = %(id)s
UNION ALL
SELECT jsonb_build_object(
    'now', mailgres.now(), 'archived_at', d.archived_at, 'email', d.email - '{lease_token,html,text,attachments}'::text[],
    'recipient', d.email ->> 'recipient_email', 'message', NULL, 'files', '[]'::jsonb, 'log', d.log,
    'events', (SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.id), '[]') FROM (
        SELECT x.* FROM public.email_events x WHERE x.queue_id = d.queue_id ORDER BY x.id DESC LIMIT 500) e))
FROM mailgres.dead_letters d
WHERE d.queue_id = %(id)s
LIMIT 1

-- file --
SELECT a.filename, a.content_type, a.content_id, a.content
FROM mailgres.attachments a WHERE a.queue_id = %(id)s AND a.position = %(position)s

-- retry --
SELECT public.retry_email(%(id)s, %(accept)s)

-- cancel --
SELECT public.cancel_email(%(id)s, %(reason)s)

-- reschedule --
SELECT public.reschedule_email(%(id)s, %(at)s)

-- preview_bulk_action --
SELECT p.code, p.message, p.hint, p.emails
FROM mailgres.preview_bulk_action(%(action)s, %(filter)s, %(options)s) p

-- now --
SELECT mailgres.now() AS now

-- start_bulk_action --
SELECT mailgres.start_bulk_action(%(action)s, %(filter)s, %(options)s) AS id

-- stop_bulk_action --
SELECT mailgres.stop_bulk_action(%(id)s)

-- resume_bulk_action --
SELECT mailgres.resume_bulk_action(%(id)s)

-- run_bulk_actions --
SELECT mailgres.run_bulk_actions(%(chunk)s) AS emails

-- is_bulk_action_running --
SELECT EXISTS (SELECT FROM mailgres.bulk_actions b WHERE b.state = 'running') AS is_running

-- bulk_actions --
SELECT to_jsonb(b) AS row FROM mailgres.bulk_actions b ORDER BY b.id DESC LIMIT 100

-- bulk_action --
SELECT to_jsonb(b) AS row FROM mailgres.bulk_actions b WHERE b.id = %(id)s

-- providers --
SELECT to_jsonb(p) AS row FROM public.email_providers p ORDER BY p.provider

-- routes --
SELECT to_jsonb(r) AS row FROM mailgres.route_states() r ORDER BY r.route

-- tenants --
SELECT to_jsonb(t) AS row FROM public.email_tenant_fairness t
WHERE %(name)s::text IS NULL OR t.tenant_id = %(name)s
ORDER BY t.paused DESC, t.backlog DESC, t.total_processed DESC, t.tenant_id LIMIT 100

-- alerts --
SELECT to_jsonb(a) AS row FROM public.email_alerts a ORDER BY a.severity, a.rule, a.subject LIMIT 100

-- alert_rules --
SELECT to_jsonb(r) AS row FROM mailgres.alert_rules r ORDER BY r.name

-- suppressions --
SELECT to_jsonb(s) AS row FROM mailgres.find_suppressions(%(filter)s, 100) s

-- dead_letters --
SELECT jsonb_build_object(
    'size', (SELECT to_jsonb(s) FROM public.email_dlq_size s),
    'codes', (SELECT coalesce(jsonb_agg(to_jsonb(x)), '[]') FROM (
        SELECT c.* FROM public.email_dlq_by_code c ORDER BY c.emails DESC, c.error_code LIMIT 50) x),
    'tenants', (SELECT coalesce(jsonb_agg(to_jsonb(x)), '[]') FROM (
        SELECT t.* FROM public.email_dlq_by_tenant t ORDER BY t.emails DESC, t.tenant_id LIMIT 50) x),
    'templates', (SELECT coalesce(jsonb_agg(to_jsonb(x)), '[]') FROM (
        SELECT t.template_type, t.failed, t.total FROM public.email_failure_rate_by_template t
        WHERE t.failed > 0 ORDER BY t.failed DESC, t.template_type LIMIT 50) x),
    'ages', (SELECT coalesce(jsonb_agg(to_jsonb(a)), '[]') FROM public.email_dlq_by_age a)) AS found

-- pause_provider --
SELECT mailgres.pause_provider(%(name)s, coalesce(mailgres.now() + %(length)s::interval, 'infinity'), %(reason)s)

-- resume_provider --
SELECT mailgres.resume_provider(%(name)s)

-- reset_provider --
SELECT mailgres.reset_provider(%(name)s)

-- pause_route --
SELECT mailgres.pause_route(%(name)s)

-- resume_route --
SELECT mailgres.resume_route(%(name)s)

-- pause_tenant --
SELECT mailgres.pause_tenant(%(name)s, %(reason)s)

-- resume_tenant --
SELECT mailgres.resume_tenant(%(name)s)

-- set_tenant_weight --
SELECT mailgres.set_tenant_weight(%(name)s, %(weight)s)

-- set_alert_rule --
SELECT to_jsonb(r) FROM mailgres.set_alert_rule(%(name)s, %(threshold)s::double precision, p_enabled => %(enabled)s) r

-- suppress --
SELECT to_jsonb(s) AS row FROM mailgres.suppress(%(entries)s) s

-- unsuppress --
SELECT mailgres.unsuppress(ARRAY[%(name)s], %(tenant)s) AS address
