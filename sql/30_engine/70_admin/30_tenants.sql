-- Settings and states of tenants, for operators.

CREATE FUNCTION mailgres.limit_tenant(p_tenant text, p_emails_per_second double precision) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(p_tenant, '') = '' OR p_emails_per_second NOT BETWEEN 0.000001 AND 1000000 THEN
        PERFORM mailgres.refuse('MG071', 'a limit needs a tenant and is above zero', 'To stop a tenant, pause it.');
    END IF;
    PERFORM mailgres.set_bucket('tenant:' || p_tenant, p_emails_per_second);
END
$$;

COMMENT ON FUNCTION mailgres.limit_tenant(text, double precision) IS
    'Sets how many emails of a tenant may be sent in a second; null means no limit.';

CREATE FUNCTION mailgres.pause_tenant(p_tenant text, p_reason text DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.set_tenant(p_tenant, '{}');
    UPDATE mailgres.tenants t SET paused_at = coalesce(t.paused_at, mailgres.now()), pause_reason = p_reason
    WHERE t.tenant_id = p_tenant;
END
$$;

COMMENT ON FUNCTION mailgres.pause_tenant(text, text) IS
    'Stops claims for a tenant until it is resumed; emails that are being sent are finished.';

CREATE FUNCTION mailgres.resume_tenant(p_tenant text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.tenants t SET paused_at = NULL, pause_reason = NULL
    WHERE t.tenant_id = p_tenant AND t.paused_at IS NOT NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify('mailgres', '');
    RETURN true;
END
$$;

COMMENT ON FUNCTION mailgres.resume_tenant(text) IS 'Ends the pause of a tenant; false if it was not paused.';

CREATE FUNCTION mailgres.set_tenant_weight(p_tenant text, p_weight int) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_weight IS NULL OR p_weight NOT BETWEEN 1 AND 100 THEN
        PERFORM mailgres.refuse('MG071', 'a weight is a whole number from 1 to 100', 'To stop a tenant, pause it.');
    END IF;
    PERFORM mailgres.set_tenant(p_tenant, '{}');
    UPDATE mailgres.tenants t SET weight = p_weight WHERE t.tenant_id = p_tenant;
END
$$;

COMMENT ON FUNCTION mailgres.set_tenant_weight(text, int) IS
    'Sets the weight of a tenant: it gets this many times three emails per turn while other tenants wait.';

-- Tenants with settings, with emails settled in the last days, or with ready emails.
CREATE FUNCTION mailgres.tenant_states(p_days int DEFAULT 7) RETURNS TABLE (
    tenant text, weight int, paused_at timestamptz, pause_reason text, emails_per_second double precision,
    route text, contact_email text, sent bigint, failed bigint, cancelled bigint
)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH settled AS (
        SELECT x.tenant_id,
               coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0)::bigint AS sent,
               coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0)::bigint AS failed,
               coalesce(sum(x.emails) FILTER (WHERE x.status = 'cancelled'), 0)::bigint AS cancelled
        FROM mailgres.counted_by_tenant x
        WHERE x.hour > mailgres.now() - p_days * interval '1 day'
        GROUP BY x.tenant_id
    ), waiting AS (
        SELECT DISTINCT w.tenant FROM mailgres.routes r CROSS JOIN LATERAL (
            WITH RECURSIVE walk AS (
                SELECT mailgres.next_tenant(r.route, '', false) AS tenant
                UNION ALL
                SELECT mailgres.next_tenant(r.route, k.tenant, false) FROM walk k WHERE k.tenant IS NOT NULL
            )
            SELECT k.tenant FROM walk k WHERE k.tenant IS NOT NULL
        ) w
    ), known AS (
        SELECT t.tenant_id FROM mailgres.tenants t
        UNION SELECT substr(b.name, 8) FROM mailgres.buckets b WHERE b.name LIKE 'tenant:%'
        UNION SELECT s.tenant_id FROM settled s
        UNION SELECT w.tenant FROM waiting w
    )
    SELECT k.tenant_id, coalesce(t.weight, 1), t.paused_at, t.pause_reason, b.per_second, t.route, t.contact_email,
           coalesce(s.sent, 0), coalesce(s.failed, 0), coalesce(s.cancelled, 0)
    FROM known k
    LEFT JOIN mailgres.tenants t ON t.tenant_id = k.tenant_id
    LEFT JOIN mailgres.buckets b ON b.name = 'tenant:' || k.tenant_id
    LEFT JOIN settled s ON s.tenant_id = k.tenant_id
    ORDER BY k.tenant_id
$$;

COMMENT ON FUNCTION mailgres.tenant_states(int) IS
    'The tenants: their settings, and the outcomes of their emails of the last days.';

-- p_settings: an object with the settings to change, `route` or `contact_email`; null removes one.
CREATE FUNCTION mailgres.set_tenant(p_tenant text, p_settings jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_route    constant text := p_settings ->> 'route';
    v_contact  constant text := p_settings ->> 'contact_email';
BEGIN
    IF coalesce(length(p_tenant), 0) NOT BETWEEN 1 AND 200 THEN
        PERFORM mailgres.refuse('MG013', 'the tenant is not valid', 'tenant_id takes 1 to 200 characters.');
    END IF;
    IF v_route IS NOT NULL THEN
        PERFORM mailgres.require_route(v_route);
    END IF;
    IF NOT mailgres.is_address(v_contact) THEN
        PERFORM mailgres.refuse('MG002', 'the contact is not an email address',
            'Give one plain address such as ana@example.com.');
    END IF;
    INSERT INTO mailgres.tenants AS t (tenant_id, route, contact_email) VALUES (p_tenant, v_route, v_contact)
    ON CONFLICT (tenant_id) DO UPDATE
        SET route = CASE WHEN p_settings ? 'route' THEN excluded.route ELSE t.route END,
            contact_email = CASE WHEN p_settings ? 'contact_email' THEN excluded.contact_email
                                 ELSE t.contact_email END;
END
$$;

COMMENT ON FUNCTION mailgres.set_tenant(text, jsonb) IS
    'Sets the route or the contact of a tenant; settings that are not named stay.';
