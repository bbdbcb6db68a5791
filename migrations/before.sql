-- Runs first in the transaction of every migration, online and in the printed script.

-- What a migration sees and builds must not depend on settings of the role that runs it, nor on
-- objects of others: names are looked up in pg_catalog or written with their schema. A stricter
-- isolation level would not see the changes of another migration that this one waited for.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL check_function_bodies = on;
SET LOCAL standard_conforming_strings = on;
SET LOCAL transform_null_equals = off;
SET LOCAL array_nulls = on;
SET LOCAL quote_all_identifiers = off;
SET LOCAL datestyle = ISO;
SET LOCAL intervalstyle = postgres;
SET LOCAL extra_float_digits = 1;
SET LOCAL row_security = on;

-- One migration at a time per database. The number is the ASCII of 'mailgres'; nothing else may use it.
-- `mailgres migrate` waits before it comes here. A statement that waits has a snapshot, and a concurrent
-- index of the other migration would wait for it in turn.
DO $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(7881696737188013427) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'another migration of this database is running',
            HINT = 'Nothing was changed. Run this again when the other one is over.';
    END IF;
END
$$;

-- A statement that waits for a lock makes every later query on that table wait behind it, so it
-- fails early: `mailgres migrate` then rolls back and tries again, a few times.
SET LOCAL lock_timeout = '100ms';
-- Filling or indexing a large table may take longer than a server allows its ordinary queries.
SET LOCAL statement_timeout = 0;

-- Emails contain every script in use.
DO $$
BEGIN
    IF getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the encoding of the database is %s, and mailgres needs UTF8', getdatabaseencoding()),
            HINT = 'Nothing was changed. Migrate a database that was created with ENCODING ''UTF8''.';
    END IF;
END
$$;

-- An existing schema mailgres must be an installation of ours, or empty and owned by the current
-- role: the owner of a schema can replace everything in it. A migration calls functions of the
-- schema, and SET ROLE does not protect from them, because they can RESET it. So only the owner
-- migrates, or a superuser if the owner is another superuser.
DO $$
DECLARE
    v_schema     record;
    v_stranger   record;
    v_installed  boolean;
BEGIN
    SELECT n.oid, n.nspowner, o.rolname AS owner, o.rolsuper INTO v_schema
    FROM pg_namespace n JOIN pg_roles o ON o.oid = n.nspowner WHERE n.nspname = 'mailgres';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_installed := 2 = (
        SELECT count(*) FROM pg_class c
        WHERE c.oid IN (to_regclass('mailgres.schema_version'), to_regclass('public.email_queue'))
          AND c.relkind = 'r' AND c.relowner = v_schema.nspowner);

    IF v_schema.owner <> current_user
       AND NOT (v_installed AND v_schema.rolsuper AND pg_has_role(v_schema.nspowner, 'MEMBER')) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the schema mailgres belongs to the role %s, and %s migrates', v_schema.owner, current_user),
            HINT = CASE WHEN v_installed
                THEN format('Nothing was changed. Its functions would run with your rights: connect as %1$s. If you '
                            'trust that role, you may connect as yourself with PGOPTIONS=''-c role=%1$s''.', v_schema.owner)
                ELSE 'Nothing was changed. It is not an installation of mailgres: rename it (ALTER SCHEMA mailgres '
                     'RENAME TO ...) or drop it, and run `mailgres migrate` again.' END;
    END IF;
    IF NOT v_installed AND EXISTS (
        SELECT FROM pg_class c WHERE c.relnamespace = v_schema.oid UNION ALL
        SELECT FROM pg_proc p WHERE p.pronamespace = v_schema.oid UNION ALL
        SELECT FROM pg_type t WHERE t.typnamespace = v_schema.oid UNION ALL
        SELECT FROM pg_operator o WHERE o.oprnamespace = v_schema.oid)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the schema mailgres holds objects that are not of mailgres',
            HINT = 'Nothing was changed. Rename it (ALTER SCHEMA mailgres RENAME TO ...) or drop what is in it, '
                   'and run `mailgres migrate` again.';
    END IF;

    -- What this migration creates could call objects that others put there.
    SELECT x.kind, x.name, r.rolname AS owner INTO v_stranger
    FROM (SELECT 'relation' AS kind, c.oid::regclass::text AS name, c.relowner AS owner
          FROM pg_class c WHERE c.relnamespace = v_schema.oid UNION ALL
          SELECT 'function', p.oid::regprocedure::text, p.proowner FROM pg_proc p WHERE p.pronamespace = v_schema.oid UNION ALL
          SELECT 'type', t.oid::regtype::text, t.typowner FROM pg_type t WHERE t.typnamespace = v_schema.oid UNION ALL
          SELECT 'operator', o.oid::regoperator::text, o.oprowner FROM pg_operator o WHERE o.oprnamespace = v_schema.oid) x
    JOIN pg_roles r ON r.oid = x.owner
    WHERE x.owner <> v_schema.nspowner AND NOT r.rolsuper
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the %s %s in the schema mailgres belongs to the role %s',
                             v_stranger.kind, v_stranger.name, v_stranger.owner),
            HINT = format('Nothing was changed. Find out how it got there, then: DROP %s %s;',
                          CASE v_stranger.kind WHEN 'relation' THEN 'TABLE or VIEW' ELSE upper(v_stranger.kind) END,
                          v_stranger.name);
    END IF;

    IF v_schema.owner <> current_user THEN
        RAISE NOTICE '% migrates as %, which owns the schema mailgres', current_user, v_schema.owner;
        EXECUTE format('SET LOCAL ROLE %I', v_schema.owner);
    END IF;
END
$$;

-- Objects that this migration creates get the intended rights and no others. Grants that were made
-- on objects secured earlier stay. If no migration was completed yet, every object counts as new.
DO $$
BEGIN
    PERFORM set_config('mailgres.known_objects', 'none', true);
    IF to_regclass('mailgres.schema_objects') IS NOT NULL THEN
        IF EXISTS (SELECT FROM mailgres.schema_objects) THEN
            PERFORM mailgres.remember_objects();
        END IF;
    END IF;
EXCEPTION WHEN undefined_function OR undefined_table THEN
    NULL;  -- somebody dropped it; this migration makes it again, and revokes nothing but rights of everybody
END
$$;

-- The version table is in this schema: PostgREST does not expose it, and it is separate from the
-- alembic_version of the application's own migrations.
DO $$
BEGIN
    IF to_regclass('mailgres.schema_version') IS NULL THEN
        CREATE SCHEMA IF NOT EXISTS mailgres;
        CREATE TABLE mailgres.schema_version (
            version_num varchar(32) NOT NULL CONSTRAINT schema_version_pkc PRIMARY KEY);
    END IF;
END
$$;
