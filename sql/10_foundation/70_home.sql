-- The rows that a new database has call these: see 20_tables/22_home.sql.

CREATE FUNCTION mailgres.current_home() RETURNS uuid
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT md5(d.oid::text || ' ' || m.xmin::text)::uuid
        FROM mailgres.home_mark m, pg_catalog.pg_database d WHERE d.datname = current_database());
END
$$;

COMMENT ON FUNCTION mailgres.current_home() IS 'A digest of this database; a copy has another one.';

-- A restart gives the postmaster another start time. A promotion gives the server another timeline.
-- After a crash the postmaster may live on, and PostgreSQL resets all its statistics at one moment:
-- then two of them have the same time of reset, which no reset by hand gives them. All of this can
-- be read without privileges. Where a host removed pg_walfile_name(), promotions without a restart
-- are not noticed.
CREATE FUNCTION mailgres.current_server() RETURNS uuid
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
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

COMMENT ON FUNCTION mailgres.current_server() IS
    'A digest of the server''s start, timeline and last crash: another one after a restart, a failover or a crash.';
