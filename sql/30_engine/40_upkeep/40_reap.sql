-- Reaps the emails of dead workers. A lost lease does not count as a retry, but an email that
-- keeps killing workers dies as crashed. If a call had started, the provider decides: with keys,
-- the call is repeated with the same key; without, the template says whether a person decides
-- (hold) or the email is sent again (resend). After a restart, a crash or a failover of the server
-- nothing is reaped for the length of a lease, so that live workers can report first.

CREATE FUNCTION mailgres.note_server() RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_server constant uuid := mailgres.current_server();
BEGIN
    UPDATE mailgres.home h SET server = v_server, server_since = mailgres.now()
    WHERE h.server IS DISTINCT FROM v_server
       OR h.server_since > mailgres.now() + interval '1 minute';  -- the clock was set back
END
$$;

COMMENT ON FUNCTION mailgres.note_server() IS
    'Stores since when the server runs without a restart, a crash or a failover, as far as reap() has seen it.';

-- A batch is reaped as a whole or not at all: a worker whose call takes long may still report on
-- the emails that it holds, and the others could never be repeated unchanged. The leases of a
-- batch do not all end at one time, because extend() skips rows that another session has locked.
CREATE FUNCTION mailgres.is_lease_lost(q public.email_queue) RETURNS boolean
    LANGUAGE sql STABLE
RETURN q.lease_until <= mailgres.now()
    AND (SELECT h.server_since FROM mailgres.home h) + (q.lease_until - q.leased_at) <= mailgres.now();

COMMENT ON FUNCTION mailgres.is_lease_lost(public.email_queue) IS
    'Whether the lease of an email has expired, and its worker had time to report.';

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
    'Completes the batches of emails whose lease has expired, or leaves them out; p_held: the batches that another session or a valid lease still holds a part of.';

-- Batches that are held must not hide emails that were lost after them: the search continues
-- until some can be taken.
CREATE FUNCTION mailgres.take_lost(p_limit int) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_ids      uuid[];
    v_held     uuid[];
    v_skipped  uuid[] := '{}';
BEGIN
    LOOP
        v_ids := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.status = 'sending' AND q.due_at <= mailgres.now() AND mailgres.is_lease_lost(q)
              AND (q.batch_id IS NULL OR q.batch_id <> ALL (v_skipped))
            ORDER BY q.due_at
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED);
        SELECT * INTO v_ids, v_held FROM mailgres.rest_of_batches(v_ids);
        EXIT WHEN cardinality(v_ids) > 0 OR cardinality(v_held) = 0;
        v_skipped := v_skipped || v_held;
    END LOOP;
    RETURN v_ids;
END
$$;

COMMENT ON FUNCTION mailgres.take_lost(int) IS
    'Locks emails whose lease has expired, oldest first, and the rest of their batches.';

CREATE FUNCTION mailgres.reap(p_limit int DEFAULT 500) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_ids    uuid[];
    v_count  int;
BEGIN
    PERFORM mailgres.note_server(), mailgres.correct_times(p_limit);
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
    SET status = CASE WHEN d.crashed OR d.hold THEN 'failed' ELSE 'pending' END,
        ready = NOT (d.crashed OR d.hold),
        lease_losses = d.losses,
        uncertain_since = d.uncertain_since,
        batch_id = CASE WHEN d.uncertain_since IS NOT NULL THEN q.batch_id END,
        dead_at = CASE WHEN d.crashed OR d.hold THEN mailgres.now() END,
        dead_reason = CASE WHEN d.crashed THEN 'crashed' WHEN d.hold THEN 'uncertain' END,
        error_class = CASE WHEN d.hold THEN 'ambiguous' ELSE q.error_class END,
        error_message = CASE
            WHEN d.crashed THEN format('%s workers died while they held it', d.losses)
                || CASE WHEN d.uncertain_since IS NOT NULL THEN '; it may have arrived' ELSE '' END
            WHEN d.hold THEN 'the worker died during the call: it may have been sent'
            ELSE q.error_message END,
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
    FROM decided d
    WHERE q.id = d.id AND q.id = ANY (v_ids);  -- repeated for the plan
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.reap(int) IS
    'Reaps emails whose lease has expired; returns how many.';
