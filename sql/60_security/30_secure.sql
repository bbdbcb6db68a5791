-- Least privilege: roles have the rights of intended_grants() and those that the owner granted in
-- addition, and no others. Three things give rights that nobody decided on: functions and types are
-- open to PUBLIC, Supabase grants to its roles by name, and any role's ALTER DEFAULT PRIVILEGES applies
-- to the objects that we create. So the transaction that creates an object revokes every right beyond
-- the intended ones, from every role; from PUBLIC, anon and authenticated always. Call it again when
-- roles were created later: `mailgres migrate` does.

-- Called before objects are created. Objects that were secured earlier keep the grants that were made
-- since; without this call, no object counts as new.

CREATE FUNCTION mailgres.remember_objects() RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
SELECT set_config('mailgres.known_objects',
    'known ' || (SELECT string_agg(DISTINCT replace(r.kind, 'column', 'table') || r.oid, ' ') FROM mailgres.rights() r),
    true)
$$;

COMMENT ON FUNCTION mailgres.remember_objects() IS
    'Records for this transaction which objects exist, so that secure() recognizes the new ones.';

CREATE FUNCTION mailgres.revoke_unintended() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    -- Empty outside of a migration; 'none' when nothing was secured before.
    v_known    text[] := string_to_array(nullif(current_setting('mailgres.known_objects', true), ''), ' ');
    v_grant    record;
    v_revoked  jsonb := '[]';
    v_line     text;
BEGIN
    FOR v_grant IN
        SELECT u.*, n.is_new
        FROM mailgres.unintended_grants() u
        CROSS JOIN LATERAL (
            SELECT coalesce(replace(u.kind, 'column', 'table') || u.oid <> ALL (v_known), false)) n(is_new)
        WHERE u.everybody OR n.is_new
    LOOP
        EXECUTE v_grant.revoke;
        -- Do not mention that a new function or type was open to PUBLIC.
        IF NOT (v_grant.is_new AND v_grant.grantee = 'PUBLIC' AND v_grant.kind IN ('function', 'type')) THEN
            v_revoked := v_revoked || jsonb_build_object(
                'grantee', v_grant.grantee, 'kind', v_grant.kind, 'object', v_grant.object, 'privileges', v_grant.privileges);
        END IF;
    END LOOP;

    FOR v_line IN
        SELECT format('revoked from %s: %s on %s%s', x.grantee, x.privileges, min(x.object),
                      CASE WHEN count(*) > 1 THEN format(' and %s more (%ss)', count(*) - 1, x.kind) END)
        FROM jsonb_to_recordset(v_revoked) x(grantee text, kind text, object text, privileges text)
        GROUP BY x.grantee, x.kind, x.privileges
        ORDER BY x.grantee, x.kind, x.privileges
    LOOP
        RAISE NOTICE '%', v_line;
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.revoke_unintended() IS
    'Revokes rights that nobody decided on: all from PUBLIC, anon and authenticated, and on new objects those beyond intended_grants().';

CREATE FUNCTION mailgres.secure() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    v_grant   record;
    v_policy  record;
BEGIN
    PERFORM mailgres.revoke_unintended();

    FOR v_grant IN
        SELECT string_agg(i.privilege || coalesce(' (' || quote_ident(i.column_name) || ')', ''), ', '
                          ORDER BY i.privilege, i.column_name) AS privileges,
               CASE i.kind WHEN 'column' THEN 'TABLE' WHEN 'function' THEN 'ROUTINE' ELSE upper(i.kind) END AS kind,
               i.object, i.grantee::regrole AS grantee
        FROM mailgres.intended_rights() i
        WHERE NOT EXISTS (
            SELECT FROM mailgres.rights() r
            WHERE (r.kind, r.oid, r.grantee, r.privilege) = (i.kind, i.oid, i.grantee, i.privilege)
              AND r.column_name IS NOT DISTINCT FROM i.column_name)
        GROUP BY i.kind, i.object, i.grantee
        ORDER BY i.kind, i.object, i.grantee  -- a dump has the grants in the order in which they were made
    LOOP
        EXECUTE format('GRANT %s ON %s %s TO %s', v_grant.privileges, v_grant.kind, v_grant.object, v_grant.grantee);
    END LOOP;

    -- The policies allow the roles that have grants; another role sees no row, whatever is granted
    -- to it by accident.
    FOR v_policy IN
        SELECT p.*, r.rolname
        FROM (VALUES
            ('mailgres_operator', 'email_queue', 'ALL'),
            ('mailgres_operator', 'email_templates', 'ALL'),
            ('mailgres_operator', 'email_logs', 'SELECT'),
            ('mailgres_operator', 'email_events', 'SELECT'),
            ('mailgres_operator', 'email_suppressions', 'ALL'),
            ('mailgres_worker', 'email_templates', 'SELECT'),
            ('mailgres_analyst', 'email_queue', 'SELECT'),
            ('mailgres_analyst', 'email_templates', 'SELECT'),
            ('mailgres_analyst', 'email_logs', 'SELECT'),
            ('mailgres_analyst', 'email_events', 'SELECT')
        ) p(role, tbl, command)
        JOIN pg_catalog.pg_roles r ON r.rolname = p.role
        WHERE NOT EXISTS (
            SELECT FROM pg_catalog.pg_policies x
            WHERE x.schemaname = 'public' AND x.tablename = p.tbl AND x.policyname = p.role)
    LOOP
        EXECUTE format('CREATE POLICY %I ON public.%I FOR %s TO %I USING (true)',
            v_policy.rolname, v_policy.tbl, v_policy.command, v_policy.rolname);
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.secure() IS
    'Revokes rights that nobody decided on, and grants missing ones, for the roles that exist now.';
