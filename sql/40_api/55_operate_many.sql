-- The same by the hundred, for operators' commands: cancel, retry and reschedule many emails
-- in one short transaction, and say of each what came of it. What cannot be done is
-- reported, not raised, so that the rest is done. None of it ever waits for a row: one
-- that somebody else holds is reported, too, and the caller comes back to it. So whoever
-- claims and finishes meanwhile is never waited for in a circle.
--
-- p_statuses: only emails that still have one of these statuses, as they had when the
-- caller chose them; null means any.

CREATE TYPE mailgres.action_result AS (id uuid, code text, message text, hint text);

CREATE FUNCTION mailgres.take_emails(p_ids uuid[], p_statuses text[]) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
BEGIN
    RETURN ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND (p_statuses IS NULL OR q.status = ANY (p_statuses))
        ORDER BY q.id FOR UPDATE SKIP LOCKED);
END
$$;

COMMENT ON FUNCTION mailgres.take_emails(uuid[], text[]) IS
    'Locks those of the given emails that nobody holds and that have one of the statuses.';

-- Who may have arrived in a batch goes again with all of it: where somebody else holds one of
-- the rest, none of it is to be had. Not waiting for the batch either, it takes its lock after
-- those of rows.
CREATE FUNCTION mailgres.with_whole_batches(p_taken uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_batch  record;
    v_all    bigint;
    v_mine   uuid[];
BEGIN
    FOR v_batch IN
        SELECT q.batch_id AS id, array_agg(q.id) AS taken
        FROM public.email_queue q
        WHERE q.id = ANY (p_taken) AND mailgres.is_in_uncertain_batch(q) AND mailgres.key_protects(q)
        GROUP BY q.batch_id
    LOOP
        v_all := (
            SELECT count(*) FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status IN ('pending', 'failed'));
        v_mine := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status IN ('pending', 'failed')
            ORDER BY q.id FOR UPDATE SKIP LOCKED);
        IF NOT mailgres.try_lock_batch(v_batch.id) OR cardinality(v_mine) < v_all THEN
            p_taken := ARRAY(SELECT unnest(p_taken) EXCEPT SELECT unnest(v_batch.taken));
        END IF;
    END LOOP;
    RETURN p_taken;
END
$$;

COMMENT ON FUNCTION mailgres.with_whole_batches(uuid[]) IS
    'Locks the rest of batches that have to go again as a whole; leaves out emails of which somebody else holds the rest.';

CREATE FUNCTION mailgres.not_taken(p_ids uuid[], p_taken uuid[], p_statuses text[]) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    SELECT i.id,
           CASE WHEN q.id IS NULL THEN 'MG020' ELSE 'MG026' END,
           CASE WHEN q.id IS NULL THEN 'there is no such email in the queue'
                WHEN p_statuses IS NULL OR q.status = ANY (p_statuses)
                THEN 'somebody else is changing the email at this moment'
                ELSE format('the email is %s now', q.status) END,
           CASE WHEN q.id IS NULL THEN 'Check the id; an email leaves the queue when its retention is over.'
                ELSE 'Look at it again, and repeat what is still to be done.' END
    FROM unnest(p_ids) i(id)
    LEFT JOIN public.email_queue q ON q.id = i.id
    WHERE i.id <> ALL (p_taken);
END
$$;

COMMENT ON FUNCTION mailgres.not_taken(uuid[], uuid[], text[]) IS
    'Why emails could not be taken: unknown, held by somebody else, or changed since.';

CREATE FUNCTION mailgres.cancel_emails(p_ids uuid[], p_reason text DEFAULT NULL, p_statuses text[] DEFAULT NULL)
    RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_taken  constant uuid[] := mailgres.take_emails(p_ids, p_statuses);
    v_email  public.email_queue;
    v_no     mailgres.refusal;
    v_done   uuid[] := '{}';
BEGIN
    FOR v_email IN SELECT * FROM public.email_queue q WHERE q.id = ANY (v_taken) LOOP
        v_no := mailgres.cancel_refusal(v_email);
        IF v_no.code IS NULL THEN
            v_done := v_done || v_email.id;
        END IF;
        RETURN NEXT (v_email.id, v_no.code, v_no.message, v_no.hint);
    END LOOP;
    PERFORM mailgres.cancel_these(v_done, p_reason);
    RETURN QUERY SELECT * FROM mailgres.not_taken(p_ids, v_taken, p_statuses);
END
$$;

COMMENT ON FUNCTION mailgres.cancel_emails(uuid[], text, text[]) IS
    'cancel_email for many: a row for each, with the code of what stood in the way, or none.';

-- Also returns the rest of batches that went again with one of these emails.
CREATE FUNCTION mailgres.retry_emails(
    p_ids uuid[], p_accept_duplicates boolean DEFAULT false, p_statuses text[] DEFAULT NULL
) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_taken  uuid[];
    v_email  public.email_queue;
    v_no     mailgres.refusal;
    v_may    uuid[] := '{}';
    v_not    mailgres.action_result[] := '{}';
    v_done   uuid[];
BEGIN
    v_taken := mailgres.with_whole_batches(mailgres.take_emails(p_ids, p_statuses));
    FOR v_email IN SELECT * FROM public.email_queue q WHERE q.id = ANY (v_taken) LOOP
        v_no := mailgres.retry_refusal(v_email, p_accept_duplicates);
        IF v_no.code IS NULL THEN
            v_may := v_may || v_email.id;
        ELSE
            v_not := v_not || (v_email.id, v_no.code, v_no.message, v_no.hint)::mailgres.action_result;
        END IF;
    END LOOP;
    v_done := mailgres.reopen(v_may, p_accept_duplicates);
    RETURN QUERY SELECT d, NULL::text, NULL::text, NULL::text FROM unnest(v_done) d;
    RETURN QUERY SELECT n.* FROM unnest(v_not) n WHERE n.id <> ALL (v_done);
    v_no := mailgres.duplicate_refusal();
    RETURN QUERY SELECT m, v_no.code, v_no.message, v_no.hint FROM unnest(v_may) m WHERE m <> ALL (v_done);
    RETURN QUERY SELECT n.* FROM mailgres.not_taken(p_ids, v_taken || v_done, p_statuses) n;
END
$$;

COMMENT ON FUNCTION mailgres.retry_emails(uuid[], boolean, text[]) IS
    'retry_email for many: a row for each, with the code of what stood in the way, or none.';

CREATE FUNCTION mailgres.reschedule_emails(
    p_ids uuid[], p_scheduled_for timestamptz, p_statuses text[] DEFAULT NULL
) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_taken  constant uuid[] := mailgres.take_emails(p_ids, p_statuses);
    v_email  public.email_queue;
    v_no     mailgres.refusal;
    v_done   uuid[] := '{}';
BEGIN
    FOR v_email IN SELECT * FROM public.email_queue q WHERE q.id = ANY (v_taken) LOOP
        v_no := mailgres.reschedule_refusal(v_email, p_scheduled_for);
        IF v_no.code IS NULL THEN
            v_done := v_done || v_email.id;
        END IF;
        RETURN NEXT (v_email.id, v_no.code, v_no.message, v_no.hint);
    END LOOP;
    PERFORM mailgres.reschedule_these(v_done, p_scheduled_for);
    RETURN QUERY SELECT * FROM mailgres.not_taken(p_ids, v_taken, p_statuses);
END
$$;

COMMENT ON FUNCTION mailgres.reschedule_emails(uuid[], timestamptz, text[]) IS
    'reschedule_email for many: a row for each, with the code of what stood in the way, or none.';
