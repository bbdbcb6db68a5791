-- The state of an email: a merge of its events that gives the same for every order and any number of
-- copies.

-- An email that was sent again has a new id at the provider, and a new state. An event with an id that
-- is not the current one is only recorded. While an email waits or is being sent, an id in its log is
-- that of an earlier message.
CREATE FUNCTION mailgres.is_current_message(p_message_id text, p_queue_id uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_status   text;
    v_current  text;
BEGIN
    IF p_message_id IS NULL THEN
        RETURN true;
    END IF;
    SELECT q.status, q.provider_message_id INTO v_status, v_current FROM public.email_queue q WHERE q.id = p_queue_id;
    IF v_status IN ('pending', 'sending') THEN
        RETURN NOT EXISTS (
            SELECT FROM public.email_logs l
            WHERE l.provider_message_id = p_message_id AND l.queue_id = p_queue_id);
    END IF;
    RETURN v_current IS NULL OR v_current = p_message_id;
END
$$;

COMMENT ON FUNCTION mailgres.is_current_message(text, uuid) IS
    'Whether an event with this id of the provider is about the last message of an email.';

CREATE FUNCTION mailgres.merge_events(p_events public.email_events[]) RETURNS SETOF mailgres.deliveries
    LANGUAGE sql
AS $$
    INSERT INTO mailgres.deliveries AS d
        (queue_id, seen, sent_at, delivered_at, opened_at, clicked_at, bounced_at, bounce_kind, bounce_reason,
         complained_at, unsubscribed_at, failed_at)
    SELECT e.queue_id, bit_or(e.bits),
           min(e.occurred_at) FILTER (WHERE e.event = 'sent'),
           min(e.occurred_at) FILTER (WHERE e.event = 'delivered'),
           min(e.occurred_at) FILTER (WHERE e.event = 'opened'),
           min(e.occurred_at) FILTER (WHERE e.event = 'clicked'),
           min(e.occurred_at) FILTER (WHERE e.event = 'bounced'),
           (array_agg(e.kind ORDER BY mailgres.kind_rank(e.kind) DESC, e.reason) FILTER (WHERE e.event = 'bounced'))[1],
           (array_agg(e.reason ORDER BY mailgres.kind_rank(e.kind) DESC, e.reason) FILTER (WHERE e.event = 'bounced'))[1],
           min(e.occurred_at) FILTER (WHERE e.event = 'complained'),
           min(e.occurred_at) FILTER (WHERE e.event = 'unsubscribed'),
           min(e.occurred_at) FILTER (WHERE e.event IN ('failed', 'rejected', 'suppressed'))
    FROM (
        SELECT x.queue_id, x.event, x.occurred_at, x.kind, x.reason, b.bits
        FROM unnest(p_events) x
        CROSS JOIN LATERAL (SELECT mailgres.event_bits(x.event, x.kind, x.reason)) b(bits)
        WHERE b.bits <> 0 AND mailgres.is_current_message(x.provider_message_id, x.queue_id)
    ) e
    GROUP BY e.queue_id
    ORDER BY e.queue_id  -- one order, so that two that merge at once do not deadlock
    ON CONFLICT (queue_id) DO UPDATE
        SET seen = d.seen | excluded.seen,
            seen_before = d.seen,
            sent_at = least(d.sent_at, excluded.sent_at),
            delivered_before = d.delivered_at,
            delivered_at = least(d.delivered_at, excluded.delivered_at),
            opened_at = least(d.opened_at, excluded.opened_at),
            clicked_at = least(d.clicked_at, excluded.clicked_at),
            bounced_at = least(d.bounced_at, excluded.bounced_at),
            bounce_kind = CASE WHEN mailgres.kind_rank(excluded.bounce_kind) > mailgres.kind_rank(d.bounce_kind)
                               THEN excluded.bounce_kind ELSE d.bounce_kind END,
            bounce_reason = CASE sign(mailgres.kind_rank(excluded.bounce_kind) - mailgres.kind_rank(d.bounce_kind))
                                WHEN 1 THEN excluded.bounce_reason
                                WHEN 0 THEN least(d.bounce_reason, excluded.bounce_reason)
                                ELSE d.bounce_reason END,
            complained_at = least(d.complained_at, excluded.complained_at),
            unsubscribed_at = least(d.unsubscribed_at, excluded.unsubscribed_at),
            failed_at = least(d.failed_at, excluded.failed_at)
    RETURNING d.*
$$;

COMMENT ON FUNCTION mailgres.merge_events(public.email_events[]) IS
    'Merges new events into the state of their emails; returns the new states.';

-- What the state says about the status. That an email arrived weighs more than that it was not sent
-- (one of several recipients may be refused), and this more than that the provider accepted it.
CREATE FUNCTION mailgres.settle_by_events(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    c_arrived  constant int := 3552;  -- delivered, opened, clicked, bounced, unsubscribed, complained
    c_refused  constant int := 28;    -- failed, rejected, suppressed
    c_accepted constant int := 3;     -- sent, delayed
BEGIN
    UPDATE public.email_queue q
    SET status = 'sent', ready = false, uncertain_since = NULL, dead_at = NULL, dead_reason = NULL,
        sent_at = coalesce((SELECT max(l.at) FROM public.email_logs l
                            WHERE d.made_dead AND l.queue_id = q.id AND l.event = 'sent'), mailgres.now()),
        provider_message_id = coalesce(m.message_id, q.provider_message_id, q.id::text),
        resend_id = CASE WHEN p.kind = 'resend' THEN coalesce(m.message_id, q.resend_id) ELSE q.resend_id END,
        error_message = NULL, error_class = NULL, error_code = NULL, error_detail = NULL,
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
    FROM mailgres.deliveries d
    LEFT JOIN LATERAL (
        SELECT min(e.provider_message_id) AS message_id FROM public.email_events e
        WHERE e.queue_id = d.queue_id AND mailgres.is_current_message(e.provider_message_id, e.queue_id)) m ON true
    LEFT JOIN mailgres.providers p ON p.name = (SELECT x.provider FROM public.email_queue x WHERE x.id = d.queue_id)
    WHERE q.id = ANY (p_ids) AND d.queue_id = q.id AND q.status <> 'sent'
      AND CASE WHEN d.seen & c_arrived <> 0
               THEN q.uncertain_since IS NOT NULL OR q.attempt_started_at IS NOT NULL
                    OR q.status = 'failed' AND d.made_dead
               ELSE d.seen & c_refused = 0 AND d.seen & c_accepted <> 0 AND q.uncertain_since IS NOT NULL END;

    UPDATE mailgres.deliveries d SET made_dead = true
    FROM public.email_queue q
    WHERE d.queue_id = ANY (p_ids) AND q.id = d.queue_id
      AND d.seen & c_refused <> 0 AND d.seen & c_arrived = 0 AND NOT d.made_dead
      AND (q.status = 'sent' OR q.uncertain_since IS NOT NULL AND q.status IN ('pending', 'failed'));
    UPDATE public.email_queue q
    SET status = 'failed', ready = false, sent_at = NULL, uncertain_since = NULL,
        dead_at = CASE WHEN q.status = 'failed' AND q.uncertain_since IS NULL THEN q.dead_at ELSE mailgres.now() END,
        dead_reason = CASE WHEN d.seen & 4096 <> 0 THEN 'quota' ELSE 'permanent' END,
        provider_message_id = coalesce(
            (SELECT min(e.provider_message_id) FROM public.email_events e
             WHERE e.queue_id = q.id AND mailgres.is_current_message(e.provider_message_id, e.queue_id)),
            nullif(q.provider_message_id, q.id::text)),  -- the id of an email whose id nobody knows
        error_class = CASE WHEN d.seen & 4096 <> 0 THEN 'quota' ELSE 'permanent' END,
        error_code = d.state,
        error_detail = left(m.message, 4000),
        error_message = coalesce(nullif(m.message, ''), 'the provider reported that it was not sent')
    FROM mailgres.deliveries d
    LEFT JOIN LATERAL (
        SELECT e.detail ->> 'text' AS message FROM public.email_events e
        WHERE e.queue_id = d.queue_id AND e.event IN ('failed', 'rejected', 'suppressed')
        ORDER BY e.occurred_at, e.detail ->> 'text' LIMIT 1) m ON true
    WHERE q.id = ANY (p_ids) AND d.queue_id = q.id AND d.made_dead
      AND d.seen & c_refused <> 0 AND d.seen & c_arrived = 0
      -- a second failure may say more than the first
      AND (q.status IN ('sent', 'failed') OR q.uncertain_since IS NOT NULL AND q.status = 'pending');
END
$$;

COMMENT ON FUNCTION mailgres.settle_by_events(uuid[]) IS
    'Settles uncertain emails, and those that their provider did not send after all, by the state that events gave them.';
