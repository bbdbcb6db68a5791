-- Four roles, for the whole cluster. If the migrating role may not create roles, the queue works
-- without them, for its owner.

DO $$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY[
        'mailgres_producer', 'mailgres_worker', 'mailgres_operator', 'mailgres_analyst']
    LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = v_role);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'role % was not created: % may not create roles. Have it created and migrate again, or do without it.',
                    v_role, current_user;
            WHEN duplicate_object OR unique_violation THEN
                NULL;  -- created at the same time for another database
        END;
    END LOOP;
END
$$;
