-- A janitor that keeps failing has no immediate effect: counts stop changing, emails of dead
-- workers are not reaped. So failures in a row are counted, until a run of the same worker
-- succeeds, for an alert and for `mailgres doctor`.

CREATE FUNCTION mailgres.record_janitor_run(p_janitor text, p_worker text, p_error text, p_every interval) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_error IS NULL THEN
        DELETE FROM mailgres.janitor_failures f WHERE f.janitor = p_janitor AND f.worker = p_worker;
        RETURN;
    END IF;
    INSERT INTO mailgres.janitor_failures AS f (janitor, worker, run_every, error)
    VALUES (left(p_janitor, 200), left(p_worker, 200), p_every, left(p_error, 500))
    ON CONFLICT (janitor, worker) DO UPDATE
        SET failures = f.failures + 1, failed_at = excluded.failed_at, run_every = excluded.run_every,
            error = excluded.error;
END
$$;

COMMENT ON FUNCTION mailgres.record_janitor_run(text, text, text, interval) IS
    'Counts a failed run of a janitor; without an error, deletes its earlier failures, because the run succeeded.';

-- One row for each janitor, whichever workers it fails for.
CREATE FUNCTION mailgres.failing_janitors()
    RETURNS TABLE (janitor text, worker text, failures int, since timestamptz, error text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT ON (f.janitor) f.janitor, f.worker, f.failures, f.since, f.error
    FROM mailgres.janitor_failures f
    WHERE f.failed_at > mailgres.now() - (3 * f.run_every + interval '5 minutes')
    ORDER BY f.janitor, f.failures DESC, f.worker
$$;

COMMENT ON FUNCTION mailgres.failing_janitors() IS
    'Janitors that are failing now: the worker with the most failures in a row, and its last error.';
