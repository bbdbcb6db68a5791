-- Finds and purges dead letters by the thousand, for operators' commands.

CREATE FUNCTION mailgres.matches_recipient(p_address text, p_wanted text) RETURNS boolean
    LANGUAGE sql STABLE
RETURN CASE WHEN p_wanted LIKE '@%'
            THEN split_part(mailgres.canonical_address(p_address), '@', 2) = mailgres.canonical_address(substr(p_wanted, 2))
            ELSE mailgres.canonical_address(p_address) = mailgres.canonical_address(p_wanted) END;

COMMENT ON FUNCTION mailgres.matches_recipient(text, text) IS 'Whether an address is the wanted one, or of the wanted @domain.';

-- The newest first. The rows are narrow, so that a million of them are found quickly;
-- email_dead_letters has everything about one. p_place: queue, archive, or null for both. p_code:
-- none means dead letters without a code. p_recipients: addresses in any case, or @ and
-- a domain.
CREATE FUNCTION mailgres.find_dead_letters(
    p_tenant text DEFAULT NULL, p_template text DEFAULT NULL, p_code text DEFAULT NULL, p_reason text DEFAULT NULL,
    p_since timestamptz DEFAULT NULL, p_until timestamptz DEFAULT NULL, p_place text DEFAULT NULL,
    p_limit int DEFAULT NULL, p_recipients text[] DEFAULT NULL, p_provider text DEFAULT NULL,
    p_enqueued_since timestamptz DEFAULT NULL, p_enqueued_until timestamptz DEFAULT NULL
) RETURNS TABLE (
    id uuid, tenant_id text, template_type text, error_code text, dead_reason text, dead_at timestamptz,
    archived boolean
)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
BEGIN
    -- Planned at each call, and each half has the limit: the newest of a million come from an index.
    RETURN QUERY
    (SELECT q.id, q.tenant_id::text, q.template_type::text, q.error_code, q.dead_reason::text, q.dead_at, false
     FROM public.email_queue q
     WHERE q.status = 'failed' AND q.due_at >= coalesce(p_since, '-infinity') AND q.due_at < coalesce(p_until, 'infinity')
       AND (p_tenant IS NULL OR q.tenant_id = p_tenant)
       AND (p_template IS NULL OR q.template_type = p_template)
       AND (p_code IS NULL OR q.error_code = p_code OR p_code = 'none' AND q.error_code IS NULL)
       AND (p_reason IS NULL OR q.dead_reason = p_reason)
       AND (p_recipients IS NULL OR EXISTS (
            SELECT FROM unnest(p_recipients) r WHERE mailgres.matches_recipient(q.recipient_email, r)))
       AND (p_provider IS NULL OR q.provider = p_provider)
       AND (p_enqueued_since IS NULL OR q.created_at >= p_enqueued_since)
       AND (p_enqueued_until IS NULL OR q.created_at < p_enqueued_until)
       AND p_place IS DISTINCT FROM 'archive'
     ORDER BY q.due_at DESC, q.id LIMIT p_limit)
    UNION ALL
    (SELECT d.queue_id, d.tenant_id, d.template_type, d.error_code, d.dead_reason, d.dead_at, true
     FROM mailgres.dead_letters d
     WHERE d.dead_at >= coalesce(p_since, '-infinity') AND d.dead_at < coalesce(p_until, 'infinity')
       AND (p_tenant IS NULL OR d.tenant_id = p_tenant)
       AND (p_template IS NULL OR d.template_type = p_template)
       AND (p_code IS NULL OR d.error_code = p_code OR p_code = 'none' AND d.error_code IS NULL)
       AND (p_reason IS NULL OR d.dead_reason = p_reason)
       AND (p_recipients IS NULL OR EXISTS (
            SELECT FROM unnest(p_recipients) r WHERE mailgres.matches_recipient(d.email ->> 'recipient_email', r)))
       AND (p_provider IS NULL OR d.email ->> 'provider' = p_provider)
       AND (p_enqueued_since IS NULL OR (d.email ->> 'created_at')::timestamptz >= p_enqueued_since)
       AND (p_enqueued_until IS NULL OR (d.email ->> 'created_at')::timestamptz < p_enqueued_until)
       AND p_place IS DISTINCT FROM 'queue'
     ORDER BY d.dead_at DESC, d.queue_id LIMIT p_limit)
    ORDER BY 6 DESC, 1
    LIMIT p_limit;
END
$$;

COMMENT ON FUNCTION mailgres.find_dead_letters(
    text, text, text, text, timestamptz, timestamptz, text, int, text[], text, timestamptz, timestamptz) IS
    'Dead letters in the queue and in the archive, the newest first.';

-- A dead letter is identified by the email and dead_at: an email that was retried and died
-- again is another dead letter, which the caller has not seen. Exports have no attachments, so dead
-- letters in the queue that have some are kept, unless p_with_attachments is true; the archive has no
-- attachments.
CREATE FUNCTION mailgres.purge_dead_letters(
    p_ids uuid[], p_dead_at timestamptz[], p_with_attachments boolean DEFAULT false
) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_queued    uuid[];
    v_archived  uuid[];
    v_spared    uuid[];
BEGIN
    v_queued := ARRAY(
        SELECT q.id FROM public.email_queue q
        JOIN unnest(p_ids, p_dead_at) x(id, dead_at) ON x.id = q.id
        WHERE q.id = ANY (p_ids) AND q.status = 'failed' AND q.dead_at = x.dead_at
        ORDER BY q.id FOR UPDATE OF q SKIP LOCKED);
    v_spared := ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.id = ANY (v_queued) AND q.has_attachments AND p_with_attachments IS NOT TRUE);
    v_queued := ARRAY(SELECT unnest(v_queued) EXCEPT SELECT unnest(v_spared));
    PERFORM mailgres.delete_emails(v_queued);
    v_archived := ARRAY(
        SELECT d.queue_id FROM mailgres.dead_letters d
        JOIN unnest(p_ids, p_dead_at) x(id, dead_at) ON x.id = d.queue_id
        WHERE d.queue_id = ANY (p_ids) AND d.dead_at = x.dead_at
        ORDER BY d.queue_id FOR UPDATE OF d SKIP LOCKED);
    DELETE FROM mailgres.dead_letters d WHERE d.queue_id = ANY (v_archived);

    RETURN QUERY SELECT DISTINCT i, NULL::text, NULL::text, NULL::text FROM unnest(v_queued || v_archived) i;
    RETURN QUERY
    SELECT i, 'MG027', 'it has attachments, which an export does not contain',
           'Save the attachments that you need and give --with-attachments, or wait: the archive does not keep attachments.'
    FROM unnest(v_spared) i WHERE i <> ALL (v_archived);
    RETURN QUERY
    SELECT i.id,
           CASE WHEN x.there THEN 'MG026' ELSE 'MG020' END,
           CASE WHEN x.there THEN 'it was changed since, or another session is changing it'
                ELSE 'there is no such dead letter' END,
           CASE WHEN x.there THEN 'Export it again.' ELSE 'It was purged, or belongs to another database.' END
    FROM unnest(p_ids) i(id)
    CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT FROM public.email_queue q WHERE q.id = i.id)
            OR EXISTS (SELECT FROM mailgres.dead_letters d WHERE d.queue_id = i.id) AS there
    ) x
    WHERE i.id <> ALL (v_queued || v_archived || v_spared);
END
$$;

COMMENT ON FUNCTION mailgres.purge_dead_letters(uuid[], timestamptz[], boolean) IS
    'Deletes dead letters, in the queue or in the archive, that died at the given times: a row for each, with the code of its refusal, or null.';
