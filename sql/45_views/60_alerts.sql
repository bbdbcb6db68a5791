-- Computed when it is read, so that it is right even when no worker runs.

CREATE VIEW public.email_alerts WITH (security_invoker = true) AS
SELECT a.rule, a.subject, a.severity, a.since, a.figure, a.threshold, a.unit, a.means, a.runbook AS what_to_do
FROM mailgres.alerts_now() a
LIMIT 1000;

COMMENT ON VIEW public.email_alerts IS
'What needs a person now?
The alerts that fire, most severe first: since when, the figure, its threshold, and what to do; at most 1,000.
Example: SELECT rule, subject, severity, since, figure, threshold, unit, what_to_do FROM email_alerts;';
COMMENT ON COLUMN public.email_alerts.rule IS 'The rule of mailgres.alert_rules that fires.';
COMMENT ON COLUMN public.email_alerts.subject IS 'The tenant, template or provider it is about; empty: the queue.';
COMMENT ON COLUMN public.email_alerts.severity IS 'critical, warning or info.';
COMMENT ON COLUMN public.email_alerts.since IS 'Since when it fires; if no worker has checked it yet, since when the condition holds, or now.';
COMMENT ON COLUMN public.email_alerts.figure IS 'The value that was counted or measured.';
COMMENT ON COLUMN public.email_alerts.threshold IS 'The threshold of the rule.';
COMMENT ON COLUMN public.email_alerts.unit IS 'The unit of figure and threshold.';
COMMENT ON COLUMN public.email_alerts.means IS 'What the alert means, in a sentence.';
COMMENT ON COLUMN public.email_alerts.what_to_do IS 'The command that prints the section of the runbook.';
