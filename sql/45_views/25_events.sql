-- What became of emails after they were sent, by the events that providers report.

CREATE VIEW public.email_deliveries WITH (security_invoker = true) AS
SELECT q.id, q.tenant_id::text AS tenant_id, q.template_type::text AS template_type, q.status::text AS status, q.provider,
       q.created_at::timestamptz AS created_at, q.sent_at::timestamptz AS sent_at, d.state, d.delivered_at, d.opened_at, d.clicked_at,
       d.bounced_at, d.bounce_kind, d.bounce_reason, d.complained_at, d.unsubscribed_at, d.failed_at
FROM public.email_queue q
LEFT JOIN mailgres.deliveries d ON d.queue_id = q.id;

COMMENT ON VIEW public.email_deliveries IS
'What became of each email after it was sent?
The state by the events of its provider, whatever their order, beside the status in the queue. Without events, state is null.
Example: SELECT * FROM email_deliveries WHERE id = ''00000000-0000-0000-0000-000000000000'';';
COMMENT ON COLUMN public.email_deliveries.id IS 'The email.';
COMMENT ON COLUMN public.email_deliveries.tenant_id IS 'Its tenant.';
COMMENT ON COLUMN public.email_deliveries.template_type IS 'Its template.';
COMMENT ON COLUMN public.email_deliveries.status IS 'Its status in the queue.';
COMMENT ON COLUMN public.email_deliveries.provider IS 'The provider of the last attempt.';
COMMENT ON COLUMN public.email_deliveries.created_at IS 'When it was enqueued.';
COMMENT ON COLUMN public.email_deliveries.sent_at IS 'When the provider accepted it.';
COMMENT ON COLUMN public.email_deliveries.state IS
    'complained, bounced, delivered, suppressed, rejected, failed, delayed or sent: the first of these that was reported; null: nothing.';
COMMENT ON COLUMN public.email_deliveries.delivered_at IS 'When it was delivered.';
COMMENT ON COLUMN public.email_deliveries.opened_at IS 'When it was first opened.';
COMMENT ON COLUMN public.email_deliveries.clicked_at IS 'When a link in it was first clicked.';
COMMENT ON COLUMN public.email_deliveries.bounced_at IS 'When it bounced.';
COMMENT ON COLUMN public.email_deliveries.bounce_kind IS 'hard, soft or undetermined.';
COMMENT ON COLUMN public.email_deliveries.bounce_reason IS
    'mailbox_unknown, mailbox_full, content, size, reputation, policy, timed_out or other.';
COMMENT ON COLUMN public.email_deliveries.complained_at IS 'When its recipient called it spam.';
COMMENT ON COLUMN public.email_deliveries.unsubscribed_at IS 'When its recipient unsubscribed at the provider.';
COMMENT ON COLUMN public.email_deliveries.failed_at IS 'When the provider reported that it did not send it.';

CREATE VIEW public.email_delivery_rates WITH (security_invoker = true) AS
SELECT x.dimension AS by, x.name, x.day, x.reported, x.delivered, x.bounced, x.hard_bounced, x.complained,
       round(100.0 * x.bounced / nullif(x.reported, 0), 2) AS bounce_rate,
       round(100.0 * x.complained / nullif(x.delivered, 0), 3) AS complaint_rate,
       round((x.seconds / nullif(x.delivered, 0))::numeric, 1) AS mean_seconds,
       CASE WHEN x.complained > 0.003 * x.delivered OR x.hard_bounced > 0.05 * x.reported THEN 'too high' ELSE 'fine' END AS verdict
FROM (
    SELECT c.dimension, c.name, date_trunc('day', c.hour, 'UTC') AS day, sum(c.reported)::bigint AS reported,
           sum(c.delivered)::bigint AS delivered, sum(c.bounced)::bigint AS bounced,
           sum(c.hard_bounced)::bigint AS hard_bounced, sum(c.complained)::bigint AS complained,
           sum(c.seconds) AS seconds
    FROM mailgres.counted_by_event c
    WHERE c.hour >= date_trunc('day', mailgres.now() - interval '30 days', 'UTC')
    GROUP BY 1, 2, 3
    HAVING sum(c.reported) <> 0
) x;

COMMENT ON VIEW public.email_delivery_rates IS
'How many emails bounce or are called spam, by template, tenant, domain of the recipient, and day?
Emails created in the last 30 days of which the provider reported that they were delivered or bounced; the day is that of creation, in UTC. The verdict is too high for more than 0.3 % complaints among delivered emails (the limit that Gmail and Yahoo publish) or more than 5 % hard bounces (the limit at which Amazon SES reviews an account).
Example: SELECT * FROM email_delivery_rates WHERE by = ''tenant'' AND verdict = ''too high'' ORDER BY day DESC;';
COMMENT ON COLUMN public.email_delivery_rates.by IS 'template, tenant or domain.';
COMMENT ON COLUMN public.email_delivery_rates.name IS 'The template, the tenant, or the domain of the recipient.';
COMMENT ON COLUMN public.email_delivery_rates.day IS 'The day on which the emails were created, in UTC.';
COMMENT ON COLUMN public.email_delivery_rates.reported IS 'Emails that were delivered or bounced, by the events of their provider.';
COMMENT ON COLUMN public.email_delivery_rates.delivered IS 'Of these, delivered.';
COMMENT ON COLUMN public.email_delivery_rates.bounced IS 'Of these, bounced.';
COMMENT ON COLUMN public.email_delivery_rates.hard_bounced IS 'Of these, bounced because the mailbox does not exist.';
COMMENT ON COLUMN public.email_delivery_rates.complained IS 'Emails that their recipients called spam.';
COMMENT ON COLUMN public.email_delivery_rates.bounce_rate IS 'bounced as a percentage of reported.';
COMMENT ON COLUMN public.email_delivery_rates.complaint_rate IS 'complained as a percentage of delivered.';
COMMENT ON COLUMN public.email_delivery_rates.mean_seconds IS 'Mean time from when an email was due until it was delivered.';
COMMENT ON COLUMN public.email_delivery_rates.verdict IS 'fine or too high.';
