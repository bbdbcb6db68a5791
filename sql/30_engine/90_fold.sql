-- Adds the deltas to the rollups, a bounded number at a time.

CREATE FUNCTION mailgres.fold(p_limit int DEFAULT 10000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = ''
AS $$
DECLARE
    v_count int;
BEGIN
    -- One at a time: two folders would take the same rollup rows in other orders.
    IF NOT pg_try_advisory_xact_lock(hashtext('mailgres.fold')) THEN
        RETURN 0;
    END IF;

    WITH taken AS MATERIALIZED (
        DELETE FROM mailgres.rollup_deltas d
        WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM mailgres.rollup_deltas x LIMIT p_limit))
        RETURNING d.*
    ), by_template AS (
        INSERT INTO mailgres.rollup_by_template AS r (hour, template_type, status, retries, emails, seconds)
        SELECT t.hour, t.template_type, t.status, t.retries, sum(t.emails), sum(t.seconds)
        FROM taken t GROUP BY 1, 2, 3, 4
        ON CONFLICT (hour, template_type, status, retries) DO UPDATE
            SET emails = r.emails + excluded.emails, seconds = r.seconds + excluded.seconds
    ), by_tenant AS (
        INSERT INTO mailgres.rollup_by_tenant AS r (hour, tenant_id, status, emails)
        SELECT t.hour, t.tenant_id, t.status, sum(t.emails)
        FROM taken t GROUP BY 1, 2, 3
        ON CONFLICT (hour, tenant_id, status) DO UPDATE SET emails = r.emails + excluded.emails
    ), by_provider AS (
        INSERT INTO mailgres.rollup_by_provider AS r (hour, provider, error_code, status, emails)
        SELECT t.hour, t.provider, t.error_code, t.status, sum(t.emails)
        FROM taken t GROUP BY 1, 2, 3, 4
        ON CONFLICT (hour, provider, error_code, status) DO UPDATE SET emails = r.emails + excluded.emails
    )
    SELECT count(*) INTO v_count FROM taken;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.fold(int) IS
    'Adds deltas to the rollups; returns how many were added.';
