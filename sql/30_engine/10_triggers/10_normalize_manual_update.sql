-- The settings of the engine's functions:
--
--   search_path = pg_catalog, pg_temp     they run with the rights of their owner. The path
--                                         names pg_temp last: otherwise PostgreSQL looks there
--                                         first for types, and a caller could create some
--   plan_cache_mode = force_generic_plan  planning them again costs more than running them
--   enable_seqscan = off                  a plan made while the queue is empty is kept
--                                         when it is full, so it has to use an index
--   jit = off                             the inflated costs of such a plan would start the JIT
--   enable_nestloop = off                 (log_changes) joins two sets of unknown size

-- People change rows by hand: they set next_retry_at, set a dead email back to pending,
-- release one that hangs. This trigger completes such a change, so that it passes the CHECKs
-- and has the intended effect. The engine's own statements are complete, so for them only the
-- WHEN below is evaluated.

CREATE FUNCTION mailgres.normalize_manual_update() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.next_retry_at := coalesce(NEW.next_retry_at, mailgres.now());
    -- promote() sets it to ready again when it is due and its route exists.
    NEW.ready := NEW.ready AND NEW.status = 'pending' AND NEW.next_retry_at <= mailgres.now()
        AND EXISTS (SELECT FROM mailgres.routes r WHERE r.route = NEW.route);

    IF NEW.status <> 'sending' AND NEW.lease_token IS NOT NULL THEN
        IF NEW.status <> 'sent' THEN  -- an email taken from a worker may have been sent
            NEW.uncertain_since := coalesce(NEW.uncertain_since, NEW.attempt_started_at);
        END IF;
        NEW.lease_token := NULL;
        NEW.leased_at := NULL;
        NEW.lease_until := NULL;
        NEW.lease_worker := NULL;
        NEW.attempt_started_at := NULL;
    END IF;

    IF NEW.status = 'failed' THEN
        NEW.dead_at := coalesce(NEW.dead_at, mailgres.now());
        NEW.dead_reason := coalesce(NEW.dead_reason, 'permanent');
        NEW.error_message := coalesce(nullif(NEW.error_message, ''), 'marked as failed by hand');
    ELSE
        NEW.dead_at := NULL;
        NEW.dead_reason := NULL;
        IF OLD.status = 'failed' AND NEW.retries >= NEW.max_retries THEN
            NEW.retries := 0;  -- otherwise it would die at its next error
        END IF;
    END IF;

    IF NEW.status = 'sent' THEN
        NEW.sent_at := coalesce(NEW.sent_at, mailgres.now());
        NEW.provider_message_id := coalesce(NEW.provider_message_id, NEW.resend_id);
        IF NEW.provider_message_id IS NULL THEN
            NEW.provider := NULL;  -- none of our workers sent it
        END IF;
        NEW.uncertain_since := NULL;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER normalize_manual_update
    BEFORE UPDATE ON public.email_queue
    FOR EACH ROW
    WHEN (
        NEW.next_retry_at IS NULL
        OR NEW.route <> OLD.route
        OR (NEW.ready AND (NEW.status <> 'pending' OR NEW.next_retry_at > mailgres.now()))
        OR (NEW.status <> 'sending' AND NEW.lease_token IS NOT NULL)
        OR (NEW.status = 'failed') <> (NEW.dead_at IS NOT NULL)
        OR (NEW.status = 'failed' AND coalesce(NEW.error_message, '') = '')
        OR (NEW.status = 'sent' AND (NEW.sent_at IS NULL OR NEW.uncertain_since IS NOT NULL
            OR (NEW.provider_message_id IS NULL AND NEW.provider IS NOT NULL)))
    )
    EXECUTE FUNCTION mailgres.normalize_manual_update();

-- The same for imported rows that only have the columns of the contract. Every statement reads
-- the WHEN of a trigger again, so it is short; a complete row is not changed.
CREATE TRIGGER normalize_import
    BEFORE INSERT ON public.email_queue
    FOR EACH ROW WHEN (NEW.status <> 'pending' OR NEW.next_retry_at IS NULL)
    EXECUTE FUNCTION mailgres.normalize_manual_update();

-- `UPDATE email_queue SET status = 'pending'` must not send an email twice. An uncertain email
-- is sent again while its key protects it, through the provider that knows the key. Otherwise
-- the row is not changed, is not counted as changed, and a warning says what to do. To accept
-- a duplicate is to set a new generation, that is a new key: retry_email(…, p_accept_duplicate
-- => true) does so.

CREATE FUNCTION mailgres.warn_uncertain(p_queue_id uuid) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    c_most       constant int := 10;  -- warnings per statement: a client shows all of them
    v_statement  constant text := date_part('epoch', statement_timestamp())::numeric::text;
    v_warned     constant text[] := string_to_array(current_setting('mailgres.warned', true), ' ');
    v_count      constant int := 1 + CASE WHEN v_warned[1] = v_statement THEN v_warned[2]::int ELSE 0 END;
BEGIN
    PERFORM set_config('mailgres.warned', v_statement || ' ' || v_count, true);
    IF v_count > c_most + 1 THEN
        RETURN;
    END IF;
    RAISE WARNING USING
        ERRCODE = 'MG024',
        MESSAGE = CASE WHEN v_count > c_most THEN 'more emails are left as they are for the same reason'
                       ELSE format('email %s is left as it is: an earlier attempt may have arrived', p_queue_id) END,
        HINT = 'Look it up at the provider and settle it with record_email_event, or call retry_email(id, p_accept_duplicate => true).';
END
$$;

COMMENT ON FUNCTION mailgres.warn_uncertain(uuid) IS
    'Warns that an email was not set back to pending because an earlier attempt may have been delivered.';

CREATE FUNCTION mailgres.hold_uncertain() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_before  public.email_queue;
BEGIN
    -- A cancelled email, or one that died as uncertain, stays uncertain, whatever is written.
    IF NEW.status = 'cancelled' OR NEW.status = 'failed' AND NEW.dead_reason = 'uncertain' THEN
        NEW.uncertain_since := coalesce(NEW.uncertain_since, OLD.uncertain_since);
    END IF;
    -- Workers clear attempt_started_at; a new generation accepts a duplicate.
    IF NEW.status <> 'pending' OR OLD.status = 'pending' OR NEW.generation <> OLD.generation
       OR (OLD.status = 'sending' AND NEW.attempt_started_at IS NULL) THEN
        RETURN NEW;
    END IF;
    v_before := OLD;
    v_before.uncertain_since := coalesce(OLD.uncertain_since, OLD.attempt_started_at);
    IF mailgres.key_protects(v_before) THEN
        NEW.uncertain_since := v_before.uncertain_since;
        NEW.first_attempt_at := OLD.first_attempt_at;
        NEW.provider := OLD.provider;
        NEW.batch_id := OLD.batch_id;
        NEW.batch_size := OLD.batch_size;
        RETURN NEW;
    END IF;
    -- A call is in progress: decide as reap does when a worker dies.
    IF OLD.status = 'sending' AND EXISTS (
        SELECT FROM public.email_templates t
        WHERE t.template_type = OLD.template_type AND t.on_uncertain = 'resend') THEN
        RETURN NEW;
    END IF;
    PERFORM mailgres.warn_uncertain(OLD.id);
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION mailgres.hold_uncertain() IS
    'Refuses a change by hand that would send an uncertain email again.';

-- Runs before normalize_manual_update: triggers run in the order of their names.
CREATE TRIGGER hold_uncertain
    BEFORE UPDATE ON public.email_queue
    FOR EACH ROW
    WHEN (OLD.uncertain_since IS NOT NULL OR (NEW.attempt_started_at IS NOT NULL AND NEW.status = 'pending'))
    EXECUTE FUNCTION mailgres.hold_uncertain();
