-- Future rows are not in the index of the claim: an email that is scheduled for later or waits
-- for a retry becomes `ready` here when it is due. An email that expired while it waited dies
-- instead. The work is limited, so that a claim can call it first.

CREATE FUNCTION mailgres.promote(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_ids uuid[];
BEGIN
    v_ids := ARRAY(
        SELECT q.id
        FROM public.email_queue q
        WHERE q.status = 'pending' AND q.due_at <= mailgres.now()
        ORDER BY q.due_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED);
    IF cardinality(v_ids) = 0 THEN
        RETURN 0;
    END IF;

    PERFORM mailgres.expire_these(v_ids);
    UPDATE public.email_queue q
    SET ready = true,
        -- a route that does not exist would never be claimed
        route = CASE WHEN EXISTS (SELECT FROM mailgres.routes r WHERE r.route = q.route)
                     THEN q.route ELSE 'default' END
    WHERE q.id = ANY (v_ids) AND q.dead_at IS NULL AND NOT q.ready;
    RETURN cardinality(v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.promote(int) IS
    'Makes waiting emails that are due ready, and ends those that expired; returns how many it handled.';
