-- Settings and states of routes, for operators.

CREATE FUNCTION mailgres.require_route(p_route text) RETURNS mailgres.routes
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

COMMENT ON FUNCTION mailgres.require_route(text) IS 'The route, locked; refuses an unknown name.';

CREATE FUNCTION mailgres.providers_of(p_route text) RETURNS text[]
    LANGUAGE sql STABLE
RETURN ARRAY(SELECT rp.provider FROM mailgres.route_providers rp WHERE rp.route = p_route ORDER BY rp.position);

COMMENT ON FUNCTION mailgres.providers_of(text) IS 'The providers of a route in order of preference.';

CREATE FUNCTION mailgres.set_initial_route(p_providers text[]) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    -- First without a lock: when the second worker starts, the route is no longer initial.
    IF NOT EXISTS (SELECT FROM mailgres.routes r WHERE r.route = 'default' AND r.initial) THEN
        RETURN false;
    END IF;
    -- One at a time: the workers of a fleet start together.
    PERFORM FROM mailgres.routes r WHERE r.route = 'default' AND r.initial FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE mailgres.routes r SET initial = false WHERE r.route = 'default';
    IF mailgres.providers_of('default') <> '{capture}' THEN
        RETURN false;  -- it was set by hand
    END IF;
    DELETE FROM mailgres.route_providers rp WHERE rp.route = 'default';
    INSERT INTO mailgres.route_providers (route, position, provider)
    SELECT 'default', x.ordinality, x.name FROM unnest(p_providers) WITH ORDINALITY x(name);
    RETURN true;
END
$$;

COMMENT ON FUNCTION mailgres.set_initial_route(text[]) IS
    'Sets the default route if it is still as the migration created it; returns whether it was.';

CREATE FUNCTION mailgres.set_route(p_route text, p_providers text[], p_description text DEFAULT NULL)
    RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(p_route, '') !~ '^[a-z][a-z0-9_-]{0,62}$' OR coalesce(cardinality(p_providers), 0) = 0 THEN
        PERFORM mailgres.refuse('MG072', 'a route needs a name and at least one provider',
            'Names are lower-case letters, digits, - and _; name the providers in the order of preference.');
    END IF;
    PERFORM mailgres.require_provider(x.name)
    FROM (SELECT n AS name FROM unnest(p_providers) n ORDER BY n) x;  -- the order in which all sessions lock them
    INSERT INTO mailgres.routes AS r (route, description) VALUES (p_route, coalesce(p_description, ''))
    ON CONFLICT (route) DO UPDATE SET description = coalesce(p_description, r.description), initial = false;
    DELETE FROM mailgres.route_providers rp WHERE rp.route = p_route;
    INSERT INTO mailgres.route_providers (route, position, provider)
    SELECT p_route, min(x.position), x.name FROM unnest(p_providers) WITH ORDINALITY AS x(name, position)
    GROUP BY x.name;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.set_route(text, text[], text) IS
    'Creates a route, or sets the providers of an existing one.';

CREATE FUNCTION mailgres.pause_route(p_route text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.require_route(p_route);
    UPDATE mailgres.routes r SET paused = true WHERE r.route = p_route;
END
$$;

COMMENT ON FUNCTION mailgres.pause_route(text) IS
    'Stops claims for a route until it is resumed; emails that are being sent are finished.';

CREATE FUNCTION mailgres.resume_route(p_route text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.require_route(p_route);
    UPDATE mailgres.routes r SET paused = false WHERE r.route = p_route;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.resume_route(text) IS 'Ends the pause of a route.';

CREATE FUNCTION mailgres.route_states()
    RETURNS TABLE (route text, paused boolean, providers text[], usable text[], tenants bigint, description text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.route, r.paused,
           coalesce(array_agg(p.name ORDER BY rp.position) FILTER (WHERE p.name IS NOT NULL), '{}'),
           coalesce(array_agg(p.name ORDER BY rp.position) FILTER (WHERE mailgres.is_usable(p)), '{}'),
           (SELECT count(*) FROM mailgres.tenants t WHERE t.route = r.route), r.description
    FROM mailgres.routes r
    LEFT JOIN mailgres.route_providers rp ON rp.route = r.route
    LEFT JOIN mailgres.providers p ON p.name = rp.provider
    GROUP BY r.route
    ORDER BY r.route
$$;

COMMENT ON FUNCTION mailgres.route_states() IS
    'Every route: whether it is paused, its providers, and which of them can send now.';
