-- Stores the outcomes of many attempts, each guarded by its fencing token. p_outcomes is an array
-- of objects:
--
--   id, token             the email, and the claim of the attempt
--   outcome               sent, or the class of the fault: transient, rate, quota,
--                         config, permanent, ambiguous; or uncertain (the provider
--                         has seen this key with other content)
--   provider_message_id   of a sent email
--   code, message, detail of a fault; addresses in the message are masked
--   duration_ms           how long the call took
--   retry_after           the seconds that the provider asked to wait (rate, quota, config):
--                         a duration, because the worker's clock may differ
--   batch_size            how many emails the call had, if several
--   batch_refused         the whole batch was refused because of one of its emails
--   account               the fault concerns the provider or the account, not the email
--   pinned                an earlier call with the same key may have been accepted
--   called                false: no call was made, because the email could not be rendered or
--                         prepared; this says nothing about the provider
--   suppress              the address does not exist: suppress it
--   refused_copies        of a sent email: other recipients that the provider refused, each with
--                         code, message and detail
--
-- Returns a row for every outcome: the new state of the email, or in `refused` the SQLSTATE
-- because of which nothing was changed (MG030: the lease was lost).

-- What the outcomes say about providers. Read before the outcomes are stored, because the lease
-- says which provider was called.
CREATE FUNCTION mailgres.provider_reports(p_outcomes jsonb, p_ids uuid[]) RETURNS mailgres.report[]
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW(q.provider, coalesce(q.batch_id, q.id), q.lease_token, q.lease_worker, o.outcome,
                   coalesce(o.account, false), o.code,
                   mailgres.redact_recipients(o.message, q.recipient_email, q.also_to, q.cc, q.bcc),
                   mailgres.time_after(o.retry_after))::mailgres.report
        FROM jsonb_to_recordset(p_outcomes) AS o(
            id uuid, token uuid, outcome text, code text, message text, retry_after double precision, account boolean,
            called boolean)
        JOIN public.email_queue q ON q.id = o.id AND q.lease_token = o.token
        WHERE q.id = ANY (p_ids) AND o.called IS NOT FALSE);
END
$$;

COMMENT ON FUNCTION mailgres.provider_reports(jsonb, uuid[]) IS
    'The outcomes of calls that concern providers.';

-- Suppresses addresses that do not exist, according to the provider.
CREATE FUNCTION mailgres.suppress_reported(p_outcomes jsonb) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_ids constant uuid[] := ARRAY(
        SELECT (o ->> 'id')::uuid
        FROM jsonb_path_query(p_outcomes, '$[*] ? (@.suppress == true && @.outcome == "permanent")') o);
BEGIN
    INSERT INTO public.email_suppressions AS s (recipient_email, tenant_id, reason, detail, queue_id, source)
    SELECT DISTINCT ON (1) mailgres.canonical_address(q.recipient_email), '*', 'bounced', q.error_message, q.id, 'provider'
    FROM public.email_queue q
    WHERE q.id = ANY (v_ids) AND q.dead_reason = 'permanent'
    ORDER BY 1, q.id
    ON CONFLICT (recipient_email, tenant_id) DO UPDATE
        SET reason = excluded.reason, detail = excluded.detail, queue_id = excluded.queue_id,
            source = excluded.source, expires_at = NULL, created_at = excluded.created_at
        WHERE s.expires_at IS NOT NULL;
END
$$;

COMMENT ON FUNCTION mailgres.suppress_reported(jsonb) IS
    'Suppresses the addresses that a provider said do not exist.';

-- A provider can accept an email and refuse some of its recipients: the log says which and why.
CREATE FUNCTION mailgres.log_refused_copies(p_outcomes jsonb) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_outcomes  constant jsonb := jsonb_path_query_array(
        p_outcomes, '$[*] ? (@.outcome == "sent" && exists (@.refused_copies))');
    v_ids       constant uuid[] := ARRAY(SELECT (o ->> 'id')::uuid FROM jsonb_array_elements(v_outcomes) o);
BEGIN
    INSERT INTO public.email_logs
        (queue_id, event, from_status, to_status, attempt, tenant_id, template_type, provider,
         provider_message_id, error_code, error_message, error_detail)
    SELECT q.id, 'copy_refused', q.status, q.status, q.retries + 1, q.tenant_id, q.template_type, q.provider,
           q.provider_message_id, left(c.code, 100),
           coalesce(nullif(mailgres.redact_recipients(c.message, q.recipient_email, q.also_to, q.cc, q.bcc), ''),
                    'a copy was refused'), left(c.detail, 4000)
    FROM jsonb_to_recordset(v_outcomes) AS o(id uuid, provider_message_id text, refused_copies jsonb)
    JOIN public.email_queue q
        ON q.id = o.id AND q.status = 'sent' AND q.provider_message_id = o.provider_message_id
    CROSS JOIN LATERAL jsonb_to_recordset(o.refused_copies) AS c(code text, message text, detail text)
    WHERE q.id = ANY (v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.log_refused_copies(jsonb) IS
    'Logs the recipients, besides the first, that a provider refused of emails that it accepted.';

CREATE FUNCTION mailgres.finish(p_outcomes jsonb)
    RETURNS TABLE (id uuid, status text, retries int, next_retry_at timestamptz, dead_reason text, refused text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_nestloop = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_ids      uuid[];
    v_faults   boolean;
    v_resend   text[];
    v_reported boolean;
    v_reports  mailgres.report[];
    v_uncalled uuid[];
BEGIN
    IF p_outcomes IS NULL OR jsonb_typeof(p_outcomes) <> 'array' OR p_outcomes @? '$[*] ? (@.outcome.type() != "string" ||
        !(@.outcome == "sent" && @.provider_message_id != "" && @.provider_message_id != null)
        && !(@.outcome == "transient" || @.outcome == "rate" || @.outcome == "quota"
             || @.outcome == "config" || @.outcome == "permanent" || @.outcome == "ambiguous"
             || @.outcome == "uncertain"))' THEN
        PERFORM mailgres.refuse('MG031', 'an outcome is not understood',
            'Give an array of objects; outcome is sent (with provider_message_id) or the class of the fault.');
    END IF;

    -- The conditions on these ids make the plan use the primary key.
    v_ids := ARRAY(SELECT (o ->> 'id')::uuid FROM jsonb_array_elements(p_outcomes) o);
    v_faults := p_outcomes @? '$[*] ? (@.outcome != "sent" || exists (@.refused_copies))';
    SELECT array_agg(p.name) FILTER (WHERE p.kind = 'resend'),
           v_faults OR bool_or(p.failures > 0 OR p.circuit <> 'closed'
                               OR num_nonnulls(p.daily_quota, p.monthly_quota) > 0)
    INTO v_resend, v_reported FROM mailgres.providers p;
    IF v_reported THEN
        v_reports := mailgres.provider_reports(p_outcomes, v_ids);
        v_uncalled := ARRAY(
            SELECT DISTINCT o.token FROM jsonb_to_recordset(p_outcomes) AS o(token uuid, called boolean)
            WHERE NOT o.called);
    END IF;

    -- Where a key protects, repeating the call recovers an outcome that was lost in a crash.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') AND EXISTS (
        SELECT FROM public.email_queue q LEFT JOIN mailgres.providers p ON p.name = q.provider
        WHERE q.id = ANY (v_ids) AND p.idempotent IS NOT TRUE)
    THEN
        PERFORM mailgres.commit_durably();
    END IF;

    RETURN QUERY
    WITH reported AS MATERIALIZED (
        SELECT o.* FROM jsonb_to_recordset(p_outcomes) AS o(
            id uuid, token uuid, outcome text, provider_message_id text, code text, message text,
            detail text, duration_ms int, retry_after double precision, batch_size int, account boolean,
            pinned boolean, called boolean, batch_refused boolean)
    ), decided AS MATERIALIZED (
        SELECT q.id, q.lease_token AS token, mailgres.decide_retry(
                   q, o.outcome, mailgres.time_after(o.retry_after), coalesce(o.account, false), coalesce(o.pinned, false),
                   coalesce(o.batch_refused, false), coalesce(o.called, true)) AS decision
        FROM public.email_queue q
        JOIN reported o ON o.id = q.id AND o.token = q.lease_token AND o.outcome <> 'sent'
        WHERE v_faults AND q.id = ANY (v_ids)
    ), finished AS (
        UPDATE public.email_queue q
        SET status = CASE WHEN o.outcome = 'sent' THEN 'sent'
                          WHEN (d.decision).dead_reason IS NULL THEN 'pending'
                          ELSE 'failed' END,
            retries = q.retries + coalesce((d.decision).spent, 0),
            next_retry_at = coalesce((d.decision).next_retry_at, q.next_retry_at),
            sent_at = CASE WHEN o.outcome = 'sent' THEN mailgres.now() END,
            dead_at = CASE WHEN (d.decision).dead_reason IS NOT NULL THEN mailgres.now() END,
            dead_reason = (d.decision).dead_reason,
            uncertain_since = (d.decision).uncertain_since,
            parked_since = (d.decision).parked_since,
            provider_message_id = o.provider_message_id,
            resend_id = CASE WHEN q.provider = ANY (v_resend) THEN o.provider_message_id END,
            error_class = CASE o.outcome WHEN 'sent' THEN NULL
                                         WHEN 'uncertain' THEN 'ambiguous'
                                         ELSE o.outcome END,
            error_code = left(o.code, 100),
            error_message = CASE WHEN o.outcome <> 'sent' THEN coalesce(
                nullif(o.message, ''), nullif(o.code, ''), o.outcome || ' fault') END,
            error_detail = left(o.detail, 4000),
            last_duration_ms = o.duration_ms,
            -- an email whose call was made does not kill workers
            lease_losses = CASE WHEN coalesce(o.called, true) THEN 0 ELSE q.lease_losses END,
            -- emails that could not be rendered were not in the call
            batch_size = coalesce(o.batch_size, q.batch_size),
            send_alone = coalesce(o.batch_refused, false),
            batch_id = CASE WHEN o.outcome = 'sent' OR (d.decision).uncertain_since IS NOT NULL THEN q.batch_id END,
            lease_token = NULL, leased_at = NULL, lease_until = NULL, lease_worker = NULL, attempt_started_at = NULL
        FROM reported o
        LEFT JOIN decided d ON d.id = o.id AND d.token = o.token
        WHERE q.id = ANY (v_ids) AND q.id = o.id AND q.lease_token = o.token
        RETURNING q.id, o.token, q.status::text, q.retries::int, q.next_retry_at, q.dead_reason::text
    )
    SELECT f.id, f.status, f.retries, f.next_retry_at, f.dead_reason, NULL
    FROM finished f
    UNION ALL
    SELECT o.id, NULL, NULL, NULL, NULL, 'MG030'
    FROM reported o
    WHERE NOT EXISTS (SELECT FROM finished f WHERE f.id = o.id AND f.token = o.token);

    IF v_reports IS NOT NULL THEN
        PERFORM mailgres.update_provider_state(v_reports, v_uncalled);
    END IF;
    IF v_faults THEN
        PERFORM mailgres.suppress_reported(p_outcomes);
        PERFORM mailgres.log_refused_copies(p_outcomes);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.finish(jsonb) IS
    'Stores the outcomes of many attempts, each only if its lease is still held.';
