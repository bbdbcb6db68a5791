-- Two templates to start with, so that the first call works on an empty project.
-- Every variable has a fallback.

INSERT INTO public.email_templates (template_type, description, on_uncertain) VALUES
    ('welcome_user', 'Greets a new user. Variables: name, product, url.', 'hold'),
    ('signup_confirmation', 'Asks a new user to confirm the address. Variables: name, product, confirmation_url.', 'resend');

INSERT INTO mailgres.template_versions (template_type, version, locale, subject, html, text) VALUES
('welcome_user', 1, 'en',
'Welcome to {{ product | default("our service") }}',
'<!doctype html>
<html lang="en">
<body style="margin:0;padding:32px 16px;background:#f4f5f7;font-family:Helvetica,Arial,sans-serif;color:#1f2933">
<div style="max-width:520px;margin:0 auto;padding:32px;background:#ffffff;border-radius:8px">
<h1 style="margin:0 0 16px;font-size:22px">Welcome{% if name is defined %}, {{ name }}{% endif %}!</h1>
<p style="margin:0 0 16px;line-height:1.5">Your account at {{ product | default("our service") }} is ready.</p>
{% if url is defined %}<p style="margin:0 0 16px"><a href="{{ url }}" style="display:inline-block;padding:12px 20px;background:#1f6feb;color:#ffffff;text-decoration:none;border-radius:6px">Get started</a></p>{% endif %}
<p style="margin:0;line-height:1.5;color:#616e7c;font-size:14px">Questions? Just reply to this email.</p>
</div>
</body>
</html>',
'Welcome{% if name is defined %}, {{ name }}{% endif %}!

Your account at {{ product | default("our service") }} is ready.
{% if url is defined %}
Get started: {{ url }}
{% endif %}
Questions? Just reply to this email.
'),
('signup_confirmation', 1, 'en',
'Confirm your email address',
'<!doctype html>
<html lang="en">
<body style="margin:0;padding:32px 16px;background:#f4f5f7;font-family:Helvetica,Arial,sans-serif;color:#1f2933">
<div style="max-width:520px;margin:0 auto;padding:32px;background:#ffffff;border-radius:8px">
<h1 style="margin:0 0 16px;font-size:22px">Hello{% if name is defined %} {{ name }}{% endif %}</h1>
<p style="margin:0 0 16px;line-height:1.5">Please confirm your email address to finish signing up to {{ product | default("our service") }}.</p>
{% if confirmation_url is defined %}<p style="margin:0 0 16px"><a href="{{ confirmation_url }}" style="display:inline-block;padding:12px 20px;background:#1f6feb;color:#ffffff;text-decoration:none;border-radius:6px">Confirm address</a></p>{% endif %}
<p style="margin:0;line-height:1.5;color:#616e7c;font-size:14px">If you did not sign up, ignore this email: nothing will happen.</p>
</div>
</body>
</html>',
'Hello{% if name is defined %} {{ name }}{% endif %},

please confirm your email address to finish signing up to {{ product | default("our service") }}.
{% if confirmation_url is defined %}
Confirm: {{ confirmation_url }}
{% endif %}
If you did not sign up, ignore this email: nothing will happen.
');
