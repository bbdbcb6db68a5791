-- The figures that alert rules compare with their thresholds, by rule and subject. The functions read
-- rollups, small tables and short ranges of indexes, never the whole queue. They write nothing, so they
-- also work on a standby, and for an analyst when no worker runs.

CREATE TYPE mailgres.alert_figure AS (
    rule     text,
    subject  text,
    figure   double precision,
    sample   bigint,       -- how much there was to judge by; null: it needs no minimum
    since    timestamptz   -- when it began, if that is known
);

CREATE FUNCTION mailgres.alert_window(p_rule text) RETURNS interval
    LANGUAGE sql STABLE
RETURN (SELECT r.time_window FROM mailgres.alert_rules r WHERE r.name = p_rule);

COMMENT ON FUNCTION mailgres.alert_window(text) IS 'The window of a rule.';

CREATE FUNCTION mailgres.minutes(p_since timestamptz) RETURNS double precision
    LANGUAGE sql STABLE
RETURN CASE WHEN p_since IS NOT NULL THEN date_part('epoch', mailgres.now() - greatest(p_since, 'epoch')) / 60 END;

COMMENT ON FUNCTION mailgres.minutes(timestamptz) IS 'Minutes from then to now.';

-- The depth snapshot has the answer, if it is recent and complete. Otherwise only ready emails are
-- read, with one index step for each tenant and priority, at most 5,000. That is slow only while an
-- old transaction holds vacuum back.
CREATE FUNCTION mailgres.oldest_waiting() RETURNS TABLE (route text, tenant_id text, oldest timestamptz)
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    IF EXISTS (SELECT FROM mailgres.depth d WHERE mailgres.now() BETWEEN d.as_of AND d.valid_until AND NOT d.capped) THEN
        RETURN QUERY SELECT d.route, d.tenant_id, d.oldest_due FROM mailgres.depth_by_tenant d WHERE d.due > 0;
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk AS (
        (SELECT q.route, q.tenant_id, q.priority, q.next_retry_at, 1 AS step
         FROM public.email_queue q WHERE q.ready
         ORDER BY q.route, q.tenant_id, q.priority, q.next_retry_at LIMIT 1)
        UNION ALL
        SELECT n.route, n.tenant_id, n.priority, n.next_retry_at, w.step + 1
        FROM walk w
        CROSS JOIN LATERAL (
            SELECT q.route, q.tenant_id, q.priority, q.next_retry_at
            FROM public.email_queue q
            WHERE q.ready AND (q.route, q.tenant_id, q.priority) > (w.route, w.tenant_id, w.priority)
            ORDER BY q.route, q.tenant_id, q.priority, q.next_retry_at LIMIT 1) n
        WHERE w.step < 5000
    )
    SELECT w.route::text, w.tenant_id::text, min(w.next_retry_at) FROM walk w GROUP BY w.route, w.tenant_id;
END
$$;

COMMENT ON FUNCTION mailgres.oldest_waiting() IS
    'Since when the oldest email of each route and tenant is due.';

CREATE TYPE mailgres.waiting_tenant AS (
    tenant_id  text,
    oldest     timestamptz,
    usable     boolean   -- neither the tenant nor the route is paused, and a provider can send
);

CREATE FUNCTION mailgres.waiting_tenants() RETURNS mailgres.waiting_tenant[]
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW(w.tenant_id, w.oldest,
                   t.paused_at IS NULL AND NOT s.paused AND cardinality(s.usable) > 0)::mailgres.waiting_tenant
        FROM mailgres.oldest_waiting() w
        JOIN mailgres.route_states() s ON s.route = w.route
        LEFT JOIN mailgres.tenants t ON t.tenant_id = w.tenant_id);
END
$$;

COMMENT ON FUNCTION mailgres.waiting_tenants() IS
    'Tenants with due emails: since when the oldest is due, and whether it can be claimed.';

-- Emails are counted up to the highest threshold, or up to 10,000.
CREATE FUNCTION mailgres.most_counted() RETURNS int
    LANGUAGE sql STABLE
RETURN (SELECT least(greatest(max(r.threshold), 10000), 1000000)::int + 1 FROM mailgres.alert_rules r);

COMMENT ON FUNCTION mailgres.most_counted() IS 'The number up to which emails are counted for alerts.';

-- Workers have a heartbeat. Processors have none: they count if they claimed emails in these minutes.
CREATE FUNCTION mailgres.last_seen(p_minutes double precision) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_since  timestamptz := mailgres.now() - p_minutes * interval '1 minute';
    v_seen   timestamptz := (SELECT max(w.seen_at) FROM mailgres.workers w);
BEGIN
    IF v_seen >= v_since THEN
        RETURN v_seen;
    END IF;
    RETURN greatest(
        v_seen,
        (SELECT max(q.leased_at) FROM public.email_queue q WHERE q.status = 'sending' AND q.due_at IS NOT NULL),
        (SELECT l.at FROM public.email_logs l WHERE l.at >= v_since AND l.claimed_at IS NOT NULL LIMIT 1));
END
$$;

COMMENT ON FUNCTION mailgres.last_seen(double precision) IS
    'When a worker or processor was last seen.';

-- A tenant with a rate limit of its own is left out: it waits for that.
CREATE FUNCTION mailgres.figures_of_starving(p_waiting mailgres.waiting_tenant[]) RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE SET enable_nestloop = off SET enable_seqscan = on
AS $$
DECLARE
    v_limit  double precision := (SELECT r.threshold FROM mailgres.alert_rules r WHERE r.name = 'tenant_starved');
BEGIN
    RETURN QUERY
    WITH served AS MATERIALIZED (
        SELECT x.tenant_id, max(x.claimed_at) AS claimed_at FROM mailgres.counted_tenants x GROUP BY 1
    )
    SELECT 'tenant_starved', w.tenant_id, mailgres.minutes(greatest(min(w.oldest), max(c.claimed_at))),
           NULL::bigint, NULL::timestamptz
    FROM unnest(p_waiting) w
    LEFT JOIN served c ON c.tenant_id = w.tenant_id
    WHERE (SELECT mailgres.minutes(max(s.claimed_at)) <= v_limit FROM served s)
      AND w.usable AND mailgres.minutes(w.oldest) > v_limit
      AND NOT EXISTS (SELECT FROM mailgres.buckets b WHERE b.name = 'tenant:' || w.tenant_id)
    GROUP BY w.tenant_id;
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_starving(mailgres.waiting_tenant[]) IS
    'Figures for alerts about tenants that wait while others are served.';

CREATE FUNCTION mailgres.figures_of_waiting() RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_look     constant int := 2000;
    v_most     constant int := mailgres.most_counted();
    v_limit    double precision := (SELECT r.threshold FROM mailgres.alert_rules r WHERE r.name = 'no_processor');
    v_waiting  mailgres.waiting_tenant[] := mailgres.waiting_tenants();
    v_oldest   timestamptz;  -- of all that are due
    v_usable     timestamptz;  -- of emails that a worker could claim
    v_promote  timestamptz;  -- of those that nobody has made ready yet
    v_seen     timestamptz;
BEGIN
    SELECT min(w.oldest), min(w.oldest) FILTER (WHERE w.usable) INTO v_oldest, v_usable FROM unnest(v_waiting) w;
    SELECT min(x.due_at) INTO v_promote FROM (
        SELECT q.due_at, q.ready FROM public.email_queue q
        WHERE q.status = 'pending' AND q.due_at <= mailgres.now() ORDER BY q.due_at LIMIT c_look) x
    WHERE NOT x.ready;
    v_oldest := least(v_oldest, v_promote);
    v_usable := least(v_usable, v_promote);

    IF v_oldest <= mailgres.now() - mailgres.alert_window('backlog') THEN
        RETURN QUERY SELECT 'backlog', '', (
            (SELECT count(*) FROM (SELECT FROM public.email_queue q WHERE q.ready LIMIT v_most) x)
            + (SELECT count(*) FROM (
                SELECT q.ready FROM public.email_queue q
                WHERE q.status = 'pending' AND q.due_at <= mailgres.now() LIMIT v_most) x WHERE NOT x.ready)
            )::double precision, NULL::bigint, v_oldest + mailgres.alert_window('backlog');
    END IF;
    IF mailgres.minutes(v_usable) > v_limit THEN
        v_seen := greatest(mailgres.last_seen(v_limit), v_usable);
        RETURN QUERY SELECT 'no_processor', '', mailgres.minutes(v_seen), NULL::bigint,
                            v_seen + v_limit * interval '1 minute';
    END IF;
    RETURN QUERY SELECT * FROM mailgres.figures_of_starving(v_waiting);
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_waiting() IS 'Figures for alerts about emails that are due and not taken.';

CREATE FUNCTION mailgres.figures_of_emails() RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_most   constant int := mailgres.most_counted();
    v_stuck  constant interval := mailgres.alert_window('stuck_sending');
BEGIN
    RETURN QUERY SELECT 'stuck_sending', '', count(*)::double precision, NULL::bigint,
                        min(x.leased_at) + v_stuck
    FROM (
        SELECT q.leased_at FROM public.email_queue q
        WHERE q.status = 'sending' AND q.due_at IS NOT NULL
          AND q.leased_at <= mailgres.now() - v_stuck LIMIT v_most) x;

    RETURN QUERY SELECT 'parked', x.tenant_id::text, count(*)::double precision, NULL::bigint, min(x.parked_since)
    FROM (
        SELECT q.tenant_id, q.parked_since FROM public.email_queue q
        WHERE q.status = 'pending' AND q.parked_since IS NOT NULL LIMIT v_most) x
    GROUP BY 2;
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_emails() IS 'Figures for alerts about emails that are parked or stuck.';

-- Attempts by the minute in which they ended, templates by the hour in which emails were enqueued.
CREATE FUNCTION mailgres.figures_of_outcomes() RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_first  constant timestamptz := mailgres.now() - (
        SELECT max(r.time_window) FROM mailgres.alert_rules r WHERE r.name IN ('failure_rate', 'dead_letter_rate'));
    v_since  constant timestamptz := mailgres.now() - mailgres.alert_window('template_failing') - interval '1 hour';
    v_most   constant double precision := (
        SELECT r.threshold FROM mailgres.alert_rules r WHERE r.name = 'tenant_dead_letters');
BEGIN
    RETURN QUERY
    WITH minutes AS MATERIALIZED (
        SELECT m.minute, m.outcome, sum(m.emails) AS emails FROM mailgres.counted_by_minute m
        WHERE m.minute > v_first AND m.outcome IN ('sent', 'dead', 'retry') GROUP BY 1, 2
    )
    SELECT r.name, '', 100.0::double precision * coalesce(sum(m.emails) FILTER (WHERE m.outcome <> 'sent'), 0)
                            / nullif(sum(m.emails), 0), sum(m.emails)::bigint, NULL::timestamptz
    FROM mailgres.alert_rules r
    JOIN minutes m ON m.minute > mailgres.now() - r.time_window
        -- an attempt that is retried has failed, but the email is not dead
        AND (m.outcome <> 'retry' OR r.name = 'failure_rate')
    WHERE r.name IN ('failure_rate', 'dead_letter_rate')
    GROUP BY 1;

    RETURN QUERY SELECT 'template_failing', t.template_type,
        100.0::double precision * coalesce(sum(t.emails) FILTER (WHERE t.status = 'failed'), 0) / nullif(sum(t.emails), 0),
        sum(t.emails)::bigint, NULL::timestamptz
    FROM mailgres.counted_by_template t
    WHERE t.hour > v_since
      AND t.status IN ('sent', 'failed')
    GROUP BY 2;

    RETURN QUERY
    WITH dead AS MATERIALIZED (
        SELECT d.tenant_id, sum(d.emails)::double precision AS emails FROM mailgres.counted_dead d GROUP BY 1
    )
    SELECT 'tenant_dead_letters', d.tenant_id, d.emails, NULL::bigint, NULL::timestamptz
    FROM dead d WHERE d.emails > v_most
    UNION ALL
    SELECT r.name, '', (SELECT coalesce(sum(d.emails), 0) FROM dead d), NULL, NULL
    FROM mailgres.alert_rules r WHERE r.name IN ('dead_letters', 'dead_letters_ceiling');

    -- Events are counted by tenant and day: the window begins with its first day.
    RETURN QUERY SELECT r.name, e.name,
        100.0::double precision * CASE r.name WHEN 'bounce_rate' THEN sum(e.hard_bounced) ELSE sum(e.complained) END
            / nullif(CASE r.name WHEN 'bounce_rate' THEN sum(e.reported) ELSE sum(e.delivered) END, 0),
        CASE r.name WHEN 'bounce_rate' THEN sum(e.reported) ELSE sum(e.delivered) END::bigint, NULL::timestamptz
    FROM mailgres.alert_rules r
    JOIN mailgres.counted_by_event e
        ON e.dimension = 'tenant' AND e.hour >= date_trunc('day', mailgres.now() - r.time_window, 'UTC')
    WHERE r.name IN ('bounce_rate', 'complaint_rate')
    GROUP BY r.name, e.name;
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_outcomes() IS 'Figures for alerts about how emails ended.';

CREATE FUNCTION mailgres.figures_of_providers() RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY SELECT 'circuit_open', p.name, greatest(p.reopened, 1)::double precision, NULL::bigint,
                        NULL::timestamptz
    FROM mailgres.providers p WHERE p.circuit <> 'closed' AND p.enabled;

    RETURN QUERY SELECT 'provider_missing', m.provider, mailgres.minutes(m.since), NULL::bigint, m.since
    FROM mailgres.missing_providers() m;

    RETURN QUERY SELECT r.name, s.provider, greatest(
        100.0 * s.used_today / nullif(s.daily_quota, 0), 100.0 * s.used_this_month / nullif(s.monthly_quota, 0)
        )::double precision, NULL::bigint, NULL::timestamptz
    FROM mailgres.provider_states() s, mailgres.alert_rules r
    WHERE s.enabled AND r.name IN ('quota_80', 'quota_90');

    RETURN QUERY SELECT 'webhook_off', '', n.webhook_failures::double precision, NULL::bigint, n.webhook_off_since
    FROM mailgres.notification_state n WHERE n.webhook_off_since IS NOT NULL;

    RETURN QUERY SELECT 'janitor_failing', j.janitor, j.failures::double precision, NULL::bigint, j.since
    FROM mailgres.failing_janitors() j;

    IF mailgres.is_quarantined() THEN
        RETURN QUERY SELECT 'quarantined', '', mailgres.minutes(min(o.oldest)), NULL::bigint, h.quarantined_since
        FROM mailgres.oldest_waiting() o, mailgres.home h GROUP BY h.quarantined_since;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_providers() IS 'Figures for alerts about providers, the webhook, janitors and the quarantine.';

-- With the real clock. PostgreSQL shows the sessions of other users only to a superuser and to
-- members of pg_read_all_stats.
CREATE FUNCTION mailgres.figures_of_database() RETURNS SETOF mailgres.alert_figure
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY SELECT r.name, '', 100.0::double precision * pg_database_size(current_database()) / s.database_capacity,
                        NULL::bigint, NULL::timestamptz
    FROM mailgres.settings s, mailgres.alert_rules r
    WHERE r.name IN ('database_80', 'database_90') AND s.database_capacity IS NOT NULL;

    RETURN QUERY SELECT 'dead_tuples', c.oid::regclass::text,
                        100.0::double precision * x.dead / nullif(x.dead + x.live, 0), x.dead, NULL::timestamptz
    FROM pg_class c
    CROSS JOIN LATERAL (SELECT pg_stat_get_dead_tuples(c.oid) AS dead, pg_stat_get_live_tuples(c.oid) AS live) x
    WHERE c.relkind = 'r' AND (c.relnamespace = 'mailgres'::regnamespace OR c.oid = ANY (
        '{public.email_queue,public.email_logs,public.email_suppressions,public.email_templates}'::regclass[]));

    RETURN QUERY SELECT 'old_transaction', '', (date_part('epoch', max(x.age)) / 60)::double precision,
                        NULL::bigint, NULL::timestamptz
    FROM (
        SELECT clock_timestamp() - a.xact_start AS age FROM pg_stat_activity a
        WHERE a.datname = current_database() AND num_nonnulls(a.backend_xmin, a.backend_xid) > 0
          AND a.backend_type <> 'autovacuum worker' AND a.pid <> pg_backend_pid()
        UNION ALL
        SELECT clock_timestamp() - p.prepared FROM pg_prepared_xacts p WHERE p.database = current_database()
    ) x;
END
$$;

COMMENT ON FUNCTION mailgres.figures_of_database() IS
    'Figures for alerts about the size of the database and what holds vacuum back.';
