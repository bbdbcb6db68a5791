-- Settings and states of providers, for operators; and the providers that a worker reports.

CREATE FUNCTION mailgres.require_provider(p_name text) RETURNS mailgres.providers
    LANGUAGE plpgsql
AS $$
DECLARE
    v_provider mailgres.providers;
BEGIN
    SELECT * INTO v_provider FROM mailgres.providers p WHERE p.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG070', format('there is no provider %L', p_name),
            format('Known providers: %s.', (SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM mailgres.providers p)));
    END IF;
    RETURN v_provider;
END
$$;

COMMENT ON FUNCTION mailgres.require_provider(text) IS 'The provider, locked; refuses an unknown name.';

CREATE FUNCTION mailgres.register_providers(p_providers jsonb) RETURNS text[]
    LANGUAGE sql
AS $$
    WITH given AS (
        SELECT x.name, x.kind, coalesce(x.captures, false) AS captures, x.idempotent, x.batch_size,
               coalesce(x.fixed_batches, false) AS fixed_batches
        FROM jsonb_to_recordset(p_providers)
            AS x(name text, kind text, captures boolean, idempotent boolean, batch_size int, fixed_batches boolean)
    ), registered AS (
        INSERT INTO mailgres.providers AS p (name, kind, captures, idempotent, batch_size, fixed_batches)
        SELECT g.* FROM given g
        -- a restart with the same settings writes nothing
        WHERE NOT EXISTS (
            SELECT FROM mailgres.providers k
            WHERE (k.name, k.kind, k.captures, k.idempotent, k.batch_size, k.fixed_batches)
                  = (g.name, g.kind, g.captures, g.idempotent, g.batch_size, g.fixed_batches))
        ORDER BY g.name
        ON CONFLICT (name) DO UPDATE
            SET kind = excluded.kind, captures = excluded.captures, idempotent = excluded.idempotent,
                batch_size = excluded.batch_size, fixed_batches = excluded.fixed_batches
        RETURNING p.name, p.xmax = 0 AS is_new
    )
    SELECT coalesce(array_agg(r.name) FILTER (WHERE r.is_new), '{}') FROM registered r
$$;

COMMENT ON FUNCTION mailgres.register_providers(jsonb) IS
    'Registers providers; returns the names of the new ones.';

-- At its start a worker reports its providers, in order of preference:
-- [{name, kind, captures, idempotent, batch_size, fixed_batches, emails_per_second, own_route}].
-- They are registered. A provider with own_route (the account of some tenants) gets a route of the
-- same name. The default route and the rate limits are shared by all workers: the first worker sets
-- them, if the route is still as the migration created it; after that only commands change them,
-- and the worker gets the differences from its own settings.
CREATE FUNCTION mailgres.use_providers(
    p_providers jsonb,
    OUT was_initial boolean, OUT wanted text[], OUT actual text[], OUT other_limits jsonb
)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_new  constant text[] := mailgres.register_providers(p_providers);
BEGIN
    WITH fresh AS (
        INSERT INTO mailgres.routes (route, description)
        SELECT x.name, 'The account of this name.'
        FROM jsonb_to_recordset(p_providers) AS x(name text, own_route boolean)
        WHERE x.own_route AND NOT EXISTS (SELECT FROM mailgres.routes r WHERE r.route = x.name)
        ORDER BY x.name
        ON CONFLICT DO NOTHING RETURNING route
    )
    INSERT INTO mailgres.route_providers (route, position, provider) SELECT f.route, 1, f.route FROM fresh f;

    wanted := ARRAY(
        SELECT x.value ->> 'name' FROM jsonb_array_elements(p_providers) WITH ORDINALITY x
        WHERE NOT coalesce((x.value ->> 'own_route')::boolean, false) ORDER BY x.ordinality);
    was_initial := mailgres.set_initial_route(wanted);
    actual := mailgres.providers_of('default');

    PERFORM mailgres.set_bucket('emails:' || x.name, x.emails_per_second)
    FROM jsonb_to_recordset(p_providers) AS x(name text, emails_per_second double precision)
    WHERE x.emails_per_second IS NOT NULL AND (was_initial OR x.name = ANY (v_new));
    SELECT coalesce(jsonb_object_agg(x.name, b.per_second), '{}') INTO other_limits
    FROM jsonb_to_recordset(p_providers) AS x(name text, emails_per_second double precision)
    LEFT JOIN mailgres.buckets b ON b.name = 'emails:' || x.name
    WHERE x.emails_per_second IS NOT NULL AND b.per_second IS DISTINCT FROM x.emails_per_second;
END
$$;

COMMENT ON FUNCTION mailgres.use_providers(jsonb) IS
    'Registers the providers of a worker; sets the default route if it is still as the migration created it, and returns the actual route.';

-- The limits that a provider reported to a worker; null: not reported. The provider's daily count
-- covers the last 24 hours or starts at its own midnight, so it is used for an hour.
CREATE FUNCTION mailgres.learn_limits(
    p_name text, p_calls_per_second double precision, p_daily int, p_monthly int, p_sent_today int
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- The provider before its usage, as finish locks them. A claim that has locked the bucket does
    -- not wait for the provider.
    PERFORM mailgres.require_provider(p_name);
    UPDATE mailgres.providers p
    SET daily_quota = coalesce(p_daily, p.daily_quota), monthly_quota = coalesce(p_monthly, p.monthly_quota)
    WHERE p.name = p_name
      AND (p.daily_quota, p.monthly_quota) IS DISTINCT FROM
          (coalesce(p_daily, p.daily_quota), coalesce(p_monthly, p.monthly_quota));
    IF p_calls_per_second BETWEEN 0.000001 AND 1000000 THEN
        PERFORM mailgres.set_bucket('calls:' || p_name, p_calls_per_second);
    END IF;
    INSERT INTO mailgres.quota_usage (provider, period, starts, emails, reported, reported_until)
    SELECT p.name, 'day', date_trunc('day', mailgres.now(), 'UTC'), 0, p_sent_today,
           mailgres.now() + interval '1 hour'
    FROM mailgres.providers p WHERE p.name = p_name AND p.daily_quota IS NOT NULL AND p_sent_today IS NOT NULL
    ON CONFLICT (provider, period, starts) DO UPDATE
        SET reported = excluded.reported, reported_until = excluded.reported_until;
    PERFORM mailgres.apply_quotas(p, NULL) FROM mailgres.providers p WHERE p.name = p_name;
END
$$;

COMMENT ON FUNCTION mailgres.learn_limits(text, double precision, int, int, int) IS
    'Stores the limits that a provider reported, for all workers.';

-- Emails that wait because of a provider wait until their time, even when an operator knows that
-- the cause is gone: a larger plan was bought, a fault was fixed. Only the time is changed: an
-- uncertain email keeps its provider, key and batch, and a batch is released as a whole or not at
-- all. Emails that another session has locked are skipped: a claim may hold them and wait for the
-- provider.
CREATE FUNCTION mailgres.release_waiting(p mailgres.providers, p_limits_only boolean) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_now   constant timestamptz := mailgres.now();
    v_ids   uuid[];
BEGIN
    v_ids := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.status = 'pending' AND NOT q.ready AND q.due_at > v_now AND q.provider = p.name
          AND (q.error_class IN ('rate', 'quota')
               -- a probe, which waits longer than its policy says
               OR NOT p_limits_only AND p.circuit <> 'closed' AND q.last_attempt_at >= p.circuit_since
                  AND q.error_class IN ('transient', 'ambiguous')));
    IF NOT p_limits_only THEN
        v_ids := v_ids || ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE (q.uncertain_since IS NOT NULL OR q.parked_since IS NOT NULL AND q.status = 'pending')
              AND q.status = 'pending' AND NOT q.ready AND q.provider = p.name);
    END IF;
    v_ids := mailgres.with_whole_batches(ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (v_ids) AND q.status = 'pending' AND q.next_retry_at > v_now
          AND (q.scheduled_for IS NULL OR q.scheduled_for <= v_now)  -- otherwise it waits for that time
        ORDER BY q.id FOR UPDATE SKIP LOCKED));
    UPDATE public.email_queue q SET next_retry_at = v_now WHERE q.id = ANY (v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.release_waiting(mailgres.providers, boolean) IS
    'Releases emails that wait because of a provider: because of its limits only, or for any reason.';

CREATE FUNCTION mailgres.limit_provider(
    p_name text, p_emails_per_second double precision, p_daily int, p_monthly int
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_provider mailgres.providers := mailgres.require_provider(p_name);
BEGIN
    IF p_emails_per_second NOT BETWEEN 0.000001 AND 1000000 OR p_daily < 1 OR p_monthly < 1 THEN
        PERFORM mailgres.refuse('MG071', 'a limit is above zero', 'To stop a provider, pause it.');
    END IF;
    PERFORM mailgres.set_bucket('emails:' || p_name, p_emails_per_second);
    UPDATE mailgres.providers p SET daily_quota = p_daily, monthly_quota = p_monthly WHERE p.name = p_name;
    -- The reason to wait may be gone.
    IF v_provider.limited_by = 'quota' THEN
        PERFORM mailgres.release_waiting(v_provider, true);
    END IF;
    UPDATE mailgres.providers p SET limited_until = NULL, limited_by = NULL
    WHERE p.name = p_name AND p.limited_by = 'quota';
    PERFORM mailgres.apply_quotas(p, NULL) FROM mailgres.providers p WHERE p.name = p_name;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.limit_provider(text, double precision, int, int) IS
    'Sets how many emails may be sent through a provider in a second, a day and a month; null means no limit.';

CREATE FUNCTION mailgres.pause_provider(
    p_name text, p_until timestamptz DEFAULT 'infinity', p_reason text DEFAULT NULL
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.require_provider(p_name);
    IF p_until <= mailgres.now() THEN
        PERFORM mailgres.refuse('MG073', 'the pause would be over already',
            'Give a time in the future, or none to pause until it is resumed.');
    END IF;
    UPDATE mailgres.providers p SET paused_until = coalesce(p_until, 'infinity'), pause_reason = p_reason
    WHERE p.name = p_name;
    INSERT INTO mailgres.provider_events (provider, event, reason) VALUES (p_name, 'Paused', p_reason);
END
$$;

COMMENT ON FUNCTION mailgres.pause_provider(text, timestamptz, text) IS
    'Stops claims for a provider until then; emails that are being sent are finished.';

CREATE FUNCTION mailgres.resume_provider(p_name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.require_provider(p_name);
    UPDATE mailgres.providers p SET paused_until = NULL, pause_reason = NULL WHERE p.name = p_name;
    INSERT INTO mailgres.provider_events (provider, event) VALUES (p_name, 'Resumed');
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.resume_provider(text) IS 'Ends the pause of a provider.';

CREATE FUNCTION mailgres.reset_provider(p_name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_provider mailgres.providers := mailgres.require_provider(p_name);
BEGIN
    PERFORM mailgres.release_waiting(v_provider, false);
    UPDATE mailgres.providers p
    SET limited_until = NULL, limited_by = NULL, failures = 0, failed_at = '{}'
    WHERE p.name = p_name;
    IF v_provider.circuit <> 'closed' THEN
        PERFORM mailgres.set_circuit(p_name, 'closed', 'by hand', NULL);
    END IF;
    -- A quota that is used up stays used up.
    PERFORM mailgres.apply_quotas(p, NULL) FROM mailgres.providers p WHERE p.name = p_name;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.reset_provider(text) IS
    'Resets the failures and limits of a provider, closes its circuit, and releases the emails that wait for it.';

CREATE FUNCTION mailgres.provider_states()
    RETURNS TABLE (
        provider        text,
        kind            text,
        enabled         boolean,
        usable          boolean,
        circuit         text,
        circuit_since   timestamptz,
        circuit_until   timestamptz,
        circuit_reason  text,
        failures        int,
        paused_until    timestamptz,
        pause_reason    text,
        limited_until     timestamptz,
        limited_by       text,
        emails_per_second  double precision,
        email_tokens    double precision,
        calls_per_second   double precision,
        call_tokens     double precision,
        used_today      int,
        daily_quota     int,
        used_this_month int,
        monthly_quota   int,
        routes          text[])
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.name, p.kind, p.enabled, mailgres.is_usable(p),
           p.circuit, p.circuit_since, CASE WHEN p.circuit = 'open' THEN p.circuit_until END,
           mailgres.redact_addresses(p.circuit_reason),
           p.failures,
           CASE WHEN p.paused_until > mailgres.now() THEN p.paused_until END,
           CASE WHEN p.paused_until > mailgres.now() THEN p.pause_reason END,
           CASE WHEN p.limited_until > mailgres.now() THEN p.limited_until END,
           CASE WHEN p.limited_until > mailgres.now() THEN p.limited_by END,
           e.per_second, mailgres.tokens_of(e), c.per_second, mailgres.tokens_of(c),
           CASE WHEN p.daily_quota IS NOT NULL THEN coalesce(mailgres.used_of_quota(d, mailgres.now()), 0) END, p.daily_quota,
           CASE WHEN p.monthly_quota IS NOT NULL THEN coalesce(m.emails, 0) END, p.monthly_quota,
           ARRAY(SELECT rp.route FROM mailgres.route_providers rp WHERE rp.provider = p.name ORDER BY rp.route)
    FROM mailgres.providers p
    LEFT JOIN mailgres.buckets e ON e.name = 'emails:' || p.name
    LEFT JOIN mailgres.buckets c ON c.name = 'calls:' || p.name
    LEFT JOIN mailgres.quota_usage d
        ON d.provider = p.name AND d.period = 'day' AND d.starts = date_trunc('day', mailgres.now(), 'UTC')
    LEFT JOIN mailgres.quota_usage m
        ON m.provider = p.name AND m.period = 'month' AND m.starts = date_trunc('month', mailgres.now(), 'UTC')
    ORDER BY p.name
$$;

COMMENT ON FUNCTION mailgres.provider_states() IS
    'Every provider: circuit, pause, limits, free tokens, quotas, routes.';
