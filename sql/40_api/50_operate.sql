-- What people do with an email by hand: cancel, retry, reschedule. Each function locks the row
-- first, so that a worker that claims at the same time either has it already or does not get it.

CREATE FUNCTION mailgres.lock_email(p_queue_id uuid) RETURNS public.email_queue
    LANGUAGE plpgsql
AS $$
DECLARE
    v_email public.email_queue;
BEGIN
    SELECT * INTO v_email FROM public.email_queue q WHERE q.id = p_queue_id FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG020', format('there is no email %s in the queue', coalesce(p_queue_id::text, 'null')),
            'Check the id; an email leaves the queue when its retention is over.');
    END IF;
    RETURN v_email;
END
$$;

COMMENT ON FUNCTION mailgres.lock_email(uuid) IS 'The email, locked; refuses an unknown id.';

-- Why an action is refused; all null: it is not.
CREATE TYPE mailgres.refusal AS (code text, message text, hint text);

CREATE FUNCTION mailgres.refuse_if(p_refusal mailgres.refusal) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_refusal.code IS NOT NULL THEN
        PERFORM mailgres.refuse(p_refusal.code, p_refusal.message, p_refusal.hint);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.refuse_if(mailgres.refusal) IS 'Raises the refusal, if there is one.';

CREATE FUNCTION mailgres.is_held_without_token(q public.email_queue) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN q.status = 'sending' AND q.lease_is_tokenless;

COMMENT ON FUNCTION mailgres.is_held_without_token(public.email_queue) IS
    'Whether a processor that does not use tokens holds the email.';

CREATE FUNCTION mailgres.cancel_refusal(p_email public.email_queue) RETURNS mailgres.refusal
    LANGUAGE sql STABLE
RETURN CASE
    WHEN p_email.status = 'cancelled' THEN
        ('MG021', 'the email was cancelled before', 'There is nothing to do.')::mailgres.refusal
    WHEN p_email.status = 'sent' THEN
        ('MG021', 'the email has been sent', 'A sent email cannot be cancelled.')::mailgres.refusal
    WHEN p_email.attempt_started_at IS NOT NULL OR mailgres.is_held_without_token(p_email) THEN
        ('MG022', 'the email is being sent', 'Wait for the outcome: if it fails, cancel it then.')::mailgres.refusal
    WHEN p_email.uncertain_since IS NOT NULL THEN
        ('MG023', 'an earlier attempt may have arrived, so the email cannot be cancelled',
         'Wait until its outcome is known, or settle it with record_email_event.')::mailgres.refusal
END;

COMMENT ON FUNCTION mailgres.cancel_refusal(public.email_queue) IS 'Why an email cannot be cancelled, or null.';

CREATE FUNCTION mailgres.cancel_these(p_ids uuid[], p_reason text) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE public.email_queue q
    SET status = 'cancelled', ready = false, dead_at = NULL, dead_reason = NULL,
        error_message = coalesce(nullif(p_reason, ''), 'cancelled by hand'),
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL
    WHERE q.id = ANY (p_ids);
END
$$;

COMMENT ON FUNCTION mailgres.cancel_these(uuid[], text) IS
    'Cancels emails that the caller has locked and checked.';

CREATE FUNCTION public.cancel_email(p_queue_id uuid, p_reason text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_email public.email_queue := mailgres.lock_email(p_queue_id);
BEGIN
    IF v_email.status = 'cancelled' THEN
        RETURN false;
    END IF;
    PERFORM mailgres.refuse_if(mailgres.cancel_refusal(v_email));
    PERFORM mailgres.cancel_these(ARRAY[p_queue_id], p_reason);
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.cancel_email(uuid, text) IS
    'Cancels an email whose call has not started; false if it was cancelled before.';

-- A dead or cancelled email goes back to the queue with all its retries. It gets a new key, unless it
-- is uncertain: then the key is kept while it protects, and afterwards the caller has to accept a
-- possible duplicate. The key of a batch no longer protects when some of its emails are settled: the
-- call cannot be repeated.

-- One transaction at a time per batch: two that lock its emails would deadlock. Taken before the rows
-- are locked, and in one order.
CREATE FUNCTION mailgres.lock_batches(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(b.lock)
    FROM (
        SELECT DISTINCT hashtextextended('mailgres batch ' || q.batch_id, 0) AS lock
        FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.uncertain_since IS NOT NULL AND q.batch_id IS NOT NULL
        ORDER BY 1
    ) b;
END
$$;

COMMENT ON FUNCTION mailgres.lock_batches(uuid[]) IS
    'Waits for the locks of the uncertain batches of these emails.';

CREATE FUNCTION mailgres.key_protects(p_email public.email_queue) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM mailgres.providers p
        WHERE p.name = p_email.provider AND p.idempotent
          AND p_email.uncertain_since + p.key_window > mailgres.now()) THEN
        RETURN false;
    END IF;
    RETURN p_email.batch_id IS NULL OR p_email.batch_size <= (
        SELECT count(*) FROM public.email_queue q
        WHERE q.batch_id = p_email.batch_id AND q.uncertain_since IS NOT NULL
          AND (q.status NOT IN ('sent', 'cancelled') OR q.id = p_email.id)
    ) + (
        SELECT count(*) FROM public.email_queue q
        WHERE q.status = 'sending' AND q.due_at IS NOT NULL
          AND q.batch_id = p_email.batch_id AND q.uncertain_since IS NULL);
END
$$;

COMMENT ON FUNCTION mailgres.key_protects(public.email_queue) IS
    'Whether an uncertain email can be sent again under its key and be delivered once.';

CREATE FUNCTION mailgres.duplicate_refusal() RETURNS mailgres.refusal
    LANGUAGE sql IMMUTABLE
RETURN ('MG024', 'an earlier attempt may have arrived: sending again may deliver it twice',
        'Look it up at the provider and settle it with record_email_event, or call retry_email with p_accept_duplicate => true.')::mailgres.refusal;

COMMENT ON FUNCTION mailgres.duplicate_refusal() IS
    'The refusal to send an uncertain email again.';

CREATE FUNCTION mailgres.is_suppressed(q public.email_queue) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM public.email_suppressions s
        WHERE s.recipient_email = mailgres.canonical_address(q.recipient_email)
          AND s.tenant_id IN ('*', q.tenant_id) AND mailgres.suppresses(s, q.ignore_suppression));
END
$$;

COMMENT ON FUNCTION mailgres.is_suppressed(public.email_queue) IS
    'Whether the address of an email is suppressed for its tenant.';

CREATE FUNCTION mailgres.retry_refusal(p_email public.email_queue, p_accept_duplicate boolean)
    RETURNS mailgres.refusal
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_email.status = 'sent' THEN
        RETURN ('MG021', 'the email has been sent', 'To send it again, enqueue it again.')::mailgres.refusal;
    ELSIF p_email.status = 'sending' THEN
        RETURN ('MG022', 'the email is being sent',
                'Wait for the outcome: it is retried by its policy if it fails.')::mailgres.refusal;
    ELSIF NOT mailgres.is_in_uncertain_batch(p_email) AND mailgres.is_suppressed(p_email) THEN
        -- a worker would not send it; with the rest of an uncertain batch it would
        RETURN ('MG028', 'the address is suppressed',
                'If it may get email again, remove it with mailgres suppressions remove, then retry.')::mailgres.refusal;
    ELSIF p_email.uncertain_since IS NOT NULL AND NOT coalesce(p_accept_duplicate, false)
          AND NOT mailgres.key_protects(p_email) THEN
        RETURN mailgres.duplicate_refusal();
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION mailgres.retry_refusal(public.email_queue, boolean) IS
    'Why an email cannot be retried, or null.';

-- Events settle emails without the lock of their batch. So key_protects() is checked again when
-- the rest of the batch is locked, and only emails for which a duplicate is accepted
-- (p_accept_duplicate) are sent under a new key.
CREATE FUNCTION mailgres.reopen(p_ids uuid[], p_accept_duplicate boolean) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_kept     uuid[];
    v_rest     uuid[];
    v_renewed  uuid[];
BEGIN
    v_kept := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.uncertain_since IS NOT NULL AND mailgres.key_protects(q));
    -- An uncertain batch is sent again as a whole or not at all.
    IF cardinality(v_kept) > 0 THEN
        v_rest := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id IN (SELECT k.batch_id FROM public.email_queue k WHERE k.id = ANY (v_kept))
              AND q.uncertain_since IS NOT NULL AND q.status IN ('pending', 'failed') AND q.id <> ALL (v_kept)
            ORDER BY q.id FOR UPDATE);
        v_kept := ARRAY(
            SELECT q.id FROM public.email_queue q WHERE q.id = ANY (v_kept) AND mailgres.key_protects(q));
        v_kept := v_kept || ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.id = ANY (v_rest)
              AND q.batch_id IN (SELECT k.batch_id FROM public.email_queue k WHERE k.id = ANY (v_kept)));
    END IF;
    IF NOT coalesce(p_accept_duplicate, false) THEN
        p_ids := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.id = ANY (p_ids) AND (q.uncertain_since IS NULL OR q.id = ANY (v_kept)));
    END IF;
    p_ids := ARRAY(SELECT unnest(p_ids) UNION SELECT unnest(v_kept));
    -- A waiting email whose attempts all definitely failed keeps its key.
    v_renewed := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (p_ids) AND q.id <> ALL (v_kept)
          AND (q.status <> 'pending' OR q.uncertain_since IS NOT NULL));

    UPDATE public.email_queue q
    SET status = 'pending', ready = true, next_retry_at = mailgres.now(), retries = 0,
        dead_at = NULL, dead_reason = NULL, lease_losses = 0, parked_since = NULL,
        expires_at = CASE WHEN q.expires_at > mailgres.now() THEN q.expires_at END,
        generation = q.generation + (q.id = ANY (v_renewed))::int,
        uncertain_since = CASE WHEN q.id <> ALL (v_renewed) THEN q.uncertain_since END,
        first_attempt_at = CASE WHEN q.id <> ALL (v_renewed) THEN q.first_attempt_at END,
        batch_id = CASE WHEN q.id <> ALL (v_renewed) THEN q.batch_id END,
        -- so that it uses a template that was fixed since
        template_version = CASE WHEN q.id <> ALL (v_renewed) THEN q.template_version END
    WHERE q.id = ANY (p_ids);
    RETURN p_ids;
END
$$;

COMMENT ON FUNCTION mailgres.reopen(uuid[], boolean) IS
    'Puts emails that the caller has locked and checked back into the queue, and the rest of their uncertain batches; returns all of them. Leaves out emails that might be delivered twice, unless that is accepted.';

CREATE FUNCTION public.retry_email(p_queue_id uuid, p_accept_duplicate boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM mailgres.lock_batches(ARRAY[p_queue_id]);
    PERFORM mailgres.refuse_if(mailgres.retry_refusal(mailgres.lock_email(p_queue_id), p_accept_duplicate));
    IF p_queue_id <> ALL (mailgres.reopen(ARRAY[p_queue_id], p_accept_duplicate)) THEN
        PERFORM mailgres.refuse_if(mailgres.duplicate_refusal());
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.retry_email(uuid, boolean) IS
    'Puts a dead, cancelled or waiting email back into the queue, to be sent now, with all its retries.';

CREATE FUNCTION mailgres.reschedule_refusal(p_email public.email_queue, p_scheduled_for timestamptz)
    RETURNS mailgres.refusal
    LANGUAGE sql STABLE
RETURN CASE
    WHEN p_email.status = 'sending' THEN
        ('MG022', 'the email is being sent', 'Wait for the outcome.')::mailgres.refusal
    WHEN p_email.status <> 'pending' THEN
        ('MG021', format('the email is %s, not pending', p_email.status),
         'Only waiting emails can be rescheduled; a dead or cancelled one is first retried.')::mailgres.refusal
    WHEN p_scheduled_for IS NULL OR p_email.expires_at <= p_scheduled_for THEN
        ('MG008', 'it would expire before it could be sent', 'Give a time before it expires.')::mailgres.refusal
END;

COMMENT ON FUNCTION mailgres.reschedule_refusal(public.email_queue, timestamptz) IS
    'Why an email cannot be rescheduled, or null.';

CREATE FUNCTION mailgres.reschedule_these(p_ids uuid[], p_scheduled_for timestamptz) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE public.email_queue q
    SET scheduled_for = p_scheduled_for,
        next_retry_at = greatest(p_scheduled_for, mailgres.now()),
        ready = p_scheduled_for <= mailgres.now()
    WHERE q.id = ANY (p_ids);
END
$$;

COMMENT ON FUNCTION mailgres.reschedule_these(uuid[], timestamptz) IS
    'Reschedules emails that the caller has locked and checked.';

CREATE FUNCTION public.reschedule_email(p_queue_id uuid, p_scheduled_for timestamptz) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM mailgres.refuse_if(mailgres.reschedule_refusal(mailgres.lock_email(p_queue_id), p_scheduled_for));
    PERFORM mailgres.reschedule_these(ARRAY[p_queue_id], p_scheduled_for);
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.reschedule_email(uuid, timestamptz) IS
    'Changes the time at which a waiting email is sent.';
