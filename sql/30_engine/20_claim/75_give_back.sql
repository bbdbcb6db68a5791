-- A worker returns emails that it has not sent: it stops, or start_attempts() refused them. Its
-- own call was not made, so an email is uncertain only if an earlier attempt was.

CREATE FUNCTION mailgres.give_back(p_token uuid, p_ids uuid[]) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    UPDATE mailgres.providers p SET probe_until = mailgres.now() WHERE p.probe_token = p_token;
    RETURN QUERY
    UPDATE public.email_queue q
    SET status = 'pending', ready = true,
        batch_id = CASE WHEN q.uncertain_since IS NOT NULL THEN q.batch_id END,
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
    WHERE q.id = ANY (p_ids) AND q.lease_token = p_token
    RETURNING q.id;
END
$$;

COMMENT ON FUNCTION mailgres.give_back(uuid, uuid[]) IS
    'Returns claimed emails that were not sent; they are ready again and no retry is spent.';
