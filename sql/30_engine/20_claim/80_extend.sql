-- Extends leases and never waits for a row, so it cannot deadlock, and a row that another session
-- has locked does not cost the others their lease. That session ends the lease, or extends it, or
-- the row is extended the next time. No email of a batch is reaped while another one of the batch
-- has a valid lease.

CREATE FUNCTION mailgres.extend(p_token uuid, p_ids uuid[], p_lease interval DEFAULT '60 seconds')
    RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    UPDATE public.email_queue q
    SET lease_until = greatest(q.lease_until, mailgres.now() + p_lease)
    WHERE q.id = ANY (ARRAY(
        SELECT x.id FROM public.email_queue x
        WHERE x.id = ANY (p_ids) AND x.lease_token = p_token
        FOR NO KEY UPDATE SKIP LOCKED)) AND q.lease_token = p_token;
    RETURN QUERY SELECT q.id FROM public.email_queue q WHERE q.id = ANY (p_ids) AND q.lease_token = p_token;
END
$$;

COMMENT ON FUNCTION mailgres.extend(uuid, uuid[], interval) IS
    'Extends the lease of emails that take longer; returns those that are still held.';
