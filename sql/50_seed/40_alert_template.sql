-- What the janitor `tell` writes. Push another version to change it.

DO $seed$ BEGIN PERFORM mailgres.push_template('mailgres_alert',
p_settings => $mail${"description": "Tells operators and tenants of dead letters.", "on_uncertain": "resend",
"sample": {"event": "DeadLetters", "audience": "operators", "new": 3, "total": 120, "level": "alarm",
"reasons": [{"reason": "permanent", "code": "no_mailbox", "template": "welcome_user", "emails": 3}]}}$mail$,
p_contents => jsonb_build_object('en', jsonb_build_object(
'subject', $mail${% if event == "WebhookOff" %}mailgres: the alert webhook is off{% else %}mailgres: {{ new }} new dead letters{% if level != "none" %}, {{ total }} in all{% endif %}{% endif %}$mail$,
'text', $mail${% if event == "WebhookOff" %}
The alert webhook failed {{ failures }} times in a row and is not called any more.

Set another alert_webhook, or let an operator call:
SELECT mailgres.note_webhook(webhook, true) FROM mailgres.notices WHERE audience = 'operators';
{% else %}
{% if level == "ceiling" %}
There are more than 10,000 dead letters. None is dropped, but somebody has to look.

{% elif level == "alarm" %}
There are more than 100 dead letters.

{% endif %}
{{ new }} emails{% if audience != "operators" %} of {{ audience | replace("tenant:", "") }}{% endif %} were given up since the last message:

{% for each in reasons %}
- {{ each.emails }} of the template {{ each.template }}: {{ each.reason }}{% if each.code %} ({{ each.code }}){% endif %}

{% endfor %}
{% if audience == "operators" %}
See them:   SELECT * FROM email_dead_letters ORDER BY dead_at DESC;
Retry one:  SELECT retry_email('…');
{% endif %}
{% endif %}
$mail$))); END $seed$;
