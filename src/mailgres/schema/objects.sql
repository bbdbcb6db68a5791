-- is_installed --
SELECT bool_and(p.oid IS NOT NULL)
FROM unnest(%(names)s::text[], %(bodies)s::text[]) u(name, body)
LEFT JOIN pg_proc p ON p.oid = to_regprocedure(u.name) AND p.prosrc = u.body

-- remake --
-- Functions whose result is a row of a table: a session that has one compiled goes on with the old columns
-- after a revision changed the table, until the function is replaced.
DO $remake$
DECLARE
    v_definition text;
BEGIN
    IF to_regclass('mailgres.schema_objects') IS NULL THEN
        RETURN;
    END IF;
    FOR v_definition IN
        SELECT pg_get_functiondef(p.oid)
        FROM mailgres.schema_objects o
        JOIN pg_proc p ON o.object = 'function ' || p.oid::regprocedure::text
        JOIN pg_type t ON t.oid = p.prorettype
        JOIN pg_class c ON c.oid = t.typrelid AND c.relkind = 'r'
    LOOP
        EXECUTE v_definition;
    END LOOP;
END
$remake$;

-- replace --
SELECT mailgres.replace_objects(w.wanted)
FROM (SELECT array_agg(ROW(u.kind, u.name, u.statement)::mailgres.wanted_object ORDER BY u.place) AS wanted
      FROM unnest(%(kinds)s::text[], %(names)s::text[], %(statements)s::text[])
          WITH ORDINALITY u(kind, name, statement, place)) w

-- record_release --
SELECT mailgres.record_release(%(version)s, %(works_since)s, %(digest)s, w.wanted)
FROM (SELECT array_agg(ROW(u.kind, u.name, u.statement)::mailgres.wanted_object ORDER BY u.place) AS wanted
      FROM unnest(%(kinds)s::text[], %(names)s::text[], %(statements)s::text[])
          WITH ORDINALITY u(kind, name, statement, place)) w

-- compare --
SELECT c.kind, c.object, c.state
FROM (SELECT array_agg(ROW(u.kind, u.name, u.statement)::mailgres.wanted_object ORDER BY u.place) AS wanted
      FROM unnest(%(kinds)s::text[], %(names)s::text[], %(statements)s::text[])
          WITH ORDINALITY u(kind, name, statement, place)) w
CROSS JOIN LATERAL mailgres.compare_objects(w.wanted) c
WHERE c.state NOT IN ('same', 'moved')
ORDER BY c.place NULLS FIRST, c.object

-- release --
SELECT r.version, r.revision, r.works_since, r.digest
FROM mailgres.schema_releases r WHERE r.is_current

-- release_objects --
SELECT o.kind, o.name, o.statement
FROM mailgres.schema_releases r CROSS JOIN LATERAL unnest(r.objects) o
WHERE r.is_current

-- earlier_release --
SELECT r.version, r.revision, r.works_since, r.digest
FROM mailgres.schema_releases r
WHERE %(target)s IN (r.version, r.revision)
ORDER BY r.version = %(target)s DESC, r.migrated_at DESC
LIMIT 1

-- return_to_release --
SELECT mailgres.replace_objects(r.objects) FROM mailgres.schema_releases r WHERE (r.version, r.revision) = (%(version)s, %(revision)s)

-- record_return --
SELECT mailgres.record_release(r.version, r.works_since, r.digest, r.objects)
FROM mailgres.schema_releases r WHERE (r.version, r.revision) = (%(version)s, %(revision)s)
