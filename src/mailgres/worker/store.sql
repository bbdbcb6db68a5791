-- The worker's queries: calls of the functions in the schema mailgres.

-- A query's columns are in the order of the fields of the value that its rows become.

-- claim --
SELECT id, lease_token, tenant_id, template_type, template_version, recipient_email,
       payload::text AS payload,
       retries, max_retries, generation, provider, priority,
       from_email, reply_to, subject, html, text, headers, tags, also_to, cc, bcc, has_attachments,
       batch_id, lease_losses > 0 AS alone
FROM mailgres.claim(%(worker)s, %(limit)s, %(lease)s, %(providers)s)

-- start_attempts --
SELECT started.id, leases.token, started.check_first
FROM (
    SELECT token, array_agg(id) AS ids
    FROM unnest(%(tokens)s::uuid[], %(ids)s::uuid[]) AS held(token, id) GROUP BY token
) leases
CROSS JOIN LATERAL mailgres.start_attempts(leases.token, leases.ids, %(checked)s, %(lease)s) started

-- finish --
SELECT id, status, retries,
       CASE WHEN isfinite(next_retry_at) THEN next_retry_at - mailgres.now() END, dead_reason, refused
FROM mailgres.finish(%(outcomes)s)
WHERE status IS DISTINCT FROM 'sent'

-- log_dead_letters --
SELECT mailgres.log_dead_letters(p_ids => %(ids)s)

-- extend --
SELECT mailgres.extend(leases.token, leases.ids, %(lease)s), leases.token
FROM (
    SELECT token, array_agg(id) AS ids
    FROM unnest(%(tokens)s::uuid[], %(ids)s::uuid[]) AS held(token, id) GROUP BY token
) leases

-- give_back --
SELECT mailgres.give_back(leases.token, leases.ids), leases.token
FROM (
    SELECT token, array_agg(id) AS ids
    FROM unnest(%(tokens)s::uuid[], %(ids)s::uuid[]) AS held(token, id) GROUP BY token
) leases

-- mark_asleep --
SELECT mailgres.mark_asleep(%(worker)s, %(seconds)s::interval) - mailgres.now()

-- rate_limit_ends_in --
SELECT mailgres.rate_limit_ends_at() - mailgres.now()

-- mark_awake --
SELECT mailgres.mark_awake(%(worker)s)

-- listen --
LISTEN mailgres

-- limit_time --
-- Names are looked up in pg_catalog only: an object of the same name in public is never used.
SELECT pg_catalog.set_config('statement_timeout', %(milliseconds)s, %(local)s),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', %(local)s),
       pg_catalog.set_config('default_transaction_isolation', 'read committed', %(local)s)

-- limit_locks --
SELECT pg_catalog.set_config('lock_timeout', %(milliseconds)s, true)

-- backend_pid --
SELECT pg_catalog.pg_backend_pid()

-- attachments --
SELECT queue_id, filename, content_type, content_id, content
FROM mailgres.attachments WHERE queue_id = ANY(%(ids)s) ORDER BY queue_id, position

-- templates --
SELECT template_type, from_email, reply_to FROM public.email_templates

-- tenants --
SELECT tenant_id, from_email, reply_to FROM mailgres.tenants
WHERE from_email IS NOT NULL OR reply_to IS NOT NULL

-- capture --
SELECT key, fault FROM mailgres.capture(%(messages)s)

-- use_providers --
SELECT was_initial, wanted, actual, other_limits FROM mailgres.use_providers(%(providers)s)

-- live_providers --
SELECT DISTINCT unnest(w.providers) FROM mailgres.workers w
WHERE w.stopped_at IS NULL AND w.seen_at > mailgres.now() - interval '45 seconds'

-- heartbeat --
SELECT mailgres.heartbeat(%(worker)s, %(version)s, %(details)s, %(providers)s, %(on_demand)s)

-- sign_off --
SELECT mailgres.sign_off(%(worker)s)

-- learn_limits --
SELECT mailgres.learn_limits(
    %(provider)s, %(calls_per_second)s, %(daily)s, %(monthly)s, %(sent_today)s)

-- events --
SELECT id, provider, event, reason FROM mailgres.provider_events
WHERE worker = %(worker)s AND id > %(after)s ORDER BY id

-- last_event --
SELECT coalesce(max(id), 0) FROM mailgres.provider_events

-- routed --
SELECT rp.route, rp.provider FROM mailgres.route_providers rp
JOIN mailgres.providers p ON p.name = rp.provider
WHERE p.enabled ORDER BY rp.route, rp.position

-- use_defaults --
SELECT was_initial, retry_policy, expires_after
FROM mailgres.use_defaults(%(retry_policy)s, %(expires_after)s)
