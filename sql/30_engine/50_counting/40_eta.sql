-- When the backlog will be drained. An estimate from the current state: the first usable provider
-- of a route, its limits and quotas, and the recent throughput. Other providers of the route may
-- make it sooner, new emails and faults later.

CREATE FUNCTION mailgres.usable_at(p mailgres.providers) RETURNS timestamptz
    LANGUAGE sql STABLE
RETURN CASE WHEN p.enabled THEN greatest(
    mailgres.now(), p.paused_until, p.limited_until,
    CASE p.circuit WHEN 'open' THEN coalesce(p.circuit_until, 'infinity')
                   WHEN 'half_open' THEN p.probe_until END) ELSE 'infinity' END;

COMMENT ON FUNCTION mailgres.usable_at(mailgres.providers) IS
    'When a provider can be used again, as far as is known; infinity means not without action.';

CREATE FUNCTION mailgres.unusable_because(p mailgres.providers) RETURNS text
    LANGUAGE sql STABLE
RETURN CASE
    WHEN NOT p.enabled THEN 'disabled'
    WHEN p.paused_until > mailgres.now() THEN 'paused'
    WHEN p.circuit <> 'closed' THEN 'circuit'
    WHEN p.limited_until > mailgres.now() THEN p.limited_by END;

COMMENT ON FUNCTION mailgres.unusable_because(mailgres.providers) IS
    'Why a provider cannot be used now: disabled, paused, circuit, quota or rate; null if it can.';

-- Emails per second by the limits of a provider, otherwise the rate of the last 15 minutes.
CREATE FUNCTION mailgres.send_rate_of(p mailgres.providers, OUT per_second double precision, OUT why text)
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    SELECT min(CASE WHEN b.name LIKE 'calls:%' THEN b.per_second * p.batch_size ELSE b.per_second END), 'rate'
    INTO per_second, why
    FROM mailgres.buckets b WHERE b.name IN ('calls:' || p.name, 'emails:' || p.name);
    IF per_second IS NULL THEN
        SELECT sum(c.emails) / greatest(date_part('epoch', mailgres.now() - min(c.minute)), 1), 'throughput'
        INTO per_second, why
        FROM mailgres.counted_by_minute c
        WHERE c.minute > mailgres.now() - interval '15 minutes' AND c.outcome = 'sent' AND c.provider = p.name;
        IF coalesce(per_second, 0) = 0 THEN
            per_second := NULL;
            why := 'unknown';
        END IF;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.send_rate_of(mailgres.providers) IS
    'How many emails per second a provider accepts, by its limits or by the last 15 minutes.';

-- Computed day by day, because of the quotas.
CREATE FUNCTION mailgres.drained_at(
    p mailgres.providers, p_emails bigint, p_starts timestamptz, OUT at timestamptz, OUT why text
)
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c_years   constant int := 10;
    v_rate    double precision;
    v_rest    double precision := p_emails;
    v_from    timestamptz := p_starts;
    v_ends    timestamptz;
    v_day     double precision := p.daily_quota;
    v_month   double precision := p.monthly_quota;
    v_can     double precision;
BEGIN
    SELECT x.per_second, x.why INTO v_rate, why FROM mailgres.send_rate_of(p) x;
    SELECT p.daily_quota - coalesce(max(mailgres.used_of_quota(u, p_starts)) FILTER (WHERE u.period = 'day'), 0),
           p.monthly_quota - coalesce(max(u.emails) FILTER (WHERE u.period = 'month'), 0)
    INTO v_day, v_month
    FROM mailgres.quota_usage u
    WHERE u.provider = p.name AND u.starts = date_trunc(u.period, p_starts, 'UTC');

    FOR v_number IN 1 .. c_years * 366 LOOP
        v_ends := date_trunc('day', v_from, 'UTC') + interval '24 hours';
        v_can := least(v_day, v_month, v_rate * date_part('epoch', v_ends - v_from));
        IF v_can < 0 THEN
            v_can := 0;  -- a quota that was lowered
        END IF;
        IF v_can IS NULL OR v_rest <= v_can THEN
            IF v_rate IS NOT NULL OR why = 'quota' THEN
                at := v_from + coalesce(v_rest / v_rate, 0) * interval '1 second';
            END IF;
            RETURN;
        END IF;
        IF v_can >= greatest(least(v_day, v_month), 0) AND num_nonnulls(v_day, v_month) > 0 THEN
            why := 'quota';
        END IF;
        v_rest := v_rest - v_can;
        v_day := p.daily_quota;
        v_month := CASE WHEN date_trunc('month', v_ends, 'UTC') = v_ends THEN p.monthly_quota ELSE v_month - v_can END;
        v_from := v_ends;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.drained_at(mailgres.providers, bigint, timestamptz) IS
    'When this many emails will have been sent through a provider; null if it cannot be estimated.';

CREATE FUNCTION mailgres.eta()
    RETURNS TABLE (
        route text, emails bigint, later bigint, provider text, starts timestamptz, at timestamptz, why text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v          record;
    v_drained  record;
    v_because  text;
BEGIN
    FOR v IN
        WITH by_route AS (
            SELECT t.route, sum(t.emails)::bigint AS emails, sum(t.emails - t.due)::bigint AS later,
                   max(t.last_due) AS last_due,
                   max(mailgres.now() + (t.emails - mailgres.tokens_of(b)) / b.per_second * interval '1 second')
                       AS tenants_at
            FROM mailgres.current_depth_by_tenant t
            LEFT JOIN mailgres.buckets b ON b.name = 'tenant:' || t.tenant_id
            GROUP BY 1
        )
        SELECT w.*, r.paused, x.provider, mailgres.usable_at(x.provider) AS starts,
               sum(w.emails) OVER (PARTITION BY r.paused, (x.provider).name)::bigint AS ahead
        FROM by_route w
        JOIN mailgres.routes r ON r.route = w.route
        LEFT JOIN LATERAL (
            SELECT p AS provider FROM mailgres.route_providers rp
            JOIN mailgres.providers p ON p.name = rp.provider
            WHERE rp.route = w.route
            ORDER BY mailgres.needs_fallback(p), CASE WHEN mailgres.needs_fallback(p) THEN mailgres.usable_at(p) END, rp.position
            LIMIT 1) x ON true
        ORDER BY w.route
    LOOP
        route := v.route;
        emails := v.emails;
        later := v.later;
        provider := (v.provider).name;
        starts := NULL;
        at := NULL;
        IF v.paused THEN
            why := 'route paused';
        ELSIF provider IS NULL THEN
            why := 'no provider';
        ELSE
            v_because := mailgres.unusable_because(v.provider);
            why := v_because;
            IF isfinite(v.starts) THEN
                starts := v.starts;
                SELECT * INTO v_drained FROM mailgres.drained_at(v.provider, v.ahead, v.starts);
                at := v_drained.at;
                why := CASE WHEN v_drained.why = 'quota' OR v_because IS NULL THEN v_drained.why ELSE v_because END;
                IF v.tenants_at > at THEN
                    at := v.tenants_at;
                    why := 'rate of a tenant';
                END IF;
                IF v.last_due > at THEN
                    at := v.last_due;
                    why := 'schedule';
                END IF;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.eta() IS
    'For each route with waiting emails: how many, when they will have been sent, and what that depends on.';
