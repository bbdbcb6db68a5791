-- The database of the migration is the home of the queue.

INSERT INTO mailgres.home_mark DEFAULT VALUES;
INSERT INTO mailgres.home (database, server) VALUES (mailgres.current_home(), mailgres.current_server());

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
