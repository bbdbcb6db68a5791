-- Heartbeats of workers. A worker that was not seen for a day is deleted, and so is a sleeper
-- that should have woken long ago, because every enqueue reads the sleepers.

CREATE FUNCTION mailgres.heartbeat(
    p_worker text, p_version text DEFAULT '', p_details jsonb DEFAULT '{}', p_providers text[] DEFAULT NULL,
    p_on_demand boolean DEFAULT false
) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    INSERT INTO mailgres.workers AS w (worker, version, details, providers, on_demand)
    VALUES (p_worker, coalesce(p_version, ''), coalesce(p_details, '{}'), p_providers, coalesce(p_on_demand, false))
    ON CONFLICT (worker) DO UPDATE
        SET seen_at = mailgres.now(), version = excluded.version, details = excluded.details,
            providers = excluded.providers, on_demand = excluded.on_demand, role = excluded.role, stopped_at = NULL,
            started_at = CASE WHEN w.stopped_at IS NULL THEN w.started_at ELSE mailgres.now() END;
    RETURN 1;
END
$$;

COMMENT ON FUNCTION mailgres.heartbeat(text, text, jsonb, text[], boolean) IS
    'Records that a worker is alive and has these providers; returns 1.';

CREATE FUNCTION mailgres.sign_off(p_worker text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.workers w SET stopped_at = mailgres.now() WHERE w.worker = p_worker AND w.stopped_at IS NULL;
END
$$;

COMMENT ON FUNCTION mailgres.sign_off(text) IS 'Records that a worker stopped: it no longer counts as alive.';

CREATE FUNCTION mailgres.delete_stale_workers(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_workers   int;
    v_sleepers  int;
BEGIN
    DELETE FROM mailgres.workers w
    WHERE w.worker = ANY (ARRAY(
        SELECT x.worker FROM mailgres.workers x
        WHERE x.seen_at <= mailgres.now() - interval '1 day'
           -- cron starts one every few minutes, each with its own name
           OR x.on_demand AND x.seen_at <= mailgres.now() - interval '1 hour'
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_workers = ROW_COUNT;
    DELETE FROM mailgres.janitor_failures f WHERE f.failed_at <= mailgres.now() - interval '1 day';

    -- sleeps_until is in real time: mark_asleep uses clock_timestamp()
    DELETE FROM mailgres.sleepers s
    WHERE s.worker = ANY (ARRAY(
        SELECT x.worker FROM mailgres.sleepers x
        WHERE x.sleeps_until <= clock_timestamp() - interval '1 hour'
        LIMIT p_limit - v_workers
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_sleepers = ROW_COUNT;
    RETURN v_workers + v_sleepers;
END
$$;

COMMENT ON FUNCTION mailgres.delete_stale_workers(int) IS
    'Deletes workers that were not seen for a day and sleepers that never woke; returns how many.';

-- A worker counts as live for a minute after it was last seen, so that a restart goes unnoticed;
-- an on-demand worker for 15 minutes, because cron calls it from time to time. If no worker is
-- live, no provider is missing: the alert no_processor covers that. A worker of a version that
-- does not report its providers may have any.
CREATE FUNCTION mailgres.missing_providers()
    RETURNS TABLE (provider text, routes text[], since timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH seen AS MATERIALIZED (
        SELECT w.providers, w.started_at, w.seen_at,
               w.seen_at > mailgres.now()
                   - CASE WHEN w.on_demand THEN interval '15 minutes' ELSE interval '1 minute' END AS live
        FROM mailgres.workers w
    )
    SELECT rp.provider, array_agg(rp.route ORDER BY rp.route),
           coalesce((SELECT max(s.seen_at) FROM seen s WHERE rp.provider = ANY (s.providers)),
                    (SELECT min(s.started_at) FROM seen s WHERE s.live))
    FROM mailgres.route_providers rp
    JOIN mailgres.providers p ON p.name = rp.provider AND p.enabled
    WHERE EXISTS (SELECT FROM seen s WHERE s.live)
      AND NOT EXISTS (
          SELECT FROM seen s WHERE s.live AND (s.providers IS NULL OR rp.provider = ANY (s.providers)))
    GROUP BY rp.provider
    ORDER BY rp.provider
$$;

COMMENT ON FUNCTION mailgres.missing_providers() IS
    'Providers of routes that no live worker has, with these routes, and since when.';
