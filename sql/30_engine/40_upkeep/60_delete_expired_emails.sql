-- Sent and cancelled emails are deleted after settings.sent_ttl. There is no index for that,
-- because every email would pay for it: ids are ordered by time, so the walk follows the primary
-- key from the oldest id. Emails that have to stay (scheduled, or sent late) are skipped, and one
-- call reads a limited number of rows, so the walk stores its position and starts again at the
-- end.
--
-- Two ranges are walked: ids older than sent_ttl, and ids that are not of our clock (an
-- application may set random ids of its own). Ids in between are too young.

CREATE TABLE mailgres.retention_walk (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    after_id    uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    logs_after  uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.retention_walk IS 'The position of delete_expired_emails in its current walk.';

COMMENT ON COLUMN mailgres.retention_walk.logs_after IS
    'The position of the walk through the logs of emails that were deleted by hand.';

INSERT INTO mailgres.retention_walk DEFAULT VALUES;

CREATE FUNCTION mailgres.first_id_of(p_time timestamptz) RETURNS uuid
    LANGUAGE sql STABLE
RETURN rpad(lpad(to_hex(
    floor(least(greatest(date_part('epoch', p_time) * 1000, 0), 281474976710655))::bigint), 12, '0'), 32, '0')::uuid;

COMMENT ON FUNCTION mailgres.first_id_of(timestamptz) IS
    'A lower bound of all time-ordered uuids that are generated at this time or later.';

-- When emails are deleted by hand, their logs stay: there is no foreign key, because every
-- attempt would have to check it. Among ids older than sent_ttl hardly any email is left, so most
-- logs there are such orphans. Logs of the few emails that have to stay are skipped, and the walk
-- stores its position. It follows the primary key of the logs, from one email to the next.
-- (Attachments have a foreign key.)
CREATE FUNCTION mailgres.delete_orphans(p_limit int, p_before timestamptz, p_old uuid, p_future uuid)
    RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    c_first    constant uuid := '00000000-0000-0000-0000-000000000000';
    c_last     constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    v_after    uuid := (SELECT w.logs_after FROM mailgres.retention_walk w);
    v_started  constant uuid := v_after;
    v_end      uuid;
    v_id       uuid;
    v_ids      uuid[] := '{}';
BEGIN
    IF v_after >= p_old THEN
        v_after := greatest(v_after, p_future);
    END IF;
    v_end := CASE WHEN v_after < p_old THEN p_old ELSE c_last END;
    FOR v_step IN 1 .. p_limit LOOP
        SELECT l.queue_id INTO v_id FROM public.email_logs l
        WHERE l.queue_id > v_after AND l.queue_id < v_end ORDER BY l.queue_id LIMIT 1;
        IF NOT FOUND THEN
            v_after := CASE WHEN v_end = p_old THEN p_future ELSE c_first END;
            EXIT;
        END IF;
        v_after := v_id;
        IF NOT EXISTS (SELECT FROM public.email_queue q WHERE q.id = v_id)
           AND p_before > (SELECT max(l.at) FROM public.email_logs l WHERE l.queue_id = v_id) THEN
            v_ids := v_ids || v_id;
        END IF;
    END LOOP;
    IF v_after <> v_started THEN  -- an empty round writes nothing
        UPDATE mailgres.retention_walk w SET logs_after = v_after;
    END IF;
    IF cardinality(v_ids) > 0 THEN
        PERFORM mailgres.delete_emails(v_ids);
    END IF;
    DELETE FROM mailgres.captured c
    WHERE c.captured_at < p_before AND c.queue_id = ANY (ARRAY(
        SELECT x.queue_id FROM (
            SELECT k.queue_id FROM mailgres.captured k WHERE k.queue_id < p_old ORDER BY k.queue_id LIMIT p_limit) x
        WHERE NOT EXISTS (SELECT FROM public.email_queue q WHERE q.id = x.queue_id)));
    RETURN cardinality(v_ids);
END
$$;

COMMENT ON FUNCTION mailgres.delete_orphans(int, timestamptz, uuid, uuid) IS
    'Deletes what is left of emails that were deleted by hand, after sent_ttl; returns how many emails.';

CREATE FUNCTION mailgres.delete_expired_emails(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_first           constant uuid := '00000000-0000-0000-0000-000000000000';
    c_last            constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    c_rows_per_email  constant int := 20;  -- rows read for each email that may be deleted
    v_before          timestamptz := (SELECT mailgres.now() - s.sent_ttl FROM mailgres.settings s);
    v_old             uuid := mailgres.first_id_of(v_before);
    v_future          uuid := mailgres.first_id_of(greatest(mailgres.now(), clock_timestamp()) + interval '1 day');
    v_after           uuid;
    v_end             uuid;
    v_until           uuid;
    v_ids             uuid[];
BEGIN
    SELECT w.after_id INTO v_after FROM mailgres.retention_walk w FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;  -- another session is walking
    END IF;
    IF v_after >= v_old THEN
        v_after := greatest(v_after, v_future);
        SELECT q.id INTO v_until FROM public.email_queue q ORDER BY q.id DESC LIMIT 1;
        IF v_until IS NULL OR v_until <= v_after THEN
            v_after := c_first;  -- the range is empty: do not spend a call on it
        END IF;
    END IF;
    v_end := CASE WHEN v_after < v_old THEN v_old ELSE c_last END;

    -- The last row to read; null if there are fewer rows.
    SELECT q.id INTO v_until FROM public.email_queue q
    WHERE q.id > v_after AND q.id < v_end
    ORDER BY q.id OFFSET greatest(p_limit * c_rows_per_email - 1, 0) LIMIT 1;

    v_ids := ARRAY(
        SELECT q.id
        FROM public.email_queue q
        WHERE q.id > v_after AND q.id <= coalesce(v_until, v_end)
          AND CASE q.status
                  WHEN 'sent' THEN q.sent_at < v_before
                  WHEN 'cancelled' THEN v_before > coalesce(
                      (SELECT max(l.at) FROM public.email_logs l
                       WHERE l.queue_id = q.id AND l.to_status = 'cancelled'),
                      q.created_at)
              END
        ORDER BY q.id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED);

    UPDATE mailgres.retention_walk w
    SET after_id = CASE
        WHEN cardinality(v_ids) >= p_limit THEN v_ids[p_limit]
        WHEN v_until IS NOT NULL THEN v_until
        WHEN v_end = v_old THEN v_future
        ELSE c_first
    END;
    RETURN CASE WHEN cardinality(v_ids) > 0 THEN mailgres.delete_emails(v_ids) ELSE 0 END
        + mailgres.delete_orphans(p_limit, v_before, v_old, v_future);
END
$$;

COMMENT ON FUNCTION mailgres.delete_expired_emails(int) IS
    'Deletes emails that were sent or cancelled long ago; returns how many.';
