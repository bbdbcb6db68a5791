-- Thousands of emails in one call, all or none. An element has the names of enqueue_email's
-- arguments without `p_`, and the same defaults.

CREATE FUNCTION public.enqueue_emails(p_emails jsonb) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    c_most     constant int := 50000;
    v_defaults mailgres.request;
    v_requests mailgres.request[];
    v_keys     text[];
    v_bad      record;
BEGIN
    v_defaults.payload := '{}';
    v_defaults.tenant_id := 'default';
    v_keys := ARRAY(SELECT json_object_keys(row_to_json(v_defaults)));
    IF p_emails IS NULL OR jsonb_typeof(p_emails) <> 'array' OR jsonb_array_length(p_emails) > c_most THEN
        PERFORM mailgres.refuse('MG015', 'the emails are not an array of objects, or too many',
            format('Give a JSON array of at most %s objects, one for each email.', c_most));
    END IF;
    SELECT e.ordinality - 1 AS place, e.value INTO v_bad
    FROM jsonb_array_elements(p_emails) WITH ORDINALITY e
    WHERE CASE WHEN jsonb_typeof(e.value) = 'object' THEN e.value - v_keys <> '{}' ELSE true END
    LIMIT 1;
    IF FOUND THEN
        PERFORM mailgres.refuse('MG015',
            format('element %s of the array (counting from 0) is not an object or has an unknown key', v_bad.place),
            format('Known keys: %s.', array_to_string(v_keys, ', ')));
    END IF;

    BEGIN
        v_requests := ARRAY(SELECT r FROM jsonb_populate_recordset(v_defaults, p_emails) r);
    EXCEPTION WHEN data_exception THEN
        PERFORM mailgres.refuse('MG015', format('a value has the wrong type: %s', mailgres.redact_addresses(SQLERRM)),
            'Compare the types of the arguments of enqueue_email.');
    END;
    v_requests := mailgres.for_caller(v_requests, true);
    RETURN QUERY SELECT unnest(mailgres.enqueue_many(
        v_requests, p_emails @? '$[*].idempotency_key', p_emails @? '$[*].attachments'));
END
$$;

COMMENT ON FUNCTION public.enqueue_emails(jsonb) IS
    'Puts many emails into the queue, all or none, and returns their ids in order.';
