-- Bulk actions: the functions of 55_operate_many.sql for all emails that match a filter. An operator starts
-- one, and the janitor run_bulk_actions does it in chunks, in a worker or in the operator's page. So it
-- goes on when the person leaves, and any operator can stop and resume it.

-- Who acts: the person for whom a server acts, or the login.
CREATE FUNCTION mailgres.current_actor() RETURNS text
    LANGUAGE sql STABLE
RETURN coalesce(left(nullif(current_setting('mailgres.actor', true), ''), 60), session_user);

COMMENT ON FUNCTION mailgres.current_actor() IS
    'The person for whom a server acts (the setting mailgres.actor), or else the login.';

-- The statuses are those of the command line. The first is the default.
CREATE FUNCTION mailgres.bulk_filter(p_action text, p_filter jsonb) RETURNS jsonb
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_allowed  constant text[] := CASE p_action
        WHEN 'retry' THEN '{failed,cancelled,pending}'::text[]
        WHEN 'cancel' THEN '{pending,failed,sending}'
        WHEN 'reschedule' THEN '{pending}' END;
    v_filter   constant mailgres.filter := mailgres.read_filter(p_filter);
    v_default  constant text := CASE
        WHEN num_nonnulls(v_filter.dead_reason, v_filter.died_since, v_filter.died_until) > 0 THEN 'failed'
        ELSE v_allowed[1] END;
    v_status   constant text[] := coalesce(v_filter.status, ARRAY[v_default]);
BEGIN
    IF v_allowed IS NULL THEN
        PERFORM mailgres.refuse('MG080', format('there is no bulk action %s', coalesce(p_action, 'null')),
            'Give retry, cancel or reschedule.');
    ELSIF NOT v_status <@ v_allowed OR v_status = '{}' THEN
        PERFORM mailgres.refuse('MG080', format('the action %s is not for emails that are %s', p_action, array_to_string(v_status, ' or ')),
            format('It is for emails that are %s.', array_to_string(v_allowed, ' or ')));
    END IF;
    RETURN p_filter || jsonb_build_object('status', v_status);
END
$$;

COMMENT ON FUNCTION mailgres.bulk_filter(text, jsonb) IS
    'The filter of a bulk action with the statuses that it is for; refuses others.';

-- Options: {"accept_duplicates": true}, {"reason": "…"}, {"scheduled_for": "2026-01-31T09:00Z"}.
CREATE FUNCTION mailgres.bulk_options(p_action text, p_options jsonb) RETURNS jsonb
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_time timestamptz;
BEGIN
    IF p_action <> 'reschedule' THEN
        RETURN p_options;
    END IF;
    v_time := (p_options ->> 'scheduled_for')::timestamptz;
    IF v_time IS NULL OR NOT isfinite(v_time) THEN
        RAISE datetime_field_overflow;
    END IF;
    RETURN p_options || jsonb_build_object('scheduled_for', mailgres.time_text(v_time));
EXCEPTION WHEN data_exception THEN
    PERFORM mailgres.refuse('MG080', 'reschedule needs a time', 'Give scheduled_for as ISO 8601, such as 2026-01-31T09:00Z.');
END
$$;

COMMENT ON FUNCTION mailgres.bulk_options(text, jsonb) IS 'Checks the options of a bulk action.';

-- It takes no locks, so a few emails that are changed just then may be refused in addition. Of a hundred
-- thousand dead letters nearly all can be retried, and retry_refusal() is called only for those of
-- which something says that they might not.
CREATE FUNCTION mailgres.preview_bulk_action(p_action text, p_filter jsonb, p_options jsonb DEFAULT '{}')
    RETURNS TABLE (code text, message text, hint text, emails bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    v_filter   constant mailgres.filter := mailgres.read_filter(mailgres.bulk_filter(p_action, p_filter));
    v_options  constant jsonb := mailgres.bulk_options(p_action, p_options);
    v_accept   constant boolean := coalesce((v_options ->> 'accept_duplicates')::boolean, false);
    v_time     constant timestamptz := v_options ->> 'scheduled_for';
    v_first    uuid;
    v_last     uuid;
BEGIN
    SELECT i.first_id, i.last_id INTO v_first, v_last FROM mailgres.id_range_of(v_filter.since, v_filter.until) i;
    RETURN QUERY
        SELECT (x.refusal).code, (x.refusal).message, (x.refusal).hint, count(*)
        FROM (
            SELECT CASE
                WHEN p_action = 'cancel' THEN mailgres.cancel_refusal(q)
                WHEN p_action = 'reschedule' THEN mailgres.reschedule_refusal(q, v_time)
                WHEN q.uncertain_since IS NOT NULL
                     OR mailgres.canonical_address(q.recipient_email) IN (SELECT s.recipient_email FROM public.email_suppressions s)
                    THEN mailgres.retry_refusal(q, v_accept)
                END AS refusal
            FROM mailgres.matching_emails(v_filter, v_first, v_last) q
            OFFSET 0
        ) x
        GROUP BY x.refusal
        ORDER BY (x.refusal).code NULLS FIRST, count(*) DESC;
END
$$;

COMMENT ON FUNCTION mailgres.preview_bulk_action(text, jsonb, jsonb) IS
    'What a bulk action would do: how many emails it would change (no code), and how many not, and why.';

CREATE FUNCTION mailgres.start_bulk_action(p_action text, p_filter jsonb, p_options jsonb DEFAULT '{}') RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    v_filter  constant jsonb := mailgres.bulk_filter(p_action, p_filter);
    v_chosen  bigint;
    v_id      bigint;
BEGIN
    INSERT INTO mailgres.bulk_actions (action, filter, options, started_by)
    VALUES (p_action, v_filter, mailgres.bulk_options(p_action, p_options), mailgres.current_actor())
    RETURNING id INTO v_id;
    INSERT INTO mailgres.bulk_action_emails (action_id, queue_id)
    SELECT v_id, e.id FROM mailgres.find_emails(v_filter, NULL, NULL, 'oldest') e(id);
    GET DIAGNOSTICS v_chosen = ROW_COUNT;
    IF v_chosen = 0 THEN
        PERFORM mailgres.refuse('MG080', 'no email matches the filter', 'There is nothing to do.');
    END IF;
    UPDATE mailgres.bulk_actions b SET chosen = v_chosen WHERE b.id = v_id;
    RETURN v_id;
END
$$;

COMMENT ON FUNCTION mailgres.start_bulk_action(text, jsonb, jsonb) IS
    'Starts a bulk action on the emails that match a filter now; returns its id.';

CREATE FUNCTION mailgres.stop_bulk_action(p_id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.bulk_actions b
    SET state = 'stopped', ended_at = mailgres.now(), stopped_by = mailgres.current_actor()
    WHERE b.id = p_id AND b.state = 'running';
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.stop_bulk_action(bigint) IS
    'Stops a bulk action after the current chunk; false if it was not running.';

CREATE FUNCTION mailgres.resume_bulk_action(p_id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE mailgres.bulk_actions b
    SET state = 'running', ended_at = NULL, stopped_by = NULL, error = NULL, resumed_by = mailgres.current_actor()
    WHERE b.id = p_id AND b.state = 'stopped';
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.resume_bulk_action(bigint) IS
    'Lets a stopped bulk action go on; false if it was not stopped.';

CREATE FUNCTION mailgres.change_emails(p_action_id bigint, p_ids uuid[]) RETURNS SETOF mailgres.action_result
    LANGUAGE plpgsql
AS $$
DECLARE
    v_action    mailgres.bulk_actions;
    v_statuses  text[];
BEGIN
    SELECT * INTO v_action FROM mailgres.bulk_actions b WHERE b.id = p_action_id;
    v_statuses := ARRAY(SELECT jsonb_array_elements_text(v_action.filter -> 'status'));
    -- who did it, for the log
    PERFORM set_config('mailgres.actor',
        format('%s, bulk action %s', coalesce(v_action.resumed_by, v_action.started_by), v_action.id), true);
    CASE v_action.action
        WHEN 'retry' THEN
            RETURN QUERY SELECT * FROM mailgres.retry_emails(
                p_ids, coalesce((v_action.options ->> 'accept_duplicates')::boolean, false), v_statuses);
        WHEN 'cancel' THEN
            RETURN QUERY SELECT * FROM mailgres.cancel_emails(p_ids, v_action.options ->> 'reason', v_statuses);
        WHEN 'reschedule' THEN
            RETURN QUERY SELECT * FROM mailgres.reschedule_emails(
                p_ids, (v_action.options ->> 'scheduled_for')::timestamptz, v_statuses);
    END CASE;
END
$$;

COMMENT ON FUNCTION mailgres.change_emails(bigint, uuid[]) IS
    'Does a bulk action for some emails, in the name of the person who started or resumed it.';

-- Counts refusals by message: {"the address is suppressed": {"code": …, "hint": …, "emails": 3}}.
CREATE FUNCTION mailgres.add_refusals(p_refused jsonb, p_more mailgres.action_result[]) RETURNS jsonb
    LANGUAGE sql STABLE
RETURN p_refused || coalesce((
    SELECT jsonb_object_agg(m.message, jsonb_build_object('code', m.code, 'hint', m.hint,
               'emails', m.emails + coalesce((p_refused -> m.message ->> 'emails')::bigint, 0)))
    FROM (SELECT x.message, min(x.code) AS code, min(x.hint) AS hint, count(*) AS emails
          FROM unnest(p_more) x GROUP BY x.message) m), '{}');

COMMENT ON FUNCTION mailgres.add_refusals(jsonb, mailgres.action_result[]) IS
    'Adds the refusals of a chunk to the counts of a bulk action.';

-- The caller has locked the action. The rest of an uncertain batch is retried with one of its emails,
-- wherever it is in the list.
CREATE FUNCTION mailgres.run_bulk_chunk(p_action_id bigint, p_limit int) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_action   mailgres.bulk_actions;
    v_ids      uuid[];
    v_results  mailgres.action_result[];
    v_changed  bigint;
    v_at_end   boolean;
    v_is_done  boolean;
BEGIN
    SELECT * INTO v_action FROM mailgres.bulk_actions b WHERE b.id = p_action_id;
    v_ids := ARRAY(
        SELECT e.queue_id FROM mailgres.bulk_action_emails e
        WHERE e.action_id = p_action_id
          AND e.queue_id > coalesce(v_action.last_id, '00000000-0000-0000-0000-000000000000')
        ORDER BY e.queue_id LIMIT p_limit);
    v_at_end := cardinality(v_ids) < p_limit;
    v_results := ARRAY(
        SELECT r FROM mailgres.change_emails(p_action_id, v_ids) r
        WHERE r.code IS NULL OR r.code <> 'MG026' OR v_action.is_last_pass);
    WITH gone AS (
        DELETE FROM mailgres.bulk_action_emails e
        WHERE e.action_id = p_action_id AND e.queue_id = ANY (ARRAY(SELECT r.id FROM unnest(v_results) r))
        RETURNING e.queue_id
    )
    SELECT count(*) INTO v_changed FROM gone g JOIN unnest(v_results) r ON r.id = g.queue_id WHERE r.code IS NULL;
    v_is_done := v_at_end AND NOT EXISTS (
        SELECT FROM mailgres.bulk_action_emails e WHERE e.action_id = p_action_id);
    UPDATE mailgres.bulk_actions b
    SET done = b.done + v_changed,
        refused = mailgres.add_refusals(b.refused, ARRAY(SELECT r FROM unnest(v_results) r WHERE r.code IS NOT NULL)),
        last_id = CASE WHEN NOT v_at_end THEN v_ids[cardinality(v_ids)] END,
        is_last_pass = b.is_last_pass OR v_at_end,
        chunk_at = mailgres.now(),
        state = CASE WHEN v_is_done THEN 'done' ELSE b.state END,
        ended_at = CASE WHEN v_is_done THEN mailgres.now() END
    WHERE b.id = p_action_id;
    RETURN cardinality(v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.run_bulk_chunk(bigint, int) IS
    'Does the next emails of a bulk action; returns how many.';

CREATE FUNCTION mailgres.delete_expired_bulk_actions(p_limit int) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    c_kept constant interval := '30 days';
    v_id   bigint;
BEGIN
    SELECT b.id INTO v_id FROM mailgres.bulk_actions b
    WHERE b.ended_at <= mailgres.now() - c_kept ORDER BY b.id LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        DELETE FROM mailgres.bulk_action_emails e
        WHERE e.action_id = v_id AND e.queue_id = ANY (ARRAY(
            SELECT x.queue_id FROM mailgres.bulk_action_emails x WHERE x.action_id = v_id LIMIT p_limit));
        DELETE FROM mailgres.bulk_actions b
        WHERE b.id = v_id AND NOT EXISTS (SELECT FROM mailgres.bulk_action_emails e WHERE e.action_id = v_id);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.delete_expired_bulk_actions(int) IS
    'Deletes a bulk action that ended 30 days ago, with the emails it did not do.';

-- Any number of processes may call it: each takes another action, or none. An error stops the action
-- and is shown; a fault that passes by itself is raised, and the next call repeats the chunk.
CREATE FUNCTION mailgres.run_bulk_actions(p_limit int DEFAULT 200) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_id bigint;
BEGIN
    SELECT b.id INTO v_id FROM mailgres.bulk_actions b
    WHERE b.state = 'running' ORDER BY b.chunk_at, b.id LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        PERFORM mailgres.delete_expired_bulk_actions(p_limit);
        RETURN 0;
    END IF;
    BEGIN
        RETURN mailgres.run_bulk_chunk(v_id, p_limit);
    EXCEPTION
        WHEN deadlock_detected OR serialization_failure OR lock_not_available OR insufficient_resources THEN
            RAISE;
        WHEN OTHERS THEN
            UPDATE mailgres.bulk_actions b
            SET state = 'stopped', ended_at = mailgres.now(), error = left(mailgres.redact_addresses(SQLERRM), 500)
            WHERE b.id = v_id;
            RETURN 0;
    END;
END
$$;

COMMENT ON FUNCTION mailgres.run_bulk_actions(int) IS
    'Does a chunk of a bulk action that is running; returns how many emails it looked at.';
