-- Addresses that get no email.

-- p_entries: an array of {recipient_email, tenant_id?, reason?, detail?}. Returns for each entry, by
-- its place from 1, whether it was added, was known, or which field is not valid. Entries that are
-- not valid are not stored; the caller decides whether to keep the others.
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
    'Suppresses addresses; returns for each entry whether it was added or known, or which field is not valid.';

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
