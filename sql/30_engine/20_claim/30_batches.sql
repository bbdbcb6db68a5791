-- Emails that go to the provider in one call, under one key. A call whose outcome is
-- unknown is repeated with the same emails in the same order or not at all, so the
-- claim stores who belongs together, and leases such a batch whole.

-- Whoever may have arrived together with others stays with them, whatever became of it
-- since: expired, suppressed.
CREATE FUNCTION mailgres.is_in_uncertain_batch(q public.email_queue) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN q.uncertain_since IS NOT NULL AND q.batch_id IS NOT NULL;

COMMENT ON FUNCTION mailgres.is_in_uncertain_batch(public.email_queue) IS
    'Whether the email may have arrived in a batch, and so has to stay with the rest of it.';

CREATE TYPE mailgres.call_plan AS (ids uuid[], batches uuid[], sizes int[]);

-- Puts emails into calls: urgent ones, those with files, those that were rejected
-- elsewhere or with a whole batch go alone, the others together; those whose sender was
-- at fault among themselves, so that they hold up nobody else. At most p_calls, urgent
-- and others in turn.
CREATE FUNCTION mailgres.plan_calls(p_ids uuid[], p_batch_size int, p_calls int, p_usable text[])
    RETURNS mailgres.call_plan
    LANGUAGE plpgsql
AS $$
DECLARE
    v_plan mailgres.call_plan;
BEGIN
    WITH emails AS (
        SELECT q.id, q.priority <= 2 AS urgent, q.uncertain_since IS NOT NULL AS uncertain, q.batch_id,
               q.priority <= 2 OR q.has_attachments OR q.uncertain_since IS NOT NULL
                   OR q.send_alone
                   OR mailgres.provider_for(q, p_usable) <> p_usable[1] AS alone,
               q.parked_since IS NOT NULL AS parked
        FROM public.email_queue q WHERE q.id = ANY (p_ids)
    ), numbered AS (
        SELECT e.*, CASE
            WHEN e.uncertain THEN coalesce(e.batch_id, e.id)::text
            WHEN e.alone THEN e.id::text
            ELSE e.parked || ' ' || (row_number() OVER (PARTITION BY e.alone, e.parked ORDER BY e.id) - 1)
                                    / p_batch_size END AS call
        FROM emails e
    ), calls AS (
        SELECT n.call, count(*)::int AS size, bool_or(n.urgent) AS urgent,
               CASE WHEN count(*) > 1 OR bool_or(n.uncertain AND n.batch_id IS NOT NULL)
                    THEN coalesce((array_agg(n.batch_id) FILTER (WHERE n.uncertain))[1], gen_random_uuid())
               END AS batch_id
        FROM numbered n GROUP BY n.call
    ), made AS (
        SELECT c.* FROM (
            SELECT c.*, row_number() OVER (PARTITION BY c.urgent ORDER BY c.call) AS turn FROM calls c
        ) c
        ORDER BY c.turn, c.urgent DESC LIMIT p_calls
    )
    SELECT array_agg(n.id), array_agg(m.batch_id), array_agg(CASE WHEN m.batch_id IS NOT NULL THEN m.size END)
    INTO v_plan.ids, v_plan.batches, v_plan.sizes
    FROM numbered n JOIN made m USING (call);
    RETURN v_plan;
END
$$;

COMMENT ON FUNCTION mailgres.plan_calls(uuid[], int, int, text[]) IS
    'Puts emails into calls of a provider that takes several in one.';

-- At most one claim at a time has to do with a batch; the others pass it by.
CREATE FUNCTION mailgres.try_lock_batch(p_batch uuid) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    RETURN pg_try_advisory_xact_lock(hashtextextended('mailgres batch ' || p_batch, 0));
END
$$;

COMMENT ON FUNCTION mailgres.try_lock_batch(uuid) IS
    'Whether this transaction alone has to do with a batch, to its end.';

-- A batch brings in emails of tenants whom the claim did not come to: their buckets, too, are
-- had at once or not at all (see tenant_room).
CREATE FUNCTION mailgres.try_lock_buckets(p_ids uuid[]) RETURNS boolean
    LANGUAGE plpgsql
AS $$
DECLARE
    v_names  constant text[] := ARRAY(
        SELECT DISTINCT 'tenant:' || q.tenant_id FROM public.email_queue q WHERE q.id = ANY (p_ids));
    v_mine   int;
BEGIN
    SELECT count(*) INTO v_mine FROM (
        SELECT FROM mailgres.buckets b WHERE b.name = ANY (v_names) FOR UPDATE SKIP LOCKED) x;
    RETURN v_mine = (SELECT count(*) FROM mailgres.buckets b WHERE b.name = ANY (v_names));
END
$$;

COMMENT ON FUNCTION mailgres.try_lock_buckets(uuid[]) IS
    'Whether this transaction has the rate limits of all tenants of these emails, to its end.';

-- Of emails that may have gone out in a batch, all or none: adds the rest of each batch,
-- or takes out those whose batch cannot be had whole. A claim that picks one of a batch has
-- it for itself (take_from_tenant takes its lock), but somebody else may be at work on the others,
-- or they are not reaped yet: no claim waits for another, so it comes back to them soon.
CREATE FUNCTION mailgres.complete_batches(p_ids uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_batch  record;
    v_away   boolean;
    v_all    uuid[];
    v_mine   uuid[];
    v_whole  boolean;
BEGIN
    FOR v_batch IN
        SELECT q.batch_id AS id, min(q.batch_size) AS size, array_agg(q.id) AS picked
        FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.uncertain_since IS NOT NULL AND q.batch_id IS NOT NULL
        GROUP BY q.batch_id
    LOOP
        p_ids := ARRAY(SELECT unnest(p_ids) EXCEPT SELECT unnest(v_batch.picked));
        -- First of all: who comes back while the others are looked for was away, not settled.
        v_away := EXISTS (
            SELECT FROM public.email_queue q
            WHERE q.status = 'sending' AND q.due_at IS NOT NULL AND q.batch_id = v_batch.id);
        v_all := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status = 'pending');
        v_mine := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status = 'pending'
            ORDER BY q.id FOR UPDATE SKIP LOCKED);
        v_whole := cardinality(v_mine) = v_batch.size;
        IF v_whole AND mailgres.try_lock_buckets(v_mine) THEN
            p_ids := p_ids || v_mine;
        ELSIF v_whole OR v_away OR cardinality(v_mine) < cardinality(v_all) THEN
            UPDATE public.email_queue q
            SET ready = false, next_retry_at = mailgres.now() + (1 + random()) * interval '1 second'
            WHERE q.id = ANY (v_mine);
        ELSE
            -- Some of it was settled, by an event or by hand: the call cannot be repeated as it was.
            UPDATE public.email_queue q
            SET status = 'failed', ready = false, dead_at = mailgres.now(), dead_reason = 'uncertain',
                error_message = 'an earlier try may have arrived, and its batch is no longer whole'
            WHERE q.id = ANY (v_mine);
        END IF;
    END LOOP;
    RETURN p_ids;
END
$$;

COMMENT ON FUNCTION mailgres.complete_batches(uuid[]) IS
    'Makes batches whole that may have arrived, or leaves them out.';
