-- Events can come before the worker has stored the provider's id of the email, and about emails that
-- another application sent. They are looked up again for a day, less and less often, and then deleted.

-- An event can come while the email is being sent, and the worker can die before it stores the outcome:
-- the email is uncertain then, but the event says what happened. An event of an earlier message says
-- nothing about this one. Uncertain emails are few, and have an index.
CREATE FUNCTION mailgres.settle_uncertain(p_limit int) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_ids uuid[];
BEGIN
    v_ids := ARRAY(
        SELECT q.id FROM public.email_queue q
        JOIN mailgres.deliveries d ON d.queue_id = q.id
        WHERE q.uncertain_since IS NOT NULL AND q.status IN ('pending', 'failed') AND d.seen <> 0
          AND EXISTS (SELECT FROM public.email_events e
                      WHERE e.queue_id = q.id AND e.received_at >= coalesce(q.first_attempt_at, q.uncertain_since))
        ORDER BY q.id LIMIT p_limit FOR NO KEY UPDATE OF q SKIP LOCKED);
    IF cardinality(v_ids) > 0 THEN
        PERFORM mailgres.settle_by_events(v_ids);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.settle_uncertain(int) IS
    'Settles emails that became uncertain after their events came.';

CREATE FUNCTION mailgres.match_email_events(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_kept    constant interval := '1 day';
    v_due     bigint[];
    v_events  mailgres.reported_event[];
    v_known   bigint[];
    v_emails  uuid[];
BEGIN
    PERFORM mailgres.settle_uncertain(p_limit);
    v_due := ARRAY(
        SELECT u.id FROM mailgres.unmatched_events u
        WHERE u.next_lookup_at <= mailgres.now()
        ORDER BY u.next_lookup_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    IF cardinality(v_due) = 0 THEN
        RETURN 0;
    END IF;
    SELECT array_agg(ROW(x.provider, x.event, x.provider_message_id, x.queue_id, x.event_id, x.occurred_at,
                         x.recipient_email, x.detail)::mailgres.reported_event ORDER BY x.id),
           array_agg(x.id ORDER BY x.id), array_agg(x.email_id ORDER BY x.id)
    INTO v_events, v_known, v_emails
    FROM (
        SELECT u.*, mailgres.email_of_event(nullif(u.provider, ''), u.queue_id, u.provider_message_id) AS email_id
        FROM mailgres.unmatched_events u WHERE u.id = ANY (v_due)
    ) x
    WHERE x.email_id IS NOT NULL AND NOT mailgres.is_too_early(x.event, x.email_id);
    IF v_known IS NOT NULL THEN
        PERFORM mailgres.lock_emails_of_events(v_emails);
        PERFORM mailgres.apply_events(mailgres.insert_events(v_events, v_emails));
    END IF;

    DELETE FROM mailgres.unmatched_events u
    WHERE u.id = ANY (v_due) AND (u.id = ANY (v_known) OR u.received_at <= mailgres.now() - c_kept);
    UPDATE mailgres.unmatched_events u
    SET looked_up = u.looked_up + 1,
        next_lookup_at = mailgres.now() + least(interval '5 seconds' * 4 ^ least(u.looked_up, 6), interval '1 hour')
    WHERE u.id = ANY (v_due);
    RETURN cardinality(v_due);
END
$$;

COMMENT ON FUNCTION mailgres.match_email_events(int) IS
    'Looks for the emails of events that came before them, and deletes events that no email was found for within a day; returns how many it looked at.';
