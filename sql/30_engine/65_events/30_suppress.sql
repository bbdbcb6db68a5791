-- Which events suppress an address: mailgres.suppression_rules. Only a recipient of the email is
-- suppressed. A delivery ends a series of soft bounces; the order is that of occurred_at, so that the
-- order in which events come does not matter.

CREATE FUNCTION mailgres.is_recipient(p_address text, p_queue_id uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM (
            SELECT q.recipient_email, q.also_to, q.cc, q.bcc FROM public.email_queue q WHERE q.id = p_queue_id
            UNION ALL
            SELECT a.recipient_email, a.also_to, a.cc, a.bcc
            FROM mailgres.dead_letters d, jsonb_populate_record(NULL::public.email_queue, d.email) a
            WHERE d.queue_id = p_queue_id
        ) x
        CROSS JOIN LATERAL (
            SELECT x.recipient_email UNION ALL SELECT unnest(x.also_to)
            UNION ALL SELECT unnest(x.cc) UNION ALL SELECT unnest(x.bcc)) a(address)
        WHERE mailgres.canonical_address(a.address) = p_address);
END
$$;

COMMENT ON FUNCTION mailgres.is_recipient(text, uuid) IS
    'Whether an address, in its canonical form, is a recipient of an email in the queue or in the archive.';

CREATE FUNCTION mailgres.series_of(p_address text, p_tenant text, r mailgres.suppression_rules) RETURNS bigint
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT count(DISTINCT e.queue_id) FROM public.email_events e
        WHERE e.recipient_email = p_address AND e.event IN ('bounced', 'complained', 'unsubscribed', 'suppressed')
          AND e.event = r.event AND (r.kind IS NULL OR e.kind = r.kind)
          AND (e.reason IS NULL OR e.reason <> ALL (r.except_reasons))
          AND (r.for_all OR e.tenant_id = p_tenant)
          AND e.occurred_at > coalesce((
              SELECT max(x.occurred_at) FROM public.email_events x
              WHERE x.recipient_email = p_address AND x.event = 'delivered'
                AND (r.for_all OR x.tenant_id = p_tenant)), '-infinity'));
END
$$;

COMMENT ON FUNCTION mailgres.series_of(text, text, mailgres.suppression_rules) IS
    'How many emails to an address had the event of a rule since the last delivery.';

CREATE FUNCTION mailgres.suppress_by_events(p_events public.email_events[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO public.email_suppressions AS s
        (recipient_email, tenant_id, reason, detail, queue_id, source, expires_at)
    SELECT DISTINCT ON (e.recipient_email, t.tenant_id)
           e.recipient_email, t.tenant_id, r.reason, mailgres.redact_addresses(e.detail ->> 'text'), e.queue_id,
           'event', mailgres.now() + r.expires_after
    FROM unnest(p_events) e
    JOIN mailgres.suppression_rules r
        ON r.enabled AND r.event = e.event AND (r.kind IS NULL OR r.kind = e.kind)
        AND (e.reason IS NULL OR e.reason <> ALL (r.except_reasons))
    CROSS JOIN LATERAL (SELECT CASE WHEN r.for_all THEN '*' ELSE e.tenant_id END) t(tenant_id)
    WHERE e.recipient_email IS NOT NULL AND mailgres.is_recipient(e.recipient_email, e.queue_id)
      AND (r.needed = 1 OR mailgres.series_of(e.recipient_email, e.tenant_id, r) >= r.needed)
    ORDER BY e.recipient_email, t.tenant_id, mailgres.suppression_rank(r.reason) DESC, e.occurred_at
    ON CONFLICT (recipient_email, tenant_id) DO UPDATE
        SET reason = excluded.reason, detail = excluded.detail, queue_id = excluded.queue_id,
            source = excluded.source, expires_at = excluded.expires_at, created_at = excluded.created_at
        WHERE s.expires_at <= mailgres.now()
           OR mailgres.suppression_rank(excluded.reason) > mailgres.suppression_rank(s.reason);
END
$$;

COMMENT ON FUNCTION mailgres.suppress_by_events(public.email_events[]) IS
    'Suppresses addresses by the rules, because of new events.';

-- A delivery to an address that several soft bounces suppressed: the mailbox works.
CREATE FUNCTION mailgres.release_delivered(p_events public.email_events[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM public.email_suppressions s
    USING mailgres.suppression_rules r
    WHERE s.recipient_email = ANY (ARRAY(
              SELECT e.recipient_email FROM unnest(p_events) e
              WHERE e.event = 'delivered' AND e.recipient_email IS NOT NULL
                AND mailgres.is_recipient(e.recipient_email, e.queue_id)))
      AND s.reason = 'soft_bounced' AND s.source = 'event' AND r.reason = s.reason AND r.needed > 1
      AND mailgres.series_of(s.recipient_email, s.tenant_id, r) < r.needed;
END
$$;

COMMENT ON FUNCTION mailgres.release_delivered(public.email_events[]) IS
    'Ends suppressions because of soft bounces, where an email was delivered since.';
