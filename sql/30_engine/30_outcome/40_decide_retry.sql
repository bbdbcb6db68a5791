-- The rules for a failed attempt: whether and when to retry, or why the email dies. The classes
-- of faults and what each means are in docs/lifecycle.md.

CREATE TYPE mailgres.retry_decision AS (
    spent            int,          -- retries spent: 0 or 1
    next_retry_at    timestamptz,  -- when to retry
    dead_reason      text,         -- or why the email dies
    uncertain_since  timestamptz,
    parked_since     timestamptz
);

CREATE FUNCTION mailgres.has_fallback(p_email public.email_queue) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM mailgres.route_providers mine
        JOIN mailgres.route_providers later ON later.route = mine.route AND later.position > mine.position
        JOIN mailgres.providers p ON p.name = later.provider
        WHERE mine.route = p_email.route AND mine.provider = p_email.provider AND mailgres.is_usable(p));
END
$$;

COMMENT ON FUNCTION mailgres.has_fallback(public.email_queue) IS
    'Whether the route of an email has a usable provider after the one of its last attempt.';

-- p_account: the fault concerns the provider as a whole. p_pinned: an earlier call with the same
-- key may have been accepted. p_apart: a batch was refused because of one of its emails; nobody
-- knows which one, so each is sent alone at once. p_called: a call was made; without one the
-- fault is ours, and says nothing about an earlier call.
CREATE FUNCTION mailgres.decide_retry(
    p_email public.email_queue, p_outcome text, p_retry_at timestamptz, p_account boolean, p_pinned boolean,
    p_apart boolean DEFAULT false, p_called boolean DEFAULT true
) RETURNS mailgres.retry_decision
    LANGUAGE plpgsql
AS $$
DECLARE
    v_now       constant timestamptz := mailgres.now();
    v_settings  mailgres.settings;
    v_policy    mailgres.retry_policies;
    v_provider  mailgres.providers;
    v_hold      boolean;
    v_batched   boolean := mailgres.is_in_uncertain_batch(p_email);
    v_probe     boolean;
    v_free      boolean;
    v           mailgres.retry_decision;
BEGIN
    SELECT * INTO v_settings FROM mailgres.settings;
    SELECT * INTO v_policy FROM mailgres.retry_policies r
    WHERE r.name IN (p_email.retry_policy, v_settings.retry_policy)
    ORDER BY r.name = p_email.retry_policy DESC NULLS LAST LIMIT 1;
    SELECT * INTO v_provider FROM mailgres.providers p WHERE p.name = p_email.provider;
    v_probe := p_account AND p_outcome IN ('transient', 'ambiguous', 'config')
        AND coalesce(p_email.lease_token = v_provider.probe_token, false);
    v.spent := 0;
    v.uncertain_since := p_email.uncertain_since;

    IF p_outcome = 'permanent' THEN
        v.dead_reason := 'permanent';
        IF v_provider.idempotent AND p_called THEN
            v.uncertain_since := NULL;  -- the same call has the same answer
        END IF;
    ELSIF p_outcome IN ('rate', 'quota') THEN
        v.next_retry_at := mailgres.requested_wait_until(p_outcome, p_retry_at);
        v.parked_since := p_email.parked_since;
    ELSIF p_outcome = 'config' AND p_account THEN
        v.next_retry_at := p_email.next_retry_at;  -- the circuit opens, and the email waits for it
        v.parked_since := p_email.parked_since;
    ELSIF p_outcome = 'config' THEN
        v.parked_since := coalesce(p_email.parked_since, v_now);
        v.next_retry_at := greatest(p_retry_at, v_now + v_settings.config_wait);
        IF v.parked_since + v_settings.config_wait_total <= v_now THEN
            v.dead_reason := 'exhausted';
        END IF;
    ELSE
        IF p_apart AND p_called AND v_provider.idempotent THEN
            -- Refused under the key of an earlier call, so that call was not accepted.
            v.uncertain_since := NULL;
        END IF;
        IF p_outcome IN ('ambiguous', 'uncertain') OR p_pinned THEN
            v.uncertain_since := coalesce(p_email.uncertain_since, p_email.attempt_started_at, v_now);
            v_hold := p_outcome = 'uncertain' OR NOT coalesce(v_provider.idempotent, false)
                AND NOT EXISTS (
                    SELECT FROM public.email_templates t
                    WHERE t.template_type = p_email.template_type AND t.on_uncertain = 'resend');
        END IF;
        -- A probe costs no retry. An uncertain email stays with its batch while the key protects
        -- it.
        v_batched := v.uncertain_since IS NOT NULL AND p_email.batch_id IS NOT NULL;
        v_free := v_batched OR p_apart OR v_probe;
        IF v_hold THEN
            v.dead_reason := 'uncertain';
        ELSIF p_email.retries >= p_email.max_retries AND NOT v_free THEN
            v.dead_reason := 'exhausted';
        ELSIF v_batched THEN
            -- the same for the whole batch, whatever each email has set
            v.next_retry_at := v_now + mailgres.retry_delay(v_policy, 1, NULL, NULL);
        ELSE
            v.spent := (NOT v_free)::int;
            v.next_retry_at := CASE WHEN p_apart AND NOT v_batched THEN v_now ELSE v_now + mailgres.retry_delay(
                v_policy, p_email.retries + 1, p_email.retry_delay, p_email.max_retry_delay) END;
        END IF;
    END IF;

    -- The next probe should be another email, if there is one: the fault may be in this one.
    IF v_probe THEN
        v.next_retry_at := greatest(
            v.next_retry_at, v_now + mailgres.next_open_duration(v_provider) + interval '1 second');
    END IF;
    -- A definite rejection, and the route has another usable provider.
    IF v.dead_reason IS NULL AND v.uncertain_since IS NULL AND (p_outcome IN ('transient', 'quota', 'config')
            OR p_outcome = 'rate' AND v.next_retry_at > v_now + interval '1 minute')  -- see needs_fallback
       AND mailgres.has_fallback(p_email) THEN
        v.next_retry_at := v_now;
    END IF;
    IF v.dead_reason IS NULL AND v.next_retry_at >= p_email.expires_at AND NOT v_batched THEN
        v.dead_reason := 'expired';
    END IF;
    IF v.dead_reason IS NULL AND v_provider.idempotent AND v.uncertain_since IS NOT NULL
       AND v.next_retry_at >= v.uncertain_since + v_provider.key_window THEN
        v.dead_reason := 'uncertain';  -- its key would no longer protect it
    END IF;
    -- Whatever the reason: a person has to know that the email may have been delivered.
    IF v.dead_reason IS NOT NULL AND v.uncertain_since IS NOT NULL THEN
        v.dead_reason := 'uncertain';
    END IF;
    IF v.dead_reason IS NOT NULL THEN
        v.spent := 0;
        v.next_retry_at := NULL;
    END IF;
    RETURN v;
END
$$;

COMMENT ON FUNCTION mailgres.decide_retry(public.email_queue, text, timestamptz, boolean, boolean, boolean, boolean) IS
    'What follows from a failed attempt: when to retry, or why not.';
