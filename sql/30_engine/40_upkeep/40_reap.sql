-- Takes back the emails of workers that died. A lost lease is not a retry, but an
-- email that keeps killing workers is taken out as crashed. What a call that had
-- begun means depends on the provider: with keys it is repeated with the same key;
-- without, the template says whether a person decides (hold) or it is sent again.
-- After a restart of the database nothing is reaped for the length of the lease,
-- so that workers that live can report first.

-- A batch comes back whole or not at all: the worker whose call takes long may still tell of
-- those that were left to it, and the others could never be repeated as they were. The leases
-- of a batch do not all end at one time: who lengthens them passes by what somebody has locked.
CREATE FUNCTION mailgres.is_lease_lost(q public.email_queue) RETURNS boolean
    LANGUAGE sql STABLE
RETURN q.lease_until <= mailgres.now()
    AND pg_postmaster_start_time() + (q.lease_until - q.leased_at) <= mailgres.now();

COMMENT ON FUNCTION mailgres.is_lease_lost(public.email_queue) IS
    'Whether the lease of an email has ended, and its worker had the time to report.';

CREATE FUNCTION mailgres.rest_of_batches(INOUT p_ids uuid[], OUT p_held uuid[])
    LANGUAGE plpgsql
AS $$
DECLARE
    v_batches  constant uuid[] := ARRAY(
        SELECT DISTINCT q.batch_id FROM public.email_queue q WHERE q.id = ANY (p_ids) AND q.batch_id IS NOT NULL);
BEGIN
    p_held := '{}';
    IF cardinality(v_batches) = 0 THEN
        RETURN;
    END IF;
    p_ids := p_ids || ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.status = 'sending' AND q.due_at <= mailgres.now() AND mailgres.is_lease_lost(q)
          AND q.batch_id = ANY (v_batches) AND q.id <> ALL (p_ids)
        FOR UPDATE SKIP LOCKED);
    p_held := ARRAY(
        SELECT DISTINCT q.batch_id FROM public.email_queue q
        WHERE q.status = 'sending' AND q.due_at IS NOT NULL
          AND q.batch_id = ANY (v_batches) AND q.id <> ALL (p_ids));
    p_ids := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND (q.batch_id IS NULL OR q.batch_id <> ALL (p_held)));
END
$$;

COMMENT ON FUNCTION mailgres.rest_of_batches(uuid[]) IS
    'Makes whole the batches of emails whose lease has ended, or leaves them out; p_held: those of which somebody has a part, by a lease or at this moment, to tell how it ended.';

-- Batches that are held must not hide what died after them: the next are looked at, until some
-- can be taken.
CREATE FUNCTION mailgres.take_lost(p_limit int) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_ids   uuid[];
    v_held  uuid[];
    v_pass  uuid[] := '{}';
BEGIN
    LOOP
        v_ids := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.status = 'sending' AND q.due_at <= mailgres.now() AND mailgres.is_lease_lost(q)
              AND (q.batch_id IS NULL OR q.batch_id <> ALL (v_pass))
            ORDER BY q.due_at
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED);
        SELECT * INTO v_ids, v_held FROM mailgres.rest_of_batches(v_ids);
        EXIT WHEN cardinality(v_ids) > 0 OR cardinality(v_held) = 0;
        v_pass := v_pass || v_held;
    END LOOP;
    RETURN v_ids;
END
$$;

COMMENT ON FUNCTION mailgres.take_lost(int) IS
    'Locks emails whose lease has ended, oldest first, and the rest of their batches.';

CREATE FUNCTION mailgres.reap(p_limit int DEFAULT 500) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_ids    uuid[];
    v_count  int;
BEGIN
    PERFORM mailgres.correct_times(p_limit);
    v_ids := mailgres.take_lost(p_limit);
    WITH lost AS MATERIALIZED (
        SELECT q.id,
               q.lease_losses + (NOT q.lease_is_tokenless)::int AS losses,
               coalesce(q.uncertain_since, q.attempt_started_at) AS uncertain_since,
               q.attempt_started_at IS NOT NULL AND NOT coalesce(p.idempotent, false)
                   AND coalesce(t.on_uncertain, 'hold') = 'hold' AS hold
        FROM public.email_queue q
        LEFT JOIN mailgres.providers p ON p.name = q.provider
        LEFT JOIN public.email_templates t ON t.template_type = q.template_type
        WHERE q.id = ANY (v_ids)
    ), decided AS (
        SELECT l.*, l.losses >= s.max_lease_losses AS crashed
        FROM lost l CROSS JOIN mailgres.settings s
    )
    UPDATE public.email_queue q
    SET status = CASE WHEN j.crashed OR j.hold THEN 'failed' ELSE 'pending' END,
        ready = NOT (j.crashed OR j.hold),
        lease_losses = j.losses,
        uncertain_since = j.uncertain_since,
        batch_id = CASE WHEN j.uncertain_since IS NOT NULL THEN q.batch_id END,
        dead_at = CASE WHEN j.crashed OR j.hold THEN mailgres.now() END,
        dead_reason = CASE WHEN j.crashed THEN 'crashed' WHEN j.hold THEN 'uncertain' END,
        error_class = CASE WHEN j.hold THEN 'ambiguous' ELSE q.error_class END,
        error_message = CASE
            WHEN j.crashed THEN format('%s workers died while they held it', j.losses)
                || CASE WHEN j.uncertain_since IS NOT NULL THEN '; it may have arrived' ELSE '' END
            WHEN j.hold THEN 'the worker died during the call: it may have been sent'
            ELSE q.error_message END,
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
    FROM decided j
    WHERE q.id = j.id AND q.id = ANY (v_ids);  -- said again for the plan
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.reap(int) IS
    'Takes back emails whose lease has ended; returns how many.';
