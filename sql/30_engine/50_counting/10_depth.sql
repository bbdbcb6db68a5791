-- Counts open emails; see mailgres.depth. One scan of the open emails by their partial indexes,
-- whatever else is in the table, and of at most a million emails of each kind: beyond that the
-- counts are lower bounds.

-- The number of claims so far: how long tenants wait is counted in claims.
CREATE FUNCTION mailgres.claim_number() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT r.last_value FROM mailgres.claim_numbers r $$;

COMMENT ON FUNCTION mailgres.claim_number() IS 'How many claims have been made.';

-- Rows by status, template and retries, and rows by route and tenant (of waiting emails).
-- plpgsql, but planned at each call, whatever settings its caller has: the right plan depends on
-- the number of emails.
CREATE FUNCTION mailgres.count_depth(p_most int DEFAULT 1000000)
    RETURNS TABLE (
        status text, template_type text, retries int, route text, tenant_id text,
        emails bigint, due bigint, recent bigint, parked bigint,
        oldest timestamptz, newest timestamptz, oldest_due timestamptz, last_due timestamptz,
        oldest_lease timestamptz)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan
    SET enable_seqscan = on SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now   constant timestamptz := mailgres.now();
    v_week  constant timestamptz := date_trunc('hour', v_now - interval '7 days', 'UTC');
BEGIN
    RETURN QUERY
    SELECT x.status, x.template_type, x.retries, x.route, x.tenant_id, x.emails, x.due, x.recent, x.parked,
           x.oldest, x.newest, x.oldest_due, x.last_due, x.oldest_lease
    FROM (
        SELECT o.status, o.template_type, o.retries, o.route, o.tenant_id,
               CASE WHEN grouping(o.tenant_id) = 0 THEN count(*) FILTER (WHERE o.status = 'pending')
                    ELSE count(*) END AS emails,
               count(*) FILTER (WHERE o.status = 'pending' AND o.next_retry_at <= v_now) AS due,
               count(*) FILTER (WHERE o.created_at >= v_week) AS recent,
               count(o.parked_since) AS parked,
               min(o.created_at) AS oldest, max(o.created_at) AS newest,
               min(o.next_retry_at) FILTER (WHERE o.status = 'pending' AND o.next_retry_at <= v_now) AS oldest_due,
               max(o.next_retry_at) FILTER (WHERE o.status = 'pending' AND o.next_retry_at > v_now) AS last_due,
               min(o.leased_at) AS oldest_lease
        FROM (
            (SELECT 'pending' AS status, q.template_type::text, q.retries::int AS retries, q.route::text AS route,
                    q.tenant_id::text AS tenant_id, q.created_at, q.next_retry_at, q.parked_since,
                    NULL::timestamptz AS leased_at
             FROM public.email_queue q WHERE q.ready LIMIT p_most)
            UNION ALL
            (SELECT 'pending', q.template_type, q.retries, q.route, q.tenant_id, q.created_at, q.next_retry_at,
                    q.parked_since, NULL
             FROM public.email_queue q WHERE q.status = 'pending' AND NOT q.ready AND q.due_at IS NOT NULL LIMIT p_most)
            UNION ALL
            (SELECT 'sending', q.template_type, q.retries, q.route, q.tenant_id, q.created_at, q.next_retry_at,
                    NULL, q.leased_at
             FROM public.email_queue q WHERE q.status = 'sending' AND q.due_at IS NOT NULL LIMIT p_most)
        ) o
        GROUP BY GROUPING SETS ((o.status, o.template_type, o.retries), (o.route, o.tenant_id))
    ) x
    WHERE x.emails > 0;
END
$$;

COMMENT ON FUNCTION mailgres.count_depth(int) IS
    'Counts open emails now, at most p_most of each kind: by status, template and retries, and by route and tenant.';

-- A janitor calls this every few seconds. A call that comes too early changes nothing: several
-- workers count no more often than one, and counting takes at most a tenth of the time. If there
-- are more emails than can be counted within the statement timeout, the old counts stay valid,
-- with their `as_of`: otherwise every reader would count, too. If there are no counts yet (its
-- row was never valid), fewer emails are counted the next time.
CREATE FUNCTION mailgres.measure_depth(p_every interval DEFAULT '8 seconds') RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    c_most          constant int := CASE
        WHEN EXISTS (SELECT FROM mailgres.depth d WHERE d.valid_until < d.as_of) THEN 10000
        ELSE 1000000 END;
    v_start         constant timestamptz := clock_timestamp();
    v_now           constant timestamptz := mailgres.now();
    v_claim_number  constant bigint := mailgres.claim_number();
    v_took          interval;
    v_most          bigint;
BEGIN
    PERFORM FROM mailgres.depth d
    WHERE v_now BETWEEN d.as_of AND d.tried_at + greatest(p_every, 10 * d.took) - interval '1 microsecond';
    IF FOUND OR NOT pg_try_advisory_xact_lock(hashtext('mailgres.measure_depth')) THEN
        RETURN 0;
    END IF;

    WITH counted AS MATERIALIZED (
        SELECT * FROM mailgres.count_depth(c_most)
    ), by_template AS (
        INSERT INTO mailgres.depth_by_template AS d
            (status, template_type, retries, emails, due, recent, parked, oldest, newest, oldest_due, oldest_lease, as_of)
        SELECT c.status, c.template_type, c.retries, c.emails, c.due, c.recent, c.parked, c.oldest, c.newest,
               c.oldest_due, c.oldest_lease, v_now
        FROM counted c WHERE c.template_type IS NOT NULL
        ON CONFLICT (status, template_type, retries) DO UPDATE
            SET emails = excluded.emails, due = excluded.due, recent = excluded.recent, parked = excluded.parked,
                oldest = excluded.oldest, newest = excluded.newest, oldest_due = excluded.oldest_due,
                oldest_lease = excluded.oldest_lease, as_of = excluded.as_of
    ), by_tenant AS (
        INSERT INTO mailgres.depth_by_tenant AS d
            (route, tenant_id, emails, due, oldest_due, last_due, claim_number, as_of)
        SELECT c.route, c.tenant_id, c.emails, c.due, c.oldest_due, c.last_due, v_claim_number, v_now
        FROM counted c WHERE c.tenant_id IS NOT NULL
        ON CONFLICT (route, tenant_id) DO UPDATE
            SET emails = excluded.emails, due = excluded.due, oldest_due = excluded.oldest_due,
                last_due = excluded.last_due, as_of = excluded.as_of,
                claim_number = CASE WHEN d.due > 0 AND excluded.due > 0 THEN d.claim_number ELSE excluded.claim_number END
    )
    SELECT max(c.emails) INTO v_most FROM (
        SELECT sum(x.emails) AS emails FROM counted x WHERE x.template_type IS NOT NULL GROUP BY x.status) c;

    DELETE FROM mailgres.depth_by_template d WHERE d.as_of <> v_now;
    DELETE FROM mailgres.depth_by_tenant d WHERE d.as_of <> v_now;
    v_took := clock_timestamp() - v_start;
    INSERT INTO mailgres.depth AS d (as_of, tried_at, valid_until, took, capped, claim_number)
    VALUES (v_now, v_now, v_now + greatest(interval '1 minute', 20 * v_took), v_took, coalesce(v_most >= c_most, false), v_claim_number)
    ON CONFLICT (only_row) DO UPDATE
        SET as_of = excluded.as_of, tried_at = excluded.tried_at, valid_until = excluded.valid_until,
            took = excluded.took, capped = excluded.capped, claim_number = excluded.claim_number;
    RETURN 1;
EXCEPTION WHEN query_canceled THEN
    v_took := clock_timestamp() - v_start;
    INSERT INTO mailgres.depth AS d (as_of, tried_at, valid_until, took, capped, claim_number)
    VALUES (v_now, v_now, v_now - interval '1 second', v_took, false, v_claim_number)
    ON CONFLICT (only_row) DO UPDATE
        SET tried_at = excluded.tried_at, took = excluded.took,
            valid_until = CASE WHEN d.valid_until < d.as_of THEN d.valid_until ELSE v_now + 20 * v_took END;
    RETURN 0;
END
$$;

COMMENT ON FUNCTION mailgres.measure_depth(interval) IS
    'Counts open emails and stores the counts, unless they were stored just before; returns 1 if it did, otherwise 0.';

-- The stored counts, or if there are no recent ones, counts of this moment.
CREATE VIEW mailgres.current_depth_by_template WITH (security_invoker = true) AS
SELECT d.status, d.template_type, d.retries, d.emails, d.due, d.recent, d.parked, d.oldest, d.newest,
       d.oldest_due, d.oldest_lease, d.as_of
FROM mailgres.depth_by_template d
WHERE EXISTS (SELECT FROM mailgres.depth x WHERE mailgres.now() BETWEEN x.as_of AND x.valid_until)
UNION ALL
SELECT c.status, c.template_type, c.retries, c.emails, c.due, c.recent, c.parked, c.oldest, c.newest,
       c.oldest_due, c.oldest_lease, mailgres.now()
FROM mailgres.count_depth() c
WHERE c.template_type IS NOT NULL
  AND NOT EXISTS (SELECT FROM mailgres.depth x WHERE mailgres.now() BETWEEN x.as_of AND x.valid_until);

COMMENT ON VIEW mailgres.current_depth_by_template IS
    'Open emails by status, template and retries: the stored counts if they are recent, otherwise counted now.';

CREATE VIEW mailgres.current_depth_by_tenant WITH (security_invoker = true) AS
SELECT d.route, d.tenant_id, d.emails, d.due, d.oldest_due, d.last_due, d.claim_number, d.as_of
FROM mailgres.depth_by_tenant d
WHERE EXISTS (SELECT FROM mailgres.depth x WHERE mailgres.now() BETWEEN x.as_of AND x.valid_until)
UNION ALL
SELECT c.route, c.tenant_id, c.emails, c.due, c.oldest_due, c.last_due, NULL, mailgres.now()
FROM mailgres.count_depth() c
WHERE c.tenant_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM mailgres.depth x WHERE mailgres.now() BETWEEN x.as_of AND x.valid_until);

COMMENT ON VIEW mailgres.current_depth_by_tenant IS
    'Waiting emails by route and tenant: the stored counts if they are recent, otherwise counted now.';
