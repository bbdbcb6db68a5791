-- What operators set about tenants, retry policies and suppressed addresses.

CREATE FUNCTION mailgres.pause_tenant(p_tenant text, p_reason text DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.set_tenant(p_tenant, '{}');
    UPDATE mailgres.tenants t SET paused_at = coalesce(t.paused_at, mailgres.now()), pause_reason = p_reason
    WHERE t.tenant_id = p_tenant;
END
$$;

COMMENT ON FUNCTION mailgres.pause_tenant(text, text) IS
    'Claims nothing of a tenant until it is resumed; what is on its way is finished.';

CREATE FUNCTION mailgres.resume_tenant(p_tenant text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.tenants t SET paused_at = NULL, pause_reason = NULL
    WHERE t.tenant_id = p_tenant AND t.paused_at IS NOT NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify('mailgres', '');
    RETURN true;
END
$$;

COMMENT ON FUNCTION mailgres.resume_tenant(text) IS 'Ends the pause of a tenant; false if it was not paused.';

CREATE FUNCTION mailgres.weigh_tenant(p_tenant text, p_weight int) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_weight IS NULL OR p_weight NOT BETWEEN 1 AND 100 THEN
        PERFORM mailgres.refuse('MG071', 'a weight is a whole number from 1 to 100', 'To stop a tenant, pause it.');
    END IF;
    PERFORM mailgres.set_tenant(p_tenant, '{}');
    UPDATE mailgres.tenants t SET weight = p_weight WHERE t.tenant_id = p_tenant;
END
$$;

COMMENT ON FUNCTION mailgres.weigh_tenant(text, int) IS
    'Sets how many times three emails a tenant may have in a turn while others wait.';

-- Those about whom something is set, and those who had emails settled in the last days.
CREATE FUNCTION mailgres.tenant_states(p_days int DEFAULT 7) RETURNS TABLE (
    tenant text, weight int, paused_at timestamptz, pause_reason text, emails_per_second double precision,
    route text, contact_email text, sent bigint, failed bigint, cancelled bigint
)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH settled AS (
        SELECT x.tenant_id,
               coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0)::bigint AS sent,
               coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0)::bigint AS failed,
               coalesce(sum(x.emails) FILTER (WHERE x.status = 'cancelled'), 0)::bigint AS cancelled
        FROM (
            SELECT r.tenant_id, r.status, r.emails FROM mailgres.rollup_by_tenant r
            WHERE r.hour > mailgres.now() - p_days * interval '1 day'
            UNION ALL
            SELECT d.tenant_id, d.status, d.emails FROM mailgres.rollup_deltas d
            WHERE d.hour > mailgres.now() - p_days * interval '1 day'
        ) x
        GROUP BY x.tenant_id
    ), waiting AS (
        SELECT DISTINCT w.tenant FROM mailgres.routes r CROSS JOIN LATERAL (
            WITH RECURSIVE walk AS (
                SELECT mailgres.next_tenant(r.route, '', false) AS tenant
                UNION ALL
                SELECT mailgres.next_tenant(r.route, k.tenant, false) FROM walk k WHERE k.tenant IS NOT NULL
            )
            SELECT k.tenant FROM walk k WHERE k.tenant IS NOT NULL
        ) w
    ), known AS (
        SELECT t.tenant_id FROM mailgres.tenants t
        UNION SELECT substr(b.name, 8) FROM mailgres.buckets b WHERE b.name LIKE 'tenant:%'
        UNION SELECT s.tenant_id FROM settled s
        UNION SELECT w.tenant FROM waiting w
    )
    SELECT k.tenant_id, coalesce(t.weight, 1), t.paused_at, t.pause_reason, b.per_second, t.route, t.contact_email,
           coalesce(s.sent, 0), coalesce(s.failed, 0), coalesce(s.cancelled, 0)
    FROM known k
    LEFT JOIN mailgres.tenants t ON t.tenant_id = k.tenant_id
    LEFT JOIN mailgres.buckets b ON b.name = 'tenant:' || k.tenant_id
    LEFT JOIN settled s ON s.tenant_id = k.tenant_id
    ORDER BY k.tenant_id
$$;

COMMENT ON FUNCTION mailgres.tenant_states(int) IS
    'The tenants: what is set about them, and what became of their emails of the last days.';

-- p_settings: what is to change, the columns of retry_policies; what is not named stays,
-- and steps and base take each other's place.
CREATE FUNCTION mailgres.set_policy(p_name text, p_settings jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_policy  mailgres.retry_policies;
BEGIN
    SELECT * INTO v_policy FROM mailgres.retry_policies p WHERE p.name = p_name FOR UPDATE;
    IF NOT FOUND AND NOT (p_settings ? 'max_retries' AND (p_settings ? 'steps' OR p_settings ? 'base')) THEN
        PERFORM mailgres.refuse('MG010', format('there is no retry policy %L', p_name),
            format('To make it, give its retries and its waits. Known policies: %s.',
                   (SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM mailgres.retry_policies p)));
    END IF;
    v_policy.factor := coalesce(v_policy.factor, 2);
    v_policy.cap := coalesce(v_policy.cap, '1 day');
    v_policy.jitter_down := coalesce(v_policy.jitter_down, 0);
    v_policy.jitter_up := coalesce(v_policy.jitter_up, 0);
    v_policy.description := coalesce(v_policy.description, '');
    IF p_settings ? 'steps' THEN
        v_policy.base := NULL;
    ELSIF p_settings ? 'base' THEN
        v_policy.steps := NULL;
    END IF;
    v_policy := jsonb_populate_record(v_policy, p_settings || jsonb_build_object('name', p_name));
    INSERT INTO mailgres.retry_policies SELECT v_policy.*
    ON CONFLICT (name) DO UPDATE
        SET (max_retries, steps, base, factor, cap, jitter_down, jitter_up, description)
            = (excluded.max_retries, excluded.steps, excluded.base, excluded.factor, excluded.cap,
               excluded.jitter_down, excluded.jitter_up, excluded.description);
EXCEPTION
    WHEN check_violation OR not_null_violation OR data_exception THEN
        PERFORM mailgres.refuse('MG074', format('the retry policy %L is not valid', p_name),
            'It takes a name of lower-case letters, 0 to 100 retries, and waits above zero: a list of them, or a first one with a factor from 1 to 10; jitter is a fraction from 0 to 1.');
END
$$;

COMMENT ON FUNCTION mailgres.set_policy(text, jsonb) IS 'Makes a retry policy, or changes one.';

-- p_entries: an array of {recipient_email, tenant_id?, reason?, detail?}. Says of each, by
-- its place from 1, whether it is new, was known or is not valid; those that are not are
-- not written, and the caller decides about the rest.
CREATE FUNCTION mailgres.suppress(p_entries jsonb) RETURNS TABLE (place bigint, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT e.place, e.entry ->> 'recipient_email' AS given,
               mailgres.canonical_address(e.entry ->> 'recipient_email') AS address,
               coalesce(nullif(e.entry ->> 'tenant_id', ''), '*') AS tenant,
               coalesce(nullif(e.entry ->> 'reason', ''), 'manual') AS reason, nullif(e.entry ->> 'detail', '') AS detail
        FROM jsonb_array_elements(p_entries) WITH ORDINALITY e(entry, place)
    ), checked AS MATERIALIZED (
        SELECT g.*, CASE
            WHEN mailgres.is_address(g.given) IS NOT TRUE THEN 'address'
            WHEN g.reason NOT IN ('bounced', 'complained', 'unsubscribed', 'manual') THEN 'reason'
            WHEN length(g.tenant) > 200 THEN 'tenant'
            WHEN length(g.detail) > 1000 THEN 'detail' END AS fault
        FROM given g
    ), added AS (
        INSERT INTO public.email_suppressions (recipient_email, tenant_id, reason, detail)
        SELECT DISTINCT ON (c.address, c.tenant) c.address, c.tenant, c.reason, c.detail
        FROM checked c WHERE c.fault IS NULL ORDER BY c.address, c.tenant, c.place
        ON CONFLICT DO NOTHING
        RETURNING recipient_email, tenant_id
    )
    SELECT c.place, coalesce(c.fault, CASE WHEN a.recipient_email IS NOT NULL
                                            AND row_number() OVER (PARTITION BY c.address, c.tenant ORDER BY c.place) = 1
                                           THEN 'added' ELSE 'known' END)
    FROM checked c
    LEFT JOIN added a ON a.recipient_email = c.address AND a.tenant_id = c.tenant
    ORDER BY c.place;
END
$$;

COMMENT ON FUNCTION mailgres.suppress(jsonb) IS
    'Lets addresses get no more email; says of each entry whether it was added or known, or what of it is not valid.';

CREATE FUNCTION mailgres.unsuppress(p_addresses text[], p_tenant text DEFAULT '*') RETURNS SETOF text
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH removed AS (
        DELETE FROM public.email_suppressions s
        WHERE s.recipient_email IN (SELECT mailgres.canonical_address(a) FROM unnest(p_addresses) a)
          AND s.tenant_id = coalesce(p_tenant, '*')
        RETURNING s.recipient_email
    )
    SELECT a FROM unnest(p_addresses) a
    WHERE mailgres.canonical_address(a) IN (SELECT r.recipient_email FROM removed r)
$$;

COMMENT ON FUNCTION mailgres.unsuppress(text[], text) IS
    'Lets addresses get email again, of one tenant or (*) where all were forbidden; returns those of the given addresses that were suppressed.';
