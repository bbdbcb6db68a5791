-- What is set about a provider: by what it says of itself, and by operators.

CREATE FUNCTION mailgres.known_provider(p_name text) RETURNS mailgres.providers
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

COMMENT ON FUNCTION mailgres.known_provider(text) IS 'The provider, locked; refuses an unknown name.';

-- What a provider told a worker of its limits; null: it said nothing. Its count of a day
-- goes over the last 24 hours or by a midnight of its own, so it is believed for an hour.
CREATE FUNCTION mailgres.learn_limits(
    p_name text, p_calls_per_second double precision, p_daily int, p_monthly int, p_sent_today int
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- The provider before its usage, as finish locks them. A claim that has the bucket does
    -- not wait for the provider.
    PERFORM mailgres.known_provider(p_name);
    UPDATE mailgres.providers p
    SET daily_quota = coalesce(p_daily, p.daily_quota), monthly_quota = coalesce(p_monthly, p.monthly_quota)
    WHERE p.name = p_name
      AND (p.daily_quota, p.monthly_quota) IS DISTINCT FROM
          (coalesce(p_daily, p.daily_quota), coalesce(p_monthly, p.monthly_quota));
    IF p_calls_per_second BETWEEN 0.000001 AND 1000000 THEN
        PERFORM mailgres.set_bucket('calls:' || p_name, p_calls_per_second);
    END IF;
    INSERT INTO mailgres.quota_usage (provider, period, starts, emails, told, told_until)
    SELECT p.name, 'day', date_trunc('day', mailgres.now(), 'UTC'), 0, p_sent_today,
           mailgres.now() + interval '1 hour'
    FROM mailgres.providers p WHERE p.name = p_name AND p.daily_quota IS NOT NULL AND p_sent_today IS NOT NULL
    ON CONFLICT (provider, period, starts) DO UPDATE
        SET told = excluded.told, told_until = excluded.told_until;
    PERFORM mailgres.heed_quotas(p, NULL) FROM mailgres.providers p WHERE p.name = p_name;
END
$$;

COMMENT ON FUNCTION mailgres.learn_limits(text, double precision, int, int, int) IS
    'Keeps what a provider said of its own limits, for all workers.';

-- Emails that wait because of a provider wait until their time, also when an operator knows
-- better: a larger plan was bought, a fault was fixed. Only the time moves: an email that may have
-- arrived keeps its provider, key and batch, and a batch goes whole or not at all. What somebody
-- else holds at this moment stays as it is: a claim may hold it and wait for the provider.
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
               -- tried whether the provider is back, and waits longer than its policy says
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
          AND (q.scheduled_for IS NULL OR q.scheduled_for <= v_now)  -- else it waits for that
        ORDER BY q.id FOR UPDATE SKIP LOCKED));
    UPDATE public.email_queue q SET next_retry_at = v_now WHERE q.id = ANY (v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.release_waiting(mailgres.providers, boolean) IS
    'Lets emails go at once that wait because of a provider: for its limits, or for all it made them wait for.';

CREATE FUNCTION mailgres.limit_provider(
    p_name text, p_emails_per_second double precision, p_daily int, p_monthly int
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_provider mailgres.providers := mailgres.known_provider(p_name);
BEGIN
    IF p_emails_per_second NOT BETWEEN 0.000001 AND 1000000 OR p_daily < 1 OR p_monthly < 1 THEN
        PERFORM mailgres.refuse('MG071', 'a limit is above zero', 'To stop a provider, pause it.');
    END IF;
    PERFORM mailgres.set_bucket('emails:' || p_name, p_emails_per_second);
    UPDATE mailgres.providers p SET daily_quota = p_daily, monthly_quota = p_monthly WHERE p.name = p_name;
    -- What was waited for may no longer hold.
    IF v_provider.waits_for = 'quota' THEN
        PERFORM mailgres.release_waiting(v_provider, true);
    END IF;
    UPDATE mailgres.providers p SET waits_until = NULL, waits_for = NULL
    WHERE p.name = p_name AND p.waits_for = 'quota';
    PERFORM mailgres.heed_quotas(p, NULL) FROM mailgres.providers p WHERE p.name = p_name;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.limit_provider(text, double precision, int, int) IS
    'Sets how many emails may leave by a provider in a second, a day and a month; null means any number.';

CREATE FUNCTION mailgres.limit_tenant(p_tenant text, p_emails_per_second double precision) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(p_tenant, '') = '' OR p_emails_per_second NOT BETWEEN 0.000001 AND 1000000 THEN
        PERFORM mailgres.refuse('MG071', 'a limit needs a tenant and is above zero', 'To stop a tenant, pause it.');
    END IF;
    PERFORM mailgres.set_bucket('tenant:' || p_tenant, p_emails_per_second);
END
$$;

COMMENT ON FUNCTION mailgres.limit_tenant(text, double precision) IS
    'Sets how many emails of a tenant may leave in a second; null means any number.';

CREATE FUNCTION mailgres.pause_provider(
    p_name text, p_until timestamptz DEFAULT 'infinity', p_reason text DEFAULT NULL
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.known_provider(p_name);
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
    'Claims nothing for a provider until then; what is on its way is finished.';

CREATE FUNCTION mailgres.resume_provider(p_name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.known_provider(p_name);
    UPDATE mailgres.providers p SET paused_until = NULL, pause_reason = NULL WHERE p.name = p_name;
    INSERT INTO mailgres.provider_events (provider, event) VALUES (p_name, 'Resumed');
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.resume_provider(text) IS 'Ends a pause.';

CREATE FUNCTION mailgres.reset_provider(p_name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_provider mailgres.providers := mailgres.known_provider(p_name);
BEGIN
    PERFORM mailgres.release_waiting(v_provider, false);
    UPDATE mailgres.providers p
    SET waits_until = NULL, waits_for = NULL, failures = 0, failed_at = '{}'
    WHERE p.name = p_name;
    IF v_provider.circuit <> 'closed' THEN
        PERFORM mailgres.set_circuit(p_name, 'closed', 'by hand', NULL);
    END IF;
    -- A quota that is used up stays so.
    PERFORM mailgres.heed_quotas(p, NULL) FROM mailgres.providers p WHERE p.name = p_name;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.reset_provider(text) IS
    'Forgets failures and waits of a provider, closes its circuit, and releases the emails that wait for it.';

CREATE FUNCTION mailgres.set_route(p_route text, p_providers text[], p_description text DEFAULT NULL)
    RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(p_route, '') !~ '^[a-z][a-z0-9_-]{0,62}$' OR coalesce(cardinality(p_providers), 0) = 0 THEN
        PERFORM mailgres.refuse('MG072', 'a route needs a name and at least one provider',
            'Names are lower-case letters, digits, - and _; name the providers in the order of preference.');
    END IF;
    PERFORM mailgres.known_provider(x.name)
    FROM (SELECT n AS name FROM unnest(p_providers) n ORDER BY n) x;  -- as everybody locks them
    INSERT INTO mailgres.routes AS r (route, description) VALUES (p_route, coalesce(p_description, ''))
    ON CONFLICT (route) DO UPDATE SET description = coalesce(p_description, r.description), initial = false;
    DELETE FROM mailgres.route_providers rp WHERE rp.route = p_route;
    INSERT INTO mailgres.route_providers (route, position, provider)
    SELECT p_route, min(x.position), x.name FROM unnest(p_providers) WITH ORDINALITY AS x(name, position)
    GROUP BY x.name;
    PERFORM pg_notify('mailgres', '');
END
$$;

COMMENT ON FUNCTION mailgres.set_route(text, text[], text) IS
    'Makes a route, or leads one along other providers.';
