-- What a provider reports after it accepted an email: the one writer of email_events. It never fails
-- for what a provider says: an unknown event is kept, an unknown email is looked up again for a day.
-- Only a call that says nothing is refused.

CREATE FUNCTION mailgres.reported_event(
    p_provider text, p_event text, p_provider_message_id text, p_queue_id uuid, p_event_id text,
    p_occurred_at timestamptz, p_recipient_email text, p_detail jsonb
) RETURNS mailgres.reported_event
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c_longest  constant int := 500;
    c_largest  constant int := 65536;
    c_skew     constant interval := '1 hour';  -- a clock that is further ahead is wrong
    v_detail   jsonb := coalesce(p_detail, '{}');
BEGIN
    IF coalesce(p_event, '') = '' OR p_provider = '' OR p_provider IS NULL AND p_queue_id IS NULL THEN
        PERFORM mailgres.refuse('MG025', 'an event needs a name and the provider that reports it',
            'Give p_provider (the name of the account) and p_event, such as delivered or bounced.');
    END IF;
    IF jsonb_typeof(v_detail) <> 'object' THEN
        v_detail := jsonb_build_object('text', v_detail #>> '{}');
    END IF;
    IF octet_length(v_detail::text) > c_largest THEN
        v_detail := jsonb_strip_nulls(jsonb_build_object(
            'kind', left(v_detail ->> 'kind', 100), 'reason', left(v_detail ->> 'reason', 100),
            'type', left(v_detail ->> 'type', 100), 'text', left(v_detail ->> 'text', 4000),
            'recipients_unknown', v_detail @> '{"recipients_unknown": true}', 'truncated', true));
    END IF;
    RETURN ROW(
        left(p_provider, c_longest), left(p_event, 100), left(nullif(p_provider_message_id, ''), c_longest), p_queue_id,
        CASE WHEN length(p_event_id) > c_longest THEN 'md5 ' || md5(p_event_id) ELSE nullif(p_event_id, '') END,
        CASE WHEN p_occurred_at BETWEEN '1970-01-01 00:00+00' AND mailgres.now() + c_skew THEN p_occurred_at
             ELSE mailgres.now() END,
        left(nullif(p_recipient_email, ''), c_longest), v_detail)::mailgres.reported_event;
END
$$;

COMMENT ON FUNCTION mailgres.reported_event(text, text, text, uuid, text, timestamptz, text, jsonb) IS
    'An event as it is recorded: texts cut, times within reason; refuses one without a name or a provider.';

CREATE FUNCTION public.record_email_event(
    p_provider text,
    p_event text,
    p_provider_message_id text DEFAULT NULL,
    p_queue_id uuid DEFAULT NULL,
    p_event_id text DEFAULT NULL,
    p_occurred_at timestamptz DEFAULT NULL,
    p_recipient_email text DEFAULT NULL,
    p_detail jsonb DEFAULT '{}'
) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    RETURN (mailgres.record_events(ARRAY[mailgres.reported_event(
        p_provider, p_event, p_provider_message_id, p_queue_id, p_event_id, p_occurred_at, p_recipient_email,
        p_detail)]))[1];
END
$$;

COMMENT ON FUNCTION public.record_email_event(text, text, text, uuid, text, timestamptz, text, jsonb) IS
    'Records what a provider reports about an email; returns recorded, duplicate (the event was recorded before) or unmatched (the email is not known, or not yet).';

CREATE FUNCTION public.record_email_events(p_events jsonb) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_most    constant int := 1000;
    v_events  mailgres.reported_event[];
BEGIN
    IF p_events IS NULL OR jsonb_typeof(p_events) <> 'array' OR jsonb_array_length(p_events) > c_most
       OR p_events @? 'strict $[*] ? (@.type() <> "object")' THEN
        PERFORM mailgres.refuse('MG025', 'the events are not an array of objects, or too many',
            format('Give a JSON array of at most %s objects with the arguments of record_email_event, without p_.', c_most));
    END IF;
    BEGIN
        v_events := ARRAY(
            SELECT mailgres.reported_event(r.provider, r.event, r.provider_message_id, r.queue_id, r.event_id,
                                           r.occurred_at, r.recipient_email, r.detail)
            FROM ROWS FROM (jsonb_to_recordset(p_events) AS (
                provider text, event text, provider_message_id text, queue_id uuid, event_id text,
                occurred_at timestamptz, recipient_email text, detail jsonb)) WITH ORDINALITY r
            ORDER BY r.ordinality);
    EXCEPTION WHEN data_exception THEN
        PERFORM mailgres.refuse('MG025', format('a value has the wrong type: %s', mailgres.redact_addresses(SQLERRM)),
            'Compare the types of the arguments of record_email_event.');
    END;
    RETURN QUERY SELECT unnest(mailgres.record_events(v_events));
END
$$;

COMMENT ON FUNCTION public.record_email_events(jsonb) IS
    'Records many events, all or none, as record_email_event does; returns a word for each, in order.';
