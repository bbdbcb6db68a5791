-- Attempts, retries and why they fail.

-- An address as analysts see it: a***@example.com. A local part of one letter is hidden completely.
CREATE FUNCTION mailgres.mask_email(p_email text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_email ~ '^[^@]+@[^@]+$' THEN left(split_part(p_email, '@', 1), (strpos(p_email, '@') > 2)::int) || '***@' || split_part(p_email, '@', 2)
            WHEN p_email IS NOT NULL THEN '***' END;

COMMENT ON FUNCTION mailgres.mask_email(text) IS
    'An address with all but its first letter and its domain hidden.';

-- For views: the reader sees the masked address without the right to read the address.
CREATE FUNCTION mailgres.masked_recipient(p_queue_id uuid) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT mailgres.mask_email(q.recipient_email) FROM public.email_queue q WHERE q.id = p_queue_id $$;

COMMENT ON FUNCTION mailgres.masked_recipient(uuid) IS 'The recipient of an email, masked.';

CREATE VIEW public.email_recipients WITH (security_invoker = true) AS
SELECT q.id, mailgres.masked_recipient(q.id) AS recipient
FROM public.email_queue q;

COMMENT ON VIEW public.email_recipients IS
'Who gets an email, as far as an analyst may know?
Look emails up by id: each address is read and masked one by one.
Example: SELECT * FROM email_recipients WHERE id = ''00000000-0000-0000-0000-000000000000'';';
COMMENT ON COLUMN public.email_recipients.id IS 'The email.';
COMMENT ON COLUMN public.email_recipients.recipient IS 'Its recipient, masked.';

CREATE VIEW public.email_retried WITH (security_invoker = true) AS
SELECT q.id, q.tenant_id::text AS tenant_id, q.template_type, mailgres.masked_recipient(q.id) AS recipient,
       q.status::text AS status, q.retries::int AS retries, q.max_retries::int AS max_retries,
       l.at AS failed_at, l.error_class, l.error_code, l.error_message, l.provider,
       CASE WHEN q.status = 'pending' THEN q.next_retry_at END AS next_retry_at, q.created_at
FROM public.email_logs l
JOIN public.email_queue q ON q.id = l.queue_id
WHERE l.event = 'retry' AND l.at > mailgres.now() - interval '24 hours'
  AND NOT EXISTS (
      SELECT FROM public.email_logs x WHERE x.queue_id = l.queue_id AND x.id > l.id AND x.event = 'retry');

COMMENT ON VIEW public.email_retried IS
'Which emails needed a retry in the last 24 hours?
One row for each, with its last failure that led to a retry.
Example: SELECT * FROM email_retried ORDER BY failed_at DESC LIMIT 100;';
COMMENT ON COLUMN public.email_retried.id IS 'The email.';
COMMENT ON COLUMN public.email_retried.tenant_id IS 'Its tenant.';
COMMENT ON COLUMN public.email_retried.template_type IS 'Its template.';
COMMENT ON COLUMN public.email_retried.recipient IS 'Its recipient, masked.';
COMMENT ON COLUMN public.email_retried.status IS 'Its current status.';
COMMENT ON COLUMN public.email_retried.retries IS 'Retries made so far.';
COMMENT ON COLUMN public.email_retried.max_retries IS 'Retries allowed.';
COMMENT ON COLUMN public.email_retried.failed_at IS 'When the last attempt failed that led to a retry.';
COMMENT ON COLUMN public.email_retried.error_class IS 'The class of that fault.';
COMMENT ON COLUMN public.email_retried.error_code IS 'The provider''s code for it.';
COMMENT ON COLUMN public.email_retried.error_message IS 'Its text, with addresses replaced by placeholders.';
COMMENT ON COLUMN public.email_retried.provider IS 'The provider of that attempt.';
COMMENT ON COLUMN public.email_retried.next_retry_at IS 'When the next attempt will be made, if it waits.';
COMMENT ON COLUMN public.email_retried.created_at IS 'When it was enqueued.';

CREATE VIEW public.email_recovery_by_retries WITH (security_invoker = true) AS
SELECT x.retries, sum(x.emails)::bigint AS emails,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0)::bigint AS sent,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0)::bigint AS failed,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'open'), 0)::bigint AS waiting,
       round(100.0 * coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0)
             / nullif(sum(x.emails) FILTER (WHERE x.status IN ('sent', 'failed')), 0), 2) AS recovery_rate
FROM (
    SELECT c.retries, c.status, c.emails
    FROM mailgres.counted_by_retries c
    WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '30 days', 'UTC')
      AND c.retries > 0
    UNION ALL
    SELECT o.retries, 'open', o.emails FROM mailgres.current_depth_by_template o WHERE o.retries > 0
) x
GROUP BY x.retries
HAVING sum(x.emails) > 0
ORDER BY x.retries;

COMMENT ON VIEW public.email_recovery_by_retries IS
'Do retries help: how many emails are sent after one retry, after two, after three?
Emails created in the last 30 days, from the full hour on, and all that wait.
Example: SELECT * FROM email_recovery_by_retries;';
COMMENT ON COLUMN public.email_recovery_by_retries.retries IS 'Retries made.';
COMMENT ON COLUMN public.email_recovery_by_retries.emails IS 'Emails with this number of retries.';
COMMENT ON COLUMN public.email_recovery_by_retries.sent IS 'Of these, sent in the end.';
COMMENT ON COLUMN public.email_recovery_by_retries.failed IS 'Of these, dead.';
COMMENT ON COLUMN public.email_recovery_by_retries.waiting IS
    'Of these, waiting or being sent; counted at most 15 seconds ago.';
COMMENT ON COLUMN public.email_recovery_by_retries.recovery_rate IS 'sent as a percentage of sent and failed.';

CREATE VIEW public.email_success_by_attempt WITH (security_invoker = true) AS
SELECT c.attempt, sum(c.attempts)::bigint AS attempts,
       coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'sent'), 0)::bigint AS sent,
       coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'retry'), 0)::bigint AS retried,
       coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'dead'), 0)::bigint AS dead,
       round(100.0 * coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'sent'), 0) / sum(c.attempts), 2) AS success_rate
FROM mailgres.counted_by_attempt c
WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC')
  AND c.outcome IN ('sent', 'retry', 'dead')
GROUP BY c.attempt
ORDER BY c.attempt;

COMMENT ON VIEW public.email_success_by_attempt IS
'How often does the first attempt succeed, the second, the third?
Attempts made in the last 7 days, from the full hour on. Emails that were only deferred (a rate limit, a quota) do not count.
Example: SELECT * FROM email_success_by_attempt;';
COMMENT ON COLUMN public.email_success_by_attempt.attempt IS 'Number of the attempt, the first being 1.';
COMMENT ON COLUMN public.email_success_by_attempt.attempts IS 'How many there were.';
COMMENT ON COLUMN public.email_success_by_attempt.sent IS 'Of these, accepted by the provider.';
COMMENT ON COLUMN public.email_success_by_attempt.retried IS 'Of these, failed and to be retried.';
COMMENT ON COLUMN public.email_success_by_attempt.dead IS 'Of these, failed as the last attempt.';
COMMENT ON COLUMN public.email_success_by_attempt.success_rate IS 'sent as a percentage of attempts.';

CREATE VIEW public.email_time_between_attempts WITH (security_invoker = true) AS
SELECT c.attempt, sum(c.attempts)::bigint AS retries,
       date_trunc('second', make_interval(secs => sum(c.seconds) / sum(c.attempts)) + interval '0.5 seconds') AS mean_wait
FROM mailgres.counted_by_attempt c
WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC') AND c.outcome = 'claimed'
GROUP BY c.attempt
ORDER BY c.attempt;

COMMENT ON VIEW public.email_time_between_attempts IS
'How much time really passes between an attempt and its retry?
From claim to claim, for retries of the last 7 days, from the full hour on.
Example: SELECT * FROM email_time_between_attempts;';
COMMENT ON COLUMN public.email_time_between_attempts.attempt IS 'Number of the later attempt: 2 is the first retry.';
COMMENT ON COLUMN public.email_time_between_attempts.retries IS 'How many were claimed.';
COMMENT ON COLUMN public.email_time_between_attempts.mean_wait IS 'The mean time since the attempt before, to the second.';

CREATE VIEW public.email_error_codes WITH (security_invoker = true) AS
SELECT x.provider, x.error_class, x.error_code, x.attempts, x.retried, x.dead, x.deferred,
       round(100.0 * x.attempts / sum(x.attempts) OVER (), 2) AS share
FROM (
    SELECT c.provider, c.error_class, c.error_code, sum(c.attempts)::bigint AS attempts,
           coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'retry'), 0)::bigint AS retried,
           coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'dead'), 0)::bigint AS dead,
           coalesce(sum(c.attempts) FILTER (WHERE c.outcome = 'deferred'), 0)::bigint AS deferred
    FROM mailgres.counted_by_fault c
    WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC')
    GROUP BY c.provider, c.error_class, c.error_code
) x
ORDER BY x.attempts DESC, x.provider, x.error_class, x.error_code;

COMMENT ON VIEW public.email_error_codes IS
'Which error codes do attempts end with, and how often?
Failed attempts of the last 7 days, from the full hour on.
Example: SELECT * FROM email_error_codes LIMIT 20;';
COMMENT ON COLUMN public.email_error_codes.provider IS 'The provider; empty if none was called.';
COMMENT ON COLUMN public.email_error_codes.error_class IS
    'transient, rate, quota, config, permanent or ambiguous; empty if unknown.';
COMMENT ON COLUMN public.email_error_codes.error_code IS 'The provider''s code; empty if there is none.';
COMMENT ON COLUMN public.email_error_codes.attempts IS 'How many attempts ended with it.';
COMMENT ON COLUMN public.email_error_codes.retried IS 'Of these, to be retried.';
COMMENT ON COLUMN public.email_error_codes.dead IS 'Of these, the last attempt of the email.';
COMMENT ON COLUMN public.email_error_codes.deferred IS 'Of these, deferred without spending a retry.';
COMMENT ON COLUMN public.email_error_codes.share IS 'attempts as a percentage of all failed attempts.';

CREATE VIEW public.email_common_errors WITH (security_invoker = true) AS
SELECT x.error_message, count(*) AS emails,
       array_agg(DISTINCT x.error_code) FILTER (WHERE x.error_code IS NOT NULL) AS error_codes,
       array_agg(DISTINCT x.dead_reason) AS dead_reasons,
       min(x.due_at) AS first_at, max(x.due_at) AS last_at
FROM (
    SELECT q.error_message, q.error_code, q.dead_reason::text AS dead_reason, q.due_at
    FROM public.email_queue q
    WHERE q.status = 'failed' AND q.due_at IS NOT NULL
    ORDER BY q.due_at DESC
    LIMIT 10000
) x
GROUP BY x.error_message
ORDER BY count(*) DESC, max(x.due_at) DESC, x.error_message;

COMMENT ON VIEW public.email_common_errors IS
'What are the most common reasons why emails die?
The newest 10,000 dead letters in the queue, by their last error.
Example: SELECT * FROM email_common_errors LIMIT 10;';
COMMENT ON COLUMN public.email_common_errors.error_message IS 'The error, with addresses replaced by placeholders.';
COMMENT ON COLUMN public.email_common_errors.emails IS 'How many emails died of it.';
COMMENT ON COLUMN public.email_common_errors.error_codes IS 'The provider''s codes for it.';
COMMENT ON COLUMN public.email_common_errors.dead_reasons IS 'The reasons for which they died.';
COMMENT ON COLUMN public.email_common_errors.first_at IS 'When the first of them died.';
COMMENT ON COLUMN public.email_common_errors.last_at IS 'When the last of them died.';
