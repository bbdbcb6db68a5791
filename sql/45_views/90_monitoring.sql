-- The list of these views, from their comments: views whose comment has an example.

CREATE VIEW public.email_monitoring WITH (security_invoker = true) AS
SELECT v.name::text AS name, split_part(v.comment, E'\n', 1) AS question, split_part(v.comment, 'Example: ', 2) AS example
FROM (
    SELECT c.relname AS name, obj_description(c.oid, 'pg_class') AS comment
    FROM pg_catalog.pg_class c
    WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'public')
      AND c.relkind = 'v' AND starts_with(c.relname, 'email_')
) v
WHERE v.comment LIKE '%Example: %'
ORDER BY v.name;

COMMENT ON VIEW public.email_monitoring IS
'Which views are there?
The views for analysts and dashboards.
Example: SELECT name, question FROM email_monitoring;';
COMMENT ON COLUMN public.email_monitoring.name IS 'The view.';
COMMENT ON COLUMN public.email_monitoring.question IS 'The question that it answers.';
COMMENT ON COLUMN public.email_monitoring.example IS 'A query to start with.';
