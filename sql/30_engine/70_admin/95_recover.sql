-- After a point-in-time restore, or a failover that lost the last commits, the queue is as it was at
-- some time (p_since), but the providers have seen more. Emails that were open and due when this server
-- took over (p_until) may have been sent in between:
--
--   key          certainly alone, by a provider with keys: retried under the same key, which it recognises
--   resend       its template accepts a duplicate: retried
--   hold         becomes a dead letter with the reason uncertain: a person decides
--   kept         uncertain already, or its call had started: handled as any uncertain email
--   in_progress  a worker holds it now
--   repeated     this server has sent it since: it may have been delivered twice
--   protected    the same, but under its key: it was delivered once
--
-- An email that was sent in a batch has the key of that batch, which is lost.

-- The provider that must have sent the email, if it was sent, and whose key protects it: the only one of
-- its route, with keys, and the email goes alone. Null: there is no such provider.
CREATE FUNCTION mailgres.protecting_provider(q public.email_queue, p_since timestamptz, p_at timestamptz) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN count(*) = 1 AND bool_and(
            p.idempotent AND p_since + p.key_window > p_at
            AND (NOT p.fixed_batches OR p.batch_size = 1 OR q.priority <= 2 OR q.has_attachments OR q.send_alone))
            THEN min(p.name) END
        FROM mailgres.route_providers rp JOIN mailgres.providers p ON p.name = rp.provider
        WHERE rp.route = q.route);
END
$$;

COMMENT ON FUNCTION mailgres.protecting_provider(public.email_queue, timestamptz, timestamptz) IS
    'The provider whose key prevents a second delivery of an email that may have been sent since p_since; or null.';

CREATE FUNCTION mailgres.recovery_action(q public.email_queue, p_since timestamptz) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE
        WHEN q.status = 'sent' AND mailgres.protecting_provider(q, p_since, q.sent_at) IS NOT NULL THEN 'protected'
        WHEN q.status = 'sent' THEN 'repeated'
        WHEN q.lease_until > mailgres.now() THEN 'in_progress'
        WHEN coalesce(q.uncertain_since, q.attempt_started_at) IS NOT NULL THEN 'kept'
        WHEN mailgres.protecting_provider(q, p_since, mailgres.now()) IS NOT NULL THEN 'key'
        WHEN EXISTS (
            SELECT FROM public.email_templates t
            WHERE t.template_type = q.template_type AND t.on_uncertain = 'resend') THEN 'resend'
        ELSE 'hold' END;
END
$$;

COMMENT ON FUNCTION mailgres.recovery_action(public.email_queue, timestamptz) IS
    'What recover() does with an email that may have been sent since p_since.';

-- Emails of routes that only capture are left out: they left for nowhere. Reading the sent ones takes
-- a scan of the table.
CREATE FUNCTION mailgres.recovery_candidates(p_since timestamptz, p_until timestamptz, p_sent boolean)
    RETURNS SETOF public.email_queue
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF p_since IS NULL OR p_until IS NULL OR p_since > p_until OR p_since > mailgres.now() THEN
        PERFORM mailgres.refuse('MG100', 'a recovery needs the time that the database went back to',
            'Give a time in the past, and an end that is not earlier.');
    END IF;
    RETURN QUERY
    SELECT q.* FROM public.email_queue q
    WHERE q.created_at <= p_until
      AND CASE q.status
              WHEN 'pending' THEN q.next_retry_at <= p_until OR q.last_attempt_at >= p_until
              WHEN 'sending' THEN true
              WHEN 'sent' THEN p_sent AND q.sent_at > p_until
              ELSE false END
      AND (p_sent OR q.ready OR q.due_at IS NOT NULL AND q.status IN ('pending', 'sending'))
      AND EXISTS (
          SELECT FROM mailgres.route_providers rp JOIN mailgres.providers p ON p.name = rp.provider
          WHERE rp.route = q.route AND NOT p.captures);
END
$$;

COMMENT ON FUNCTION mailgres.recovery_candidates(timestamptz, timestamptz, boolean) IS
    'Emails that may have been sent before this server took over at p_until; p_sent: also those that it has sent since.';

CREATE FUNCTION mailgres.recovery_until(p_since timestamptz) RETURNS timestamptz
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN h.server_since > p_since THEN h.server_since ELSE mailgres.now() END FROM mailgres.home h
$$;

COMMENT ON FUNCTION mailgres.recovery_until(timestamptz) IS
    'When this server took over, if reap() noticed it after p_since; else now.';

CREATE FUNCTION mailgres.list_recovery(p_since timestamptz, p_until timestamptz DEFAULT NULL)
    RETURNS TABLE (id uuid, action text, status text, tenant_id text, template_type text, provider text,
                   next_retry_at timestamptz, sent_at timestamptz)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT q.id, mailgres.recovery_action(q, p_since), q.status::text, q.tenant_id::text, q.template_type::text,
           q.provider, q.next_retry_at, q.sent_at::timestamptz
    FROM mailgres.recovery_candidates(p_since, coalesce(p_until, mailgres.recovery_until(p_since)), true) q
    ORDER BY q.id;
END
$$;

COMMENT ON FUNCTION mailgres.list_recovery(timestamptz, timestamptz) IS
    'Emails that may have been sent between p_since and p_until, when this server took over, and what recover() does with each.';

-- A held email gets a batch that is never whole: nobody knows under which key it was sent, so no retry
-- counts as protected.
CREATE FUNCTION mailgres.recover(p_since timestamptz, p_until timestamptz DEFAULT NULL, p_limit int DEFAULT 1000)
    RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    v_until  constant timestamptz := coalesce(p_until, mailgres.recovery_until(p_since));
    v_ids    uuid[];
    v_count  int;
BEGIN
    v_ids := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (ARRAY(
            SELECT c.id FROM mailgres.recovery_candidates(p_since, v_until, false) c
            WHERE mailgres.recovery_action(c, p_since) IN ('key', 'resend', 'hold') ORDER BY c.id LIMIT p_limit))
          AND mailgres.recovery_action(q, p_since) IN ('key', 'resend', 'hold')
        ORDER BY q.id FOR UPDATE);
    WITH decided AS MATERIALIZED (
        SELECT q.id, mailgres.recovery_action(q, p_since) = 'hold' AS hold,
               coalesce(mailgres.protecting_provider(q, p_since, mailgres.now()), q.provider, (
                   SELECT rp.provider FROM mailgres.route_providers rp WHERE rp.route = q.route
                   ORDER BY rp.position LIMIT 1)) AS provider
        FROM public.email_queue q WHERE q.id = ANY (v_ids)
    )
    UPDATE public.email_queue q
    SET status = CASE WHEN d.hold THEN 'failed' ELSE 'pending' END,
        ready = NOT d.hold AND (q.ready OR q.status = 'sending'),
        provider = d.provider,
        uncertain_since = p_since,
        first_attempt_at = coalesce(q.first_attempt_at, p_since),
        batch_id = CASE WHEN d.hold THEN gen_random_uuid() END,
        batch_size = CASE WHEN d.hold THEN 2 END,
        dead_at = CASE WHEN d.hold THEN mailgres.now() END,
        dead_reason = CASE WHEN d.hold THEN 'uncertain' END,
        error_class = CASE WHEN d.hold THEN 'ambiguous' ELSE q.error_class END,
        error_message = CASE WHEN d.hold THEN
            'it may have been sent before the database was restored or failed over' ELSE q.error_message END,
        lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
    FROM decided d WHERE q.id = d.id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.recover(timestamptz, timestamptz, int) IS
    'Sets emails that may have been sent between p_since and p_until to uncertain, at most p_limit of them; returns how many. Repeat it until it returns 0.';

-- Compares with what another source knows: the old server, or the log of a provider. p_emails is an
-- array of objects with id and, if the email was sent, provider_message_id, and provider and sent_at if
-- they are known. Returns for each:
--
--   lost         this server does not have it
--   settled      it was sent, and is now
--   sent         it was sent, here too
--   in_progress  it was sent, and a worker holds it: repeat later
--   open         it was not sent there, and is still to be sent here, or settled
CREATE FUNCTION mailgres.recover_known(p_emails jsonb) RETURNS TABLE (id uuid, result text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_settled uuid[];
BEGIN
    PERFORM FROM public.email_queue q
    WHERE q.id IN (SELECT k.id FROM jsonb_to_recordset(p_emails) AS k(id uuid)) ORDER BY q.id FOR UPDATE;
    WITH settled AS (
        UPDATE public.email_queue q
        SET status = 'sent', ready = false,
            -- it was sent before this server took over
            sent_at = coalesce(k.sent_at, greatest(q.created_at, q.last_attempt_at)), uncertain_since = NULL, parked_since = NULL,
            provider = coalesce(k.provider, q.provider), provider_message_id = k.provider_message_id,
            dead_at = NULL, dead_reason = NULL,
            error_message = NULL, error_class = NULL, error_code = NULL, error_detail = NULL,
            lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
        FROM jsonb_to_recordset(p_emails) AS k(id uuid, provider text, provider_message_id text, sent_at timestamptz)
        WHERE q.id = k.id AND nullif(k.provider_message_id, '') IS NOT NULL AND q.status <> 'sent'
          AND (q.lease_until IS NULL OR q.lease_until <= mailgres.now())
        RETURNING q.id
    )
    SELECT coalesce(array_agg(s.id), '{}') INTO v_settled FROM settled s;
    RETURN QUERY
    SELECT k.id, CASE
        WHEN q.id IS NULL THEN 'lost'
        WHEN q.id = ANY (v_settled) THEN 'settled'
        WHEN nullif(k.provider_message_id, '') IS NULL THEN 'open'
        WHEN q.status = 'sent' THEN 'sent'
        ELSE 'in_progress' END
    FROM jsonb_to_recordset(p_emails) AS k(id uuid, provider_message_id text)
    LEFT JOIN public.email_queue q ON q.id = k.id
    ORDER BY k.id;
END
$$;

COMMENT ON FUNCTION mailgres.recover_known(jsonb) IS
    'Settles emails that another source knows as sent, and says which emails this database does not have.';
