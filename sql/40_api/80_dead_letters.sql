-- Dead letters for people: those in the queue and those in the archive. The reader needs the right to
-- read the tables below. An attempt that a processor reports without having claimed the email counts
-- as an attempt, too.

CREATE VIEW public.email_dead_letters WITH (security_invoker = true) AS
SELECT q.id, q.tenant_id::text, q.user_id, q.template_type, q.recipient_email, q.payload,
       t.attempt_times, coalesce(cardinality(t.attempt_times), 0) AS attempts,
       q.dead_reason::text, q.error_class::text, q.error_code, q.error_message, q.error_detail,
       q.provider, q.correlation_id,
       q.created_at AS enqueued_at, q.dead_at, NULL::timestamptz AS archived_at,
       q.dead_at + s.dead_letter_ttl AS expires_at,
       to_jsonb(q) AS email
FROM public.email_queue q
CROSS JOIN mailgres.settings s
CROSS JOIN LATERAL (
    SELECT array_agg(coalesce(l.claimed_at, l.at) ORDER BY l.id) AS attempt_times
    FROM public.email_logs l
    WHERE l.queue_id = q.id
      AND (l.event = 'retry' OR l.dead_reason = 'exhausted'
           OR l.event <> 'given_back' AND l.claimed_at IS NOT NULL)
) t
WHERE q.status = 'failed' AND q.due_at IS NOT NULL
UNION ALL
SELECT d.queue_id, d.tenant_id, (d.email ->> 'user_id')::uuid, d.template_type,
       d.email ->> 'recipient_email', d.email -> 'payload',
       t.attempt_times, coalesce(cardinality(t.attempt_times), 0),
       d.dead_reason, d.email ->> 'error_class', d.error_code, d.email ->> 'error_message',
       d.email ->> 'error_detail', d.email ->> 'provider', d.email ->> 'correlation_id',
       (d.email ->> 'created_at')::timestamptz, d.dead_at, d.archived_at, d.expires_at,
       d.email
FROM mailgres.dead_letters d
CROSS JOIN LATERAL (
    SELECT array_agg(coalesce(l ->> 'claimed_at', l ->> 'at')::timestamptz ORDER BY n) AS attempt_times
    FROM jsonb_array_elements(d.log) WITH ORDINALITY x(l, n)
    WHERE l ->> 'event' = 'retry' OR l ->> 'dead_reason' = 'exhausted'
       OR l ->> 'event' <> 'given_back' AND l ->> 'claimed_at' IS NOT NULL
) t;

COMMENT ON VIEW public.email_dead_letters IS
    'Dead emails, in the queue and in the archive: what they were, why they died, every attempt. For operators.';
COMMENT ON COLUMN public.email_dead_letters.attempt_times IS 'When each attempt was claimed.';
COMMENT ON COLUMN public.email_dead_letters.attempts IS 'How many attempts were made.';
COMMENT ON COLUMN public.email_dead_letters.error_message IS 'The last reason; never empty.';
COMMENT ON COLUMN public.email_dead_letters.error_detail IS
    'The provider''s text, unchanged; for a fault of mailgres itself, the places in the code.';
COMMENT ON COLUMN public.email_dead_letters.enqueued_at IS 'When it was enqueued.';
COMMENT ON COLUMN public.email_dead_letters.dead_at IS 'When it became a dead letter.';
COMMENT ON COLUMN public.email_dead_letters.archived_at IS
    'When it left the queue for the archive; null: it is still in the queue, where it can be retried.';
COMMENT ON COLUMN public.email_dead_letters.expires_at IS
    'When it moves to the archive; in the archive, when it is deleted.';
COMMENT ON COLUMN public.email_dead_letters.email IS 'The whole email, as it is in the queue.';
