-- 0002_delivery_alerts, undone, with emails in the queue.

DELETE FROM mailgres.alert_rules WHERE name IN ('bounce_rate', 'complaint_rate');

CREATE OR REPLACE FUNCTION mailgres.current_server() RETURNS uuid
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_timeline text;
BEGIN
    BEGIN
        v_timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    EXCEPTION WHEN feature_not_supported OR insufficient_privilege OR undefined_function THEN
        v_timeline := '';
    END;
    RETURN (
        SELECT md5(format('%s %s %s', date_part('epoch', pg_postmaster_start_time()), v_timeline,
            CASE WHEN a.stats_reset = b.stats_reset THEN date_part('epoch', a.stats_reset) END))::uuid
        FROM pg_stat_get_archiver() a, pg_stat_get_bgwriter_stat_reset_time() AS b(stats_reset));
END
$$;
