CREATE FUNCTION mailgres.extend(p_token uuid, p_ids uuid[], p_lease interval DEFAULT '60 seconds')
    RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    RETURN QUERY
    UPDATE public.email_queue q
    SET lease_until = greatest(q.lease_until, mailgres.now() + p_lease)
    WHERE q.id = ANY (p_ids) AND q.lease_token = p_token
    RETURNING q.id;
END
$$;

COMMENT ON FUNCTION mailgres.extend(uuid, uuid[], interval) IS
    'Lengthens the lease of emails that take longer; returns those that are still held.';
