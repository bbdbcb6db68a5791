-- What operators set about routes and tenants.

CREATE FUNCTION mailgres.known_route(p_route text) RETURNS mailgres.routes
    LANGUAGE plpgsql
AS $$
DECLARE
    v_route mailgres.routes;
BEGIN
    SELECT * INTO v_route FROM mailgres.routes r WHERE r.route = p_route FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG011', format('there is no route %L', p_route),
            format('Known routes: %s.', (SELECT string_agg(r.route, ', ' ORDER BY r.route) FROM mailgres.routes r)));
    END IF;
    RETURN v_route;
END
$$;

COMMENT ON FUNCTION mailgres.known_route(text) IS 'The route, locked; refuses an unknown name.';

CREATE FUNCTION mailgres.pause_route(p_route text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.known_route(p_route);
    UPDATE mailgres.routes r SET paused = true WHERE r.route = p_route;
END
$$;

COMMENT ON FUNCTION mailgres.pause_route(text) IS
    'Claims nothing for a route until it is resumed; what is on its way is finished.';

CREATE FUNCTION mailgres.resume_route(p_route text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.known_route(p_route);
    UPDATE mailgres.routes r SET paused = false WHERE r.route = p_route;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.resume_route(text) IS 'Ends the pause of a route.';

-- p_settings: an object with what is to change, `route` or `contact_email`; null takes
-- it away.
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
        PERFORM mailgres.known_route(v_route);
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
    'Sets the route or the contact of a tenant; what is not named stays.';
