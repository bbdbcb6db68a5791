-- Returns everything that enqueue_emails would refuse, without writing: for a file, all bad lines
-- are reported at once. An idempotency key that was used for another email is not detected here,
-- because that needs the rows.

CREATE FUNCTION mailgres.check_emails(p_emails jsonb)
    RETURNS TABLE (place int, code text, message text, hint text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_defaults mailgres.request;
    v_request  mailgres.request;
    v_fault    text;
BEGIN
    v_defaults.payload := '{}';
    v_defaults.tenant_id := 'default';
    BEGIN
        -- Usually no email is bad. (Unknown keys are ignored here.)
        PERFORM FROM mailgres.resolve(mailgres.for_caller(ARRAY(
            SELECT r FROM jsonb_populate_recordset(v_defaults, p_emails) r), true)) x
        WHERE x.fault IS NOT NULL LIMIT 1;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    EXCEPTION WHEN data_exception OR SQLSTATE 'MG019' THEN
        NULL;  -- a value has the wrong type, or an email is of another tenant: found below
    END;
    FOR v_place IN 0 .. jsonb_array_length(p_emails) - 1 LOOP
        place := v_place;
        BEGIN
            v_request := jsonb_populate_record(v_defaults, p_emails -> v_place);
            v_request := (mailgres.for_caller(ARRAY[v_request], false))[1];
            SELECT x.fault INTO v_fault FROM mailgres.resolve(ARRAY[v_request]) x;
            IF v_fault IS NOT NULL THEN
                PERFORM mailgres.refuse_request(v_fault, v_request, NULL);
            END IF;
        EXCEPTION
            WHEN data_exception THEN
                code := 'MG015';
                message := format('a value has the wrong type: %s', mailgres.redact_addresses(SQLERRM));
                hint := 'Compare the types of the arguments of enqueue_email.';
                RETURN NEXT;
            WHEN OTHERS THEN
                IF SQLSTATE NOT LIKE 'MG%' THEN
                    RAISE;
                END IF;
                GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
                RETURN NEXT;
        END;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.check_emails(jsonb) IS
    'Which of these emails enqueue_emails would refuse, by their places, and why; writes nothing.';
