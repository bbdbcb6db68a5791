-- Records events, many in one statement. An event whose email is not known waits; a copy of an event
-- changes nothing.

-- Emails whose status an event may change are locked before their state. All locks are taken in the
-- order of ids. The others keep their row from being deleted, and nobody waits for that.
CREATE FUNCTION mailgres.lock_emails_of_events(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM FROM public.email_queue q WHERE q.id = ANY (p_ids) ORDER BY q.id FOR KEY SHARE;
    PERFORM FROM public.email_queue q
    WHERE q.id = ANY (p_ids) AND (q.status IN ('pending', 'failed') OR q.uncertain_since IS NOT NULL)
    ORDER BY q.id FOR NO KEY UPDATE;
END
$$;

COMMENT ON FUNCTION mailgres.lock_emails_of_events(uuid[]) IS
    'Locks the emails of events, so that they are neither deleted nor changed meanwhile.';

-- p_emails: for each event the id of its email, null if it is not known.
CREATE FUNCTION mailgres.insert_events(p_events mailgres.reported_event[], p_emails uuid[])
    RETURNS public.email_events[]
    LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_inserted public.email_events[];
BEGIN
    WITH emails AS MATERIALIZED (
        SELECT q.id, q.tenant_id, q.template_type, q.provider, q.recipient_email,
               coalesce(cardinality(q.also_to), 0) + coalesce(cardinality(q.cc), 0) + coalesce(cardinality(q.bcc), 0) AS others
        FROM public.email_queue q WHERE q.id = ANY (p_emails)
        UNION ALL
        SELECT d.queue_id, d.tenant_id, d.template_type, a.provider, a.recipient_email,
               coalesce(cardinality(a.also_to), 0) + coalesce(cardinality(a.cc), 0) + coalesce(cardinality(a.bcc), 0)
        FROM mailgres.dead_letters d, jsonb_populate_record(NULL::public.email_queue, d.email) a
        WHERE d.queue_id = ANY (p_emails)
          AND NOT EXISTS (SELECT FROM public.email_queue q WHERE q.id = d.queue_id)
    ), added AS (
        INSERT INTO public.email_events AS n
            (queue_id, provider, event, occurred_at, kind, reason, tenant_id, template_type, provider_message_id,
             event_id, recipient_email, detail)
        SELECT m.id, coalesce(e.provider, m.provider, ''), e.event, e.occurred_at, k.kind, k.reason, m.tenant_id,
               m.template_type, e.provider_message_id, e.event_id,
               mailgres.recipient_of_event(e.recipient_email, e.detail @> '{"recipients_unknown": true}',
                                           m.recipient_email, m.others),
               e.detail
        FROM unnest(p_events, p_emails) AS
            e(provider, event, provider_message_id, queue_id, event_id, occurred_at, recipient_email, detail, email_id)
        JOIN emails m ON m.id = e.email_id
        CROSS JOIN LATERAL (SELECT e.detail ->> 'kind', e.detail ->> 'reason') g(kind, reason)
        CROSS JOIN LATERAL (SELECT
            CASE WHEN e.event = 'bounced' THEN
                CASE WHEN g.kind IN ('hard', 'soft') THEN g.kind ELSE 'undetermined' END END AS kind,
            CASE WHEN e.event IN ('bounced', 'delayed', 'failed', 'rejected', 'suppressed') THEN
                CASE WHEN g.reason IN ('mailbox_unknown', 'mailbox_full', 'content', 'size', 'reputation', 'policy',
                                       'timed_out') OR g.reason = 'quota' AND e.event = 'failed'
                     THEN g.reason ELSE 'other' END END AS reason) k
        -- one order, so that two that record the same events at once do not deadlock
        ORDER BY e.provider, e.event_id
        ON CONFLICT (provider, event_id) WHERE event_id IS NOT NULL DO NOTHING
        RETURNING n
    )
    SELECT array_agg(a.n) INTO v_inserted FROM added a;
    RETURN coalesce(v_inserted, '{}');
END
$$;

COMMENT ON FUNCTION mailgres.insert_events(mailgres.reported_event[], uuid[]) IS
    'Stores the events of known emails; returns those that are new.';

CREATE FUNCTION mailgres.keep_unmatched(p_events mailgres.reported_event[]) RETURNS text[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_event    mailgres.reported_event;
    v_results  text[] := '{}';
BEGIN
    FOREACH v_event IN ARRAY p_events LOOP
        INSERT INTO mailgres.unmatched_events
            (provider, event, provider_message_id, queue_id, event_id, occurred_at, recipient_email, detail)
        VALUES (coalesce(v_event.provider, ''), v_event.event, v_event.provider_message_id, v_event.queue_id,
                v_event.event_id, v_event.occurred_at, v_event.recipient_email, v_event.detail)
        ON CONFLICT (provider, event_id) WHERE event_id IS NOT NULL DO NOTHING;
        v_results := v_results || CASE WHEN FOUND THEN 'unmatched' ELSE 'duplicate' END;
    END LOOP;
    RETURN v_results;
END
$$;

COMMENT ON FUNCTION mailgres.keep_unmatched(mailgres.reported_event[]) IS
    'Keeps events whose emails are not known; returns for each whether it is new.';

-- What new events change: the state of their emails, their status, suppressions, counts.
CREATE FUNCTION mailgres.apply_events(p_events public.email_events[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_states  constant mailgres.deliveries[] := ARRAY(SELECT d FROM mailgres.merge_events(p_events) d);
    v_ids     constant uuid[] := ARRAY(SELECT d.queue_id FROM unnest(v_states) d);
BEGIN
    PERFORM mailgres.count_states(v_states, false);
    PERFORM FROM public.email_queue q
    JOIN mailgres.deliveries d ON d.queue_id = q.id
    WHERE q.id = ANY (v_ids) AND (q.status <> 'sent' OR d.seen & 28 <> 0) LIMIT 1;
    IF FOUND THEN
        PERFORM mailgres.settle_by_events(v_ids);
    END IF;
    IF EXISTS (SELECT FROM unnest(p_events) e
               WHERE e.event IN (SELECT r.event FROM mailgres.suppression_rules r WHERE r.enabled)) THEN
        PERFORM mailgres.suppress_by_events(p_events);
    END IF;
    IF EXISTS (
        SELECT FROM public.email_suppressions s
        WHERE s.recipient_email = ANY (ARRAY(
                  SELECT e.recipient_email FROM unnest(p_events) e WHERE e.event = 'delivered'))
          AND s.reason = 'soft_bounced') THEN
        PERFORM mailgres.release_delivered(p_events);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.apply_events(public.email_events[]) IS
    'Changes what follows from new events: the state of emails, their status, suppressions and counts.';

-- A report that an email was not sent can come before the worker has stored that it was: then it waits
-- with the unmatched events, so that the order does not matter.
CREATE FUNCTION mailgres.is_too_early(p_event text, p_queue_id uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN p_event IN ('failed', 'rejected', 'suppressed')
       AND EXISTS (SELECT FROM public.email_queue q WHERE q.id = p_queue_id AND q.status = 'sending');
END
$$;

COMMENT ON FUNCTION mailgres.is_too_early(text, uuid) IS
    'Whether an event has to wait until the outcome of the attempt is stored.';

CREATE FUNCTION mailgres.record_events(p_events mailgres.reported_event[]) RETURNS text[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_emails     constant uuid[] := ARRAY(
        SELECT CASE WHEN NOT mailgres.is_too_early(e.event, x.id) THEN x.id END
        FROM unnest(p_events) WITH ORDINALITY e
        CROSS JOIN LATERAL (SELECT mailgres.email_of_event(e.provider, e.queue_id, e.provider_message_id)) x(id)
        ORDER BY e.ordinality);
    v_inserted   public.email_events[];
    v_results    text[];
    v_unmatched  int[];
    v_kept       text[];
BEGIN
    PERFORM mailgres.lock_emails_of_events(v_emails);
    v_inserted := mailgres.insert_events(p_events, v_emails);
    IF cardinality(v_inserted) > 0 THEN
        PERFORM mailgres.apply_events(v_inserted);
    END IF;

    v_results := ARRAY(
        SELECT CASE WHEN v_emails[e.ordinality] IS NULL THEN 'unmatched'
                    WHEN e.event_id IS NULL THEN 'recorded'
                    WHEN n.event_id IS NOT NULL
                         AND row_number() OVER (PARTITION BY e.provider, e.event_id ORDER BY e.ordinality) = 1
                    THEN 'recorded' ELSE 'duplicate' END
        FROM unnest(p_events) WITH ORDINALITY e
        LEFT JOIN unnest(v_inserted) n
            ON n.event_id = e.event_id AND (n.provider = e.provider OR e.provider IS NULL AND n.queue_id = e.queue_id)
        ORDER BY e.ordinality);
    v_unmatched := array_positions(v_results, 'unmatched');
    IF cardinality(v_unmatched) > 0 THEN
        v_kept := mailgres.keep_unmatched(ARRAY(SELECT p_events[i] FROM unnest(v_unmatched) WITH ORDINALITY u(i, n) ORDER BY u.n));
        FOR i IN 1 .. cardinality(v_unmatched) LOOP
            v_results[v_unmatched[i]] := v_kept[i];
        END LOOP;
    END IF;
    RETURN v_results;
END
$$;

COMMENT ON FUNCTION mailgres.record_events(mailgres.reported_event[]) IS
    'Records events; returns for each, in order: recorded, duplicate or unmatched.';
