-- Which routes can be served now, and by which provider: the first of the route that does not
-- need a fallback. A provider needs one if it is disabled, its circuit is open, it is paused by
-- hand, out of quota, or this worker does not have it. A provider that is rate-limited for at
-- most a minute needs none: its route waits for it.

CREATE TYPE mailgres.usable_route AS (
    route      text,
    providers  text[],   -- the providers that can send now, in order of preference
    probe      boolean   -- one email may probe whether the provider works again
);

CREATE FUNCTION mailgres.needs_fallback(p mailgres.providers) RETURNS boolean
    LANGUAGE sql STABLE
RETURN NOT p.enabled
    OR p.circuit <> 'closed'
    OR coalesce(p.paused_until > mailgres.now(), false)
    OR coalesce(p.limited_until > mailgres.now() AND p.limited_by = 'quota', false)
    OR coalesce(p.limited_until > mailgres.now() + interval '1 minute', false);

COMMENT ON FUNCTION mailgres.needs_fallback(mailgres.providers) IS
    'Whether the next provider of the route is used instead of this one.';

CREATE FUNCTION mailgres.is_probe_due(p mailgres.providers) RETURNS boolean
    LANGUAGE sql STABLE
RETURN p.enabled
    AND (p.paused_until IS NULL OR p.paused_until <= mailgres.now())
    AND (p.limited_until IS NULL OR p.limited_until <= mailgres.now())
    AND CASE p.circuit WHEN 'open' THEN p.circuit_until <= mailgres.now()
                       -- the lease of the probe may have been extended
                       WHEN 'half_open' THEN p.probe_until <= mailgres.now() AND NOT EXISTS (
                           SELECT FROM public.email_queue q
                           WHERE q.status = 'sending' AND q.due_at > mailgres.now() AND q.lease_token = p.probe_token)
                       ELSE false END
    AND (p.captures OR NOT mailgres.is_quarantined());

COMMENT ON FUNCTION mailgres.is_probe_due(mailgres.providers) IS
    'Whether one email may now probe if the provider works again.';

CREATE FUNCTION mailgres.usable_routes(p_providers text[], p_tokenless boolean) RETURNS mailgres.usable_route[]
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF p_tokenless THEN
        RETURN ARRAY(
            SELECT ROW(r.route, NULL, false)::mailgres.usable_route
            FROM mailgres.routes r WHERE NOT r.paused AND NOT mailgres.is_quarantined() ORDER BY r.route);
    END IF;
    RETURN ARRAY(
        SELECT ROW(x.route, x.providers, x.probe)::mailgres.usable_route
        FROM (
            SELECT r.route, array_agg(p.name ORDER BY rp.position) AS providers,
                   (array_agg(mailgres.is_usable(p) AND mailgres.next_token_at(p.name) IS NULL
                              ORDER BY rp.position))[1] AS serves,
                   false AS probe
            FROM mailgres.routes r
            JOIN mailgres.route_providers rp ON rp.route = r.route
            JOIN mailgres.providers p ON p.name = rp.provider
            WHERE NOT r.paused AND NOT mailgres.needs_fallback(p)
              AND (p_providers IS NULL OR p.name = ANY (p_providers))
            GROUP BY r.route
            UNION ALL
            SELECT r.route, ARRAY[p.name], true, true
            FROM mailgres.routes r
            JOIN mailgres.route_providers rp ON rp.route = r.route
            JOIN mailgres.providers p ON p.name = rp.provider
            WHERE NOT r.paused AND p.circuit <> 'closed' AND mailgres.is_probe_due(p)
              AND (p_providers IS NULL OR p.name = ANY (p_providers))
        ) x
        WHERE x.serves
        ORDER BY x.probe DESC, x.route);
END
$$;

COMMENT ON FUNCTION mailgres.usable_routes(text[], boolean) IS
    'The routes that can be served now, probes first.';

-- After a definite rejection the next provider of the route is used.
CREATE FUNCTION mailgres.provider_for(p_email public.email_queue, p_usable text[]) RETURNS text
    LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN p_email.uncertain_since IS NOT NULL THEN p_email.provider
    WHEN cardinality(p_usable) > 1 AND p_email.error_class IN ('transient', 'quota', 'config')
         AND NOT p_email.send_alone
        THEN coalesce(p_usable[array_position(p_usable, p_email.provider) + 1], p_usable[1])
    ELSE p_usable[1] END;

COMMENT ON FUNCTION mailgres.provider_for(public.email_queue, text[]) IS
    'The provider of the next attempt: the preferred one, or the one after the provider that rejected the email; always the same one while an email is uncertain.';
