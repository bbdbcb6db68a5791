-- A worker that finds nothing to do registers as sleeping, until the time when it wakes up by
-- itself. It keeps its row while it is idle and deletes it when it is busy: then enqueuing sends
-- no notifications. p_for null: the worker does not listen, and only asks when an email is due.

CREATE FUNCTION mailgres.mark_asleep(p_worker text, p_for interval) RETURNS timestamptz
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    -- A worker that polls every second is still registered: nothing is written.
    IF p_for IS NOT NULL AND NOT EXISTS (
        SELECT FROM mailgres.sleepers s
        WHERE s.worker = p_worker AND s.sleeps_until > clock_timestamp() + p_for / 2)
    THEN
        INSERT INTO mailgres.sleepers AS s (worker, sleeps_until)
        VALUES (p_worker, clock_timestamp() + p_for)
        ON CONFLICT (worker) DO UPDATE SET sleeps_until = excluded.sleeps_until;
    END IF;

    -- The next email that becomes due. Expired emails in the same index are skipped: promote
    -- settles them. If emails are ready, they wait for a provider: when one becomes usable.
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

COMMENT ON FUNCTION mailgres.mark_awake(text) IS 'Records that the worker is awake and needs no notification.';
