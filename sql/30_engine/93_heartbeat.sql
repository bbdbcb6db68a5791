-- Workers say that they live. Who has not been heard of for a day is forgotten, and so is
-- a sleeper that ought to have woken long ago, because every enqueue reads the sleepers.

CREATE FUNCTION mailgres.heartbeat(p_worker text, p_version text DEFAULT '', p_details jsonb DEFAULT '{}') RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    INSERT INTO mailgres.workers AS w (worker, version, details)
    VALUES (p_worker, coalesce(p_version, ''), coalesce(p_details, '{}'))
    ON CONFLICT (worker) DO UPDATE
        SET seen_at = mailgres.now(), version = excluded.version, details = excluded.details;
    RETURN 1;
END
$$;

COMMENT ON FUNCTION mailgres.heartbeat(text, text, jsonb) IS 'A worker lives; returns 1.';

CREATE FUNCTION mailgres.forget_workers(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_workers   int;
    v_sleepers  int;
BEGIN
    DELETE FROM mailgres.workers w
    WHERE w.worker = ANY (ARRAY(
        SELECT x.worker FROM mailgres.workers x
        WHERE x.seen_at <= mailgres.now() - interval '1 day'
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_workers = ROW_COUNT;

    -- The real time, as whoever fell asleep wrote it.
    DELETE FROM mailgres.sleepers s
    WHERE s.worker = ANY (ARRAY(
        SELECT x.worker FROM mailgres.sleepers x
        WHERE x.sleeps_until <= clock_timestamp() - interval '1 hour'
        LIMIT p_limit - v_workers
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_sleepers = ROW_COUNT;
    RETURN v_workers + v_sleepers;
END
$$;

COMMENT ON FUNCTION mailgres.forget_workers(int) IS
    'Removes workers not seen for a day and sleepers that never woke; returns how many.';
