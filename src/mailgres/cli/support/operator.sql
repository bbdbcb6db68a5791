-- The queries of operators' commands, mostly one function call each. Lists are JSON, because times
-- may be infinite.

-- limits --
SELECT pg_catalog.set_config('statement_timeout', %(timeout)s, true), pg_catalog.set_config('jit', 'off', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)

-- providers --
SELECT to_jsonb(s) FROM mailgres.provider_states() s

-- pause_provider --
SELECT mailgres.pause_provider(
    %(name)s, coalesce(%(until)s::timestamptz, mailgres.now() + %(length)s::interval), %(reason)s)

-- resume_provider --
SELECT mailgres.resume_provider(%(name)s)

-- reset_provider --
SELECT mailgres.reset_provider(%(name)s)

-- limit_provider --
SELECT mailgres.limit_provider(
    %(name)s,
    CASE WHEN %(keep_rate)s THEN s.emails_per_second ELSE %(rate)s::double precision END,
    CASE WHEN %(keep_daily)s THEN s.daily_quota ELSE %(daily)s::int END,
    CASE WHEN %(keep_monthly)s THEN s.monthly_quota ELSE %(monthly)s::int END)
FROM (VALUES (%(name)s)) n(name) LEFT JOIN mailgres.provider_states() s ON s.provider = n.name

-- routes --
SELECT to_jsonb(s) FROM mailgres.route_states() s

-- set_route --
SELECT mailgres.set_route(%(route)s, %(providers)s, %(description)s)

-- live_senders --
SELECT w.worker FROM public.email_workers w
WHERE w.alive AND NOT coalesce(w.providers <@ '{capture,null}', false)
ORDER BY w.worker

-- reset_routes --
SELECT mailgres.set_route(r.route, '{capture}') FROM mailgres.routes r
WHERE mailgres.providers_of(r.route) <> '{capture}'

-- reset_default_route --
UPDATE mailgres.routes SET initial = true WHERE route = 'default' AND NOT initial RETURNING route

-- drop_dev_database --
DROP DATABASE IF EXISTS mailgres_dev

-- pause_route --
SELECT mailgres.pause_route(%(route)s)

-- resume_route --
SELECT mailgres.resume_route(%(route)s)

-- limit_tenant --
SELECT mailgres.limit_tenant(%(tenant)s, %(rate)s::double precision)

-- set_tenant --
SELECT mailgres.set_tenant(%(tenant)s, %(settings)s)

-- eta --
SELECT to_jsonb(e) FROM mailgres.eta() e

-- status --
SELECT jsonb_build_object(
    'at', mailgres.now(),
    'states', (SELECT jsonb_agg(to_jsonb(s)) FROM public.email_queue_state s),
    'due', (SELECT jsonb_build_object('emails', coalesce(sum(p.due_count), 0), 'oldest', min(p.oldest_due))
            FROM public.email_pending_by_template p),
    'counted_at', (SELECT min(s.as_of) FROM public.email_queue_state s),
    'sent_in_60s', (SELECT count(*) FROM public.email_logs l
                    WHERE l.event = 'sent' AND l.at > mailgres.now() - interval '60 seconds'),
    'throughput', (SELECT jsonb_agg(to_jsonb(t) ORDER BY t.minute) FROM public.email_throughput t),
    'providers', (SELECT coalesce(jsonb_agg(to_jsonb(p) ORDER BY p.provider), '[]') FROM public.email_providers p),
    'missing', (SELECT coalesce(jsonb_agg(to_jsonb(m)), '[]') FROM mailgres.missing_providers() m),
    'events', (SELECT jsonb_object_agg(r.event, r.emails) FROM mailgres.reported_emails() r),
    'workers', (SELECT coalesce(jsonb_agg(to_jsonb(w) ORDER BY w.worker), '[]') FROM public.email_workers w),
    'alerts', (SELECT coalesce(jsonb_agg(to_jsonb(a)), '[]') FROM public.email_alerts a))

-- list --
SELECT to_jsonb(x) FROM (
    SELECT q.id, q.status, q.template_type, q.recipient_email, q.tenant_id, q.priority, q.route,
           q.retries, q.max_retries, q.created_at, q.next_retry_at, q.scheduled_for, q.last_attempt_at,
           q.sent_at, q.dead_at, q.dead_reason, q.provider, q.error_class, q.error_code, q.error_message
    FROM mailgres.find_emails(%(filter)s, NULL, %(limit)s, %(sort)s) WITH ORDINALITY f(id, place)
    JOIN public.email_queue q ON q.id = f.id
    ORDER BY f.place) x

-- emails_with_prefix --
-- Two ranges of primary keys.
SELECT to_jsonb(x) FROM (
    (SELECT q.id, q.created_at, q.status::text, q.template_type::text FROM public.email_queue q
     WHERE q.id BETWEEN %(first)s AND %(last)s ORDER BY q.id LIMIT %(limit)s)
    UNION ALL
    (SELECT d.queue_id, (d.email ->> 'created_at')::timestamptz, 'failed', d.template_type
     FROM mailgres.dead_letters d
     WHERE d.queue_id BETWEEN %(first)s AND %(last)s
       AND NOT EXISTS (SELECT FROM public.email_queue q WHERE q.id = d.queue_id)
     ORDER BY d.queue_id LIMIT %(limit)s)
    ORDER BY id LIMIT %(limit)s) x

-- neighbours --
SELECT jsonb_build_object('id', i.id, 'neighbours', ARRAY(
    (SELECT q.id FROM public.email_queue q WHERE q.id < i.id ORDER BY q.id DESC LIMIT 1)
    UNION ALL (SELECT q.id FROM public.email_queue q WHERE q.id > i.id ORDER BY q.id LIMIT 1)
    UNION ALL (SELECT d.queue_id FROM mailgres.dead_letters d
               WHERE d.queue_id < i.id ORDER BY d.queue_id DESC LIMIT 1)
    UNION ALL (SELECT d.queue_id FROM mailgres.dead_letters d
               WHERE d.queue_id > i.id ORDER BY d.queue_id LIMIT 1)))
FROM unnest(%(ids)s::uuid[]) i(id)

-- known_templates --
SELECT template_type FROM public.email_templates
UNION SELECT template_type FROM mailgres.counted_by_template
UNION SELECT template_type FROM mailgres.current_depth_by_template

-- known_tenants --
SELECT tenant_id FROM mailgres.tenants
UNION SELECT tenant_id FROM mailgres.counted_by_tenant
UNION SELECT tenant_id FROM mailgres.current_depth_by_tenant

-- known_providers --
SELECT name FROM mailgres.providers

-- tenants --
SELECT to_jsonb(s) FROM mailgres.tenant_states() s

-- pause_tenant --
SELECT mailgres.pause_tenant(%(tenant)s, %(reason)s)

-- resume_tenant --
SELECT mailgres.resume_tenant(%(tenant)s)

-- set_tenant_weight --
SELECT mailgres.set_tenant_weight(%(tenant)s, %(weight)s)

-- policies --
SELECT to_jsonb(p) || jsonb_build_object(
    'default', p.name = s.retry_policy,
    'steps', (SELECT jsonb_agg(extract(epoch FROM x) ORDER BY n) FROM unnest(p.steps) WITH ORDINALITY u(x, n)),
    'base', extract(epoch FROM p.base), 'cap', extract(epoch FROM p.cap))
FROM mailgres.retry_policies p CROSS JOIN mailgres.settings s ORDER BY p.name

-- set_policy --
SELECT mailgres.set_policy(%(name)s, %(settings)s)

-- set_defaults --
SELECT mailgres.set_defaults(%(settings)s)

-- defaults --
SELECT jsonb_build_object('retry_policy', s.retry_policy, 'expires_after', extract(epoch FROM s.expires_after))
FROM mailgres.settings s

-- suppressions --
SELECT to_jsonb(s) FROM mailgres.find_suppressions(%(filter)s, %(limit)s) s

-- release_suppressions --
SELECT to_jsonb(s) FROM mailgres.release_suppressions(%(filter)s) s

-- explain_address --
SELECT mailgres.explain_address(%(address)s)

-- suppress --
SELECT to_jsonb(s) FROM mailgres.suppress(%(entries)s) s

-- unsuppress --
SELECT mailgres.unsuppress(%(addresses)s, %(tenant)s)

-- suppression_rules --
SELECT to_jsonb(r) || jsonb_build_object('expires_after', extract(epoch FROM r.expires_after))
FROM mailgres.suppression_rules r ORDER BY r.name

-- set_suppression_rule --
SELECT to_jsonb(r) || jsonb_build_object('expires_after', extract(epoch FROM r.expires_after))
FROM mailgres.set_suppression_rule(%(rule)s, %(settings)s) r

-- reset_suppression_rule --
SELECT to_jsonb(r) || jsonb_build_object('expires_after', extract(epoch FROM r.expires_after))
FROM mailgres.reset_suppression_rule(%(rule)s) r

-- senders --
SELECT to_jsonb(s) FROM mailgres.senders s
WHERE %(tenant)s::text IS NULL OR s.tenant_id = %(tenant)s
ORDER BY s.tenant_id <> '*', s.tenant_id, s.sender

-- allow_sender --
SELECT mailgres.allow_sender(%(tenant)s, %(sender)s)

-- disallow_sender --
SELECT mailgres.disallow_sender(%(tenant)s, %(sender)s)

-- producers --
SELECT to_jsonb(p) || jsonb_build_object(
    'exists', EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = p.role_name))
FROM mailgres.producers p ORDER BY p.role_name

-- bind_producer --
SELECT mailgres.bind_producer(%(role)s, %(tenant)s)

-- unbind_producer --
SELECT mailgres.unbind_producer(%(role)s)

-- members --
SELECT m.rolname::text
FROM pg_catalog.pg_auth_members a
JOIN pg_catalog.pg_roles r ON r.oid = a.roleid
JOIN pg_catalog.pg_roles m ON m.oid = a.member
WHERE r.rolname = %(role)s ORDER BY m.rolname

-- time_of --
SELECT CASE WHEN at >= mailgres.now() THEN at END
FROM (SELECT coalesce(%(to)s::timestamptz, mailgres.now() + %(length)s::interval) AS at) x

-- dead_letters --
SELECT to_jsonb(d) - '{email,payload,attempt_times}'::text[]
FROM unnest(coalesce(nullif(%(tenant)s::text[], '{}'), ARRAY[NULL])) tenant,
     unnest(coalesce(nullif(%(template)s::text[], '{}'), ARRAY[NULL])) template,
     unnest(coalesce(nullif(%(error_code)s::text[], '{}'), ARRAY[NULL])) code,
     unnest(coalesce(nullif(%(dead_reason)s::text[], '{}'), ARRAY[NULL])) reason,
     unnest(coalesce(nullif(%(provider)s::text[], '{}'), ARRAY[NULL])) provider,
     mailgres.find_dead_letters(
         tenant, template, code, reason, %(died_since)s, %(died_until)s, %(place)s, %(limit)s,
         nullif(%(recipient)s::text[], '{}'), provider, %(since)s, %(until)s) h
CROSS JOIN LATERAL (
    -- OFFSET 0 prevents a join of everything: each letter is looked up by its id
    SELECT * FROM public.email_dead_letters x
    WHERE x.id = h.id AND (x.archived_at IS NOT NULL) = h.archived OFFSET 0
) d
ORDER BY h.dead_at DESC, h.id LIMIT %(limit)s

-- dead_letter --
SELECT to_jsonb(d) || jsonb_build_object('log', coalesce(
    CASE WHEN d.archived_at IS NOT NULL THEN (SELECT a.log FROM mailgres.dead_letters a WHERE a.queue_id = d.id)
         ELSE (SELECT jsonb_agg(to_jsonb(l) ORDER BY l.id) FROM public.email_logs l WHERE l.queue_id = d.id) END,
    '[]'))
FROM public.email_dead_letters d WHERE d.id = %(id)s ORDER BY d.dead_at DESC

-- export_dead_letters --
SELECT to_jsonb(d) - 'payload' || jsonb_build_object(
    'email', jsonb_build_object('attachments', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'filename', a.filename, 'content_type', a.content_type,
                   'bytes', octet_length(a.content)) ORDER BY a.position), '[]')
        FROM mailgres.attachments a WHERE a.queue_id = d.id)) || d.email,
    'log', coalesce(
        CASE WHEN h.archived THEN (SELECT a.log FROM mailgres.dead_letters a WHERE a.queue_id = d.id)
             ELSE (SELECT jsonb_agg(to_jsonb(l) ORDER BY l.id) FROM public.email_logs l WHERE l.queue_id = d.id) END,
        '[]'))
FROM unnest(coalesce(nullif(%(tenant)s::text[], '{}'), ARRAY[NULL])) tenant,
     unnest(coalesce(nullif(%(template)s::text[], '{}'), ARRAY[NULL])) template,
     unnest(coalesce(nullif(%(error_code)s::text[], '{}'), ARRAY[NULL])) code,
     unnest(coalesce(nullif(%(dead_reason)s::text[], '{}'), ARRAY[NULL])) reason,
     unnest(coalesce(nullif(%(provider)s::text[], '{}'), ARRAY[NULL])) provider,
     mailgres.find_dead_letters(
         tenant, template, code, reason, %(died_since)s, %(died_until)s, %(place)s, NULL,
         nullif(%(recipient)s::text[], '{}'), provider, %(since)s, %(until)s) h
CROSS JOIN LATERAL (
    -- OFFSET 0 prevents a join of everything: each letter is looked up by its id
    SELECT * FROM public.email_dead_letters x
    WHERE x.id = h.id AND (x.archived_at IS NOT NULL) = h.archived OFFSET 0
) d

-- dead_letter_stats --
SELECT to_jsonb(x) FROM (
    SELECT CASE 0 WHEN grouping(h.error_code) THEN 'code' WHEN grouping(h.tenant_id) THEN 'tenant'
                  WHEN grouping(h.template_type) THEN 'template' ELSE 'reason' END AS by,
           coalesce(h.tenant_id, h.template_type, h.dead_reason, h.error_code, 'none') AS name,
           count(*) FILTER (WHERE NOT h.archived) AS in_queue, count(*) FILTER (WHERE h.archived) AS archived,
           min(h.dead_at) AS oldest, max(h.dead_at) AS newest
    FROM unnest(coalesce(nullif(%(tenant)s::text[], '{}'), ARRAY[NULL])) tenant,
     unnest(coalesce(nullif(%(template)s::text[], '{}'), ARRAY[NULL])) template,
         unnest(coalesce(nullif(%(error_code)s::text[], '{}'), ARRAY[NULL])) code,
     unnest(coalesce(nullif(%(dead_reason)s::text[], '{}'), ARRAY[NULL])) reason,
     unnest(coalesce(nullif(%(provider)s::text[], '{}'), ARRAY[NULL])) provider,
         mailgres.find_dead_letters(
         tenant, template, code, reason, %(died_since)s, %(died_until)s, %(place)s, NULL,
         nullif(%(recipient)s::text[], '{}'), provider, %(since)s, %(until)s) h
    GROUP BY GROUPING SETS ((h.error_code), (h.tenant_id), (h.template_type), (h.dead_reason))
) x
ORDER BY x.by, x.in_queue + x.archived DESC, x.name

-- alerts --
SELECT to_jsonb(a) FROM public.email_alerts a

-- alert_rules --
SELECT to_jsonb(r) || jsonb_build_object('time_window', extract(epoch FROM r.time_window))
FROM mailgres.alert_rules r ORDER BY r.name

-- set_alert_rule --
SELECT to_jsonb(r) || jsonb_build_object('time_window', extract(epoch FROM r.time_window))
FROM mailgres.set_alert_rule(
    %(rule)s, %(threshold)s::double precision, %(window)s::interval, %(severity)s, %(enabled)s) r

-- reset_webhook --
SELECT mailgres.reset_webhook()

-- show --
SELECT jsonb_build_object(
    'email', to_jsonb(q) - 'lease_token',
    'log', coalesce(d.log, '[]') || coalesce(
        (SELECT jsonb_agg(to_jsonb(l) ORDER BY l.id) FROM public.email_logs l WHERE l.queue_id = q.id), '[]'),
    'events', (SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.received_at, e.id), '[]') FROM public.email_events e WHERE e.queue_id = %(id)s),
    'attachments', coalesce(
        (SELECT jsonb_agg(jsonb_build_object('filename', a.filename, 'content_type', a.content_type,
                                             'bytes', octet_length(a.content)) ORDER BY a.position)
         FROM mailgres.attachments a WHERE a.queue_id = q.id), '[]'),
    'archived_at', NULL, 'now', mailgres.now(), 'active_version', t.active_version)
FROM public.email_queue q
LEFT JOIN mailgres.dead_letters d ON d.queue_id = q.id
LEFT JOIN public.email_templates t ON t.template_type = q.template_type
WHERE q.id = %(id)s
UNION ALL
SELECT jsonb_build_object(
    'email', d.email - 'lease_token' - 'attachments', 'log', d.log, 'attachments', d.email -> 'attachments',
    'events', (SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.received_at, e.id), '[]') FROM public.email_events e WHERE e.queue_id = %(id)s),
    'archived_at', d.archived_at, 'now', mailgres.now(), 'active_version', t.active_version)
FROM mailgres.dead_letters d
LEFT JOIN public.email_templates t ON t.template_type = d.template_type
WHERE d.queue_id = %(id)s
LIMIT 1

-- check_emails --
SELECT to_jsonb(c) FROM mailgres.check_emails(%(emails)s) c

-- enqueue_emails --
SELECT e::text FROM public.enqueue_emails(%(emails)s) e

-- quarantine_state --
SELECT to_jsonb(s) FROM mailgres.quarantine_state() s

-- quarantine --
SELECT mailgres.quarantine(%(because)s)

-- release_quarantine --
SELECT mailgres.release_quarantine(%(anywhere)s)

-- recovery_until --
SELECT to_jsonb(coalesce(%(until)s, mailgres.recovery_until(%(since)s)))

-- list_recovery --
SELECT to_jsonb(r) FROM mailgres.list_recovery(%(since)s, %(until)s) r

-- recover --
SELECT mailgres.recover(%(since)s, %(until)s, %(limit)s)

-- recover_known --
SELECT to_jsonb(k) FROM mailgres.recover_known(%(emails)s) k
