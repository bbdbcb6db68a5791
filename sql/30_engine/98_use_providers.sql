-- A worker says at its start which providers it has, in the order of preference:
-- [{name, kind, idempotent, batch_size, fixed_batches, emails_per_second, own_route}].
-- They are registered, and those with a route of their own get it, by the same name:
-- accounts of some tenants. The default route and the rate limits are everybody's. The
-- first worker sets them, if the route is still as the migration made it; after that
-- only commands do, and the worker learns what differs from what it was given.

CREATE FUNCTION mailgres.register_providers(p_providers jsonb) RETURNS text[]
    LANGUAGE sql
AS $$
    WITH given AS (
        SELECT x.name, x.kind, x.idempotent, x.batch_size, coalesce(x.fixed_batches, false) AS fixed_batches
        FROM jsonb_to_recordset(p_providers)
            AS x(name text, kind text, idempotent boolean, batch_size int, fixed_batches boolean)
    ), registered AS (
        INSERT INTO mailgres.providers AS p (name, kind, idempotent, batch_size, fixed_batches)
        SELECT g.* FROM given g
        -- a restart with the same settings writes nothing
        WHERE NOT EXISTS (
            SELECT FROM mailgres.providers k
            WHERE (k.name, k.kind, k.idempotent, k.batch_size, k.fixed_batches)
                  = (g.name, g.kind, g.idempotent, g.batch_size, g.fixed_batches))
        ORDER BY g.name
        ON CONFLICT (name) DO UPDATE
            SET kind = excluded.kind, idempotent = excluded.idempotent, batch_size = excluded.batch_size,
                fixed_batches = excluded.fixed_batches
        RETURNING p.name, p.xmax = 0 AS is_new
    )
    SELECT coalesce(array_agg(r.name) FILTER (WHERE r.is_new), '{}') FROM registered r
$$;

COMMENT ON FUNCTION mailgres.register_providers(jsonb) IS
    'Registers providers; returns the names of those that were not known.';

CREATE FUNCTION mailgres.providers_of(p_route text) RETURNS text[]
    LANGUAGE sql STABLE
RETURN ARRAY(SELECT rp.provider FROM mailgres.route_providers rp WHERE rp.route = p_route ORDER BY rp.position);

COMMENT ON FUNCTION mailgres.providers_of(text) IS 'The providers of a route in the order of preference.';

CREATE FUNCTION mailgres.set_initial_route(p_providers text[]) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    -- Without a lock first: it is not initial any more when the second worker starts.
    IF NOT EXISTS (SELECT FROM mailgres.routes r WHERE r.route = 'default' AND r.initial) THEN
        RETURN false;
    END IF;
    -- One at a time: workers of a fleet start together.
    PERFORM FROM mailgres.routes r WHERE r.route = 'default' AND r.initial FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE mailgres.routes r SET initial = false WHERE r.route = 'default';
    IF mailgres.providers_of('default') <> '{capture}' THEN
        RETURN false;  -- somebody set it by hand
    END IF;
    DELETE FROM mailgres.route_providers rp WHERE rp.route = 'default';
    INSERT INTO mailgres.route_providers (route, position, provider)
    SELECT 'default', x.ordinality, x.name FROM unnest(p_providers) WITH ORDINALITY x(name);
    RETURN true;
END
$$;

COMMENT ON FUNCTION mailgres.set_initial_route(text[]) IS
    'Sets the default route if it is still as the migration made it; returns whether it was.';

CREATE FUNCTION mailgres.use_providers(
    p_providers jsonb,
    OUT was_initial boolean, OUT wanted text[], OUT actual text[], OUT other_limits jsonb
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_new  constant text[] := mailgres.register_providers(p_providers);
BEGIN
    WITH fresh AS (
        INSERT INTO mailgres.routes (route, description)
        SELECT x.name, 'The account of this name.'
        FROM jsonb_to_recordset(p_providers) AS x(name text, own_route boolean)
        WHERE x.own_route AND NOT EXISTS (SELECT FROM mailgres.routes r WHERE r.route = x.name)
        ORDER BY x.name
        ON CONFLICT DO NOTHING RETURNING route
    )
    INSERT INTO mailgres.route_providers (route, position, provider) SELECT f.route, 1, f.route FROM fresh f;

    wanted := ARRAY(
        SELECT x.value ->> 'name' FROM jsonb_array_elements(p_providers) WITH ORDINALITY x
        WHERE NOT coalesce((x.value ->> 'own_route')::boolean, false) ORDER BY x.ordinality);
    was_initial := mailgres.set_initial_route(wanted);
    actual := mailgres.providers_of('default');

    PERFORM mailgres.set_bucket('emails:' || x.name, x.emails_per_second)
    FROM jsonb_to_recordset(p_providers) AS x(name text, emails_per_second double precision)
    WHERE x.emails_per_second IS NOT NULL AND (was_initial OR x.name = ANY (v_new));
    SELECT coalesce(jsonb_object_agg(x.name, b.per_second), '{}') INTO other_limits
    FROM jsonb_to_recordset(p_providers) AS x(name text, emails_per_second double precision)
    LEFT JOIN mailgres.buckets b ON b.name = 'emails:' || x.name
    WHERE x.emails_per_second IS NOT NULL AND b.per_second IS DISTINCT FROM x.emails_per_second;
END
$$;

COMMENT ON FUNCTION mailgres.use_providers(jsonb) IS
    'Registers the providers of a worker; sets the default route if it is as the migration made it, and says how it is.';
