-- What the state of an email counts for. A change counts the difference between two states, so the sums
-- equal a count of mailgres.deliveries, whatever the order of the events was.

CREATE FUNCTION mailgres.count_states(p_states mailgres.deliveries[], p_deleted boolean) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO mailgres.event_deltas
        (hour, template_type, tenant_id, domain, reported, delivered, bounced, hard_bounced, complained, opened,
         clicked, unsubscribed, refused, seconds)
    SELECT date_trunc('hour', q.created_at, 'UTC'), q.template_type, q.tenant_id,
           split_part(mailgres.canonical_address(q.recipient_email), '@', 2),
           sum(n.sign * (n.seen & 3552 <> 0)::int),
           sum(n.sign * (n.seen & 3296 <> 0 AND n.seen & 256 = 0)::int),
           sum(n.sign * (n.seen & 256 <> 0)::int), sum(n.sign * (n.seen & 512 <> 0)::int),
           sum(n.sign * (n.seen & 2048 <> 0)::int), sum(n.sign * (n.seen & 64 <> 0)::int),
           sum(n.sign * (n.seen & 128 <> 0)::int), sum(n.sign * (n.seen & 1024 <> 0)::int),
           sum(n.sign * (n.seen & 28 <> 0 AND n.seen & 3552 = 0)::int),
           coalesce(sum(n.sign * mailgres.seconds_between(greatest(q.created_at, q.scheduled_for), n.delivered_at)), 0)
    FROM unnest(p_states) d
    JOIN public.email_queue q ON q.id = d.queue_id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN p_deleted THEN -1 ELSE 1 END, d.seen, CASE WHEN d.seen & 256 = 0 THEN d.delivered_at END
        UNION ALL
        SELECT -1, d.seen_before, CASE WHEN d.seen_before & 256 = 0 THEN d.delivered_before END WHERE NOT p_deleted
    ) n(sign, seen, delivered_at)
    WHERE q.id = ANY (ARRAY(SELECT x.queue_id FROM unnest(p_states) x))
      AND (p_deleted OR d.seen <> d.seen_before OR d.delivered_at IS DISTINCT FROM d.delivered_before)
    GROUP BY 1, 2, 3, 4;
END
$$;

COMMENT ON FUNCTION mailgres.count_states(mailgres.deliveries[], boolean) IS
    'Counts the difference that new states of emails make, or subtracts states that are deleted.';
