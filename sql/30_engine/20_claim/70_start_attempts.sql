-- Records that the call to the provider starts now, for a provider without idempotency keys. If
-- the worker dies after this, the email is uncertain; before, nothing was sent. Checks again what
-- may have changed since the claim: the lease itself (a cancel removes it), suppression, expiry,
-- pauses of tenant and provider. Returns the emails that may be sent; the others have been
-- settled or given back.
--
-- p_checked: false if the worker has not checked the provider. Emails that would probe a provider
-- whose circuit is open are then returned with check_first, and nothing is changed: an email
-- lost in the probe could not be repeated, so the worker checks the provider first.
--
-- p_lease: how long the call may take. By default the length of the lease so far, which grows
-- with every extension, so at most an hour.

CREATE FUNCTION mailgres.start_attempts(
    p_token uuid, p_ids uuid[], p_checked boolean DEFAULT true, p_lease interval DEFAULT NULL)
    RETURNS TABLE (id uuid, check_first boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_started  uuid[];
    v_rest     uuid[];
BEGIN
    WITH started AS (
        UPDATE public.email_queue q
        SET attempt_started_at = mailgres.now(),
            lease_until = mailgres.now()
                + coalesce(p_lease, least(q.lease_until - q.leased_at, interval '1 hour'))
        WHERE q.id = ANY (p_ids) AND q.lease_token = p_token
          AND q.lease_until > mailgres.now()  -- otherwise it may be reaped during the call
          AND (q.expires_at IS NULL OR q.expires_at > mailgres.now())
          AND NOT EXISTS (
              SELECT FROM public.email_suppressions s
              WHERE s.recipient_email = mailgres.canonical_address(q.recipient_email) AND s.tenant_id IN ('*', q.tenant_id)
                AND mailgres.suppresses(s, q.ignore_suppression))
          AND NOT EXISTS (
              SELECT FROM mailgres.tenants t
              WHERE t.tenant_id = q.tenant_id AND t.paused_at IS NOT NULL)
          -- an array, so that each provider is checked once and not for every email
          AND (q.provider = ANY (ARRAY(
              SELECT p.name FROM mailgres.providers p
              WHERE NOT mailgres.is_usable(p)
                AND (p.probe_token IS DISTINCT FROM p_token OR NOT p_checked)))) IS NOT TRUE
        RETURNING q.id
    )
    SELECT coalesce(array_agg(b.id), '{}') INTO v_started FROM started b;
    PERFORM mailgres.commit_durably();

    IF cardinality(v_started) < cardinality(p_ids) THEN
        v_rest := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.id = ANY (p_ids) AND q.id <> ALL (v_started) AND q.lease_token = p_token
            FOR UPDATE);
    END IF;
    IF cardinality(v_rest) > 0 AND NOT p_checked
       AND EXISTS (SELECT FROM mailgres.providers p WHERE p.probe_token = p_token AND p.circuit = 'half_open')
    THEN
        RETURN QUERY SELECT unnest(v_rest), true;
    ELSIF cardinality(v_rest) > 0 THEN
        PERFORM mailgres.settle_unsendable(v_rest);
        PERFORM mailgres.give_back(p_token, v_rest);
    END IF;
    RETURN QUERY SELECT unnest(v_started), false;
END
$$;

COMMENT ON FUNCTION mailgres.start_attempts(uuid, uuid[], boolean, interval) IS
    'Records that the attempts for these emails start, and returns the emails that may be sent.';
