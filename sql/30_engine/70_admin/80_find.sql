-- Finds emails: the filter of the command line, whether it lists, retries or cancels. It is a JSON
-- object; a key that is missing does not restrict the result:
--
--   status, template, tenant, error_code, provider, dead_reason   lists: one of these
--   error_code     "none" finds emails without a code
--   recipient      a list of addresses, in any case; "@example.com" is a whole domain
--   since, until   when the email was enqueued: from since on, before until
--   died_since, died_until   when it died
--
-- There is no index for this alone, because every email would pay for it. Ids are ordered by time,
-- so a period is a range of the primary key. Emails that are dead or being sent are found by
-- email_queue_due_idx, waiting emails by that and email_queue_ready_idx. Statements are planned for
-- each filter (force_custom_plan), so that keys which are missing add no condition to the plan.

CREATE TYPE mailgres.filter AS (
    status       text[],
    template     text[],
    tenant       text[],
    recipient    text[],
    domain       text[],
    error_code   text[],
    provider     text[],
    dead_reason  text[],
    since        timestamptz,
    until        timestamptz,
    died_since   timestamptz,
    died_until   timestamptz
);

CREATE FUNCTION mailgres.read_filter(p_filter jsonb) RETURNS mailgres.filter
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c_statuses constant text[] := '{pending,sending,sent,failed,cancelled}';
    v_filter   mailgres.filter;
    v_unknown  text;
BEGIN
    SELECT k INTO v_unknown FROM jsonb_object_keys(p_filter) k
    WHERE k <> ALL ('{status,template,tenant,recipient,error_code,provider,dead_reason,since,until,
                    died_since,died_until}');
    IF FOUND THEN
        PERFORM mailgres.refuse('MG080', format('the filter has no key %s', v_unknown),
            'Filter by status, template, tenant, recipient, error_code, provider, dead_reason, since, until, died_since or died_until.');
    END IF;
    v_filter := jsonb_populate_record(NULL::mailgres.filter, p_filter);
    IF v_filter.recipient IS NOT NULL THEN
        v_filter.domain := nullif(ARRAY(
            SELECT mailgres.canonical_address(substr(r, 2)) FROM unnest(v_filter.recipient) r WHERE r LIKE '@%'), '{}');
        v_filter.recipient := ARRAY(
            SELECT mailgres.canonical_address(r) FROM unnest(v_filter.recipient) r WHERE r NOT LIKE '@%');
        IF v_filter.recipient = '{}' AND v_filter.domain IS NOT NULL THEN
            v_filter.recipient := NULL;
        END IF;
    END IF;
    IF NOT v_filter.status <@ c_statuses THEN
        PERFORM mailgres.refuse('MG080', 'there is no such status',
            'Give pending, sending, sent, failed or cancelled.');
    ELSIF v_filter.since >= v_filter.until OR v_filter.died_since >= v_filter.died_until THEN
        PERFORM mailgres.refuse('MG080', 'the time window ends before it begins',
            'Give a since that is earlier than until.');
    END IF;
    RETURN v_filter;
EXCEPTION WHEN data_exception THEN
    PERFORM mailgres.refuse('MG080', 'a value of the filter has the wrong type',
        'Times are ISO 8601, all others are lists of texts.');
END
$$;

COMMENT ON FUNCTION mailgres.read_filter(jsonb) IS 'Checks a filter and returns it as a record.';

-- The range of ids that a period can have. An id is never older than created_at, which is the time
-- of the transaction; it is younger by at most the length of the transaction, for which a day is
-- enough. The period is relative to mailgres.now(), which tests change; ids always use the server's
-- clock.
--
-- An application may set random ids of its own, which say nothing about time: some of them are
-- older than mailgres, most are later than tomorrow. If there are any, all ids are searched.
CREATE FUNCTION mailgres.id_range_of(
    p_since timestamptz, p_until timestamptz, OUT first_id uuid, OUT last_id uuid)
    LANGUAGE plpgsql STABLE SET enable_seqscan = off
AS $$
DECLARE
    c_origin   constant uuid := mailgres.first_id_of('2025-01-01Z');
    v_tomorrow constant uuid := mailgres.first_id_of(clock_timestamp() + interval '1 day');
    v_travel   constant interval := now() - mailgres.now();
BEGIN
    first_id := '00000000-0000-0000-0000-000000000000';
    last_id := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    IF EXISTS (SELECT FROM public.email_queue q WHERE q.id < c_origin)
       OR EXISTS (SELECT FROM public.email_queue q WHERE q.id > v_tomorrow) THEN
        RETURN;
    END IF;
    IF p_since IS NOT NULL THEN
        first_id := mailgres.first_id_of(p_since + v_travel);
    END IF;
    IF p_until IS NOT NULL THEN
        last_id := mailgres.first_id_of(p_until + v_travel + interval '1 day');
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.id_range_of(timestamptz, timestamptz) IS
    'The range of ids of the emails of a period; imported older emails count from the time of the import.';

-- One SELECT, so that it is inlined where it is used. The conditions on due_at and ready follow
-- from the status: they make the partial indexes usable. An email dies after it was enqueued, and
-- its lease expires after that, too.
CREATE FUNCTION mailgres.matching_emails(p_filter mailgres.filter, p_first_id uuid, p_last_id uuid)
    RETURNS SETOF public.email_queue
    LANGUAGE sql STABLE
AS $$
    SELECT q.*
    FROM public.email_queue q
    WHERE (p_filter.status IS NULL OR q.status = ANY (p_filter.status))
      AND (p_filter.status <@ '{failed,sending}' IS NOT TRUE
           OR q.due_at >= coalesce(greatest(p_filter.since, p_filter.died_since), '-infinity'))
      AND ((p_filter.status <@ '{failed,sending,pending}' AND 'pending' = ANY (p_filter.status)) IS NOT TRUE
           OR q.ready OR q.due_at IS NOT NULL)
      AND (p_filter.template IS NULL OR q.template_type = ANY (p_filter.template))
      AND (p_filter.tenant IS NULL OR q.tenant_id = ANY (p_filter.tenant))
      AND (p_filter.error_code IS NULL OR coalesce(q.error_code, 'none') = ANY (p_filter.error_code))
      AND (p_filter.provider IS NULL OR q.provider = ANY (p_filter.provider))
      AND (p_filter.dead_reason IS NULL OR q.dead_reason = ANY (p_filter.dead_reason))
      AND (p_filter.recipient IS NULL AND p_filter.domain IS NULL
           OR p_filter.recipient IS NOT NULL
              -- Comparing lengths rules out most emails and is cheaper than lower(). Beyond ASCII the
              -- spellings of one address have different lengths.
              AND (octet_length(q.recipient_email) = ANY (ARRAY(SELECT octet_length(x) FROM unnest(p_filter.recipient) x))
                   OR octet_length(q.recipient_email) > length(q.recipient_email))
              AND mailgres.canonical_address(q.recipient_email) = ANY (p_filter.recipient)
           OR p_filter.domain IS NOT NULL
              AND split_part(mailgres.canonical_address(q.recipient_email), '@', 2) = ANY (p_filter.domain))
      AND (p_filter.since IS NULL OR q.created_at >= p_filter.since)
      AND (p_filter.until IS NULL OR q.created_at < p_filter.until)
      AND (p_filter.died_since IS NULL OR q.dead_at >= p_filter.died_since)
      AND (p_filter.died_until IS NULL OR q.dead_at < p_filter.died_until)
      AND q.id BETWEEN p_first_id AND p_last_id
$$;

COMMENT ON FUNCTION mailgres.matching_emails(mailgres.filter, uuid, uuid) IS
    'The emails that match a filter, in a range of ids.';

CREATE FUNCTION mailgres.find_emails(
    p_filter jsonb DEFAULT '{}',
    p_after uuid DEFAULT NULL,
    p_limit int DEFAULT 100,
    p_sort text DEFAULT 'newest'
) RETURNS SETOF uuid
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    v_filter constant mailgres.filter := mailgres.read_filter(p_filter);
    v_first  uuid;
    v_last   uuid;
BEGIN
    IF p_sort <> ALL ('{newest,oldest,due,retries,priority}') OR p_after IS NOT NULL AND p_sort <> ALL ('{newest,oldest}') THEN
        PERFORM mailgres.refuse('MG080', 'emails cannot be sorted like this',
            'Sort by newest or oldest; or, without pages, by due, retries or priority.');
    END IF;
    SELECT i.first_id, i.last_id INTO v_first, v_last FROM mailgres.id_range_of(v_filter.since, v_filter.until) i;
    v_first := CASE WHEN p_sort = 'oldest' THEN greatest(v_first, p_after) ELSE v_first END;
    v_last := CASE WHEN p_sort = 'newest' THEN least(v_last, p_after) ELSE v_last END;
    RETURN QUERY
        SELECT q.id FROM mailgres.matching_emails(v_filter, v_first, v_last) q
        WHERE p_after IS NULL OR q.id <> p_after
        ORDER BY CASE WHEN p_sort = 'due' THEN q.next_retry_at END,
                 CASE WHEN p_sort = 'priority' THEN q.priority END,
                 CASE WHEN p_sort = 'retries' THEN q.retries END DESC,
                 CASE WHEN p_sort = 'oldest' THEN q.id END,
                 q.id DESC
        LIMIT p_limit;
END
$$;

COMMENT ON FUNCTION mailgres.find_emails(jsonb, uuid, int, text) IS
    'The ids of the emails that match a filter, newest (or oldest) first; p_after: the last id of the page before.';

CREATE FUNCTION mailgres.count_emails(p_filter jsonb DEFAULT '{}', p_most int DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    v_filter constant mailgres.filter := mailgres.read_filter(p_filter);
    v_first  uuid;
    v_last   uuid;
BEGIN
    SELECT i.first_id, i.last_id INTO v_first, v_last FROM mailgres.id_range_of(v_filter.since, v_filter.until) i;
    RETURN (SELECT count(*) FROM (
        SELECT FROM mailgres.matching_emails(v_filter, v_first, v_last) LIMIT p_most) x);
END
$$;

COMMENT ON FUNCTION mailgres.count_emails(jsonb, int) IS
    'How many emails match a filter; counts at most p_most.';
