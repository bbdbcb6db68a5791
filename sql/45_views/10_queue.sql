-- Views for analysts and dashboards. Each answers one question, which is the first line of its
-- comment; email_monitoring lists them. They read the rollups and the depth, never the whole queue,
-- so their cost does not grow with it. All are security_invoker: they show what the reader may see of
-- the tables below, so a grant on a view alone, given by accident, shows nothing.

CREATE VIEW public.email_queue_state WITH (security_invoker = true) AS
SELECT s.status, coalesce(x.emails, 0)::bigint AS emails, x.oldest, x.newest,
       coalesce(x.at_least, false) AS at_least, coalesce(x.as_of, d.as_of, mailgres.now()) AS as_of
FROM (VALUES (1, 'pending'), (2, 'sending'), (3, 'sent'), (4, 'failed'), (5, 'cancelled')) s(place, status)
LEFT JOIN mailgres.depth d ON s.place < 3 AND mailgres.now() BETWEEN d.as_of AND d.valid_until
LEFT JOIN (
    SELECT o.status, sum(o.emails) AS emails, min(o.oldest) AS oldest, max(o.newest) AS newest, max(o.as_of) AS as_of,
           (SELECT d.capped AND d.as_of = max(o.as_of) FROM mailgres.depth d) AS at_least
    FROM mailgres.current_depth_by_template o
    GROUP BY o.status
    UNION ALL
    SELECT c.status, sum(c.emails), min(c.oldest), max(c.newest), mailgres.now(), false
    FROM (
        SELECT r.status, sum(r.emails) AS emails, min(r.oldest) AS oldest, max(r.newest) AS newest
        FROM mailgres.counted_by_status r
        GROUP BY r.hour, r.status
        HAVING sum(r.emails) > 0
    ) c
    GROUP BY c.status
) x ON x.status = s.status
ORDER BY s.place;

COMMENT ON VIEW public.email_queue_state IS
'How many emails are in each status, and how old are they?
Waiting emails are counted at as_of, at most 15 seconds ago; all other counts are exact.
Example: SELECT * FROM email_queue_state;';
COMMENT ON COLUMN public.email_queue_state.status IS 'pending, sending, sent, failed (dead) or cancelled.';
COMMENT ON COLUMN public.email_queue_state.emails IS 'How many are in the queue.';
COMMENT ON COLUMN public.email_queue_state.oldest IS
    'When the oldest was created; for settled emails rounded to the hour, if some of that hour were deleted.';
COMMENT ON COLUMN public.email_queue_state.newest IS 'When the newest was created.';
COMMENT ON COLUMN public.email_queue_state.at_least IS 'Whether there are more than were counted: beyond two million, or if counting took too long.';
COMMENT ON COLUMN public.email_queue_state.as_of IS 'When they were counted.';

CREATE VIEW public.email_pending_by_template WITH (security_invoker = true) AS
SELECT o.template_type, sum(o.emails)::bigint AS pending_count,
       round(sum(o.emails * o.retries) / sum(o.emails), 2) AS avg_retries,
       min(o.oldest) AS oldest, max(o.newest) AS newest,
       sum(o.due)::bigint AS due_count, min(o.oldest_due) AS oldest_due,
       sum(o.parked)::bigint AS parked_count, max(o.as_of) AS as_of
FROM mailgres.current_depth_by_template o
WHERE o.status = 'pending'
GROUP BY o.template_type;

COMMENT ON VIEW public.email_pending_by_template IS
'Which emails are waiting, by template, and for how long?
Example: SELECT * FROM email_pending_by_template ORDER BY pending_count DESC;';
COMMENT ON COLUMN public.email_pending_by_template.template_type IS 'The template.';
COMMENT ON COLUMN public.email_pending_by_template.pending_count IS 'Waiting emails.';
COMMENT ON COLUMN public.email_pending_by_template.avg_retries IS 'Average number of their retries.';
COMMENT ON COLUMN public.email_pending_by_template.oldest IS 'When the oldest of them was created.';
COMMENT ON COLUMN public.email_pending_by_template.newest IS 'When the newest of them was created.';
COMMENT ON COLUMN public.email_pending_by_template.due_count IS 'Emails that could be sent now.';
COMMENT ON COLUMN public.email_pending_by_template.oldest_due IS 'Since when the first of these could be sent.';
COMMENT ON COLUMN public.email_pending_by_template.parked_count IS
    'Emails that wait until the sender''s configuration is fixed.';
COMMENT ON COLUMN public.email_pending_by_template.as_of IS 'When they were counted.';

CREATE VIEW public.email_throughput WITH (security_invoker = true) AS
SELECT m.minute,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'sent'), 0)::bigint AS sent,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'retry'), 0)::bigint AS retried,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'deferred'), 0)::bigint AS deferred,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'dead'), 0)::bigint AS dead,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'cancelled'), 0)::bigint AS cancelled,
       round(100.0 * coalesce(sum(c.emails) FILTER (WHERE c.outcome IN ('retry', 'dead')), 0)
             / nullif(sum(c.emails) FILTER (WHERE c.outcome IN ('sent', 'retry', 'dead')), 0), 2) AS failure_rate
FROM generate_series(date_trunc('minute', mailgres.now(), 'UTC') - interval '59 minutes',
                     date_trunc('minute', mailgres.now(), 'UTC'), '1 minute') m(minute)
LEFT JOIN (
    SELECT x.minute, x.outcome, x.emails FROM mailgres.counted_by_minute x
    WHERE x.minute >= date_trunc('minute', mailgres.now(), 'UTC') - interval '59 minutes'
) c ON c.minute = m.minute
GROUP BY m.minute
ORDER BY m.minute DESC;

COMMENT ON VIEW public.email_throughput IS
'How many emails are sent per minute, and how many fail?
The last sixty minutes, newest first; the current minute is not complete.
Example: SELECT * FROM email_throughput LIMIT 15;';
COMMENT ON COLUMN public.email_throughput.minute IS 'The start of the minute.';
COMMENT ON COLUMN public.email_throughput.sent IS 'Emails that a provider accepted.';
COMMENT ON COLUMN public.email_throughput.retried IS 'Attempts that failed and will be retried.';
COMMENT ON COLUMN public.email_throughput.deferred IS
    'Emails deferred without spending a retry: rate limits, quotas, a sender''s configuration.';
COMMENT ON COLUMN public.email_throughput.dead IS 'Emails that became dead letters.';
COMMENT ON COLUMN public.email_throughput.cancelled IS 'Emails that were cancelled.';
COMMENT ON COLUMN public.email_throughput.failure_rate IS
    'retried and dead as a percentage of these and sent; null if there were none.';

CREATE VIEW public.email_throughput_24h WITH (security_invoker = true) AS
SELECT m.since,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'sent'), 0)::bigint AS sent,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'retry'), 0)::bigint AS retried,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'deferred'), 0)::bigint AS deferred,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'dead'), 0)::bigint AS dead,
       coalesce(sum(c.emails) FILTER (WHERE c.outcome = 'cancelled'), 0)::bigint AS cancelled
FROM generate_series(date_bin('15 minutes', mailgres.now(), '2000-01-01Z') - interval '1425 minutes',
                     date_bin('15 minutes', mailgres.now(), '2000-01-01Z'), '15 minutes') m(since)
LEFT JOIN (
    SELECT date_bin('15 minutes', x.minute, '2000-01-01Z') AS since, x.outcome, sum(x.emails) AS emails
    FROM mailgres.counted_by_minute x
    WHERE x.minute >= date_bin('15 minutes', mailgres.now(), '2000-01-01Z') - interval '1425 minutes'
    GROUP BY 1, 2
) c ON c.since = m.since
GROUP BY m.since
ORDER BY m.since DESC;

COMMENT ON VIEW public.email_throughput_24h IS
'How many emails were sent in the last 24 hours, and how many failed?
Steps of 15 minutes, newest first; the current step is not complete.
Example: SELECT * FROM email_throughput_24h;';
COMMENT ON COLUMN public.email_throughput_24h.since IS 'The start of the 15 minutes.';
COMMENT ON COLUMN public.email_throughput_24h.sent IS 'Emails that a provider accepted.';
COMMENT ON COLUMN public.email_throughput_24h.retried IS 'Attempts that failed and will be retried.';
COMMENT ON COLUMN public.email_throughput_24h.deferred IS
    'Emails deferred without spending a retry: rate limits, quotas, a sender''s configuration.';
COMMENT ON COLUMN public.email_throughput_24h.dead IS 'Emails that became dead letters.';
COMMENT ON COLUMN public.email_throughput_24h.cancelled IS 'Emails that were cancelled.';

CREATE VIEW public.email_workers WITH (security_invoker = true) AS
SELECT w.worker, w.version, w.started_at, w.seen_at,
       w.seen_at > mailgres.now() - interval '45 seconds' AS alive,
       greatest(mailgres.now() - w.seen_at, '0') AS silent_for, w.providers, w.on_demand
FROM mailgres.workers w
WHERE w.stopped_at IS NULL
  AND (NOT w.on_demand OR w.seen_at > mailgres.now() - interval '45 seconds')
ORDER BY w.worker;

COMMENT ON VIEW public.email_workers IS
'Which workers are alive?
A worker reports every 10 seconds and signs off when it stops; a worker that died is listed for a day.
Example: SELECT * FROM email_workers WHERE alive;';
COMMENT ON COLUMN public.email_workers.worker IS 'Its name.';
COMMENT ON COLUMN public.email_workers.version IS 'The version of mailgres that it runs.';
COMMENT ON COLUMN public.email_workers.started_at IS 'When it was first seen.';
COMMENT ON COLUMN public.email_workers.seen_at IS 'When it was last seen.';
COMMENT ON COLUMN public.email_workers.alive IS 'Whether it was seen in the last 45 seconds.';
COMMENT ON COLUMN public.email_workers.silent_for IS 'How long ago it was last seen.';
COMMENT ON COLUMN public.email_workers.providers IS 'The providers that it can send through; null: it did not report them.';
COMMENT ON COLUMN public.email_workers.on_demand IS
    'Whether it works only when it is called (mailgres process, the HTTP service), and is listed only then.';

CREATE VIEW public.email_providers WITH (security_invoker = true) AS
SELECT p.provider, p.kind, p.enabled, p.usable, p.circuit, p.circuit_since, p.circuit_until, p.circuit_reason,
       p.paused_until, p.pause_reason, p.limited_until, p.limited_by,
       round(p.email_tokens::numeric, 1) AS email_tokens, p.emails_per_second,
       round(p.call_tokens::numeric, 1) AS call_tokens, p.calls_per_second,
       p.used_today, p.daily_quota, p.used_this_month, p.monthly_quota,
       round(100.0 * greatest(p.used_today::numeric / nullif(p.daily_quota, 0),
                              p.used_this_month::numeric / nullif(p.monthly_quota, 0)), 1) AS quota_used,
       coalesce(c.sent, 0)::bigint AS sent_24h, coalesce(c.failed, 0)::bigint AS failed_24h, p.routes
FROM mailgres.provider_states() p
LEFT JOIN (
    SELECT x.provider, sum(x.emails) FILTER (WHERE x.outcome = 'sent') AS sent,
           sum(x.emails) FILTER (WHERE x.outcome IN ('retry', 'dead')) AS failed
    FROM mailgres.counted_by_minute x
    WHERE x.minute >= date_trunc('minute', mailgres.now() - interval '24 hours', 'UTC')
    GROUP BY x.provider
) c ON c.provider = p.provider
ORDER BY p.provider;

COMMENT ON VIEW public.email_providers IS
'Which providers can send now, and why can the others not?
Example: SELECT provider, usable, circuit, paused_until, limited_by, quota_used FROM email_providers;';
COMMENT ON COLUMN public.email_providers.provider IS 'Its name.';
COMMENT ON COLUMN public.email_providers.kind IS 'The kind of provider, such as resend, ses, smtp or capture.';
COMMENT ON COLUMN public.email_providers.enabled IS 'Whether it is used at all.';
COMMENT ON COLUMN public.email_providers.usable IS 'Whether emails may be sent through it now.';
COMMENT ON COLUMN public.email_providers.circuit IS
    'closed: calls are made; open: no calls, because it failed; half_open: one probe tests whether it works again.';
COMMENT ON COLUMN public.email_providers.circuit_since IS 'Since when the circuit has this state.';
COMMENT ON COLUMN public.email_providers.circuit_until IS
    'When an open circuit allows one call; null: not without action.';
COMMENT ON COLUMN public.email_providers.circuit_reason IS 'Why the circuit has this state.';
COMMENT ON COLUMN public.email_providers.paused_until IS 'Until when an operator paused it.';
COMMENT ON COLUMN public.email_providers.pause_reason IS 'The reason that the operator gave.';
COMMENT ON COLUMN public.email_providers.limited_until IS 'Until when it is rate-limited or out of quota.';
COMMENT ON COLUMN public.email_providers.limited_by IS 'Which of the two: rate or quota.';
COMMENT ON COLUMN public.email_providers.email_tokens IS 'Emails that its rate limit allows now; null: no limit.';
COMMENT ON COLUMN public.email_providers.emails_per_second IS 'Its rate limit in emails.';
COMMENT ON COLUMN public.email_providers.call_tokens IS 'Calls that its rate limit allows now; null: no limit.';
COMMENT ON COLUMN public.email_providers.calls_per_second IS 'Its rate limit in calls.';
COMMENT ON COLUMN public.email_providers.used_today IS 'Emails of today (UTC) that count against its quota.';
COMMENT ON COLUMN public.email_providers.daily_quota IS 'Emails that it accepts in a day.';
COMMENT ON COLUMN public.email_providers.used_this_month IS 'Emails of this month that count against its quota.';
COMMENT ON COLUMN public.email_providers.monthly_quota IS 'Emails that it accepts in a month.';
COMMENT ON COLUMN public.email_providers.quota_used IS 'How much of the tighter quota is used, in percent.';
COMMENT ON COLUMN public.email_providers.sent_24h IS 'Emails that it accepted in the last 24 hours.';
COMMENT ON COLUMN public.email_providers.failed_24h IS 'Attempts through it that failed in the last 24 hours.';
COMMENT ON COLUMN public.email_providers.routes IS 'The routes that use it.';

CREATE VIEW public.email_eta WITH (security_invoker = true) AS
SELECT e.route, e.emails AS waiting, e.later AS not_due_yet, e.provider, e.starts AS starts_at, e.at AS out_at,
       e.why AS depends_on
FROM mailgres.eta() e;

COMMENT ON VIEW public.email_eta IS
'When will the backlog be sent?
An estimate from limits, quotas, pauses, and the throughput of the last 15 minutes.
Example: SELECT * FROM email_eta;';
COMMENT ON COLUMN public.email_eta.route IS 'The route.';
COMMENT ON COLUMN public.email_eta.waiting IS 'Emails that wait on it.';
COMMENT ON COLUMN public.email_eta.not_due_yet IS 'Those of them that are not due yet.';
COMMENT ON COLUMN public.email_eta.provider IS 'The provider that will probably send them.';
COMMENT ON COLUMN public.email_eta.starts_at IS 'When it can start; null: not without action.';
COMMENT ON COLUMN public.email_eta.out_at IS 'When the last of them will have been sent; null: unknown.';
COMMENT ON COLUMN public.email_eta.depends_on IS
    'What limits it: throughput, rate, quota, schedule, circuit, paused, disabled, rate of a tenant, route paused, no provider, unknown.';
