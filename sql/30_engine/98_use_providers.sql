-- A worker says at its start which providers it has, in the order of preference:
-- [{name, kind, idempotent, batch_size, fixed_batches, emails_per_second, own_route}].
-- The default route leads along them, but for those with a route of their own, of the
-- same name: accounts of some tenants. What operators set about a provider (paused,
-- disabled) or such a route stays.

CREATE FUNCTION mailgres.use_providers(p_providers jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = ''
AS $$
DECLARE
    v_names text[];
BEGIN
    INSERT INTO mailgres.providers AS p (name, kind, idempotent, batch_size, fixed_batches)
    SELECT x.name, x.kind, x.idempotent, x.batch_size, coalesce(x.fixed_batches, false)
    FROM jsonb_to_recordset(p_providers)
        AS x(name text, kind text, idempotent boolean, batch_size int, fixed_batches boolean)
    ORDER BY x.name
    ON CONFLICT (name) DO UPDATE
        SET kind = excluded.kind, idempotent = excluded.idempotent, batch_size = excluded.batch_size,
            fixed_batches = excluded.fixed_batches
        WHERE (p.kind, p.idempotent, p.batch_size, p.fixed_batches)
              IS DISTINCT FROM (excluded.kind, excluded.idempotent, excluded.batch_size, excluded.fixed_batches);
    PERFORM mailgres.set_bucket('emails:' || x.name, x.emails_per_second)
    FROM jsonb_to_recordset(p_providers) AS x(name text, emails_per_second double precision)
    WHERE x.emails_per_second IS NOT NULL;

    WITH fresh AS (
        INSERT INTO mailgres.routes (route, description)
        SELECT x.name, 'The account of this name.'
        FROM jsonb_to_recordset(p_providers) AS x(name text, own_route boolean) WHERE x.own_route ORDER BY x.name
        ON CONFLICT DO NOTHING RETURNING route
    )
    INSERT INTO mailgres.route_providers (route, position, provider) SELECT f.route, 1, f.route FROM fresh f;

    -- One at a time, and only if it changes: workers of a fleet start together.
    PERFORM FROM mailgres.routes r WHERE r.route = 'default' FOR UPDATE;
    v_names := ARRAY(
        SELECT x.value ->> 'name' FROM jsonb_array_elements(p_providers) WITH ORDINALITY x
        WHERE NOT coalesce((x.value ->> 'own_route')::boolean, false) ORDER BY x.ordinality);
    IF v_names IS DISTINCT FROM ARRAY(
        SELECT rp.provider FROM mailgres.route_providers rp WHERE rp.route = 'default' ORDER BY rp.position)
    THEN
        DELETE FROM mailgres.route_providers rp WHERE rp.route = 'default';
        INSERT INTO mailgres.route_providers (route, position, provider)
        SELECT 'default', x.ordinality, x.name FROM unnest(v_names) WITH ORDINALITY x(name);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.use_providers(jsonb) IS
    'Registers the providers of a worker and leads the default route along them.';
