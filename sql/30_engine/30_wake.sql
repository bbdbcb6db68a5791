-- Wakes sleeping workers. NOTIFY takes a lock that all committing transactions
-- share, so it is sent only while somebody sleeps who wants to know. The check
-- runs at commit (deferred): a transaction that enqueued while the worker was
-- awake and commits after it fell asleep still wakes it.

CREATE FUNCTION mailgres.wake() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = ''
AS $$
DECLARE
    v_looked text;
BEGIN
    -- Once per transaction is enough: an email that is due now stands for all others,
    -- one that is due later for those after it.
    IF current_setting('mailgres.looked', true) = 'now' THEN
        RETURN NULL;
    ELSIF NEW.ready THEN
        v_looked := set_config('mailgres.looked', 'now', true);
    ELSE
        v_looked := current_setting('mailgres.looked', true);
        IF v_looked <> '' AND v_looked::timestamptz <= NEW.next_retry_at THEN
            RETURN NULL;
        END IF;
        v_looked := set_config('mailgres.looked', NEW.next_retry_at::text, true);
    END IF;

    -- A transaction of a stricter level sees the sleepers of its beginning only, so it
    -- cannot know, and notifies.
    IF EXISTS (
        SELECT FROM mailgres.sleepers s
        WHERE s.sleeps_until > greatest(NEW.next_retry_at, clock_timestamp())
    ) OR (NEW.next_retry_at <= clock_timestamp()
          AND current_setting('transaction_isolation') <> 'read committed') THEN
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
