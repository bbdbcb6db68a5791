-- The queries of the outbox of a test.

-- emails --
SELECT jsonb_build_object(
    'id', q.id, 'to', q.recipient_email, 'template', q.template_type, 'tenant', q.tenant_id, 'status', q.status,
    'payload', q.payload, 'retries', q.retries, 'enqueued_at', q.created_at, 'scheduled_for', q.scheduled_for,
    'next_attempt_at', CASE WHEN q.status = 'pending' THEN nullif(q.next_retry_at, 'infinity') END,
    'dead_reason', q.dead_reason, 'error_code', q.error_code, 'error_message', q.error_message,
    'from_email', c.message ->> 'from', 'reply_to', c.message ->> 'reply_to', 'subject', c.message ->> 'subject',
    'text', c.message ->> 'text', 'html', c.message ->> 'html',
    'also_to', q.also_to, 'cc', q.cc, 'bcc', q.bcc, 'headers', q.headers, 'tags', q.tags,
    'attachments', c.message -> 'attachments',
    'events', ARRAY(
        SELECT x.event FROM (
            SELECT l.event, l.at, 1 AS source, l.id FROM public.email_logs l WHERE l.queue_id = q.id
            UNION ALL
            SELECT e.event, e.received_at, 2, e.id FROM public.email_events e WHERE e.queue_id = q.id) x
        ORDER BY x.at, x.source, x.id)) AS email
FROM public.email_queue q
LEFT JOIN LATERAL (
    SELECT k.message FROM mailgres.captured k WHERE k.queue_id = q.id ORDER BY k.captured_at DESC LIMIT 1) c ON true
WHERE (%(to)s::text IS NULL OR lower(q.recipient_email) = lower(%(to)s))
  AND (%(template)s::text IS NULL OR q.template_type = %(template)s)
  AND (%(status)s::text IS NULL OR q.status = %(status)s)
ORDER BY q.id
LIMIT %(limit)s

-- expire --
SELECT mailgres.expire()

-- report --
SELECT mailgres.report_captured()

-- set_fault --
SELECT mailgres.set_capture_fault(%(fault)s, %(recipient)s, %(template)s)

-- clear --
DO $$
BEGIN
    DELETE FROM mailgres.captured;
    DELETE FROM mailgres.capture_faults;
    DELETE FROM public.email_suppressions;
    DELETE FROM public.email_events;
    PERFORM mailgres.delete_emails(ARRAY(SELECT q.id FROM public.email_queue q));
END
$$
