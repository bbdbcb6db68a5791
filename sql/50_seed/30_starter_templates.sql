-- Two templates to start with, so that the first call works on an empty project. Every
-- variable has a fallback. Never edited by hand: scripts/starter_templates.py writes it
-- from src/mailgres/starter/.

INSERT INTO public.email_templates (template_type, description, on_uncertain, sample) VALUES
($mail$signup_confirmation$mail$, $mail$Asks a new user to confirm the address. Variables: name, product, confirmation_url, valid_for.$mail$, $mail$resend$mail$, $mail${"name": "João", "product": "Acme", "confirmation_url": "https://acme.example.com/confirm/4fd1c2", "valid_for": "24 hours"}$mail$);

INSERT INTO mailgres.template_versions
(template_type, version, locale, is_default, subject, html, text) VALUES
($mail$signup_confirmation$mail$, 1, 'en', true,
$mail$Confirm your email address{% if product is defined %} for {{ product }}{% endif %}$mail$,
$mail$<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>Confirm your email address</title>
<style>
@media (prefers-color-scheme: dark) {
  .page { background: #14181f !important; color: #e6e9ee !important; }
  .card { background: #1e242e !important; }
  .quiet { color: #9aa5b4 !important; }
  .line { border-color: #333c49 !important; }
}
</style>
</head>
<body class="page" style="margin:0;padding:0;background:#f3f5f8;color:#1d2733;-webkit-text-size-adjust:100%">
<div style="display:none;max-height:0;overflow:hidden;opacity:0">One click, and your account is ready.</div>
<div class="page" style="padding:32px 16px;background:#f3f5f8;color:#1d2733;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:16px;line-height:1.6">
<div style="max-width:560px;margin:0 auto">
<p style="margin:0 0 16px;padding:0 8px;font-size:18px;font-weight:700">{{ product | default("our service") }}</p>
<div class="card" style="padding:32px 28px;background:#ffffff;border-radius:12px">
<h1 style="margin:0 0 16px;font-size:24px;line-height:1.3">Confirm your email address</h1>
<p style="margin:0 0 16px">Hello{% if name is defined %} {{ name }}{% endif %},</p>
<p style="margin:0 0 16px">please confirm that this address is yours, to finish signing up to {{ product | default("our service") }}.</p>
{% if confirmation_url is defined %}
<p style="margin:24px 0"><a href="{{ confirmation_url }}" style="display:inline-block;padding:14px 24px;background:#1f5fd6;color:#ffffff;font-weight:600;text-decoration:none;border-radius:8px">Confirm address</a></p>
<p style="margin:0 0 16px"><span class="quiet" style="color:#5f6b7a;font-size:14px">If the button does not work, copy this address into your browser:<br><a href="{{ confirmation_url }}" style="color:#1f5fd6;word-break:break-all">{{ confirmation_url }}</a></span></p>
{% endif %}
{% if valid_for is defined %}
<p style="margin:0 0 16px">The link is valid for {{ valid_for }}.</p>
{% endif %}
<p class="quiet line" style="margin:24px 0 0;padding-top:20px;border-top:1px solid #e3e8ee;color:#5f6b7a;font-size:14px">You did not sign up? Then ignore this email: nothing will happen, and we will not write again.</p>
</div>
<div class="quiet" style="padding:20px 8px 0;color:#5f6b7a;font-size:13px;line-height:1.5">
<p style="margin:0">You receive this email because this address was entered at {{ product | default("our service") }}.</p>
</div>
</div>
</div>
</body>
</html>$mail$,
$mail$Hello{% if name is defined %} {{ name }}{% endif %},

please confirm that this address is yours, to finish signing up to {{ product | default("our service") }}.

{% if confirmation_url is defined %}
Confirm address: {{ confirmation_url }}
{% endif %}

{% if valid_for is defined %}
The link is valid for {{ valid_for }}.
{% endif %}

You did not sign up? Then ignore this email: nothing will happen, and we will not write again.

-- 
You receive this email because this address was entered at {{ product | default("our service") }}.$mail$),
($mail$signup_confirmation$mail$, 1, 'pt', false,
$mail$Confirme seu endereço de e-mail{% if product is defined %}: {{ product }}{% endif %}$mail$,
$mail$<!doctype html>
<html lang="pt">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>Confirme seu endereço de e-mail</title>
<style>
@media (prefers-color-scheme: dark) {
  .page { background: #14181f !important; color: #e6e9ee !important; }
  .card { background: #1e242e !important; }
  .quiet { color: #9aa5b4 !important; }
  .line { border-color: #333c49 !important; }
}
</style>
</head>
<body class="page" style="margin:0;padding:0;background:#f3f5f8;color:#1d2733;-webkit-text-size-adjust:100%">
<div style="display:none;max-height:0;overflow:hidden;opacity:0">Um clique, e sua conta está pronta.</div>
<div class="page" style="padding:32px 16px;background:#f3f5f8;color:#1d2733;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:16px;line-height:1.6">
<div style="max-width:560px;margin:0 auto">
<p style="margin:0 0 16px;padding:0 8px;font-size:18px;font-weight:700">{{ product | default("nosso serviço") }}</p>
<div class="card" style="padding:32px 28px;background:#ffffff;border-radius:12px">
<h1 style="margin:0 0 16px;font-size:24px;line-height:1.3">Confirme seu endereço de e-mail</h1>
<p style="margin:0 0 16px">Olá{% if name is defined %}, {{ name }}{% endif %}!</p>
<p style="margin:0 0 16px">Confirme que este endereço é seu para concluir o cadastro{% if product is defined %} em {{ product }}{% endif %}.</p>
{% if confirmation_url is defined %}
<p style="margin:24px 0"><a href="{{ confirmation_url }}" style="display:inline-block;padding:14px 24px;background:#1f5fd6;color:#ffffff;font-weight:600;text-decoration:none;border-radius:8px">Confirmar endereço</a></p>
<p style="margin:0 0 16px"><span class="quiet" style="color:#5f6b7a;font-size:14px">Se o botão não funcionar, copie este endereço no seu navegador:<br><a href="{{ confirmation_url }}" style="color:#1f5fd6;word-break:break-all">{{ confirmation_url }}</a></span></p>
{% endif %}
{% if valid_for is defined %}
<p style="margin:0 0 16px">Validade do link: {{ valid_for }}.</p>
{% endif %}
<p class="quiet line" style="margin:24px 0 0;padding-top:20px;border-top:1px solid #e3e8ee;color:#5f6b7a;font-size:14px">Não foi você? Então ignore este e-mail: nada vai acontecer, e não escreveremos de novo.</p>
</div>
<div class="quiet" style="padding:20px 8px 0;color:#5f6b7a;font-size:13px;line-height:1.5">
<p style="margin:0">Você recebeu este e-mail porque este endereço foi informado no cadastro{% if product is defined %} em {{ product }}{% endif %}.</p>
</div>
</div>
</div>
</body>
</html>$mail$,
$mail$Olá{% if name is defined %}, {{ name }}{% endif %}!

Confirme que este endereço é seu para concluir o cadastro{% if product is defined %} em {{ product }}{% endif %}.

{% if confirmation_url is defined %}
Confirmar endereço: {{ confirmation_url }}
{% endif %}

{% if valid_for is defined %}
Validade do link: {{ valid_for }}.
{% endif %}

Não foi você? Então ignore este e-mail: nada vai acontecer, e não escreveremos de novo.

-- 
Você recebeu este e-mail porque este endereço foi informado no cadastro{% if product is defined %} em {{ product }}{% endif %}.$mail$);

INSERT INTO public.email_templates (template_type, description, on_uncertain, sample) VALUES
($mail$welcome_user$mail$, $mail$Greets a new user. Variables: name (or user_data.full_name), product, url, support_email.$mail$, $mail$hold$mail$, $mail${"name": "Ana", "product": "Acme", "url": "https://acme.example.com/start", "support_email": "help@acme.example.com"}$mail$);

INSERT INTO mailgres.template_versions
(template_type, version, locale, is_default, subject, html, text) VALUES
($mail$welcome_user$mail$, 1, 'en', true,
$mail$Welcome to {{ product | default("our service") }}$mail$,
$mail$<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>Welcome to {{ product | default("our service") }}</title>
<style>
@media (prefers-color-scheme: dark) {
  .page { background: #14181f !important; color: #e6e9ee !important; }
  .card { background: #1e242e !important; }
  .quiet { color: #9aa5b4 !important; }
  .line { border-color: #333c49 !important; }
}
</style>
</head>
<body class="page" style="margin:0;padding:0;background:#f3f5f8;color:#1d2733;-webkit-text-size-adjust:100%">
<div style="display:none;max-height:0;overflow:hidden;opacity:0">Your account is ready. Here is how to get started.</div>
<div class="page" style="padding:32px 16px;background:#f3f5f8;color:#1d2733;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:16px;line-height:1.6">
<div style="max-width:560px;margin:0 auto">
<p style="margin:0 0 16px;padding:0 8px;font-size:18px;font-weight:700">{{ product | default("our service") }}</p>
<div class="card" style="padding:32px 28px;background:#ffffff;border-radius:12px">
<h1 style="margin:0 0 16px;font-size:24px;line-height:1.3">Welcome{% set who = name | default("", true) or (user_data | default({}, true)).full_name | default("", true) %}{% if who %}, {{ who }}{% endif %}!</h1>
<p style="margin:0 0 16px">Thank you for joining {{ product | default("our service") }}. Your account is ready, and you can start right away.</p>
{% if url is defined %}
<p style="margin:24px 0"><a href="{{ url }}" style="display:inline-block;padding:14px 24px;background:#1f5fd6;color:#ffffff;font-weight:600;text-decoration:none;border-radius:8px">Get started</a></p>
<p style="margin:0 0 16px"><span class="quiet" style="color:#5f6b7a;font-size:14px">If the button does not work, copy this address into your browser:<br><a href="{{ url }}" style="color:#1f5fd6;word-break:break-all">{{ url }}</a></span></p>
{% endif %}
<p class="quiet line" style="margin:24px 0 0;padding-top:20px;border-top:1px solid #e3e8ee;color:#5f6b7a;font-size:14px">Questions? {% if support_email is defined %}Write to <a href="mailto:{{ support_email }}" style="color:#1f5fd6">{{ support_email }}</a>.{% else %}Just reply to this email.{% endif %} We are happy to help.</p>
</div>
<div class="quiet" style="padding:20px 8px 0;color:#5f6b7a;font-size:13px;line-height:1.5">
<p style="margin:0">You receive this email because an account at {{ product | default("our service") }} was created with this address.</p>
</div>
</div>
</div>
</body>
</html>$mail$,
$mail$Welcome{% set who = name | default("", true) or (user_data | default({}, true)).full_name | default("", true) %}{% if who %}, {{ who }}{% endif %}!

Thank you for joining {{ product | default("our service") }}. Your account is ready, and you can start right away.

{% if url is defined %}
Get started: {{ url }}
{% endif %}

Questions? {% if support_email is defined %}Write to {{ support_email }}.{% else %}Just reply to this email.{% endif %} We are happy to help.

-- 
You receive this email because an account at {{ product | default("our service") }} was created with this address.$mail$),
($mail$welcome_user$mail$, 1, 'pt', false,
$mail${% if product is defined %}Boas-vindas: {{ product }}{% else %}Boas-vindas ao nosso serviço{% endif %}$mail$,
$mail$<!doctype html>
<html lang="pt">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>Boas-vindas</title>
<style>
@media (prefers-color-scheme: dark) {
  .page { background: #14181f !important; color: #e6e9ee !important; }
  .card { background: #1e242e !important; }
  .quiet { color: #9aa5b4 !important; }
  .line { border-color: #333c49 !important; }
}
</style>
</head>
<body class="page" style="margin:0;padding:0;background:#f3f5f8;color:#1d2733;-webkit-text-size-adjust:100%">
<div style="display:none;max-height:0;overflow:hidden;opacity:0">Sua conta está pronta. Veja como começar.</div>
<div class="page" style="padding:32px 16px;background:#f3f5f8;color:#1d2733;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:16px;line-height:1.6">
<div style="max-width:560px;margin:0 auto">
<p style="margin:0 0 16px;padding:0 8px;font-size:18px;font-weight:700">{{ product | default("nosso serviço") }}</p>
<div class="card" style="padding:32px 28px;background:#ffffff;border-radius:12px">
<h1 style="margin:0 0 16px;font-size:24px;line-height:1.3">Boas-vindas{% set who = name | default("", true) or (user_data | default({}, true)).full_name | default("", true) %}{% if who %}, {{ who }}{% endif %}!</h1>
<p style="margin:0 0 16px">Obrigado por criar uma conta{% if product is defined %} em {{ product }}{% endif %}. Ela está pronta, e você já pode começar.</p>
{% if url is defined %}
<p style="margin:24px 0"><a href="{{ url }}" style="display:inline-block;padding:14px 24px;background:#1f5fd6;color:#ffffff;font-weight:600;text-decoration:none;border-radius:8px">Começar</a></p>
<p style="margin:0 0 16px"><span class="quiet" style="color:#5f6b7a;font-size:14px">Se o botão não funcionar, copie este endereço no seu navegador:<br><a href="{{ url }}" style="color:#1f5fd6;word-break:break-all">{{ url }}</a></span></p>
{% endif %}
<p class="quiet line" style="margin:24px 0 0;padding-top:20px;border-top:1px solid #e3e8ee;color:#5f6b7a;font-size:14px">Dúvidas? {% if support_email is defined %}Escreva para <a href="mailto:{{ support_email }}" style="color:#1f5fd6">{{ support_email }}</a>.{% else %}Basta responder a este e-mail.{% endif %} Teremos prazer em ajudar.</p>
</div>
<div class="quiet" style="padding:20px 8px 0;color:#5f6b7a;font-size:13px;line-height:1.5">
<p style="margin:0">Você recebeu este e-mail porque uma conta{% if product is defined %} em {{ product }}{% endif %} foi criada com este endereço.</p>
</div>
</div>
</div>
</body>
</html>$mail$,
$mail$Boas-vindas{% set who = name | default("", true) or (user_data | default({}, true)).full_name | default("", true) %}{% if who %}, {{ who }}{% endif %}!

Obrigado por criar uma conta{% if product is defined %} em {{ product }}{% endif %}. Ela está pronta, e você já pode começar.

{% if url is defined %}
Começar: {{ url }}
{% endif %}

Dúvidas? {% if support_email is defined %}Escreva para {{ support_email }}.{% else %}Basta responder a este e-mail.{% endif %} Teremos prazer em ajudar.

-- 
Você recebeu este e-mail porque uma conta{% if product is defined %} em {{ product }}{% endif %} foi criada com este endereço.$mail$);
