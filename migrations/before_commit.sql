-- Runs before a migration commits and goes on: a revision that is not in a transaction comes next. What
-- secures new objects (mailgres.secure) runs at the end of the migration, and until then, or until a
-- migration that was interrupted is completed, nobody but the owner has a right on an object that is new.

DO $$
DECLARE
    v_known   constant text[] := string_to_array(nullif(current_setting('mailgres.known_objects', true), ''), ' ');
    v_found   record;
    v_revoke  text;
BEGIN
    FOR v_found IN
        WITH objects(kind, name, id, owner, acl, is_new) AS (
            SELECT 'schema', n.nspname::text, n.oid, n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner)),
                   'schema' || n.oid <> ALL (v_known)
            FROM pg_namespace n WHERE n.nspname = 'mailgres'
            UNION ALL
            -- In public, a table is new if this transaction made it: no statement changes its column tableoid.
            SELECT k.kind, c.oid::regclass::text, c.oid, c.relowner,
                   coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's'::"char" ELSE 'r' END, c.relowner)),
                   CASE WHEN c.relnamespace = 'mailgres'::regnamespace THEN k.kind || c.oid <> ALL (v_known)
                        ELSE EXISTS (SELECT FROM pg_attribute a
                                     WHERE a.attrelid = c.oid AND a.attname = 'tableoid'
                                       AND a.xmin = pg_current_xact_id()::xid) END
            FROM pg_class c CROSS JOIN LATERAL (SELECT CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END) k(kind)
            WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
              AND c.relnamespace IN ('mailgres'::regnamespace, 'public'::regnamespace)
            UNION ALL
            SELECT 'function', p.oid::regprocedure::text, p.oid, p.proowner,
                   coalesce(p.proacl, acldefault('f', p.proowner)), 'function' || p.oid <> ALL (v_known)
            FROM pg_proc p WHERE p.pronamespace = 'mailgres'::regnamespace
            UNION ALL
            SELECT 'type', t.oid::regtype::text, t.oid, t.typowner,
                   coalesce(t.typacl, acldefault('T', t.typowner)), 'type' || t.oid <> ALL (v_known)
            FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
            WHERE t.typnamespace = 'mailgres'::regnamespace
              AND (t.typcategory <> 'A' OR t.typtype = 'd') AND (c.relkind IS NULL OR c.relkind = 'c')
        ), granted AS (
            SELECT o.kind, o.name, coalesce(quote_ident(r.rolname), 'PUBLIC') AS grantee,
                   string_agg(DISTINCT a.privilege_type, ', ' ORDER BY a.privilege_type) AS privileges
            FROM objects o CROSS JOIN LATERAL aclexplode(o.acl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
            WHERE o.is_new AND a.grantee <> o.owner
            GROUP BY o.kind, o.name, r.rolname
        )
        SELECT g.grantee, g.kind, g.privileges, min(g.name) AS first, count(*),
               array_agg(format('REVOKE ALL ON %s %s FROM %s CASCADE',
                                CASE g.kind WHEN 'function' THEN 'ROUTINE' ELSE upper(g.kind) END, g.name, g.grantee)) AS revokes
        FROM granted g GROUP BY g.grantee, g.kind, g.privileges ORDER BY g.grantee, g.kind, g.privileges
    LOOP
        FOREACH v_revoke IN ARRAY v_found.revokes LOOP
            EXECUTE v_revoke;
        END LOOP;
        -- Every new function and type is open to PUBLIC.
        IF v_found.grantee <> 'PUBLIC' OR v_found.kind NOT IN ('function', 'type') THEN
            RAISE NOTICE 'revoked from %: % on %', v_found.grantee, v_found.privileges, v_found.first ||
                CASE WHEN v_found.count > 1 THEN format(' and %s more (%ss)', v_found.count - 1, v_found.kind) ELSE '' END;
        END IF;
    END LOOP;
END
$$;
