-- A worker that finds nothing to do says so, and until when it wants to be woken.
-- It keeps its row while it is idle and removes it when it is busy: then nobody pays
-- for notifications. Null: it does not listen, and only asks when something is due.

CREATE FUNCTION mailgres.mark_asleep(p_worker text, p_for interval) RETURNS timestamptz
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Who looks up every second is still registered: nothing is written for that.
    IF p_for IS NOT NULL AND NOT EXISTS (
        SELECT FROM mailgres.sleepers s
        WHERE s.worker = p_worker AND s.sleeps_until > clock_timestamp() + p_for / 2)
    THEN
        INSERT INTO mailgres.sleepers AS s (worker, sleeps_until)
        VALUES (p_worker, clock_timestamp() + p_for)
        ON CONFLICT (worker) DO UPDATE SET sleeps_until = excluded.sleeps_until;
    END IF;

    -- The next email that becomes due by itself. Expired ones in the same index are
    -- passed; promote ends them. Or else emails are ready, and wait for a provider.
    RETURN least(
        (SELECT q.due_at FROM public.email_queue q
         WHERE q.status = 'pending' AND NOT q.ready AND q.due_at IS NOT NULL
         ORDER BY q.due_at LIMIT 1),
        CASE WHEN EXISTS (SELECT FROM public.email_queue q WHERE q.ready) THEN (
            SELECT min(x.at) FROM mailgres.providers p
            CROSS JOIN LATERAL (VALUES (p.paused_until), (p.limited_until), (mailgres.next_token_at(p.name)),
                (CASE p.circuit WHEN 'open' THEN p.circuit_until WHEN 'half_open' THEN p.probe_until END)
            ) AS x(at)
            WHERE p.enabled AND x.at > mailgres.now() AND isfinite(x.at)) END,
        CASE WHEN EXISTS (SELECT FROM public.email_queue q WHERE q.ready) THEN (
            SELECT min(mailgres.now() + (1 - mailgres.tokens_of(b)) / b.per_second * interval '1 second')
            FROM mailgres.buckets b WHERE b.name LIKE 'tenant:%' AND mailgres.tokens_of(b) < 1) END);
END
$$;

COMMENT ON FUNCTION mailgres.mark_asleep(text, interval) IS
    'Registers a worker as sleeping; returns when the next waiting email is due, or a provider can be used again.';

CREATE FUNCTION mailgres.mark_awake(p_worker text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM mailgres.sleepers s WHERE s.worker = p_worker;
END
$$;

COMMENT ON FUNCTION mailgres.mark_awake(text) IS 'The worker is awake: nobody needs to notify it.';
