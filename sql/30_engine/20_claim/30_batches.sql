-- Emails that are sent to the provider in one call, under one key. A call whose outcome is
-- uncertain is repeated with the same emails in the same order or not at all, so the claim
-- stores which emails belong together, and leases such a batch as a whole.

-- An uncertain email of a batch stays with its batch, even if it has expired or was suppressed
-- since.
CREATE FUNCTION mailgres.is_in_uncertain_batch(q public.email_queue) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN q.uncertain_since IS NOT NULL AND q.batch_id IS NOT NULL;

COMMENT ON FUNCTION mailgres.is_in_uncertain_batch(public.email_queue) IS
    'Whether the email is uncertain and belongs to a batch, so that it has to stay with it.';

CREATE TYPE mailgres.call_plan AS (ids uuid[], batches uuid[], sizes int[]);

-- Distributes emails over calls. Urgent emails, emails with attachments, and emails that were
-- rejected by another provider or with a whole batch go alone; the others go together. Emails
-- that wait for their sender's configuration share calls with each other only, so that they do
-- not delay other emails. At most p_calls, urgent and other calls in turn.
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
    'Distributes emails over the calls of a provider that accepts several in one call.';

-- Only one claim at a time works on a batch; the others skip it.
CREATE FUNCTION mailgres.try_lock_batch(p_batch uuid) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    RETURN pg_try_advisory_xact_lock(hashtextextended('mailgres batch ' || p_batch, 0));
END
$$;

COMMENT ON FUNCTION mailgres.try_lock_batch(uuid) IS
    'Whether this transaction has the lock of a batch, until it ends.';

-- A batch adds emails of tenants that the claim did not visit: their buckets are locked at once
-- or not at all (see tenant_room).
CREATE FUNCTION mailgres.try_lock_buckets(p_ids uuid[]) RETURNS boolean
    LANGUAGE plpgsql
AS $$
DECLARE
    v_names   constant text[] := ARRAY(
        SELECT DISTINCT 'tenant:' || q.tenant_id FROM public.email_queue q WHERE q.id = ANY (p_ids));
    v_locked  int;
BEGIN
    SELECT count(*) INTO v_locked FROM (
        SELECT FROM mailgres.buckets b WHERE b.name = ANY (v_names) FOR UPDATE SKIP LOCKED) x;
    RETURN v_locked = (SELECT count(*) FROM mailgres.buckets b WHERE b.name = ANY (v_names));
END
$$;

COMMENT ON FUNCTION mailgres.try_lock_buckets(uuid[]) IS
    'Whether this transaction has locked the rate limits of all tenants of these emails.';

-- Uncertain batches are claimed as a whole or not at all: adds the rest of each batch, or removes
-- the emails of a batch that is not complete. The claim that picks an email of a batch holds the
-- lock of the batch (take_from_tenant takes it), but another session may have locked some of the
-- emails, or they are not reaped yet. No claim waits for another, so the batch is deferred for a
-- moment.
CREATE FUNCTION mailgres.complete_batches(p_ids uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_batch      record;
    v_in_flight  boolean;
    v_all        uuid[];
    v_locked     uuid[];
    v_whole      boolean;
BEGIN
    FOR v_batch IN
        SELECT q.batch_id AS id, min(q.batch_size) AS size, array_agg(q.id) AS picked
        FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.uncertain_since IS NOT NULL AND q.batch_id IS NOT NULL
        GROUP BY q.batch_id
    LOOP
        p_ids := ARRAY(SELECT unnest(p_ids) EXCEPT SELECT unnest(v_batch.picked));
        -- Read first: an email that returns while the others are read was in flight, not settled.
        v_in_flight := EXISTS (
            SELECT FROM public.email_queue q
            WHERE q.status = 'sending' AND q.due_at IS NOT NULL AND q.batch_id = v_batch.id);
        v_all := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status = 'pending');
        v_locked := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id = v_batch.id AND q.uncertain_since IS NOT NULL AND q.status = 'pending'
            ORDER BY q.id FOR UPDATE SKIP LOCKED);
        v_whole := cardinality(v_locked) = v_batch.size;
        IF v_whole AND mailgres.try_lock_buckets(v_locked) THEN
            p_ids := p_ids || v_locked;
        ELSIF v_whole OR v_in_flight OR cardinality(v_locked) < cardinality(v_all) THEN
            UPDATE public.email_queue q
            SET ready = false, next_retry_at = mailgres.now() + (1 + random()) * interval '1 second'
            WHERE q.id = ANY (v_locked);
        ELSE
            -- Some emails were settled, by an event or by hand: the call cannot be repeated unchanged.
            UPDATE public.email_queue q
            SET status = 'failed', ready = false, dead_at = mailgres.now(), dead_reason = 'uncertain',
                error_message = 'an earlier attempt may have arrived, and its batch is no longer whole'
            WHERE q.id = ANY (v_locked);
        END IF;
    END LOOP;
    RETURN p_ids;
END
$$;

COMMENT ON FUNCTION mailgres.complete_batches(uuid[]) IS
    'Completes uncertain batches, or leaves them out.';
