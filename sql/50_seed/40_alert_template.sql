-- The template of notification emails. Push another version to change it.

INSERT INTO public.email_templates (template_type, description, on_uncertain, sample) VALUES ('mailgres_alert',
'Notifies operators and tenants about alerts and dead letters.', 'resend',
'{"event": "DeadLetters", "audience": "operators", "new": 3,
"reasons": [{"reason": "permanent", "code": "no_mailbox", "template": "welcome_user", "emails": 3}]}');

INSERT INTO mailgres.template_versions (template_type, version, locale, is_default, subject, text) VALUES
('mailgres_alert', 1, 'en', true,
$mail${% if event == "DeadLetters" %}mailgres: {{ new }} new dead letters{% elif new %}mailgres: {{ firing[0].severity }}: {{ firing[0].rule }}{% if firing[0].subject %} ({{ firing[0].subject }}){% endif %}{% if new > 1 %} and {{ new - 1 }} more{% endif %}{% else %}mailgres: resolved: {{ resolved[0].rule }}{% if resolved[0].subject %} ({{ resolved[0].subject }}){% endif %}{% if resolved | length > 1 %} and {{ resolved | length - 1 }} more{% endif %}{% endif %}$mail$,
$mail${% if event == "DeadLetters" %}
{{ new }} emails{% if audience != "operators" %} of {{ audience | replace("tenant:", "") }}{% endif %} became dead letters since the last notification:

{% for each in reasons %}
- {{ each.emails }} of the template {{ each.template }}: {{ each.reason }}{% if each.code %} ({{ each.code }}){% endif %}

{% endfor %}
{% if audience == "operators" %}
List them:  SELECT * FROM email_dead_letters ORDER BY dead_at DESC;
Retry one:  SELECT retry_email('…');
{% endif %}
{% else %}
{% for each in firing %}
{{ each.severity }}: {{ each.rule }}{% if each.subject %} ({{ each.about }} {{ each.subject }}){% endif %}

  {{ each.means }}
  {{ each.figure }} {{ each.unit }}, threshold {{ each.threshold }}; since {{ each.since }}
{% if audience == "operators" %}
  What to do: {{ each.runbook }}
{% endif %}

{% endfor %}
{% if resolved %}
Resolved:
{% for each in resolved %}
- {{ each.rule }}{% if each.subject %} ({{ each.about }} {{ each.subject }}){% endif %}, since {{ each.since }}
{% endfor %}

{% endif %}
{% if more %}
And {{ more }} more.
{% endif %}
{% if audience == "operators" %}
All firing alerts:  SELECT * FROM email_alerts;
{% endif %}
{% endif %}$mail$),
('mailgres_alert', 1, 'pt', false,
$mail${% if event == "DeadLetters" %}mailgres: {{ new }} novas mensagens não entregues{% elif new %}mailgres: {{ {"critical": "crítico", "warning": "aviso", "info": "informação"}[firing[0].severity] }}: {{ firing[0].rule }}{% if firing[0].subject %} ({{ firing[0].subject }}){% endif %}{% if new > 1 %} e mais {{ new - 1 }}{% endif %}{% else %}mailgres: resolvido: {{ resolved[0].rule }}{% if resolved[0].subject %} ({{ resolved[0].subject }}){% endif %}{% if resolved | length > 1 %} e mais {{ resolved | length - 1 }}{% endif %}{% endif %}$mail$,
$mail${% if event == "DeadLetters" %}
{{ new }} emails{% if audience != "operators" %} de {{ audience | replace("tenant:", "") }}{% endif %} não foram entregues desde a última mensagem:

{% for each in reasons %}
- {{ each.emails }} do modelo {{ each.template }}: {{ each.reason }}{% if each.code %} ({{ each.code }}){% endif %}

{% endfor %}
{% if audience == "operators" %}
Ver:              SELECT * FROM email_dead_letters ORDER BY dead_at DESC;
Enviar de novo:   SELECT retry_email('…');
{% endif %}
{% else %}
{% for each in firing %}
{{ {"critical": "crítico", "warning": "aviso", "info": "informação"}[each.severity] }}: {{ each.rule }}{% if each.subject %} ({{ each.about }} {{ each.subject }}){% endif %}

  {{ each.means }}
  {{ each.figure }} {{ each.unit }}, limite {{ each.threshold }}; desde {{ each.since }}
{% if audience == "operators" %}
  O que fazer: {{ each.runbook }}
{% endif %}

{% endfor %}
{% if resolved %}
Resolvido:
{% for each in resolved %}
- {{ each.rule }}{% if each.subject %} ({{ each.about }} {{ each.subject }}){% endif %}, desde {{ each.since }}
{% endfor %}

{% endif %}
{% if more %}
E mais {{ more }}.
{% endif %}
{% if audience == "operators" %}
Todos os alertas ativos:  SELECT * FROM email_alerts;
{% endif %}
{% endif %}$mail$);
