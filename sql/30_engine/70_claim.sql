-- The claim: leases emails to a worker, in one short transaction that is committed
-- before the provider is called. Each row gets the fencing token without which
-- nobody can report on it, and the version of its template that every try renders.
--
-- p_providers are those the worker can use; null means all. The worker name 'rpc'
-- is reserved for processors that know no token (process_pending_emails_for_retry):
-- they send by themselves, so no provider is chosen for them.

CREATE TYPE mailgres.open_route AS (route text, provider text, idempotent boolean);

CREATE FUNCTION mailgres.open_routes(p_providers text[], p_rpc boolean) RETURNS mailgres.open_route[]
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT ON (r.route)
               ROW(r.route, p.name, coalesce(p.idempotent, false))::mailgres.open_route
        FROM mailgres.routes r
        LEFT JOIN mailgres.route_providers rp ON rp.route = r.route AND NOT p_rpc
        LEFT JOIN mailgres.providers p
            ON p.name = rp.provider
            AND mailgres.is_open(p)
            AND (p_providers IS NULL OR p.name = ANY (p_providers))
        WHERE NOT r.paused AND (p_rpc OR p.name IS NOT NULL)
        ORDER BY r.route, rp.position);
END
$$;

COMMENT ON FUNCTION mailgres.open_routes(text[], boolean) IS
    'The routes that can be served now, each with its first open provider.';

CREATE FUNCTION mailgres.may_repeat(p_email public.email_queue, p_providers text[]) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM mailgres.providers p
        WHERE p.name = p_email.provider
          AND mailgres.is_open(p)
          AND (p_providers IS NULL OR p.name = ANY (p_providers))
          AND (NOT p.idempotent OR p_email.uncertain_since + p.key_window > mailgres.now()));
END
$$;

COMMENT ON FUNCTION mailgres.may_repeat(public.email_queue, text[]) IS
    'Whether an email whose earlier try may have arrived can be repeated now: at the same provider, inside the window of its key.';

-- Leases those of the picked emails that may be sent.
CREATE FUNCTION mailgres.lease(
    p_ids uuid[], p_worker text, p_lease interval, p_providers text[], p_route mailgres.open_route
) RETURNS SETOF public.email_queue
    LANGUAGE plpgsql
AS $$
DECLARE
    v_token constant uuid := gen_random_uuid();
BEGIN
    RETURN QUERY
    UPDATE public.email_queue q
    SET status = 'sending',
        ready = false,
        lease_token = v_token,
        lease_worker = p_worker,
        leased_at = mailgres.now(),
        lease_until = mailgres.now() + p_lease,
        last_attempt_at = mailgres.now(),
        first_attempt_at = coalesce(q.first_attempt_at, mailgres.now()),
        last_duration_ms = NULL,
        provider = CASE WHEN q.uncertain_since IS NULL THEN p_route.provider ELSE q.provider END,
        -- With a key the claim suffices: the call may be repeated whatever became of it.
        begun_at = CASE WHEN CASE WHEN q.uncertain_since IS NULL THEN p_route.idempotent ELSE (
                SELECT p.idempotent FROM mailgres.providers p WHERE p.name = q.provider) END
            THEN mailgres.now() END,
        template_version = coalesce(q.template_version, (
            SELECT t.active_version FROM public.email_templates t
            WHERE t.template_type = q.template_type AND q.subject IS NULL))
    WHERE q.id = ANY (p_ids)
      AND (q.expires_at IS NULL OR q.expires_at > mailgres.now())
      AND (q.uncertain_since IS NULL OR mailgres.may_repeat(q, p_providers))
      AND NOT EXISTS (
          SELECT FROM public.email_suppressions s
          WHERE s.recipient_email = lower(q.recipient_email) AND s.tenant_id IN ('*', q.tenant_id))
    RETURNING q.*;
END
$$;

COMMENT ON FUNCTION mailgres.lease(uuid[], text, interval, text[], mailgres.open_route) IS
    'Gives picked emails to a worker under a new fencing token.';

CREATE FUNCTION mailgres.claim(
    p_worker text,
    p_limit int DEFAULT 10,
    p_lease interval DEFAULT '60 seconds',
    p_providers text[] DEFAULT NULL
) RETURNS SETOF public.email_queue
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_rpc     constant boolean := p_worker = 'rpc';
    v_slot    mailgres.claim_slots;
    v_routes  mailgres.open_route[];
    v_route   mailgres.open_route;
    v_ids     uuid[];
    v_leased  int;
    v_empty   int := 0;
BEGIN
    IF coalesce(p_worker, '') = '' OR coalesce(p_limit, 0) NOT BETWEEN 1 AND 1000
       OR coalesce(p_lease, '0') NOT BETWEEN '1 second' AND '1 hour' THEN
        PERFORM mailgres.refuse('MG050', 'a claim needs a worker, a limit and a lease',
            'Name the worker; claim 1 to 1000 emails for 1 second to 1 hour.');
    END IF;

    IF EXISTS (SELECT FROM public.email_queue q
               WHERE q.status = 'pending' AND q.due_at <= mailgres.now()) THEN
        PERFORM mailgres.promote();
    END IF;
    -- Whoever claims also takes back what died: a queue that only a cron job works has
    -- no janitor.
    IF EXISTS (SELECT FROM public.email_queue q
               WHERE q.status = 'sending' AND q.due_at <= mailgres.now()) THEN
        PERFORM mailgres.reap(p_limit);
    END IF;

    v_routes := mailgres.open_routes(p_providers, c_rpc);
    SELECT * INTO v_slot FROM mailgres.claim_slots s ORDER BY s.slot LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN  -- more claims at once than slots: wait for one
        SELECT * INTO v_slot FROM mailgres.claim_slots s ORDER BY s.slot LIMIT 1 FOR UPDATE;
    END IF;

    -- The routes take turns. If all that was picked has to be set aside, the same
    -- route is tried again; the bound is there so that a claim always ends.
    FOR v_try IN 1 .. cardinality(v_routes) + 100 LOOP
        EXIT WHEN v_empty = cardinality(v_routes);
        v_route := v_routes[1 + mod(v_slot.turn, cardinality(v_routes))];
        SELECT * INTO v_slot.cursors, v_ids
        FROM mailgres.pick(v_route.route, p_limit, p_providers, c_rpc, v_slot.cursors);

        IF cardinality(v_ids) = 0 THEN
            v_empty := v_empty + 1;
            v_slot.turn := v_slot.turn + 1;
            CONTINUE;
        END IF;
        RETURN QUERY SELECT * FROM mailgres.lease(v_ids, p_worker, p_lease, p_providers, v_route);
        GET DIAGNOSTICS v_leased = ROW_COUNT;
        IF v_leased < cardinality(v_ids) THEN
            PERFORM mailgres.set_aside(v_ids);
        END IF;
        IF v_leased > 0 THEN
            v_slot.turn := v_slot.turn + 1;
            EXIT;
        END IF;
    END LOOP;

    UPDATE mailgres.claim_slots s SET turn = v_slot.turn, cursors = v_slot.cursors
    WHERE s.slot = v_slot.slot;
END
$$;

COMMENT ON FUNCTION mailgres.claim(text, int, interval, text[]) IS
    'Leases up to p_limit emails to a worker, fairly between tenants, and returns them.';
