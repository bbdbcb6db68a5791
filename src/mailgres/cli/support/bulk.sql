-- The queries of commands about many emails. A statement that changes rows gets a chunk of ids and
-- returns a row for each: (id, code, message, hint), without a code if it was done.

-- limits --
SELECT pg_catalog.set_config('statement_timeout', %(timeout)s, true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)

-- chosen_emails --
SELECT mailgres.find_emails(%(filter)s, NULL, NULL, 'oldest')

-- sample --
SELECT to_jsonb(x) FROM (
    SELECT q.id, q.created_at, q.status, q.template_type, q.recipient_email, q.tenant_id, q.error_code, q.dead_reason
    FROM public.email_queue q WHERE q.id = ANY (%(ids)s) ORDER BY q.id
) x

-- retry --
SELECT * FROM mailgres.retry_emails(%(ids)s, %(accept_duplicates)s, %(statuses)s::text[])

-- cancel --
SELECT * FROM mailgres.cancel_emails(%(ids)s, %(because)s, %(statuses)s::text[])

-- reschedule --
SELECT * FROM mailgres.reschedule_emails(%(ids)s, %(to)s, %(statuses)s::text[])

-- purge --
SELECT * FROM mailgres.purge_dead_letters(%(ids)s, %(dead_at)s, %(with_attachments)s)
