-- The queries of the inbox: one function call each, all of them granted to mailgres_operator.

-- limits --
SELECT pg_catalog.set_config('statement_timeout', '5s', true), pg_catalog.set_config('jit', 'off', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)

-- may_use --
SELECT pg_catalog.has_function_privilege('mailgres.inbox(text, timestamptz, int, uuid)', 'EXECUTE'), current_user::text

-- inbox --
SELECT * FROM mailgres.inbox(%(search)s, %(before)s, %(limit)s, %(before_id)s)

-- email --
SELECT mailgres.inbox_email(%(id)s)

-- file --
SELECT filename, content_type, content_id, content FROM mailgres.inbox_file(%(id)s, %(position)s)

-- state --
SELECT mailgres.inbox_state(%(id)s)

-- delete --
SELECT mailgres.delete_from_inbox(%(ids)s)

-- faults --
SELECT id, fault, recipient_email, template_type, created_at FROM mailgres.capture_faults ORDER BY id

-- set_fault --
SELECT mailgres.set_capture_fault(%(fault)s, %(recipient)s, %(template)s)

-- remove_fault --
SELECT mailgres.remove_capture_fault(%(id)s)

-- templates --
SELECT template_type FROM public.email_templates ORDER BY template_type LIMIT 200
