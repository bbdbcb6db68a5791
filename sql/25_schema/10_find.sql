-- `mailgres migrate` compares the functions, views, triggers and comments of sql/ with the catalog, and
-- replaces those that differ. `migrate --check`, `--dry-run`, `--sql`, a downgrade and `doctor` use the same
-- functions. Every migration that has something to do replaces the functions of this directory first.

-- Each object that is wanted, and each that an earlier version made, with its place in the catalog. Reads
-- the catalog's own rows only: functions such as pg_get_viewdef() lock the tables below a view.
CREATE FUNCTION mailgres.find_objects(p_wanted mailgres.wanted_object[])
    RETURNS TABLE (place int, kind text, name text, source text, id oid, object text, fingerprint text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH routines AS MATERIALIZED (
    SELECT p.oid, p.oid::regprocedure::text AS name FROM pg_proc p
    WHERE p.pronamespace IN ('mailgres'::regnamespace, 'public'::regnamespace)
), listed AS (
    SELECT w.place::int, w.kind, w.name, md5(w.statement) AS source
    FROM unnest(p_wanted) WITH ORDINALITY w(kind, name, statement, place)
    UNION ALL
    SELECT NULL, split_part(o.object, ' ', 1), substr(o.object, strpos(o.object, ' ') + 1), NULL
    FROM mailgres.schema_objects o
    WHERE o.object NOT IN (SELECT w.kind || ' ' || w.name FROM unnest(p_wanted) w)
), named AS MATERIALIZED (
    -- what the object or the comment is about
    SELECT l.*, CASE l.kind WHEN 'comment' THEN lower(split_part(l.name, ' ', 1) COLLATE "C") ELSE l.kind END AS what,
           CASE l.kind WHEN 'comment' THEN substr(l.name, strpos(l.name, ' ') + 1) ELSE l.name END AS full_name,
           CASE WHEN l.kind = 'trigger' OR l.name LIKE 'COLUMN %'
                THEN to_regclass(regexp_replace(l.name, '^[A-Z]+ |[.][^.]+$', '', 'g')) END AS owner,
           substring(l.name FROM '[^.]+$') AS last_name
    FROM listed l
), placed AS MATERIALIZED (
    SELECT n.*, CASE n.what
               WHEN 'function' THEN coalesce(r.oid, CASE WHEN n.place IS NOT NULL THEN to_regprocedure(n.full_name)::oid END)
               WHEN 'trigger' THEN t.oid
               WHEN 'column' THEN a.attrelid
               WHEN 'schema' THEN to_regnamespace(n.full_name)::oid
               WHEN 'domain' THEN to_regtype(n.full_name)::oid
               WHEN 'type' THEN to_regtype(n.full_name)::oid
               ELSE to_regclass(n.full_name)::oid END AS id,
           coalesce(a.attnum, 0) AS part
    FROM named n
    LEFT JOIN routines r ON n.what = 'function' AND r.name = n.full_name
    LEFT JOIN pg_trigger t ON n.what = 'trigger' AND t.tgrelid = n.owner AND t.tgname = n.last_name
    LEFT JOIN pg_attribute a
        ON n.what = 'column' AND a.attrelid = n.owner AND a.attname = n.last_name AND NOT a.attisdropped
), once AS MATERIALIZED (
    SELECT DISTINCT ON (p.kind, p.what, p.id, p.part, CASE WHEN p.id IS NULL THEN p.name END) p.*
    FROM placed p
    ORDER BY p.kind, p.what, p.id, p.part, CASE WHEN p.id IS NULL THEN p.name END, p.place
)
SELECT p.place, p.kind, p.name, p.source, p.id,
       concat_ws(' ', p.kind, CASE WHEN p.kind = 'comment' THEN upper(p.what COLLATE "C") END,
                 CASE WHEN p.what = 'function' AND p.id IS NOT NULL THEN p.id::regprocedure::text ELSE p.full_name END),
       CASE p.kind
           WHEN 'function' THEN (
               SELECT md5(ROW(f.prolang, f.procost, f.prorows, f.prosupport, f.prokind, f.prosecdef, f.proleakproof,
                              f.proisstrict, f.proretset, f.provolatile, f.proparallel, f.prorettype, f.proargtypes,
                              f.proallargtypes, f.proargmodes, f.proargnames, f.proargdefaults, f.prosrc, f.prosqlbody,
                              f.proconfig)::text)
               FROM pg_proc f WHERE f.oid = p.id)
           WHEN 'trigger' THEN (
               SELECT md5(ROW(t.tgrelid, t.tgfoid, t.tgtype, t.tgenabled, t.tgdeferrable, t.tginitdeferred, t.tgattr,
                              t.tgargs, t.tgqual, t.tgoldtable, t.tgnewtable)::text)
               FROM pg_trigger t WHERE t.oid = p.id)
           WHEN 'view' THEN (
               SELECT md5(concat_ws(' ', c.relkind, c.reloptions::text, w.ev_action::text,
                                    (SELECT string_agg(a.attname, ',' ORDER BY a.attnum) FROM pg_attribute a
                                     WHERE a.attrelid = c.oid AND a.attnum > 0)))
               FROM pg_class c LEFT JOIN pg_rewrite w ON w.ev_class = c.oid AND w.rulename = '_RETURN'
               WHERE c.oid = p.id)
           ELSE (SELECT md5(d.description) FROM pg_description d
                 WHERE d.objoid = p.id AND d.objsubid = p.part
                   AND d.classoid = CASE p.what WHEN 'function' THEN 'pg_proc' WHEN 'schema' THEN 'pg_namespace'
                                                WHEN 'domain' THEN 'pg_type' WHEN 'type' THEN 'pg_type'
                                                ELSE 'pg_class' END::regclass)
       END
FROM once p
$$;

COMMENT ON FUNCTION mailgres.find_objects(mailgres.wanted_object[]) IS
    'The functions, views, triggers and comments that are wanted, or that an earlier version made, in the catalog.';
