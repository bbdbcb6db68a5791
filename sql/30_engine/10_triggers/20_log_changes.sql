-- These triggers write the log and the deltas of the rollups in the transaction of the change,
-- whoever changes an email and however. They are statement triggers, so finishing a hundred
-- emails appends all its rows at once.

-- The bucket of a time to delivery. A SQL function, because PostgreSQL inlines it.
CREATE FUNCTION mailgres.bucket_of(p_seconds double precision) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN p_seconds IS NULL THEN 0
    WHEN p_seconds <= 1 THEN 1
    WHEN p_seconds <= 5 THEN 5
    WHEN p_seconds <= 15 THEN 15
    WHEN p_seconds <= 60 THEN 60
    WHEN p_seconds <= 300 THEN 300
    WHEN p_seconds <= 900 THEN 900
    WHEN p_seconds <= 3600 THEN 3600
    WHEN p_seconds <= 21600 THEN 21600
    WHEN p_seconds <= 86400 THEN 86400
    ELSE 2147483647
END;

COMMENT ON FUNCTION mailgres.bucket_of(double precision) IS
    'The bucket of a time to delivery: its upper bound in seconds; 0 for none.';

-- The time to delivery. It is 0 for an email that was sent before it was due (which may be never).
CREATE FUNCTION mailgres.seconds_between(p_from timestamptz, p_to timestamptz) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_from < p_to THEN date_part('epoch', p_to - p_from) ELSE 0 END;

COMMENT ON FUNCTION mailgres.seconds_between(timestamptz, timestamptz) IS
    'Seconds from one time to a later one; 0 if it is not later.';

-- Adds one email to the deltas or subtracts it. p_here: the change of the emails in the queue.
CREATE FUNCTION mailgres.count_email(q public.email_queue, p_status text, p_emails int, p_here int) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_took constant double precision := CASE WHEN q.status = 'sent' THEN
        mailgres.seconds_between(greatest(q.created_at, q.scheduled_for), q.sent_at) END;
BEGIN
    INSERT INTO mailgres.rollup_deltas
        (hour, template_type, tenant_id, provider, error_code, status, retries, within,
         dead_hour, dead_reason, emails, here, seconds, oldest, newest)
    VALUES
        (date_trunc('hour', q.created_at, 'UTC'), q.template_type, q.tenant_id,
         coalesce(q.provider, ''), coalesce(q.error_code, ''), p_status, q.retries,
         CASE WHEN p_status = 'sent' THEN mailgres.bucket_of(v_took) ELSE 0 END,
         date_trunc('hour', q.dead_at, 'UTC'), q.dead_reason, p_emails, p_here,
         CASE WHEN p_status = 'sent' THEN p_emails * v_took ELSE 0 END, q.created_at, q.created_at);
END
$$;

COMMENT ON FUNCTION mailgres.count_email(public.email_queue, text, int, int) IS
    'Appends the delta of one email.';

-- For the import of a history: settled emails are counted when they are inserted.
CREATE FUNCTION mailgres.count_imported() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NEW.status IN ('sent', 'failed', 'cancelled') THEN
        PERFORM mailgres.count_email(NEW, NEW.status, 1, 1);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER count_imported
    AFTER INSERT ON public.email_queue
    FOR EACH ROW WHEN (NEW.status <> 'pending')
    EXECUTE FUNCTION mailgres.count_imported();

CREATE FUNCTION mailgres.log_changes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_nestloop = off SET jit = off
AS $$
DECLARE
    -- A server that acts for people, such as the operator's page, names them. The role comes first, so
    -- that nobody can appear as another role.
    v_role  constant text := session_user || coalesce(
        ' (' || left(nullif(current_setting('mailgres.actor', true), ''), 100) || ')', '');
    v_reset mailgres.deliveries[];
BEGIN
    -- The time between the attempt before and the retry. Only the claim knows both.
    PERFORM FROM new_rows n WHERE n.retries > 0 AND n.status = 'sending' LIMIT 1;
    IF FOUND THEN
        INSERT INTO mailgres.attempt_deltas
            (at, event, attempt, tenant_id, provider, error_class, error_code, emails, seconds)
        SELECT mailgres.now(), 'claimed', n.retries + 1, '', '', '', '', count(*),
               sum(date_part('epoch', n.last_attempt_at - o.last_attempt_at))
        FROM new_rows n
        JOIN old_rows o ON o.id = n.id
        WHERE n.retries > 0 AND n.status = 'sending' AND o.status = 'pending' AND o.last_attempt_at IS NOT NULL
        GROUP BY n.retries;
    END IF;

    -- A claim settles nothing: the change that ends it is logged.
    PERFORM FROM new_rows n WHERE n.status <> 'sending' LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;

    -- An email that is sent again gets a new state from the events of its new message. One that a
    -- person no longer considers sent loses what events said about it.
    PERFORM FROM old_rows o WHERE o.status IN ('sent', 'failed', 'cancelled') LIMIT 1;
    IF FOUND THEN
        WITH reset AS (
            DELETE FROM mailgres.deliveries d
            WHERE d.queue_id = ANY (ARRAY(
                      SELECT n.id FROM new_rows n JOIN old_rows o ON o.id = n.id
                      WHERE o.status IN ('sent', 'failed', 'cancelled') AND n.status = 'pending'))
               OR d.queue_id = ANY (ARRAY(
                      SELECT n.id FROM new_rows n JOIN old_rows o ON o.id = n.id
                      WHERE o.status = 'sent' AND n.status IN ('failed', 'cancelled'))) AND NOT d.made_dead
            RETURNING d
        )
        SELECT array_agg(r.d) INTO v_reset FROM reset r;
        IF v_reset IS NOT NULL THEN
            PERFORM mailgres.count_states(v_reset, true);
        END IF;
    END IF;

    WITH logged AS (
        INSERT INTO public.email_logs
            (queue_id, event, from_status, to_status, attempt, tenant_id, template_type, claimed_at,
             worker, duration_ms, provider, provider_message_id, error_class, error_code,
             error_message, error_detail, next_retry_at, dead_reason, role)
        SELECT n.id, e.event, o.status, n.status, o.retries + 1, n.tenant_id, n.template_type,
               o.leased_at, o.lease_worker, n.last_duration_ms, n.provider, n.provider_message_id,
               -- an attempt that was not made has no error; the row still has that of an earlier one
               CASE WHEN e.has_fault THEN n.error_class END, CASE WHEN e.has_fault THEN n.error_code END,
               CASE WHEN e.has_fault THEN n.error_message END, CASE WHEN e.has_fault THEN n.error_detail END,
               CASE WHEN n.status = 'pending' THEN n.next_retry_at END, n.dead_reason, v_role
        FROM new_rows n
        JOIN old_rows o ON o.id = n.id
        CROSS JOIN LATERAL (
            SELECT x.event, x.event IN ('dead', 'cancelled', 'retry', 'deferred') AS has_fault
            FROM (SELECT CASE
                WHEN n.status = 'failed' THEN 'dead'
                WHEN n.status <> 'pending' THEN n.status
                WHEN o.status NOT IN ('pending', 'sending') THEN 'reopened'
                WHEN n.retries > o.retries THEN 'retry'
                WHEN o.status = 'pending' THEN 'rescheduled'
                WHEN n.lease_losses > o.lease_losses THEN 'lost'
                WHEN n.next_retry_at > o.leased_at THEN 'deferred'
                WHEN o.lease_until <= mailgres.now() THEN 'lost'
                ELSE 'given_back'
            END AS event) x
        ) e
        WHERE n.status <> 'sending'
          AND (o.status <> n.status OR o.retries <> n.retries OR o.next_retry_at <> n.next_retry_at)
        RETURNING id, queue_id, event, from_status, attempt, tenant_id, template_type, provider, error_class,
                  error_code, dead_reason, claimed_at
    ), to_log AS (
        INSERT INTO mailgres.dead_letters_to_log (queue_id, log_id)
        SELECT l.queue_id, l.id FROM logged l WHERE l.event = 'dead' AND l.from_status <> 'failed'
    ), to_notify AS (
        -- A dead notification is not worth another one.
        INSERT INTO mailgres.dead_letters_to_notify (tenant_id, template_type, dead_reason, error_code, emails)
        SELECT l.tenant_id, l.template_type, l.dead_reason, l.error_code, count(*) FROM logged l
        WHERE l.event = 'dead' AND l.from_status <> 'failed' AND l.template_type <> 'mailgres_alert'
        GROUP BY 1, 2, 3, 4
    )
    INSERT INTO mailgres.attempt_deltas
        (at, event, attempt, tenant_id, provider, error_class, error_code, claimed_at, claim_number, emails)
    SELECT mailgres.now(), l.event, l.attempt, l.tenant_id, coalesce(l.provider, ''),
           coalesce(l.error_class, ''), coalesce(l.error_code, ''), l.claimed_at,
           (SELECT r.last_value FROM mailgres.claim_numbers r), count(*)
    FROM logged l
    GROUP BY 2, 3, 4, 5, 6, 7, 8;

    -- A settled email is subtracted from the cell where it was and added to the cell where it
    -- is now; if that is the same cell, the two cancel out.
    INSERT INTO mailgres.rollup_deltas
        (hour, template_type, tenant_id, provider, error_code, status, retries, within,
         dead_hour, dead_reason, emails, here, seconds, oldest, newest)
    SELECT date_trunc('hour', r.created_at, 'UTC'), r.template_type, r.tenant_id,
           coalesce(r.provider, ''), coalesce(r.error_code, ''), r.status, r.retries, mailgres.bucket_of(r.took),
           date_trunc('hour', r.dead_at, 'UTC'), r.dead_reason, sum(r.emails), sum(r.emails),
           coalesce(sum(r.emails * r.took), 0),
           min(r.created_at) FILTER (WHERE r.emails > 0), max(r.created_at) FILTER (WHERE r.emails > 0)
    FROM (
        SELECT n.created_at, n.template_type, n.tenant_id, n.provider, n.error_code, n.status, n.retries,
               CASE WHEN n.status = 'sent' THEN
                   mailgres.seconds_between(greatest(n.created_at, n.scheduled_for), n.sent_at) END AS took,
               n.dead_at, n.dead_reason, 1 AS emails
        FROM new_rows n WHERE n.status IN ('sent', 'failed', 'cancelled')
        UNION ALL
        SELECT o.created_at, o.template_type, o.tenant_id, o.provider, o.error_code, o.status, o.retries,
               CASE WHEN o.status = 'sent' THEN
                   mailgres.seconds_between(greatest(o.created_at, o.scheduled_for), o.sent_at) END,
               o.dead_at, o.dead_reason, -1
        FROM old_rows o WHERE o.status IN ('sent', 'failed', 'cancelled')
    ) r
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
    HAVING sum(r.emails) <> 0 OR coalesce(sum(r.emails * r.took), 0) <> 0;
    RETURN NULL;
END
$$;

CREATE TRIGGER log_changes
    AFTER UPDATE ON public.email_queue REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.log_changes();

-- Deleted emails are still counted, but not as emails in the queue.
CREATE FUNCTION mailgres.count_removed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_nestloop = off SET jit = off
AS $$
BEGIN
    INSERT INTO mailgres.rollup_deltas
        (hour, template_type, tenant_id, provider, error_code, status, retries,
         dead_hour, dead_reason, emails, here)
    SELECT date_trunc('hour', o.created_at, 'UTC'), '', o.tenant_id, '', coalesce(o.error_code, ''), o.status, 0,
           date_trunc('hour', o.dead_at, 'UTC'), o.dead_reason, 0, -count(*)
    FROM old_rows o WHERE o.status IN ('sent', 'failed', 'cancelled')
    GROUP BY 1, 3, 5, 6, 8, 9;
    RETURN NULL;
END
$$;

CREATE TRIGGER count_removed
    AFTER DELETE ON public.email_queue REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.count_removed();

CREATE FUNCTION mailgres.count_truncated() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Wait for a fold in progress: otherwise its counts would stay.
    PERFORM pg_advisory_xact_lock(hashtext('mailgres.fold_rollups'));
    DELETE FROM mailgres.rollup_by_status;
    DELETE FROM mailgres.rollup_dead;
    UPDATE mailgres.rollup_deltas SET here = 0;
    RETURN NULL;
END
$$;

CREATE TRIGGER count_truncated
    AFTER TRUNCATE ON public.email_queue
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.count_truncated();
