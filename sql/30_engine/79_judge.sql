-- The rules for a try that failed: try again, and when; or give up, and why. The
-- classes of faults and what each means are in docs/lifecycle.md.

CREATE TYPE mailgres.verdict AS (
    spent            int,          -- retries spent: 0 or 1
    next_retry_at    timestamptz,  -- when to try again
    dead_reason      text,         -- or why not
    uncertain_since  timestamptz,
    parked_since     timestamptz
);

CREATE FUNCTION mailgres.judge(p_email public.email_queue, p_outcome text, p_retry_at timestamptz)
    RETURNS mailgres.verdict
    LANGUAGE plpgsql
AS $$
DECLARE
    v_now       constant timestamptz := mailgres.now();
    v_settings  mailgres.settings;
    v_policy    mailgres.retry_policies;
    v_provider  mailgres.providers;
    v_hold      boolean;
    v           mailgres.verdict;
BEGIN
    SELECT * INTO v_settings FROM mailgres.settings;
    SELECT * INTO v_policy FROM mailgres.retry_policies r
    WHERE r.name IN (p_email.retry_policy, v_settings.retry_policy)
    ORDER BY r.name = p_email.retry_policy DESC NULLS LAST LIMIT 1;
    SELECT * INTO v_provider FROM mailgres.providers p WHERE p.name = p_email.provider;
    v.spent := 0;
    v.uncertain_since := p_email.uncertain_since;

    IF p_outcome = 'permanent' THEN
        v.dead_reason := 'permanent';
        IF v_provider.idempotent THEN
            v.uncertain_since := NULL;  -- the same call again, and the same answer
        END IF;
    ELSIF p_outcome IN ('rate', 'quota') THEN
        v.next_retry_at := coalesce(p_retry_at, v_now + interval '1 minute');
        v.parked_since := p_email.parked_since;
    ELSIF p_outcome = 'config' THEN
        v.parked_since := coalesce(p_email.parked_since, v_now);
        v.next_retry_at := coalesce(p_retry_at, v_now + v_settings.config_wait);
        IF v.parked_since + v_settings.config_wait_total <= v_now THEN
            v.dead_reason := 'exhausted';
        END IF;
    ELSE
        IF p_outcome IN ('ambiguous', 'uncertain') THEN
            v.uncertain_since := coalesce(p_email.uncertain_since, p_email.begun_at, v_now);
            v_hold := p_outcome = 'uncertain' OR NOT coalesce(v_provider.idempotent, false)
                AND NOT EXISTS (
                    SELECT FROM public.email_templates t
                    WHERE t.template_type = p_email.template_type AND t.on_uncertain = 'resend');
        END IF;
        IF v_hold THEN
            v.dead_reason := 'uncertain';
        ELSIF p_email.retries >= p_email.max_retries THEN
            v.dead_reason := 'exhausted';
        ELSE
            v.spent := 1;
            v.next_retry_at := v_now + mailgres.retry_delay(
                v_policy, p_email.retries + 1, p_email.retry_delay, p_email.max_retry_delay);
        END IF;
    END IF;

    IF v.dead_reason IS NULL AND v.next_retry_at >= p_email.expires_at THEN
        v.dead_reason := 'expired';
    END IF;
    IF v.dead_reason IS NULL AND v_provider.idempotent AND v.uncertain_since IS NOT NULL
       AND v.next_retry_at >= v.uncertain_since + v_provider.key_window THEN
        v.dead_reason := 'uncertain';  -- its key would no longer protect
    END IF;
    -- Whatever ended it: that it may have arrived is what a person has to know.
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

COMMENT ON FUNCTION mailgres.judge(public.email_queue, text, timestamptz) IS
    'What follows from a failed try: when to try again, or why not.';
