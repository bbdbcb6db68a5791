-- Takes back the emails of workers that died. A lost lease is not a retry, but an
-- email that keeps killing workers is taken out as crashed. What a call that had
-- begun means depends on the provider: with keys it is repeated with the same key;
-- without, the template says whether a person decides (hold) or it is sent again.
-- After a restart of the database nothing is reaped for the length of the lease,
-- so that workers that live can report first.

CREATE FUNCTION mailgres.reap(p_limit int DEFAULT 500) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_count int;
BEGIN
    WITH lost AS MATERIALIZED (
        SELECT q.id,
               q.lease_losses + (q.lease_worker <> 'rpc')::int AS losses,
               coalesce(q.uncertain_since, q.begun_at) AS uncertain_since,
               q.begun_at IS NOT NULL AND NOT coalesce(p.idempotent, false)
                   AND coalesce(t.on_uncertain, 'hold') = 'hold' AS hold
        FROM public.email_queue q
        LEFT JOIN mailgres.providers p ON p.name = q.provider
        LEFT JOIN public.email_templates t ON t.template_type = q.template_type
        WHERE q.status = 'sending' AND q.due_at <= mailgres.now()
          AND pg_postmaster_start_time() + (q.lease_until - q.leased_at) <= mailgres.now()
        ORDER BY q.due_at
        LIMIT p_limit
        FOR UPDATE OF q SKIP LOCKED
    ), judged AS (
        SELECT l.*, l.losses >= s.max_lease_losses AS crashed
        FROM lost l CROSS JOIN mailgres.settings s
    )
    UPDATE public.email_queue q
    SET status = CASE WHEN j.crashed OR j.hold THEN 'failed' ELSE 'pending' END,
        ready = NOT (j.crashed OR j.hold),
        lease_losses = j.losses,
        uncertain_since = j.uncertain_since,
        batch_id = CASE WHEN j.uncertain_since IS NOT NULL THEN q.batch_id END,
        dead_at = CASE WHEN j.crashed OR j.hold THEN mailgres.now() END,
        dead_reason = CASE WHEN j.crashed THEN 'crashed' WHEN j.hold THEN 'uncertain' END,
        error_class = CASE WHEN j.hold THEN 'ambiguous' ELSE q.error_class END,
        error_message = CASE
            WHEN j.crashed THEN format('%s workers died while they held it', j.losses)
                || CASE WHEN j.uncertain_since IS NOT NULL THEN '; it may have arrived' ELSE '' END
            WHEN j.hold THEN 'the worker died during the call: it may have been sent'
            ELSE q.error_message END,
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, begun_at = NULL
    FROM judged j
    WHERE q.id = j.id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.reap(int) IS
    'Takes back emails whose lease has ended; returns how many.';
