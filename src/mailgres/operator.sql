-- What operators ask and order, a function of the database each. Listings come as JSON, because
-- times may be infinite.

-- limits --
SELECT set_config('statement_timeout', %(timeout)s, true)

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

-- list --
SELECT to_jsonb(x) FROM (
    SELECT q.id, q.status, q.template_type, q.recipient_email, q.tenant_id, q.priority, q.route,
           q.retries, q.max_retries, q.created_at, q.next_retry_at, q.scheduled_for, q.last_attempt_at,
           q.sent_at, q.dead_at, q.dead_reason, q.provider, q.error_class, q.error_code, q.error_message
    FROM mailgres.find_emails(%(filter)s, NULL, %(limit)s, %(sort)s) WITH ORDINALITY f(id, place)
    JOIN public.email_queue q ON q.id = f.id
    ORDER BY f.place) x

-- known_templates --
SELECT template_type FROM public.email_templates
UNION SELECT template_type FROM mailgres.rollup_by_template WHERE hour > mailgres.now() - interval '30 days'

-- known_tenants --
SELECT tenant_id FROM mailgres.tenants
UNION SELECT tenant_id FROM mailgres.rollup_by_tenant WHERE hour > mailgres.now() - interval '7 days'

-- known_providers --
SELECT name FROM mailgres.providers
