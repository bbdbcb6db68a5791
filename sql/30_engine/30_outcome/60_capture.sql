-- Keeps messages instead of sending them: [{key, queue_id, message}]. For a repeated key the
-- first message is kept.

CREATE FUNCTION mailgres.capture(p_messages jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO mailgres.captured (key, queue_id, message)
    SELECT m.key, m.queue_id, m.message
    FROM jsonb_to_recordset(p_messages) AS m(key text, queue_id uuid, message jsonb)
    ON CONFLICT (key) DO NOTHING;
END
$$;

COMMENT ON FUNCTION mailgres.capture(jsonb) IS 'Keeps messages of the provider capture.';
