-- For `mailgres status` and metrics: a few figures, read often.

CREATE FUNCTION mailgres.reported_emails() RETURNS TABLE (event text, emails bigint)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT x.event, x.emails
    FROM (
        SELECT coalesce(sum(c.delivered), 0)::bigint AS delivered, coalesce(sum(c.bounced), 0)::bigint AS bounced,
               coalesce(sum(c.complained), 0)::bigint AS complained, coalesce(sum(c.refused), 0)::bigint AS refused
        FROM mailgres.counted_by_event c
        WHERE c.dimension = 'template' AND c.hour > mailgres.now() - interval '24 hours'
    ) s
    CROSS JOIN LATERAL (VALUES
        (1, 'delivered', s.delivered), (2, 'bounced', s.bounced), (3, 'complained', s.complained),
        (4, 'refused', s.refused),
        (5, 'unmatched', (SELECT count(*) FROM (SELECT FROM mailgres.unmatched_events LIMIT 100000) u))
    ) x(place, event, emails)
    ORDER BY x.place
$$;

COMMENT ON FUNCTION mailgres.reported_emails() IS
    'Emails created in the last 24 hours by what their provider reported, and events without an email (at most 100,000 are counted).';
