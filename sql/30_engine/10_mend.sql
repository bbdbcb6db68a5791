-- A word on the settings that the functions of the engine carry:
--
--   search_path = ''                      they run with the rights of their owner
--   plan_cache_mode = force_generic_plan  to plan them anew costs more than to run them
--   enable_seqscan = off                  a plan made while the queue is empty is kept
--                                         when it is full: it has to go by an index
--   jit = off                             the costs which that makes up would call for it
--   enable_nestloop = off                 (record) two sets whose size a plan cannot know

-- People change rows by hand: they set next_retry_at, put a dead email back to
-- pending, free one that hangs. This trigger completes such a change, so that it
-- passes the CHECKs and does what was meant. The engine's own statements are
-- complete, so for them only the WHEN below is evaluated.

CREATE FUNCTION mailgres.mend() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = ''
AS $$
BEGIN
    NEW.next_retry_at := coalesce(NEW.next_retry_at, mailgres.now());
    -- The promoter makes the row ready again when it is due.
    NEW.ready := NEW.ready AND NEW.status = 'pending' AND NEW.next_retry_at <= mailgres.now();

    IF NEW.status <> 'sending' AND NEW.lease_token IS NOT NULL THEN
        IF NEW.status <> 'sent' THEN  -- what was taken from a worker may have gone out
            NEW.uncertain_since := coalesce(NEW.uncertain_since, NEW.begun_at);
        END IF;
        NEW.lease_token := NULL;
        NEW.leased_at := NULL;
        NEW.lease_until := NULL;
        NEW.lease_worker := NULL;
        NEW.begun_at := NULL;
    END IF;

    IF NEW.status = 'failed' THEN
        NEW.dead_at := coalesce(NEW.dead_at, mailgres.now());
        NEW.dead_reason := coalesce(NEW.dead_reason, 'permanent');
        NEW.error_message := coalesce(nullif(NEW.error_message, ''), 'marked as failed by hand');
    ELSE
        NEW.dead_at := NULL;
        NEW.dead_reason := NULL;
        IF OLD.status = 'failed' AND NEW.retries >= NEW.max_retries THEN
            NEW.retries := 0;  -- else its next fault would be its last
        END IF;
    END IF;

    IF NEW.status = 'sent' THEN
        NEW.sent_at := coalesce(NEW.sent_at, mailgres.now());
        NEW.provider_message_id := coalesce(NEW.provider_message_id, NEW.resend_id);
        IF NEW.provider_message_id IS NULL THEN
            NEW.provider := NULL;  -- nobody of ours sent it
        END IF;
        NEW.uncertain_since := NULL;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER mend
    BEFORE UPDATE ON public.email_queue
    FOR EACH ROW
    WHEN (
        NEW.next_retry_at IS NULL
        OR (NEW.ready AND (NEW.status <> 'pending' OR NEW.next_retry_at > mailgres.now()))
        OR (NEW.status <> 'sending' AND NEW.lease_token IS NOT NULL)
        OR (NEW.status = 'failed') <> (NEW.dead_at IS NOT NULL)
        OR (NEW.status = 'failed' AND coalesce(NEW.error_message, '') = '')
        OR (NEW.status = 'sent' AND (NEW.sent_at IS NULL OR NEW.uncertain_since IS NOT NULL
            OR (NEW.provider_message_id IS NULL AND NEW.provider IS NOT NULL)))
    )
    EXECUTE FUNCTION mailgres.mend();
