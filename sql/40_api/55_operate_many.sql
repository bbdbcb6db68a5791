-- The functions of 50_operate.sql for hundreds of emails, for operators' commands, in one short
-- transaction. They report the result of each email. A refusal is reported, not raised, so that the
-- other emails are handled. No function here waits for a row: an email that another session has
-- locked is reported, too, and the caller can repeat it. So there is no deadlock with claim and
-- finish.
--
-- p_statuses: handle only emails that still have one of these statuses, as they had when the caller
-- chose them; null means any.

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
    'Locks those of the given emails that no other session has locked and that have one of the statuses.';

-- An uncertain batch is sent again as a whole: if another session has locked one of its emails, none
-- is taken. It does not wait for the lock of the batch either, because that comes after the rows'.
CREATE FUNCTION mailgres.with_whole_batches(p_taken uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_batch   record;
    v_all     bigint;
    v_locked  uuid[];
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
        v_locked := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status IN ('pending', 'failed')
            ORDER BY q.id FOR UPDATE SKIP LOCKED);
        IF NOT mailgres.try_lock_batch(v_batch.id) OR cardinality(v_locked) < v_all THEN
            p_taken := ARRAY(SELECT unnest(p_taken) EXCEPT SELECT unnest(v_batch.taken));
        END IF;
    END LOOP;
    RETURN p_taken;
END
$$;

COMMENT ON FUNCTION mailgres.with_whole_batches(uuid[]) IS
    'Locks the rest of uncertain batches, which are sent again as a whole; leaves out batches of which another session has locked an email.';

CREATE FUNCTION mailgres.not_taken(p_ids uuid[], p_taken uuid[], p_statuses text[]) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    SELECT i.id,
           CASE WHEN q.id IS NULL THEN 'MG020' ELSE 'MG026' END,
           CASE WHEN q.id IS NULL THEN 'there is no such email in the queue'
                WHEN p_statuses IS NULL OR q.status = ANY (p_statuses)
                THEN 'another session is changing the email'
                ELSE format('the email is %s now', q.status) END,
           CASE WHEN q.id IS NULL THEN 'Check the id; an email leaves the queue when its retention is over.'
                ELSE 'Check the email, then try again if it is still needed.' END
    FROM unnest(p_ids) i(id)
    LEFT JOIN public.email_queue q ON q.id = i.id
    WHERE i.id <> ALL (p_taken);
END
$$;

COMMENT ON FUNCTION mailgres.not_taken(uuid[], uuid[], text[]) IS
    'Why emails could not be taken: unknown, locked by another session, or changed since.';

CREATE FUNCTION mailgres.cancel_emails(p_ids uuid[], p_reason text DEFAULT NULL, p_statuses text[] DEFAULT NULL)
    RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_taken    constant uuid[] := mailgres.take_emails(p_ids, p_statuses);
    v_results  constant mailgres.action_result[] := ARRAY(
        SELECT (q.id, r.code, r.message, r.hint)::mailgres.action_result
        FROM public.email_queue q CROSS JOIN LATERAL mailgres.cancel_refusal(q) r
        WHERE q.id = ANY (v_taken));
BEGIN
    PERFORM mailgres.cancel_these(ARRAY(SELECT x.id FROM unnest(v_results) x WHERE x.code IS NULL), p_reason);
    RETURN QUERY
    SELECT x.* FROM unnest(v_results) x UNION ALL SELECT n.* FROM mailgres.not_taken(p_ids, v_taken, p_statuses) n;
END
$$;

COMMENT ON FUNCTION mailgres.cancel_emails(uuid[], text, text[]) IS
    'cancel_email for many: a row for each email, with the code of its refusal, or null.';

-- Also returns the rest of batches that were reopened with one of these emails.
CREATE FUNCTION mailgres.retry_emails(
    p_ids uuid[], p_accept_duplicates boolean DEFAULT false, p_statuses text[] DEFAULT NULL
) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_taken      constant uuid[] := mailgres.with_whole_batches(mailgres.take_emails(p_ids, p_statuses));
    v_results    constant mailgres.action_result[] := ARRAY(
        SELECT (q.id, r.code, r.message, r.hint)::mailgres.action_result
        FROM public.email_queue q CROSS JOIN LATERAL mailgres.retry_refusal(q, p_accept_duplicates) r
        WHERE q.id = ANY (v_taken));
    v_accepted   constant uuid[] := ARRAY(SELECT x.id FROM unnest(v_results) x WHERE x.code IS NULL);
    v_reopened   constant uuid[] := mailgres.reopen(v_accepted, p_accept_duplicates);
    v_duplicate  constant mailgres.refusal := mailgres.duplicate_refusal();
BEGIN
    RETURN QUERY SELECT i, NULL::text, NULL::text, NULL::text FROM unnest(v_reopened) i;
    RETURN QUERY SELECT x.* FROM unnest(v_results) x WHERE x.code IS NOT NULL AND x.id <> ALL (v_reopened);
    RETURN QUERY
    SELECT i, v_duplicate.code, v_duplicate.message, v_duplicate.hint
    FROM unnest(v_accepted) i WHERE i <> ALL (v_reopened);
    RETURN QUERY SELECT n.* FROM mailgres.not_taken(p_ids, v_taken || v_reopened, p_statuses) n;
END
$$;

COMMENT ON FUNCTION mailgres.retry_emails(uuid[], boolean, text[]) IS
    'retry_email for many: a row for each email, with the code of its refusal, or null.';

CREATE FUNCTION mailgres.reschedule_emails(
    p_ids uuid[], p_scheduled_for timestamptz, p_statuses text[] DEFAULT NULL
) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_taken    constant uuid[] := mailgres.take_emails(p_ids, p_statuses);
    v_results  constant mailgres.action_result[] := ARRAY(
        SELECT (q.id, r.code, r.message, r.hint)::mailgres.action_result
        FROM public.email_queue q CROSS JOIN LATERAL mailgres.reschedule_refusal(q, p_scheduled_for) r
        WHERE q.id = ANY (v_taken));
BEGIN
    PERFORM mailgres.reschedule_these(ARRAY(SELECT x.id FROM unnest(v_results) x WHERE x.code IS NULL), p_scheduled_for);
    RETURN QUERY
    SELECT x.* FROM unnest(v_results) x UNION ALL SELECT n.* FROM mailgres.not_taken(p_ids, v_taken, p_statuses) n;
END
$$;

COMMENT ON FUNCTION mailgres.reschedule_emails(uuid[], timestamptz, text[]) IS
    'reschedule_email for many: a row for each email, with the code of its refusal, or null.';
