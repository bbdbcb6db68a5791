-- Dead letters without personal data: email_dead_letters is for operators.

CREATE VIEW public.email_dlq_entries WITH (security_invoker = true) AS
SELECT q.id, q.tenant_id::text AS tenant_id, q.template_type, mailgres.masked_recipient(q.id) AS recipient,
       q.dead_reason::text AS dead_reason, q.error_class::text AS error_class, q.error_code, q.error_message,
       q.provider, q.retries::int AS retries, q.created_at, q.due_at AS dead_at
FROM public.email_queue q
WHERE q.status = 'failed' AND q.due_at IS NOT NULL;

COMMENT ON VIEW public.email_dlq_entries IS
'Which emails are dead letters, and why?
Dead letters in the queue; after 7 days they move to an archive, which operators see (email_dead_letters).
Example: SELECT * FROM email_dlq_entries ORDER BY dead_at DESC LIMIT 100;';
COMMENT ON COLUMN public.email_dlq_entries.id IS 'The email.';
COMMENT ON COLUMN public.email_dlq_entries.tenant_id IS 'Its tenant.';
COMMENT ON COLUMN public.email_dlq_entries.template_type IS 'Its template.';
COMMENT ON COLUMN public.email_dlq_entries.recipient IS 'Its recipient, masked.';
COMMENT ON COLUMN public.email_dlq_entries.dead_reason IS 'exhausted, permanent, expired, uncertain or crashed.';
COMMENT ON COLUMN public.email_dlq_entries.error_class IS 'The class of the last fault.';
COMMENT ON COLUMN public.email_dlq_entries.error_code IS 'The provider''s code for it.';
COMMENT ON COLUMN public.email_dlq_entries.error_message IS 'Its text, with addresses replaced by placeholders.';
COMMENT ON COLUMN public.email_dlq_entries.provider IS 'The provider of the last attempt.';
COMMENT ON COLUMN public.email_dlq_entries.retries IS 'Retries made.';
COMMENT ON COLUMN public.email_dlq_entries.created_at IS 'When it was enqueued.';
COMMENT ON COLUMN public.email_dlq_entries.dead_at IS 'When it became a dead letter.';

-- For roles that may not read the queue, such as a worker that serves metrics.
CREATE FUNCTION mailgres.oldest_dead() RETURNS timestamptz
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT q.due_at FROM public.email_queue q
    WHERE q.status = 'failed' AND q.due_at IS NOT NULL ORDER BY q.due_at LIMIT 1
$$;

CREATE FUNCTION mailgres.newest_dead() RETURNS timestamptz
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT q.due_at FROM public.email_queue q
    WHERE q.status = 'failed' AND q.due_at IS NOT NULL ORDER BY q.due_at DESC LIMIT 1
$$;

COMMENT ON FUNCTION mailgres.oldest_dead() IS 'When the oldest dead letter in the queue died.';
COMMENT ON FUNCTION mailgres.newest_dead() IS 'When the newest dead letter in the queue died.';

CREATE VIEW public.email_dlq_size WITH (security_invoker = true) AS
SELECT coalesce(sum(d.emails), 0)::bigint AS emails,
       mailgres.oldest_dead() AS oldest, mailgres.newest_dead() AS newest
FROM mailgres.counted_dead d;

COMMENT ON VIEW public.email_dlq_size IS
'How many dead letters are there?
Dead letters in the queue.
Example: SELECT * FROM email_dlq_size;';
COMMENT ON COLUMN public.email_dlq_size.emails IS 'How many.';
COMMENT ON COLUMN public.email_dlq_size.oldest IS 'When the oldest died.';
COMMENT ON COLUMN public.email_dlq_size.newest IS 'When the newest died.';

CREATE VIEW public.email_dlq_per_hour WITH (security_invoker = true) AS
SELECT h.hour, coalesce(c.dead, 0)::bigint AS entered, coalesce(c.sent, 0)::bigint AS sent,
       round(100.0 * coalesce(c.dead, 0) / nullif(coalesce(c.dead, 0) + coalesce(c.sent, 0), 0), 2) AS share
FROM generate_series(date_trunc('hour', mailgres.now(), 'UTC') - interval '23 hours',
                     date_trunc('hour', mailgres.now(), 'UTC'), '1 hour') h(hour)
LEFT JOIN (
    SELECT date_trunc('hour', x.minute, 'UTC') AS hour,
           sum(x.emails) FILTER (WHERE x.outcome = 'dead') AS dead,
           sum(x.emails) FILTER (WHERE x.outcome = 'sent') AS sent
    FROM mailgres.counted_by_minute x
    WHERE x.minute >= date_trunc('hour', mailgres.now(), 'UTC') - interval '23 hours' AND x.outcome IN ('sent', 'dead')
    GROUP BY 1
) c ON c.hour = h.hour
ORDER BY h.hour DESC;

COMMENT ON VIEW public.email_dlq_per_hour IS
'How many emails become dead letters per hour?
The last 24 hours, newest first; the current hour is not complete. Dead letters that were retried since still count.
Example: SELECT * FROM email_dlq_per_hour;';
COMMENT ON COLUMN public.email_dlq_per_hour.hour IS 'The start of the hour.';
COMMENT ON COLUMN public.email_dlq_per_hour.entered IS 'Emails that died in it.';
COMMENT ON COLUMN public.email_dlq_per_hour.sent IS 'Emails that were sent in it.';
COMMENT ON COLUMN public.email_dlq_per_hour.share IS 'entered as a percentage of entered and sent.';

CREATE VIEW public.email_dlq_by_code WITH (security_invoker = true) AS
SELECT d.error_code, d.dead_reason, sum(d.emails)::bigint AS emails,
       round(100.0 * sum(d.emails) / sum(sum(d.emails)) OVER (), 2) AS share
FROM mailgres.counted_dead d
GROUP BY d.error_code, d.dead_reason
HAVING sum(d.emails) > 0
ORDER BY sum(d.emails) DESC, d.error_code, d.dead_reason;

COMMENT ON VIEW public.email_dlq_by_code IS
'Which error codes do the dead letters have?
Dead letters in the queue.
Example: SELECT * FROM email_dlq_by_code LIMIT 20;';
COMMENT ON COLUMN public.email_dlq_by_code.error_code IS 'The provider''s code for the last fault; empty if there is none.';
COMMENT ON COLUMN public.email_dlq_by_code.dead_reason IS 'exhausted, permanent, expired, uncertain or crashed.';
COMMENT ON COLUMN public.email_dlq_by_code.emails IS 'How many.';
COMMENT ON COLUMN public.email_dlq_by_code.share IS 'Percentage of all dead letters.';

CREATE VIEW public.email_dlq_by_tenant WITH (security_invoker = true) AS
SELECT d.tenant_id, sum(d.emails)::bigint AS emails,
       round(100.0 * sum(d.emails) / sum(sum(d.emails)) OVER (), 2) AS share,
       max(d.hour) AS newest_hour
FROM mailgres.counted_dead d
GROUP BY d.tenant_id
HAVING sum(d.emails) > 0
ORDER BY sum(d.emails) DESC, d.tenant_id;

COMMENT ON VIEW public.email_dlq_by_tenant IS
'Which tenants have the dead letters?
Dead letters in the queue.
Example: SELECT * FROM email_dlq_by_tenant LIMIT 20;';
COMMENT ON COLUMN public.email_dlq_by_tenant.tenant_id IS 'The tenant.';
COMMENT ON COLUMN public.email_dlq_by_tenant.emails IS 'How many it has.';
COMMENT ON COLUMN public.email_dlq_by_tenant.share IS 'Percentage of all dead letters.';
COMMENT ON COLUMN public.email_dlq_by_tenant.newest_hour IS 'The last hour in which one of them died.';

CREATE VIEW public.email_dlq_by_age WITH (security_invoker = true) AS
SELECT a.age, coalesce(sum(d.emails), 0)::bigint AS emails
FROM (VALUES
    (1, 'up to 1 hour', interval '0', interval '1 hour'),
    (2, 'up to 6 hours', interval '1 hour', interval '6 hours'),
    (3, 'up to 1 day', interval '6 hours', interval '24 hours'),
    (4, 'up to 3 days', interval '24 hours', interval '72 hours'),
    (5, 'up to 7 days', interval '72 hours', interval '168 hours'),
    (6, 'longer', interval '168 hours', NULL)
) a(place, age, more_than, at_most)
LEFT JOIN (
    SELECT date_trunc('hour', mailgres.now(), 'UTC') - c.hour AS hours, sum(c.emails) AS emails
    FROM mailgres.counted_dead c
    GROUP BY c.hour
) d ON (d.hours >= a.more_than OR a.place = 1) AND (d.hours < a.at_most OR a.at_most IS NULL)
GROUP BY a.place, a.age
ORDER BY a.place;

COMMENT ON VIEW public.email_dlq_by_age IS
'How long have the dead letters been dead?
Dead letters in the queue, by the hour in which they died.
Example: SELECT * FROM email_dlq_by_age;';
COMMENT ON COLUMN public.email_dlq_by_age.age IS 'How long: at most this, and more than in the row before.';
COMMENT ON COLUMN public.email_dlq_by_age.emails IS 'How many.';
