-- The claim leases emails to a worker, in one short transaction that commits before the provider
-- is called. Each row gets a fencing token, without which no outcome is accepted for it, and the
-- version of its template that every attempt renders.
--
-- p_providers: the providers that the worker has; null means all. p_tokenless: the claim is for a
-- processor that does not use tokens (process_pending_emails_for_retry). It sends the emails
-- itself, so no provider is chosen.

CREATE FUNCTION mailgres.may_retry_uncertain(
    p_email public.email_queue, p_providers text[], p_route mailgres.usable_route
) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM mailgres.providers p
        WHERE p.name = p_email.provider
          AND (mailgres.is_usable(p) OR p_route.probe AND p.name = p_route.providers[1])
          AND (p_providers IS NULL OR p.name = ANY (p_providers))
          AND (NOT p.idempotent OR p_email.uncertain_since + p.key_window > mailgres.now()));
END
$$;

COMMENT ON FUNCTION mailgres.may_retry_uncertain(public.email_queue, text[], mailgres.usable_route) IS
    'Whether an uncertain email can be retried now: through the same provider, while its key is valid.';

-- Charges a claim to limits and circuits: takes the tokens, and records the probe of a provider.
CREATE FUNCTION mailgres.charge_limits(p_ids uuid[], p_token uuid, p_route mailgres.usable_route)
    RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_used    record;
    v_worker  text;
    v_until   timestamptz;
BEGIN
    IF p_route.probe THEN
        SELECT q.lease_worker, q.lease_until INTO v_worker, v_until FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.lease_token = p_token AND q.provider = p_route.providers[1] LIMIT 1;
        IF FOUND THEN
            PERFORM mailgres.set_circuit(p_route.providers[1], 'half_open', NULL, v_worker);
            UPDATE mailgres.providers p SET probe_token = p_token, probe_until = v_until
            WHERE p.name = p_route.providers[1];
        END IF;
    END IF;

    FOR v_used IN
        WITH used AS MATERIALIZED (  -- evaluated once, for any number of providers
            SELECT q.provider, count(*) AS emails, count(DISTINCT coalesce(q.batch_id, q.id)) AS batches
            FROM public.email_queue q WHERE q.id = ANY (p_ids) AND q.lease_token = p_token GROUP BY q.provider
        )
        SELECT u.provider, u.emails,
               CASE WHEN p.fixed_batches THEN u.batches ELSE (u.emails + p.batch_size - 1) / p.batch_size END AS calls
        FROM used u JOIN mailgres.providers p ON p.name = u.provider
        ORDER BY u.provider
    LOOP
        PERFORM mailgres.take_tokens('calls:' || v_used.provider, v_used.calls);
        PERFORM mailgres.take_tokens('emails:' || v_used.provider, v_used.emails);
    END LOOP;
    FOR v_used IN
        SELECT q.tenant_id, count(*) AS emails FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.lease_token = p_token GROUP BY q.tenant_id ORDER BY q.tenant_id
    LOOP
        PERFORM mailgres.take_tokens('tenant:' || v_used.tenant_id, v_used.emails);
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.charge_limits(uuid[], uuid, mailgres.usable_route) IS
    'Takes the tokens for the leased emails, and records the provider that they probe.';

-- Emails that the first provider rejected go to its fallback, up to what that provider accepts
-- now; the others wait for it.
CREATE FUNCTION mailgres.fit_fallbacks(p_ids uuid[], p_usable text[]) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_other  record;
    v_room   int;
    v_free   timestamptz;
BEGIN
    FOR v_other IN
        SELECT p, x.ids
        FROM (
            SELECT mailgres.provider_for(q, p_usable) AS name, array_agg(q.id ORDER BY q.id) AS ids
            FROM public.email_queue q
            WHERE q.id = ANY (p_ids) AND q.uncertain_since IS NULL AND mailgres.provider_for(q, p_usable) <> p_usable[1]
            GROUP BY 1
        ) x
        JOIN mailgres.providers p ON p.name = x.name
    LOOP
        SELECT CASE WHEN NOT mailgres.is_usable(v_other.p) THEN 0
                    WHEN (v_other.p).fixed_batches THEN least(r.p_emails, r.p_calls)
                    ELSE r.p_emails END
        INTO v_room FROM mailgres.provider_room((v_other.p).name, cardinality(v_other.ids)) r;
        CONTINUE WHEN v_room >= cardinality(v_other.ids);
        v_other.ids := v_other.ids[greatest(v_room, 0) + 1 :];
        p_ids := ARRAY(SELECT unnest(p_ids) EXCEPT SELECT unnest(v_other.ids));
        v_free := greatest(mailgres.next_token_at((v_other.p).name), (v_other.p).limited_until,
                           mailgres.now() + interval '1 second');
        UPDATE public.email_queue q SET ready = false, next_retry_at = v_free
        WHERE q.id = ANY (v_other.ids);
    END LOOP;
    RETURN p_ids;
END
$$;

COMMENT ON FUNCTION mailgres.fit_fallbacks(uuid[], text[]) IS
    'Defers emails whose fallback provider has no room now.';

-- Leases the picked emails that may be sent, in at most p_calls calls. p_batched: some of them may
-- belong to uncertain batches. p_limited: there are limits or circuits to update.
CREATE FUNCTION mailgres.lease(
    p_ids uuid[], p_worker text, p_lease interval, p_providers text[], p_route mailgres.usable_route,
    p_calls int, p_tokenless boolean, p_batched boolean, p_limited boolean
) RETURNS SETOF public.email_queue
    LANGUAGE plpgsql
AS $$
DECLARE
    v_token  constant uuid := gen_random_uuid();
    v_keyed  text[];
    v_batch  int;     -- how many emails the first provider accepts in a fixed batch; null: none
    v_ids    uuid[] := p_ids;
    v_plan   mailgres.call_plan;
BEGIN
    SELECT array_agg(p.name) FILTER (WHERE p.idempotent),
           max(p.batch_size) FILTER (WHERE p.fixed_batches AND p.name = p_route.providers[1])
    INTO v_keyed, v_batch FROM mailgres.providers p;
    IF p_batched THEN
        v_ids := mailgres.complete_batches(p_ids);
    END IF;
    v_plan.ids := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (v_ids)
          AND (q.uncertain_since IS NULL OR mailgres.may_retry_uncertain(q, p_providers, p_route))
          AND (mailgres.is_in_uncertain_batch(q)
               OR (q.expires_at IS NULL OR q.expires_at > mailgres.now()) AND NOT EXISTS (
                   SELECT FROM public.email_suppressions s
                   WHERE s.recipient_email = mailgres.canonical_address(q.recipient_email) AND s.tenant_id IN ('*', q.tenant_id)
                     AND mailgres.suppresses(s, q.ignore_suppression))));
    IF cardinality(p_route.providers) > 1 THEN
        v_plan.ids := mailgres.fit_fallbacks(v_plan.ids, p_route.providers);
    END IF;
    IF v_batch IS NOT NULL THEN
        v_plan := mailgres.plan_calls(v_plan.ids, v_batch, p_calls, p_route.providers);
    END IF;

    RETURN QUERY
    UPDATE public.email_queue q
    SET status = 'sending',
        ready = false,
        lease_token = v_token,
        lease_worker = p_worker,
        lease_is_tokenless = p_tokenless,
        leased_at = mailgres.now(),
        lease_until = mailgres.now() + p_lease,
        last_attempt_at = mailgres.now(),
        first_attempt_at = coalesce(q.first_attempt_at, mailgres.now()),
        last_duration_ms = NULL,
        provider = mailgres.provider_for(q, p_route.providers),
        batch_id = CASE WHEN q.uncertain_since IS NULL THEN c.batch_id ELSE q.batch_id END,
        batch_size = CASE WHEN q.uncertain_since IS NULL THEN c.size ELSE q.batch_size END,
        -- With a key the claim is enough: the call may be repeated, whatever its outcome was.
        attempt_started_at = CASE WHEN mailgres.provider_for(q, p_route.providers) = ANY (v_keyed)
            THEN mailgres.now() END,
        template_version = coalesce(q.template_version, (
            SELECT t.active_version FROM public.email_templates t
            WHERE t.template_type = q.template_type AND q.subject IS NULL))
    FROM unnest(v_plan.ids, v_plan.batches, v_plan.sizes) AS c(id, batch_id, size)
    WHERE q.id = c.id
    RETURNING q.*;
    IF p_limited THEN
        PERFORM mailgres.charge_limits(v_plan.ids, v_token, p_route);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.lease(uuid[], text, interval, text[], mailgres.usable_route, int, boolean, boolean, boolean) IS
    'Leases picked emails to a worker under a new fencing token.';

-- How much this claim may take on a route: one email to probe a provider, if no other claim does
-- so now; otherwise as much as limits and quotas allow.
CREATE FUNCTION mailgres.route_room(
    p_route mailgres.usable_route, p_limit int, OUT p_emails int, OUT p_calls int
)
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_route.providers IS NULL THEN
        p_emails := p_limit;
        p_calls := p_limit;
    ELSIF p_route.probe THEN
        PERFORM FROM mailgres.providers p
        WHERE p.name = p_route.providers[1] AND mailgres.is_probe_due(p) FOR UPDATE SKIP LOCKED;
        p_emails := FOUND::int;
        p_calls := 1;
    ELSE
        SELECT x.p_emails, x.p_calls INTO p_emails, p_calls
        FROM mailgres.provider_room(p_route.providers[1], p_limit) x;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.route_room(mailgres.usable_route, int) IS
    'How many emails, in how many calls, a claim may take on a route now.';

-- Before a claim computes its room, it locks the buckets of all providers that it may use, in
-- one order, so that two claims never deadlock; and for providers with a quota, the right to
-- count what is left of it.
CREATE FUNCTION mailgres.lock_limits(p_routes mailgres.usable_route[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_names constant text[] := ARRAY(SELECT DISTINCT n FROM unnest(p_routes) r, unnest(r.providers) n);
BEGIN
    PERFORM FROM mailgres.buckets b
    WHERE b.name IN (SELECT x.kind || n FROM unnest(v_names) n, (VALUES ('calls:'), ('emails:')) AS x(kind))
    ORDER BY b.name FOR UPDATE;
    PERFORM pg_advisory_xact_lock(hashtextextended('mailgres quota ' || x.name, 0))
    FROM (
        SELECT p.name FROM mailgres.providers p
        WHERE p.name = ANY (v_names) AND num_nonnulls(p.daily_quota, p.monthly_quota) > 0
        ORDER BY p.name
    ) x;
END
$$;

COMMENT ON FUNCTION mailgres.lock_limits(mailgres.usable_route[]) IS
    'Locks the limits of the providers that a claim may use, in one order.';

CREATE FUNCTION mailgres.claim(
    p_worker text,
    p_limit int DEFAULT 10,
    p_lease interval DEFAULT '60 seconds',
    p_providers text[] DEFAULT NULL,
    p_tokenless boolean DEFAULT false
) RETURNS SETOF public.email_queue
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_due     boolean;
    v_lost    boolean;
    v_ready   boolean;
    v_slot    mailgres.claim_slots;
    v_before  mailgres.claim_slots;
    v_routes  mailgres.usable_route[];
    v_route   mailgres.usable_route;
    v_limited boolean;
    v_room    int;
    v_calls   int;
    v_ids     uuid[];
    v_special boolean;
    v_leased  int;
    v_empty   int := 0;
BEGIN
    IF coalesce(p_worker, '') = '' OR coalesce(p_limit, 0) NOT BETWEEN 1 AND 1000
       OR coalesce(p_lease, '0') NOT BETWEEN '1 second' AND '1 hour' THEN
        PERFORM mailgres.refuse('MG050', 'a claim needs a worker, a limit and a lease',
            'Name the worker; claim 1 to 1000 emails for 1 second to 1 hour.');
    END IF;

    SELECT EXISTS (SELECT FROM public.email_queue q WHERE q.status = 'pending' AND q.due_at <= mailgres.now()),
           EXISTS (SELECT FROM public.email_queue q WHERE q.status = 'sending' AND q.due_at <= mailgres.now()),
           EXISTS (SELECT FROM public.email_queue q WHERE q.ready),
           EXISTS (SELECT FROM mailgres.buckets) OR EXISTS (
               SELECT FROM mailgres.providers p WHERE num_nonnulls(p.daily_quota, p.monthly_quota) > 0)
    INTO v_due, v_lost, v_ready, v_limited;
    IF v_due THEN
        PERFORM mailgres.promote();
    END IF;
    -- A claim also reaps the emails of dead workers: a queue that only a cron job serves has no
    -- janitor.
    IF v_lost THEN
        PERFORM mailgres.reap(p_limit);
    END IF;
    IF NOT (v_due OR v_lost OR v_ready) THEN  -- an idle worker checks, and writes nothing
        RETURN;
    END IF;

    v_routes := mailgres.usable_routes(p_providers, p_tokenless);
    -- No usable route may be the effect of a clock that was set back; a queue that only a cron job
    -- serves has no janitor to correct it.
    IF cardinality(v_routes) = 0 AND mailgres.correct_times(p_limit) > 0 THEN
        v_routes := mailgres.usable_routes(p_providers, p_tokenless);
    END IF;
    SELECT * INTO v_slot FROM mailgres.claim_slots s ORDER BY s.slot LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN  -- more claims at once than slots: wait for one
        SELECT * INTO v_slot FROM mailgres.claim_slots s ORDER BY s.slot LIMIT 1 FOR UPDATE;
    END IF;

    v_before := v_slot;
    IF v_limited THEN
        PERFORM mailgres.lock_limits(v_routes);
    END IF;

    -- The routes take turns. If all picked emails were settled or deferred, the claim picks again
    -- from the same route; the limit makes sure that a claim always ends.
    FOR v_round IN 1 .. cardinality(v_routes) + 100 LOOP
        EXIT WHEN v_empty = cardinality(v_routes);
        v_route := v_routes[1 + mod(v_slot.next_route, cardinality(v_routes))];
        IF v_limited OR v_route.probe THEN
            SELECT * INTO v_room, v_calls FROM mailgres.route_room(v_route, p_limit);
        ELSE
            v_room := p_limit;
            v_calls := p_limit;
        END IF;
        IF v_room > 0 THEN
            SELECT * INTO v_slot.cursors, v_ids
            FROM mailgres.pick(v_route.route, v_room, p_providers, p_tokenless, v_slot.cursors);
        END IF;

        IF v_room < 1 OR cardinality(v_ids) = 0 THEN
            v_empty := v_empty + 1;
            v_slot.next_route := v_slot.next_route + 1;
            CONTINUE;
        END IF;
        -- An email that a worker held when it died is claimed alone, or alone with its batch: if it
        -- is what kills workers, no other email is affected.
        PERFORM FROM public.email_queue q
        WHERE q.id = ANY (v_ids) AND (q.lease_losses > 0 OR mailgres.is_in_uncertain_batch(q)) LIMIT 1;
        v_special := FOUND;
        IF v_special THEN
            v_ids := coalesce((
                SELECT ARRAY[q.id] FROM public.email_queue q
                WHERE q.id = ANY (v_ids) AND q.lease_losses > 0 ORDER BY q.id LIMIT 1), v_ids);
        END IF;
        RETURN QUERY SELECT * FROM mailgres.lease(
            v_ids, p_worker, p_lease, p_providers, v_route, v_calls, p_tokenless, v_special,
            v_limited OR v_route.probe);
        GET DIAGNOSTICS v_leased = ROW_COUNT;
        IF v_leased < cardinality(v_ids) THEN
            PERFORM mailgres.settle_unsendable(v_ids);
        END IF;
        IF v_leased > 0 THEN
            v_slot.next_route := v_slot.next_route + 1;
            PERFORM nextval('mailgres.claim_numbers'), mailgres.commit_durably();
            EXIT;
        END IF;
    END LOOP;

    v_slot.next_route := mod(v_slot.next_route, greatest(cardinality(v_routes), 1));
    IF v_slot <> v_before THEN
        UPDATE mailgres.claim_slots s SET next_route = v_slot.next_route, cursors = v_slot.cursors
        WHERE s.slot = v_slot.slot;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.claim(text, int, interval, text[], boolean) IS
    'Leases up to p_limit emails to a worker, fairly between tenants, and returns them.';
