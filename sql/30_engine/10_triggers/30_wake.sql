-- Wakes sleeping workers. NOTIFY takes a lock that all committing transactions share, so it is
-- sent only while a worker sleeps that waits for such an email. The check runs at commit
-- (deferred): a transaction that enqueued while the worker was awake and commits after it fell
-- asleep still wakes it.

CREATE FUNCTION mailgres.wake() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_checked  text;
    v_due      numeric;  -- a time as text would depend on DateStyle and TimeZone
BEGIN
    -- One check per transaction is enough: a due email covers all others, and a later one
    -- covers those after it.
    IF current_setting('mailgres.wake_checked', true) = 'now' THEN
        RETURN NULL;
    ELSIF NEW.ready THEN
        v_checked := set_config('mailgres.wake_checked', 'now', true);
    ELSE
        v_checked := current_setting('mailgres.wake_checked', true);
        v_due := extract(epoch FROM NEW.next_retry_at);
        IF v_checked <> '' AND v_checked::numeric <= v_due THEN
            RETURN NULL;
        END IF;
        v_checked := set_config('mailgres.wake_checked', v_due::text, true);
    END IF;

    -- A transaction with a stricter isolation level only sees the sleepers of its start, so it
    -- always notifies.
    IF EXISTS (
        SELECT FROM mailgres.sleepers s
        WHERE s.sleeps_until > greatest(NEW.next_retry_at, clock_timestamp())
    ) OR (NEW.next_retry_at <= clock_timestamp()
          AND current_setting('transaction_isolation') <> 'read committed') THEN
        v_checked := set_config('mailgres.wake_checked', 'now', true);
        -- PREPARE TRANSACTION fails after NOTIFY, so do not notify: the workers' next poll finds the emails.
        IF current_query() ~* 'prepare([[:space:]]|/[*].*[*]/|--[^[:cntrl:]]*[[:cntrl:]])+transaction' THEN
            RETURN NULL;
        END IF;
        PERFORM pg_notify('mailgres', '');
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION mailgres.wake() IS 'Notifies the workers if one sleeps that waits for this email.';

CREATE CONSTRAINT TRIGGER wake_after_insert
    AFTER INSERT ON public.email_queue
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION mailgres.wake();

-- Retried, rescheduled, given back or changed by hand. Also emails that a worker gives back: by
-- then that worker may sleep, and the other workers do not know about them.
CREATE CONSTRAINT TRIGGER wake_after_update
    AFTER UPDATE ON public.email_queue
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (
        NEW.status = 'pending' AND (NEW.status <> OLD.status OR NEW.next_retry_at < OLD.next_retry_at))
    EXECUTE FUNCTION mailgres.wake();
