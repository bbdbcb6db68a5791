-- What operators see of providers and routes.

CREATE FUNCTION mailgres.provider_states()
    RETURNS TABLE (
        provider        text,
        kind            text,
        enabled         boolean,
        open            boolean,
        circuit         text,
        circuit_since   timestamptz,
        circuit_until   timestamptz,
        circuit_reason  text,
        failures        int,
        paused_until    timestamptz,
        pause_reason    text,
        waits_until     timestamptz,
        waits_for       text,
        emails_per_second  double precision,
        email_tokens    double precision,
        calls_per_second   double precision,
        call_tokens     double precision,
        used_today      int,
        daily_quota     int,
        used_this_month int,
        monthly_quota   int,
        routes          text[])
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.name, p.kind, p.enabled, mailgres.is_open(p),
           p.circuit, p.circuit_since, CASE WHEN p.circuit = 'open' THEN p.circuit_until END,
           mailgres.without_addresses(p.circuit_reason),
           p.failures,
           CASE WHEN p.paused_until > mailgres.now() THEN p.paused_until END,
           CASE WHEN p.paused_until > mailgres.now() THEN p.pause_reason END,
           CASE WHEN p.waits_until > mailgres.now() THEN p.waits_until END,
           CASE WHEN p.waits_until > mailgres.now() THEN p.waits_for END,
           e.per_second, mailgres.tokens_of(e), c.per_second, mailgres.tokens_of(c),
           CASE WHEN p.daily_quota IS NOT NULL THEN coalesce(mailgres.used(d, mailgres.now()), 0) END, p.daily_quota,
           CASE WHEN p.monthly_quota IS NOT NULL THEN coalesce(m.emails, 0) END, p.monthly_quota,
           ARRAY(SELECT rp.route FROM mailgres.route_providers rp WHERE rp.provider = p.name ORDER BY rp.route)
    FROM mailgres.providers p
    LEFT JOIN mailgres.buckets e ON e.name = 'emails:' || p.name
    LEFT JOIN mailgres.buckets c ON c.name = 'calls:' || p.name
    LEFT JOIN mailgres.quota_usage d
        ON d.provider = p.name AND d.period = 'day' AND d.starts = date_trunc('day', mailgres.now(), 'UTC')
    LEFT JOIN mailgres.quota_usage m
        ON m.provider = p.name AND m.period = 'month' AND m.starts = date_trunc('month', mailgres.now(), 'UTC')
    ORDER BY p.name
$$;

COMMENT ON FUNCTION mailgres.provider_states() IS
    'Every provider: circuit, pause, waits, what its limits leave, quotas, routes.';

CREATE FUNCTION mailgres.route_states()
    RETURNS TABLE (route text, paused boolean, providers text[], open text[], tenants bigint, description text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.route, r.paused,
           coalesce(array_agg(p.name ORDER BY rp.position) FILTER (WHERE p.name IS NOT NULL), '{}'),
           coalesce(array_agg(p.name ORDER BY rp.position) FILTER (WHERE mailgres.is_open(p)), '{}'),
           (SELECT count(*) FROM mailgres.tenants t WHERE t.route = r.route), r.description
    FROM mailgres.routes r
    LEFT JOIN mailgres.route_providers rp ON rp.route = r.route
    LEFT JOIN mailgres.providers p ON p.name = rp.provider
    GROUP BY r.route
    ORDER BY r.route
$$;

COMMENT ON FUNCTION mailgres.route_states() IS
    'Every route: whether it is paused, its providers, those that can send now.';
