-- What a person does with an email by hand: cancel, retry, reschedule. Each locks
-- the row first, so that a worker that claims at the same moment either has it
-- already or does not get it.

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

CREATE FUNCTION public.cancel_email(p_queue_id uuid, p_reason text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_email public.email_queue := mailgres.lock_email(p_queue_id);
BEGIN
    IF v_email.status = 'cancelled' THEN
        RETURN false;
    ELSIF v_email.status = 'sent' THEN
        PERFORM mailgres.refuse('MG021', 'the email has been sent', 'A sent email cannot be cancelled.');
    ELSIF v_email.begun_at IS NOT NULL OR v_email.lease_worker = 'rpc' THEN
        PERFORM mailgres.refuse('MG022', 'the email is being sent',
            'Wait for the outcome: if it fails, cancel it then.');
    ELSIF v_email.uncertain_since IS NOT NULL THEN
        PERFORM mailgres.refuse('MG023', 'an earlier try may have arrived, so the email cannot be cancelled',
            'Wait until its outcome is known, or settle it with record_email_event.');
    END IF;
    UPDATE public.email_queue q
    SET status = 'cancelled', ready = false, dead_at = NULL, dead_reason = NULL,
        error_message = coalesce(nullif(mailgres.without_addresses(p_reason), ''), 'cancelled by hand'),
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL
    WHERE q.id = p_queue_id;
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.cancel_email(uuid, text) IS
    'Cancels an email whose call has not begun; false if it was cancelled before.';

-- A dead or cancelled email goes back to the queue with all its retries. It gets a
-- new key, unless an earlier try may have arrived: then the key is kept while it
-- protects, and afterwards the caller has to accept that it may arrive twice. The key of a
-- batch of which some was settled protects no longer: the call cannot be repeated.
CREATE FUNCTION public.retry_email(p_queue_id uuid, p_accept_duplicate boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_email     public.email_queue;
    v_keep_key  boolean := false;
    v_new_key   boolean;
    v_ids       uuid[] := ARRAY[p_queue_id];
BEGIN
    -- One at a time for a batch: two that lock its emails would wait for each other.
    PERFORM pg_advisory_xact_lock(hashtextextended('mailgres batch ' || q.batch_id, 0))
    FROM public.email_queue q
    WHERE q.id = p_queue_id AND q.uncertain_since IS NOT NULL AND q.batch_id IS NOT NULL;
    v_email := mailgres.lock_email(p_queue_id);
    IF v_email.status = 'sent' THEN
        PERFORM mailgres.refuse('MG021', 'the email has been sent', 'To send it again, enqueue it again.');
    ELSIF v_email.status = 'sending' THEN
        PERFORM mailgres.refuse('MG022', 'the email is being sent',
            'Wait for the outcome: it is retried by its policy if it fails.');
    ELSIF v_email.uncertain_since IS NOT NULL THEN
        v_keep_key := EXISTS (
            SELECT FROM mailgres.providers p
            WHERE p.name = v_email.provider AND p.idempotent
              AND v_email.uncertain_since + p.key_window > mailgres.now());
        IF v_keep_key AND v_email.batch_id IS NOT NULL THEN
            v_keep_key := v_email.batch_size <= (
                SELECT count(*) FROM public.email_queue q
                WHERE q.batch_id = v_email.batch_id AND q.uncertain_since IS NOT NULL
            ) + (
                SELECT count(*) FROM public.email_queue q
                WHERE q.status = 'sending' AND q.due_at IS NOT NULL
                  AND q.batch_id = v_email.batch_id AND q.uncertain_since IS NULL);
        END IF;
        IF NOT v_keep_key AND NOT coalesce(p_accept_duplicate, false) THEN
            PERFORM mailgres.refuse('MG024', 'an earlier try may have arrived: sending again may deliver it twice',
                'Look it up at the provider and settle it with record_email_event, or call retry_email with p_accept_duplicate => true.');
        END IF;
    END IF;

    -- Who may have arrived in a batch goes again with all of it, or not at all.
    IF v_keep_key AND v_email.batch_id IS NOT NULL THEN
        v_ids := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.batch_id = v_email.batch_id AND q.uncertain_since IS NOT NULL AND q.lease_token IS NULL
            ORDER BY q.id FOR UPDATE);
    END IF;

    -- A waiting email whose tries all failed for certain goes on with the key it has.
    v_new_key := NOT v_keep_key AND (v_email.status <> 'pending' OR v_email.uncertain_since IS NOT NULL);
    UPDATE public.email_queue q
    SET status = 'pending', ready = true, next_retry_at = mailgres.now(), retries = 0,
        dead_at = NULL, dead_reason = NULL, lease_losses = 0, parked_since = NULL,
        expires_at = CASE WHEN q.expires_at > mailgres.now() THEN q.expires_at END,
        generation = q.generation + v_new_key::int,
        uncertain_since = CASE WHEN NOT v_new_key THEN q.uncertain_since END,
        first_attempt_at = CASE WHEN NOT v_new_key THEN q.first_attempt_at END,
        batch_id = CASE WHEN NOT v_new_key THEN q.batch_id END,
        -- a template that was mended since reaches it
        template_version = CASE WHEN NOT v_new_key THEN q.template_version END
    WHERE q.id = ANY (v_ids);
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.retry_email(uuid, boolean) IS
    'Puts a dead, cancelled or waiting email back to be sent now, with all its retries.';

CREATE FUNCTION public.reschedule_email(p_queue_id uuid, p_scheduled_for timestamptz) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_email public.email_queue := mailgres.lock_email(p_queue_id);
BEGIN
    IF v_email.status = 'sending' THEN
        PERFORM mailgres.refuse('MG022', 'the email is being sent', 'Wait for the outcome.');
    ELSIF v_email.status <> 'pending' THEN
        PERFORM mailgres.refuse('MG021', format('the email is %s, not pending', v_email.status),
            'Only waiting emails can be rescheduled; a dead or cancelled one is first retried.');
    ELSIF p_scheduled_for IS NULL OR v_email.expires_at <= p_scheduled_for THEN
        PERFORM mailgres.refuse('MG008', 'it would expire before it could be sent',
            'Give a time before it expires.');
    END IF;
    UPDATE public.email_queue q
    SET scheduled_for = p_scheduled_for,
        next_retry_at = greatest(p_scheduled_for, mailgres.now()),
        ready = p_scheduled_for <= mailgres.now()
    WHERE q.id = p_queue_id;
    RETURN true;
END
$$;

COMMENT ON FUNCTION public.reschedule_email(uuid, timestamptz) IS
    'Lets a waiting email be sent at another time.';
