-- 0002_delivery_alerts: alert rules for what was bounced and what was called spam.
-- locks: ROW EXCLUSIVE on mailgres.alert_rules, mailgres.home, mailgres.home_mark

INSERT INTO mailgres.alert_rules
    (name, threshold, unit, reaches, time_window, least, severity, about, means)
VALUES
    ('bounce_rate', 5, '%', false, '7 days', 100, 'warning', 'tenant',
     'Too many emails of a tenant bounced hard: providers review accounts at 5 %.'),
    ('complaint_rate', 0.3, '%', false, '7 days', 300, 'critical', 'tenant',
     'Too many emails of a tenant were called spam: Gmail and Yahoo refuse senders above 0.3 %.');

-- The digest of a server does not depend on extra_float_digits.
CREATE OR REPLACE FUNCTION mailgres.current_server() RETURNS uuid
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

-- A copy has another transaction id, unless two servers were set up by the same script and had used up
-- the same number: so a random number of them is used up first. A subtransaction that writes has its own.
DO $$
DECLARE
    v_unused  constant int := floor(random() * 2000);
    v_is_home constant boolean := (SELECT h.database = mailgres.current_home() FROM mailgres.home h);
BEGIN
    DELETE FROM mailgres.home_mark;
    FOR i IN 0 .. v_unused LOOP
        BEGIN
            INSERT INTO mailgres.home_mark DEFAULT VALUES;
            IF i < v_unused THEN
                RAISE EXCEPTION 'unused';
            END IF;
        EXCEPTION WHEN raise_exception THEN
            CONTINUE;
        END;
    END LOOP;
    UPDATE mailgres.home h SET database = mailgres.current_home() WHERE v_is_home;
END
$$;
