-- Whoever changes an email, and by whatever path, this trigger writes the log and
-- the rollup deltas in the same transaction. It sees whole statements, so a finish
-- of a hundred emails appends its rows in one go.

-- Somebody imports a history: settled emails are counted from the start.
CREATE FUNCTION mailgres.record_import() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = ''
AS $$
BEGIN
    IF NEW.status IN ('sent', 'failed', 'cancelled') THEN
        INSERT INTO mailgres.rollup_deltas
            (hour, template_type, tenant_id, provider, error_code, status, retries, emails, seconds)
        VALUES
            (date_trunc('hour', NEW.created_at, 'UTC'), NEW.template_type, NEW.tenant_id,
             coalesce(NEW.provider, ''), coalesce(NEW.error_code, ''), NEW.status, NEW.retries, 1,
             coalesce(date_part('epoch', NEW.sent_at - NEW.created_at), 0));
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER record_import
    AFTER INSERT ON public.email_queue
    FOR EACH ROW WHEN (NEW.status <> 'pending')
    EXECUTE FUNCTION mailgres.record_import();

CREATE FUNCTION mailgres.record() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan
    SET enable_nestloop = off SET jit = off
AS $$
BEGIN
    -- A claim settles nothing, and what ends it is what is logged.
    PERFORM FROM new_rows n WHERE n.status <> 'sending' LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;

    INSERT INTO public.email_logs
        (queue_id, event, from_status, to_status, attempt, tenant_id, template_type, claimed_at,
         worker, duration_ms, provider, provider_message_id, error_class, error_code,
         error_message, error_detail, next_retry_at, dead_reason)
    SELECT n.id, e.event, o.status, n.status, o.retries + 1, n.tenant_id, n.template_type,
           o.leased_at, o.lease_worker, n.last_duration_ms, n.provider, n.provider_message_id,
           -- a try that was not made has no fault; the row still has that of an earlier one
           CASE WHEN e.tells THEN n.error_class END, CASE WHEN e.tells THEN n.error_code END,
           CASE WHEN e.tells THEN n.error_message END, CASE WHEN e.tells THEN n.error_detail END,
           CASE WHEN n.status = 'pending' THEN n.next_retry_at END, n.dead_reason
    FROM new_rows n
    JOIN old_rows o ON o.id = n.id
    CROSS JOIN LATERAL (
        SELECT x.event, x.event IN ('dead', 'cancelled', 'retry', 'deferred') AS tells
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
      AND (o.status <> n.status OR o.retries <> n.retries OR o.next_retry_at <> n.next_retry_at);

    -- A settled email is taken out of the cell where it was and added to the one
    -- where it is now; what stays in its cell cancels out.
    INSERT INTO mailgres.rollup_deltas
        (hour, template_type, tenant_id, provider, error_code, status, retries, emails, seconds)
    SELECT date_trunc('hour', r.created_at, 'UTC'), r.template_type, r.tenant_id,
           coalesce(r.provider, ''), coalesce(r.error_code, ''), r.status, r.retries, sum(r.emails),
           coalesce(sum(r.emails * date_part('epoch', r.sent_at - r.created_at)), 0)
    FROM (
        SELECT created_at, template_type, tenant_id, provider, error_code, status, retries, sent_at, 1 AS emails
        FROM new_rows WHERE status IN ('sent', 'failed', 'cancelled')
        UNION ALL
        SELECT created_at, template_type, tenant_id, provider, error_code, status, retries, sent_at, -1
        FROM old_rows WHERE status IN ('sent', 'failed', 'cancelled')
    ) r
    GROUP BY 1, 2, 3, 4, 5, 6, 7
    HAVING sum(r.emails) <> 0
        OR coalesce(sum(r.emails * date_part('epoch', r.sent_at - r.created_at)), 0) <> 0;
    RETURN NULL;
END
$$;

CREATE TRIGGER record
    AFTER UPDATE ON public.email_queue REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.record();
