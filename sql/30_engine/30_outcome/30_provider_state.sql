-- What outcomes mean for a provider, besides the emails they belong to: it fails and is not used
-- for a while (the circuit breaker), it is rate-limited, or it is out of quota.

-- A provider's request to wait is passed as a duration: the time is that of this server, whatever
-- clocks the worker and the provider have. It is limited to the length of a monthly quota.
CREATE FUNCTION mailgres.time_after(p_seconds double precision) RETURNS timestamptz
    LANGUAGE sql STABLE
RETURN CASE WHEN p_seconds IS NOT NULL
            THEN mailgres.now() + make_interval(secs => least(greatest(p_seconds, 0), 32 * 86400)) END;

COMMENT ON FUNCTION mailgres.time_after(double precision) IS 'The time that is this many seconds from now; null for null.';

-- At least one second from now.
CREATE FUNCTION mailgres.requested_wait_until(p_outcome text, p_retry_at timestamptz) RETURNS timestamptz
    LANGUAGE sql STABLE
RETURN greatest(mailgres.now() + interval '1 second', coalesce(p_retry_at, mailgres.now()
    + CASE p_outcome WHEN 'rate' THEN interval '2 seconds' ELSE interval '15 minutes' END));

COMMENT ON FUNCTION mailgres.requested_wait_until(text, timestamptz) IS
    'Until when a provider that reported a rate limit or a quota is not used.';

-- One outcome, as finish receives it. `call` is the same for all emails of one call.
CREATE TYPE mailgres.report AS (
    provider  text,
    call      uuid,
    token     uuid,
    worker    text,
    outcome   text,
    account   boolean,
    code      text,
    message   text,
    retry_at  timestamptz
);

CREATE FUNCTION mailgres.next_open_duration(p mailgres.providers) RETURNS interval
    LANGUAGE sql IMMUTABLE
RETURN least(p.open_for * power(2, least(p.reopened, 20)), p.open_for_at_most);

COMMENT ON FUNCTION mailgres.next_open_duration(mailgres.providers) IS
    'How long the circuit of a provider stays open when it opens now.';

CREATE FUNCTION mailgres.set_circuit(p_provider text, p_state text, p_reason text, p_worker text)
    RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_before text;
BEGIN
    SELECT p.circuit INTO v_before FROM mailgres.providers p WHERE p.name = p_provider FOR UPDATE;
    UPDATE mailgres.providers p
    SET circuit = p_state,
        circuit_since = mailgres.now(),
        circuit_reason = CASE p_state WHEN 'open' THEN p_reason WHEN 'half_open' THEN p.circuit_reason END,
        circuit_until = CASE p_state
            WHEN 'open' THEN mailgres.now() + mailgres.next_open_duration(p)
            ELSE p.circuit_until END,
        reopened = CASE p_state WHEN 'open' THEN p.reopened + 1 WHEN 'closed' THEN 0 ELSE p.reopened END,
        failures = CASE p_state WHEN 'closed' THEN 0 ELSE p.failures END,
        failed_at = CASE p_state WHEN 'closed' THEN '{}' ELSE p.failed_at END,
        probe_token = NULL,
        probe_until = NULL
    WHERE p.name = p_provider;
    IF v_before = p_state THEN  -- another probe after one of which nothing was heard
        RETURN;
    END IF;
    INSERT INTO mailgres.provider_events (provider, event, reason, worker)
    VALUES (p_provider,
            CASE p_state WHEN 'open' THEN 'CircuitBreakerOpened' WHEN 'closed' THEN 'CircuitBreakerClosed'
                         ELSE 'CircuitBreakerHalfOpen' END,
            p_reason, p_worker);
END
$$;

COMMENT ON FUNCTION mailgres.set_circuit(text, text, text, text) IS
    'Opens, half-opens or closes the circuit of a provider, and records the event.';

CREATE FUNCTION mailgres.mark_limited(
    p_provider mailgres.providers, p_what text, p_until timestamptz, p_reason text, p_worker text
) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE mailgres.providers p
    SET limited_until = p_until, limited_since = mailgres.now(), limited_by = p_what
    WHERE p.name = p_provider.name AND (p.limited_until IS NULL OR p.limited_until < p_until);
    IF FOUND AND (p_provider.limited_until IS NULL OR p_provider.limited_until <= mailgres.now()) THEN
        INSERT INTO mailgres.provider_events (provider, event, reason, worker)
        VALUES (p_provider.name, CASE p_what WHEN 'rate' THEN 'RateLimited' ELSE 'QuotaReached' END,
                p_reason, p_worker);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.mark_limited(mailgres.providers, text, timestamptz, text, text) IS
    'Marks a provider as rate-limited or out of quota until the given time.';

-- A provider that is out of quota is not used until the next day or month, in UTC, whatever the
-- time zone of the session. If only the provider's own count says so, it is not used while that
-- count is valid: the provider's day may not be a UTC day.
CREATE FUNCTION mailgres.apply_quotas(p_provider mailgres.providers, p_worker text) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_full record;
BEGIN
    FOR v_full IN
        SELECT u.period,
               least((u.starts AT TIME ZONE 'UTC' + ('1 ' || u.period)::interval) AT TIME ZONE 'UTC',
                     CASE WHEN u.emails < x.quota THEN u.reported_until END) AS ends
        FROM (VALUES ('day', p_provider.daily_quota), ('month', p_provider.monthly_quota)) AS x(period, quota)
        JOIN mailgres.quota_usage u
            ON u.provider = p_provider.name AND u.period = x.period
            AND u.starts = date_trunc(x.period, mailgres.now(), 'UTC')
        WHERE mailgres.used_of_quota(u, mailgres.now()) >= x.quota
    LOOP
        PERFORM mailgres.mark_limited(p_provider, 'quota', v_full.ends,
            format('the quota of this %s is used up', v_full.period), p_worker);
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.apply_quotas(mailgres.providers, text) IS
    'Marks a provider as limited if its quota is used up.';

CREATE FUNCTION mailgres.count_against_quota(p_provider mailgres.providers, p_emails int, p_worker text)
    RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_emails = 0 OR (p_provider.daily_quota IS NULL AND p_provider.monthly_quota IS NULL) THEN
        RETURN;
    END IF;
    INSERT INTO mailgres.quota_usage AS u (provider, period, starts, emails)
    SELECT p_provider.name, x.period, date_trunc(x.period, mailgres.now(), 'UTC'), p_emails
    FROM (VALUES ('day'), ('month')) AS x(period)
    ON CONFLICT (provider, period, starts) DO UPDATE
        SET emails = u.emails + excluded.emails, reported = u.reported + excluded.emails;
    PERFORM mailgres.apply_quotas(p_provider, p_worker);
END
$$;

COMMENT ON FUNCTION mailgres.count_against_quota(mailgres.providers, int, text) IS
    'Counts sent emails against the quotas of a provider.';

-- Whether a report is of a call that failed because of the provider.
CREATE FUNCTION mailgres.is_failure(r mailgres.report) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN r.account AND r.outcome IN ('transient', 'ambiguous', 'config');

COMMENT ON FUNCTION mailgres.is_failure(mailgres.report) IS
    'Whether a call failed because of the provider, which is what its circuit counts.';

-- Called only after a failure. The counts of outcomes, folded to minutes or not yet folded, say
-- how many emails were attempted. Both sides count emails, as the counts do, and start with the
-- minute in which the window started, because folded counts have no seconds.
CREATE FUNCTION mailgres.reaches_share(p mailgres.providers) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_failed     numeric;
    v_attempted  numeric;
BEGIN
    SELECT sum(c.emails) FILTER (WHERE c.outcome = 'provider_failed'),
           sum(c.emails) FILTER (WHERE c.outcome <> 'provider_failed')
    INTO v_failed, v_attempted
    FROM mailgres.counted_by_minute c
    WHERE c.minute >= date_trunc('minute', mailgres.now() - p.failure_window, 'UTC') AND c.provider = p.name
      AND c.outcome IN ('sent', 'retry', 'deferred', 'dead', 'provider_failed');
    RETURN coalesce(v_failed, 0) >= p.failure_share * coalesce(v_attempted, 0);
END
$$;

COMMENT ON FUNCTION mailgres.reaches_share(mailgres.providers) IS
    'Whether the failed calls of a provider had a large enough share of its recent emails.';

-- Decides whether the circuit changes. Calls that failed because of the provider count. An
-- answered call ends a series of failures, also if both are in the same report, as their order
-- is unknown.
CREATE FUNCTION mailgres.update_circuit(p_provider mailgres.providers, p_reports mailgres.report[])
    RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    p           mailgres.providers := p_provider;
    v_failures  int;
    v_emails    int;
    v_answers   int;
    v_worst     mailgres.report;
    v_reason    text;
    v_probed    boolean;
BEGIN
    SELECT count(DISTINCT r.call) FILTER (WHERE mailgres.is_failure(r)),
           count(*) FILTER (WHERE mailgres.is_failure(r)),
           count(DISTINCT r.call) FILTER (WHERE r.outcome IN ('sent', 'permanent')),
           bool_or(r.token = p.probe_token)
    INTO v_failures, v_emails, v_answers, v_probed
    FROM unnest(p_reports) r;
    SELECT r.* INTO v_worst FROM unnest(p_reports) r
    WHERE mailgres.is_failure(r)
    ORDER BY r.token = p.probe_token DESC NULLS LAST, r.outcome = 'config' DESC LIMIT 1;
    v_reason := concat_ws(': ', nullif(v_worst.code, ''), mailgres.redact_addresses(v_worst.message));

    IF v_probed AND p.circuit = 'half_open' THEN
        PERFORM FROM unnest(p_reports) r WHERE r.token = p.probe_token AND mailgres.is_failure(r);
        IF FOUND THEN
            PERFORM mailgres.set_circuit(p.name, 'open', v_reason, v_worst.worker);
        ELSE
            PERFORM mailgres.set_circuit(p.name, 'closed', NULL, p_reports[1].worker);
        END IF;
    ELSIF v_worst.outcome = 'config' THEN
        IF p.circuit = 'closed' THEN
            PERFORM mailgres.set_circuit(p.name, 'open', v_reason, v_worst.worker);
        END IF;
    ELSIF v_failures > 0 OR p.failures > 0 THEN
        p.failures := CASE WHEN v_answers = 0 THEN p.failures + v_failures ELSE 0 END;
        p.failed_at := (p.failed_at || array_fill(mailgres.now(), ARRAY[v_failures]));
        p.failed_at := p.failed_at[greatest(cardinality(p.failed_at) - p.failure_threshold + 1, 1) :];
        UPDATE mailgres.providers x SET failures = p.failures, failed_at = p.failed_at WHERE x.name = p.name;
        IF v_failures > 0 THEN
            INSERT INTO mailgres.attempt_deltas
                (at, event, attempt, tenant_id, provider, error_class, error_code, emails)
            VALUES (mailgres.now(), 'provider_failed', 0, '', p.name, '', '', v_emails);
        END IF;
        IF p.circuit = 'closed' AND v_failures > 0 AND (
            p.failures >= p.failure_threshold
            OR (SELECT count(*) FROM unnest(p.failed_at) f
                WHERE f > mailgres.now() - p.failure_window AND f <= mailgres.now() + interval '1 minute') >= p.failure_threshold
               AND mailgres.reaches_share(p))
        THEN
            PERFORM mailgres.set_circuit(p.name, 'open', v_reason, v_worst.worker);
        END IF;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.update_circuit(mailgres.providers, mailgres.report[]) IS
    'Opens or closes the circuit of a provider by the outcomes of its calls.';

-- p_uncalled: tokens under which no call was made. They mean nothing for the provider. A probe
-- that made no call releases its slot.
CREATE FUNCTION mailgres.update_provider_state(p_reports mailgres.report[], p_uncalled uuid[] DEFAULT '{}') RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_provider  mailgres.providers;
    v_own       mailgres.report[];
    v_report    mailgres.report;
BEGIN
    -- all sessions lock them in the order of their names
    FOR v_provider IN
        SELECT * FROM mailgres.providers p
        WHERE p.name IN (SELECT r.provider FROM unnest(p_reports) r) OR p.probe_token = ANY (p_uncalled)
        ORDER BY p.name FOR UPDATE
    LOOP
        v_own := ARRAY(SELECT r FROM unnest(p_reports) r WHERE r.provider = v_provider.name);
        PERFORM mailgres.update_circuit(v_provider, v_own);
        UPDATE mailgres.providers p SET probe_until = mailgres.now()
        WHERE p.name = v_provider.name AND p.probe_token = ANY (p_uncalled);
        PERFORM mailgres.count_against_quota(
            v_provider, (SELECT count(*)::int FROM unnest(v_own) r WHERE r.outcome = 'sent'), v_own[1].worker);
        FOR v_report IN
            SELECT DISTINCT ON (r.outcome) r.* FROM unnest(v_own) r
            WHERE r.outcome IN ('rate', 'quota') ORDER BY r.outcome DESC, r.retry_at DESC NULLS LAST
        LOOP
            PERFORM mailgres.mark_limited(v_provider, v_report.outcome,
                mailgres.requested_wait_until(v_report.outcome, v_report.retry_at),
                coalesce(v_report.code, v_report.outcome), v_report.worker);
        END LOOP;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.update_provider_state(mailgres.report[], uuid[]) IS
    'Updates circuits, limits and quotas of providers from the outcomes of their calls.';
