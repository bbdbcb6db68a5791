-- Sent and cancelled emails leave the queue after settings.sent_ttl. There is no index
-- for that, because every email would pay for it: ids are ordered by time, so the walk
-- is along the primary key, from the oldest. What has to stay (a scheduled email, one
-- sent late) is passed, and a call looks at a bounded number of rows, so the walk
-- remembers where it is and begins anew at the end.
--
-- Two stretches are walked: ids older than the retention, and those that no clock of
-- ours has given (an application may bring ids of its own, at random). What lies
-- between is too young.

CREATE TABLE mailgres.retention_walk (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    after_id    uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    logs_after  uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.retention_walk IS 'The id up to which retention has looked in this round.';

COMMENT ON COLUMN mailgres.retention_walk.logs_after IS
    'The email up to which its logs were looked at, for emails that somebody deleted.';

INSERT INTO mailgres.retention_walk DEFAULT VALUES;

CREATE FUNCTION mailgres.first_id_of(p_time timestamptz) RETURNS uuid
    LANGUAGE sql STABLE
RETURN rpad(lpad(to_hex(
    floor(least(greatest(date_part('epoch', p_time) * 1000, 0), 281474976710655))::bigint), 12, '0'), 32, '0')::uuid;

COMMENT ON FUNCTION mailgres.first_id_of(timestamptz) IS
    'No time-ordered uuid given at this time or later is smaller than this one.';

-- Somebody deletes emails by hand, and their logs stay: there is no foreign key, which every
-- try would have to check. Among ids as old as the retention hardly an email is left, so what
-- is found there is mostly such logs; those of the few emails that have to stay are passed,
-- and the walk remembers where it is. It goes along the primary key of the logs, from one
-- email to the next. (Attachments went by a foreign key; a death is taken by its janitor.)
CREATE FUNCTION mailgres.delete_orphans(p_limit int, p_before timestamptz, p_old uuid, p_future uuid)
    RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    c_first   constant uuid := '00000000-0000-0000-0000-000000000000';
    c_last    constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    v_after   uuid := (SELECT w.logs_after FROM mailgres.retention_walk w);
    v_started   constant uuid := v_after;
    v_end     uuid;
    v_id      uuid;
    v_ids     uuid[] := '{}';
BEGIN
    IF v_after >= p_old THEN
        v_after := greatest(v_after, p_future);
    END IF;
    v_end := CASE WHEN v_after < p_old THEN p_old ELSE c_last END;
    FOR v_look IN 1 .. p_limit LOOP
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
    'Removes what is left of emails that somebody deleted, when their time is over; returns how many emails.';

CREATE FUNCTION mailgres.delete_expired_emails(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_first   constant uuid := '00000000-0000-0000-0000-000000000000';
    c_last    constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    c_looks   constant int := 20;  -- at so many rows for each that may leave
    v_before  timestamptz := (SELECT mailgres.now() - s.sent_ttl FROM mailgres.settings s);
    v_old     uuid := mailgres.first_id_of(v_before);
    v_future  uuid := mailgres.first_id_of(greatest(mailgres.now(), clock_timestamp()) + interval '1 day');
    v_after   uuid;
    v_end     uuid;
    v_until   uuid;
    v_ids     uuid[];
BEGIN
    SELECT w.after_id INTO v_after FROM mailgres.retention_walk w FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;  -- somebody is walking
    END IF;
    IF v_after >= v_old THEN
        v_after := greatest(v_after, v_future);
        SELECT q.id INTO v_until FROM public.email_queue q ORDER BY q.id DESC LIMIT 1;
        IF v_until IS NULL OR v_until <= v_after THEN
            v_after := c_first;  -- nothing there: do not spend a call on it
        END IF;
    END IF;
    v_end := CASE WHEN v_after < v_old THEN v_old ELSE c_last END;

    -- The last row to look at; null if there are not so many.
    SELECT q.id INTO v_until FROM public.email_queue q
    WHERE q.id > v_after AND q.id < v_end
    ORDER BY q.id OFFSET greatest(p_limit * c_looks - 1, 0) LIMIT 1;

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
    'Removes emails that were sent or cancelled long ago; returns how many.';
