-- Addresses that get no email.

-- p_entries: an array of {recipient_email, tenant_id?, reason?, detail?, note?, source?, expires_at?,
-- created_at?}. Returns for each entry, by its place from 1, whether it was added, was known, or which
-- field is not valid. Entries that are not valid are not stored; the caller decides whether to keep the
-- others. An entry with a stronger reason replaces one that is known.
CREATE FUNCTION mailgres.suppress(p_entries jsonb) RETURNS TABLE (place bigint, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT e.place, e.entry ->> 'recipient_email' AS given,
               mailgres.canonical_address(e.entry ->> 'recipient_email') AS address,
               coalesce(nullif(e.entry ->> 'tenant_id', ''), '*') AS tenant,
               coalesce(nullif(e.entry ->> 'reason', ''), 'manual') AS reason, nullif(e.entry ->> 'detail', '') AS detail,
               nullif(e.entry ->> 'note', '') AS note, coalesce(nullif(e.entry ->> 'source', ''), 'operator') AS source,
               mailgres.time_of(e.entry ->> 'expires_at') AS expires_at, e.entry ->> 'expires_at' AS given_expires_at,
               mailgres.time_of(e.entry ->> 'created_at') AS created_at
        FROM jsonb_array_elements(p_entries) WITH ORDINALITY e(entry, place)
    ), checked AS MATERIALIZED (
        SELECT g.*, CASE
            WHEN mailgres.is_address(g.given) IS NOT TRUE THEN 'address'
            WHEN g.reason NOT IN ('bounced', 'soft_bounced', 'complained', 'unsubscribed', 'manual') THEN 'reason'
            WHEN g.source NOT IN ('event', 'provider', 'operator', 'import') THEN 'source'
            WHEN length(g.tenant) > 200 THEN 'tenant'
            WHEN length(g.detail) > 1000 THEN 'detail'
            WHEN length(g.note) > 1000 THEN 'note'
            WHEN nullif(g.given_expires_at, '') IS NOT NULL AND g.expires_at IS NULL THEN 'expiry'
            WHEN g.expires_at <= mailgres.now() THEN 'expired' END AS fault
        FROM given g
    ), added AS (
        INSERT INTO public.email_suppressions AS s
            (recipient_email, tenant_id, reason, detail, note, source, expires_at, created_at)
        SELECT DISTINCT ON (c.address, c.tenant)
               c.address, c.tenant, c.reason, c.detail, c.note, c.source, c.expires_at,
               least(c.created_at, mailgres.now())
        FROM checked c WHERE c.fault IS NULL
        ORDER BY c.address, c.tenant, mailgres.suppression_rank(c.reason) DESC, c.place
        ON CONFLICT (recipient_email, tenant_id) DO UPDATE
            SET reason = excluded.reason, detail = excluded.detail, note = excluded.note, source = excluded.source,
                expires_at = excluded.expires_at, created_at = excluded.created_at, queue_id = NULL
            WHERE s.expires_at <= mailgres.now()
               OR mailgres.suppression_rank(excluded.reason) > mailgres.suppression_rank(s.reason)
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
    'Suppresses addresses; returns for each entry whether it was added or known, or which field is not valid.';

CREATE FUNCTION mailgres.time_of(p_text text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE WHEN isfinite(nullif(p_text, '')::timestamptz) THEN p_text::timestamptz END;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION mailgres.time_of(text) IS 'The time that a text says, or null.';

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
    'Removes suppressions of one tenant, or (*) those for all tenants; returns the given addresses that were suppressed.';

-- What a filter means: tenant, reason, source, containing, domain, since, until; null means any.
CREATE FUNCTION mailgres.is_chosen(s public.email_suppressions, p_filter jsonb) RETURNS boolean
    LANGUAGE sql STABLE
RETURN (p_filter ->> 'tenant' IS NULL OR s.tenant_id = p_filter ->> 'tenant')
    AND (p_filter ->> 'reason' IS NULL OR s.reason = p_filter ->> 'reason')
    AND (p_filter ->> 'source' IS NULL OR s.source = p_filter ->> 'source')
    AND (p_filter ->> 'containing' IS NULL
         OR strpos(s.recipient_email, lower(p_filter ->> 'containing' COLLATE "C")) > 0)
    AND (p_filter ->> 'domain' IS NULL
         OR split_part(s.recipient_email, '@', 2) = mailgres.canonical_address(p_filter ->> 'domain'))
    AND (p_filter ->> 'since' IS NULL OR s.created_at >= (p_filter ->> 'since')::timestamptz)
    AND (p_filter ->> 'until' IS NULL OR s.created_at < (p_filter ->> 'until')::timestamptz);

COMMENT ON FUNCTION mailgres.is_chosen(public.email_suppressions, jsonb) IS
    'Whether a filter of operators chooses a suppression.';

CREATE FUNCTION mailgres.find_suppressions(p_filter jsonb, p_limit int DEFAULT NULL)
    RETURNS SETOF public.email_suppressions
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.* FROM public.email_suppressions s WHERE mailgres.is_chosen(s, p_filter)
    ORDER BY s.created_at DESC, s.recipient_email, s.tenant_id LIMIT p_limit
$$;

COMMENT ON FUNCTION mailgres.find_suppressions(jsonb, int) IS 'The suppressions that a filter chooses, the newest first.';

-- A complaint is a person's wish: a filter releases it only if it names that reason.
CREATE FUNCTION mailgres.release_suppressions(p_filter jsonb) RETURNS SETOF public.email_suppressions
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_filter IS NULL OR jsonb_strip_nulls(p_filter) = '{}' THEN
        PERFORM mailgres.refuse('MG080', 'a filter is needed to release suppressions',
            'Give a reason, a source, a tenant, a domain or a time.');
    END IF;
    RETURN QUERY
    DELETE FROM public.email_suppressions s
    WHERE mailgres.is_chosen(s, p_filter) AND (s.reason <> 'complained' OR p_filter ->> 'reason' = 'complained')
    RETURNING s.*;
END
$$;

COMMENT ON FUNCTION mailgres.release_suppressions(jsonb) IS
    'Removes the suppressions that a filter chooses, and returns them; complaints only if the filter names that reason.';

-- Why an address gets no email, since when, and because of which email.
CREATE FUNCTION mailgres.explain_address(p_address text) RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_build_object(
        'address', a.address,
        'now', mailgres.now(),
        'suppressions', (
            SELECT coalesce(jsonb_agg(to_jsonb(s) || jsonb_build_object(
                'holds', mailgres.suppresses(s, false),
                'template_type', q.template_type, 'sent_at', q.sent_at) ORDER BY s.tenant_id), '[]')
            FROM public.email_suppressions s LEFT JOIN public.email_queue q ON q.id = s.queue_id
            WHERE s.recipient_email = a.address),
        'events', (
            SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.occurred_at DESC, e.id DESC), '[]')
            FROM (
                SELECT x.id, x.queue_id, x.event, x.kind, x.reason, x.occurred_at, x.provider, x.tenant_id,
                       x.template_type, x.detail ->> 'text' AS text
                FROM public.email_events x
                WHERE x.recipient_email = a.address
                  AND x.event IN ('delivered', 'bounced', 'complained', 'unsubscribed', 'suppressed')
                ORDER BY x.occurred_at DESC LIMIT 20) e),
        'series', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                'rule', r.name, 'emails', mailgres.series_of(a.address, NULL, r), 'needed', r.needed) ORDER BY r.name), '[]')
            FROM mailgres.suppression_rules r WHERE r.enabled AND r.needed > 1 AND r.for_all))
    FROM (SELECT mailgres.canonical_address(p_address) AS address) a
$$;

COMMENT ON FUNCTION mailgres.explain_address(text) IS
    'Why an address is suppressed, since when, because of which email, and its last events.';
