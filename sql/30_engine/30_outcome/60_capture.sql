-- Keeps messages instead of sending them: [{key, queue_id, message}]. For a repeated key the
-- first message is kept. Returns the faults that the caller has to simulate; each is used once.
-- A fault that happens before a provider accepts an email (timeout, reject) keeps no message.

CREATE FUNCTION mailgres.take_capture_fault(p_recipient text, p_template text) RETURNS text
    LANGUAGE sql
BEGIN ATOMIC
    DELETE FROM mailgres.capture_faults f
    WHERE f.id = (
        SELECT c.id FROM mailgres.capture_faults c
        WHERE (c.recipient_email IS NULL OR mailgres.canonical_address(c.recipient_email) = mailgres.canonical_address(p_recipient))
          AND (c.template_type IS NULL OR c.template_type = p_template)
        ORDER BY c.id
        LIMIT 1
        FOR UPDATE SKIP LOCKED)
    RETURNING f.fault;
END;

COMMENT ON FUNCTION mailgres.take_capture_fault(text, text) IS
    'Takes the oldest fault that is meant for such an email; null: none is.';

CREATE FUNCTION mailgres.capture(p_messages jsonb) RETURNS TABLE (key text, fault text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    c_most_bytes  constant bigint := 41943040;  -- of the files of one message: 40 MiB
    v_faults      jsonb := '{}';
BEGIN
    IF EXISTS (SELECT FROM mailgres.capture_faults) THEN
        -- A key that was captured is a repeated call: it gets the same answer again.
        SELECT coalesce(jsonb_object_agg(t.key, t.fault) FILTER (WHERE t.fault IS NOT NULL), '{}') INTO v_faults
        FROM (SELECT m.key, mailgres.take_capture_fault(m.message ->> 'to', q.template_type) AS fault
              FROM jsonb_to_recordset(p_messages) AS m(key text, queue_id uuid, message jsonb)
              LEFT JOIN public.email_queue q ON q.id = m.queue_id
              WHERE NOT EXISTS (SELECT FROM mailgres.captured c WHERE c.key = m.key)
              OFFSET 0) t;
    END IF;
    WITH kept AS (
        INSERT INTO mailgres.captured AS c (key, queue_id, captured_at, message, report)
        SELECT m.key, m.queue_id, mailgres.now() + (clock_timestamp() - now()),  -- in the order of the messages
               m.message, CASE v_faults ->> m.key WHEN 'bounce' THEN 'bounced' END
        FROM jsonb_to_recordset(p_messages) AS m(key text, queue_id uuid, message jsonb)
        WHERE coalesce(v_faults ->> m.key, '') NOT IN ('timeout', 'reject')
        ON CONFLICT (key) DO NOTHING
        RETURNING c.key, c.queue_id, c.message),
    files AS (
        SELECT k.key, a.position, a.filename, a.content_type, a.content_id, octet_length(a.content) AS bytes, a.content,
               sum(octet_length(a.content)) OVER (PARTITION BY k.key) AS all_bytes
        FROM kept k
        JOIN mailgres.attachments a ON a.queue_id = k.queue_id
        WHERE k.message -> 'attachments' <> '[]')
    INSERT INTO mailgres.captured_files (key, position, filename, content_type, content_id, bytes, content)
    SELECT f.key, f.position, f.filename, f.content_type, f.content_id, f.bytes,
           CASE WHEN f.all_bytes <= c_most_bytes THEN f.content END
    FROM files f;
    RETURN QUERY SELECT e.key, e.value FROM jsonb_each_text(v_faults) e;
END
$$;

COMMENT ON FUNCTION mailgres.capture(jsonb) IS
    'Keeps messages of the provider capture; returns the faults to simulate, by key.';

-- A bounce is reported after the email counts as sent, as by the webhook of a real provider.
CREATE FUNCTION mailgres.report_captured(p_limit int DEFAULT 100) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_done     int := 0;
    v_message  mailgres.captured;
BEGIN
    FOR v_message IN
        SELECT c.* FROM mailgres.captured c
        WHERE c.report IS NOT NULL
          AND NOT EXISTS (SELECT FROM public.email_queue q
                          WHERE q.id = c.queue_id AND q.status IN ('pending', 'sending'))
        ORDER BY c.captured_at LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM public.record_email_event(
            NULL, v_message.report, p_queue_id => v_message.queue_id, p_event_id => v_message.report || ' ' || v_message.key,
            p_detail => '{"kind": "hard", "reason": "mailbox_unknown", "text": "a simulated bounce: no such mailbox"}');
        UPDATE mailgres.captured c SET report = NULL WHERE c.key = v_message.key;
        v_done := v_done + 1;
    END LOOP;
    RETURN v_done;
END
$$;

COMMENT ON FUNCTION mailgres.report_captured(int) IS
    'Records the events that the provider capture simulates; returns how many.';

CREATE FUNCTION mailgres.delete_captured(p_limit int DEFAULT 500) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_before  timestamptz;
    v_bytes   bigint;
    v_done    int;
BEGIN
    SELECT mailgres.now() - s.captured_ttl, s.captured_bytes INTO v_before, v_bytes FROM mailgres.settings s;
    DELETE FROM mailgres.captured c
    WHERE c.key = ANY (ARRAY(
        SELECT k.key FROM mailgres.captured k WHERE k.captured_at < v_before ORDER BY k.captured_at LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_done = ROW_COUNT;

    IF (SELECT sum(f.bytes) FROM mailgres.captured_files f WHERE f.content IS NOT NULL) > v_bytes THEN
        UPDATE mailgres.captured_files f SET content = NULL
        FROM (SELECT x.key, x.position,
                     sum(x.bytes) OVER (ORDER BY c.captured_at DESC, x.key, x.position) AS newer
              FROM mailgres.captured_files x JOIN mailgres.captured c USING (key)
              WHERE x.content IS NOT NULL) o
        WHERE f.key = o.key AND f.position = o.position AND o.newer > v_bytes;
    END IF;
    RETURN v_done;
END
$$;

COMMENT ON FUNCTION mailgres.delete_captured(int) IS
    'Deletes captured messages after captured_ttl, and the oldest attachments beyond captured_bytes; returns how many messages.';
