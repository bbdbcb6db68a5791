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
