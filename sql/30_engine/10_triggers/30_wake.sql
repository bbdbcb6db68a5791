-- Wakes sleeping workers. NOTIFY takes a lock that all committing transactions
-- share, so it is sent only while somebody sleeps who wants to know. The check
-- runs at commit (deferred): a transaction that enqueued while the worker was
-- awake and commits after it fell asleep still wakes it.

CREATE FUNCTION mailgres.wake() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_looked  text;
    v_due     numeric;  -- a time as text would depend on DateStyle and TimeZone
BEGIN
    -- Once per transaction is enough: an email that is due now stands for all others,
    -- one that is due later for those after it.
    IF current_setting('mailgres.looked', true) = 'now' THEN
        RETURN NULL;
    ELSIF NEW.ready THEN
        v_looked := set_config('mailgres.looked', 'now', true);
    ELSE
        v_looked := current_setting('mailgres.looked', true);
        v_due := extract(epoch FROM NEW.next_retry_at);
        IF v_looked <> '' AND v_looked::numeric <= v_due THEN
            RETURN NULL;
        END IF;
        v_looked := set_config('mailgres.looked', v_due::text, true);
    END IF;

    -- A transaction of a stricter level sees the sleepers of its beginning only, so it
    -- cannot know, and notifies.
    IF EXISTS (
        SELECT FROM mailgres.sleepers s
        WHERE s.sleeps_until > greatest(NEW.next_retry_at, clock_timestamp())
    ) OR (NEW.next_retry_at <= clock_timestamp()
          AND current_setting('transaction_isolation') <> 'read committed') THEN
        v_looked := set_config('mailgres.looked', 'now', true);
        -- A transaction that notified could not be prepared: the workers' next poll finds its emails.
        IF current_query() ~* 'prepare([[:space:]]|/[*].*[*]/|--[^[:cntrl:]]*[[:cntrl:]])+transaction' THEN
            RETURN NULL;
        END IF;
        PERFORM pg_notify('mailgres', '');
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION mailgres.wake() IS 'Notifies the workers if one sleeps that wants to know.';

CREATE CONSTRAINT TRIGGER wake_after_insert
    AFTER INSERT ON public.email_queue
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION mailgres.wake();

-- Retried, rescheduled, given back or changed by hand. Also what a worker puts back: by then
-- it may sleep itself, having found nothing else, and others do not know of it.
CREATE CONSTRAINT TRIGGER wake_after_update
    AFTER UPDATE ON public.email_queue
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (
        NEW.status = 'pending' AND (NEW.status <> OLD.status OR NEW.next_retry_at < OLD.next_retry_at))
    EXECUTE FUNCTION mailgres.wake();
