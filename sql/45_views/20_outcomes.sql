-- Outcomes of emails.

CREATE VIEW public.email_failure_rate_by_template WITH (security_invoker = true) AS
SELECT x.template_type, sum(x.emails)::bigint AS total,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0)::bigint AS sent,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0)::bigint AS failed,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'cancelled'), 0)::bigint AS cancelled,
       coalesce(sum(x.emails) FILTER (WHERE x.status = 'open'), 0)::bigint AS waiting,
       round(100.0 * coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0) / sum(x.emails), 2) AS failure_rate
FROM (
    SELECT c.template_type, c.status, c.emails
    FROM mailgres.counted_by_template c
    WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC')
    UNION ALL
    SELECT o.template_type, 'open', o.recent FROM mailgres.current_depth_by_template o
) x
GROUP BY x.template_type
HAVING sum(x.emails) > 0;

COMMENT ON VIEW public.email_failure_rate_by_template IS
'How often do the emails of each template fail, over the last 7 days?
Emails created in that time, from the full hour on, with their current status.
Example: SELECT * FROM email_failure_rate_by_template ORDER BY failure_rate DESC;';
COMMENT ON COLUMN public.email_failure_rate_by_template.template_type IS 'The template.';
COMMENT ON COLUMN public.email_failure_rate_by_template.total IS 'Emails created in the last 7 days.';
COMMENT ON COLUMN public.email_failure_rate_by_template.sent IS 'Of these, sent.';
COMMENT ON COLUMN public.email_failure_rate_by_template.failed IS 'Of these, dead.';
COMMENT ON COLUMN public.email_failure_rate_by_template.cancelled IS 'Of these, cancelled.';
COMMENT ON COLUMN public.email_failure_rate_by_template.waiting IS
    'Of these, waiting or being sent; counted at most 15 seconds ago.';
COMMENT ON COLUMN public.email_failure_rate_by_template.failure_rate IS 'failed as a percentage of total.';

CREATE VIEW public.email_kpis WITH (security_invoker = true) AS
WITH c AS (
    SELECT coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent'), 0) AS sent,
           coalesce(sum(x.emails) FILTER (WHERE x.status = 'failed'), 0) AS failed,
           coalesce(sum(x.seconds) FILTER (WHERE x.status = 'sent'), 0) AS seconds,
           coalesce(sum(x.emails) FILTER (WHERE x.status = 'sent' AND x.retries > 0), 0) AS recovered,
           coalesce(sum(x.emails) FILTER (WHERE x.status IN ('sent', 'failed') AND x.retries > 0), 0) AS retried
    FROM mailgres.counted_by_retries x
    WHERE x.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC')
), e AS (
    SELECT coalesce(sum(x.bounced), 0) AS bounced, coalesce(sum(x.reported), 0) AS reported,
           coalesce(sum(x.delivered), 0) AS delivered, coalesce(sum(x.seconds), 0) AS seconds,
           coalesce(sum(x.delivered), 0) > 0 AS known
    FROM mailgres.counted_by_event x
    WHERE x.dimension = 'template' AND x.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC')
)
SELECT k.name, k.value, k.unit, k.target,
       CASE WHEN k.value IS NULL THEN 'no data' WHEN k.met THEN 'met' ELSE 'missed' END AS verdict,
       k.emails, k.based_on
FROM c CROSS JOIN e
-- Where providers report deliveries, these count; elsewhere, that a provider accepted the email.
CROSS JOIN LATERAL (
    SELECT CASE WHEN e.known THEN e.delivered ELSE c.sent - e.bounced END AS delivered,
           CASE WHEN e.known THEN e.reported + c.failed ELSE c.sent + c.failed END AS settled,
           CASE WHEN e.known THEN e.seconds ELSE c.seconds END AS seconds,
           CASE WHEN e.known THEN e.delivered ELSE c.sent END AS timed,
           CASE WHEN e.known THEN 'events' ELSE 'acceptance' END AS based_on
) b
CROSS JOIN LATERAL (
    VALUES
        (1, 'delivered', round(100 * b.delivered / nullif(b.settled, 0), 2), '%', '> 98',
         b.delivered > 0.98 * b.settled, b.settled::bigint, b.based_on),
        (2, 'time to delivery', round(b.seconds::numeric / nullif(b.timed, 0), 2), 's', '< 300',
         b.seconds < 300 * b.timed, b.timed::bigint, b.based_on),
        (3, 'recovered after a failure', round(100 * c.recovered / nullif(c.retried, 0), 2), '%', '> 90',
         c.recovered > 0.9 * c.retried, c.retried::bigint, 'status'),
        (4, 'dead', round(100 * c.failed / nullif(c.sent + c.failed, 0), 2), '%', '< 2',
         c.failed < 0.02 * (c.sent + c.failed), (c.sent + c.failed)::bigint, 'status')
) k(place, name, value, unit, target, met, emails, based_on)
ORDER BY k.place;

COMMENT ON VIEW public.email_kpis IS
'Do we meet our targets?
Emails created in the last 7 days, from the full hour on, with their current status: a dead letter that was retried and sent counts as delivered, an email that bounced later does not. Where providers report deliveries, delivered is their share of the emails that were reported or are dead, and time to delivery ends with the delivery; elsewhere an email counts when the provider accepted it. The column based_on says which. The recovery rate is the share of sent emails among those that were retried and settled.
Example: SELECT * FROM email_kpis;';
COMMENT ON COLUMN public.email_kpis.name IS 'What is measured.';
COMMENT ON COLUMN public.email_kpis.value IS 'Its value; null if there is nothing to measure.';
COMMENT ON COLUMN public.email_kpis.unit IS 'Percent or seconds.';
COMMENT ON COLUMN public.email_kpis.target IS 'The target.';
COMMENT ON COLUMN public.email_kpis.verdict IS 'met, missed or no data.';
COMMENT ON COLUMN public.email_kpis.emails IS 'How many emails were measured.';
COMMENT ON COLUMN public.email_kpis.based_on IS
    'events (providers reported deliveries), acceptance (providers accepted the emails) or status.';

CREATE VIEW public.email_delivery_times WITH (security_invoker = true) AS
SELECT nullif(x.within, 2147483647) AS within_seconds, x.emails,
       round(100 * sum(x.emails) OVER (ORDER BY x.within) / sum(x.emails) OVER (), 2) AS cumulative
FROM (
    SELECT c.within, sum(c.emails)::bigint AS emails
    FROM mailgres.counted_by_retries c
    WHERE c.hour >= date_trunc('hour', mailgres.now() - interval '7 days', 'UTC') AND c.status = 'sent'
    GROUP BY c.within
    HAVING sum(c.emails) > 0
) x
ORDER BY x.within;

COMMENT ON VIEW public.email_delivery_times IS
'How long do emails take?
Emails created in the last 7 days and sent, by the time from when they were due until the provider accepted them.
Example: SELECT * FROM email_delivery_times;';
COMMENT ON COLUMN public.email_delivery_times.within_seconds IS
    'They took at most this long, and longer than in the row before; null: longer than a day.';
COMMENT ON COLUMN public.email_delivery_times.emails IS 'How many.';
COMMENT ON COLUMN public.email_delivery_times.cumulative IS 'How many took at most this long, as a percentage of all.';
