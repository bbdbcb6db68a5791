-- Queries about templates.

-- template_contents --
SELECT mailgres.template_contents(%(name)s, %(version)s)

-- template_row --
SELECT to_jsonb(t) - 'updated_at' FROM public.email_templates t WHERE t.template_type = %(name)s

-- push_template --
SELECT mailgres.push_template(%(name)s, %(contents)s, %(settings)s, %(default_locale)s)

-- activate_version --
SELECT mailgres.activate_version(%(name)s, %(version)s, %(required)s::text[])

-- retire_template --
SELECT mailgres.retire_template(%(name)s)

-- list_templates --
SELECT t.template_type, t.active_version, t.description, t.required_variables, t.from_email, t.reply_to, t.route,
       t.priority, t.retry_policy, t.expires_after::text, t.on_uncertain, t.sample, t.retired_at, t.updated_at,
       ARRAY(SELECT v.locale FROM mailgres.template_versions v
             WHERE v.template_type = t.template_type AND v.version = t.active_version
             ORDER BY NOT v.is_default, v.locale) AS locales,
       ARRAY(SELECT DISTINCT v.version FROM mailgres.template_versions v
             WHERE v.template_type = t.template_type ORDER BY v.version) AS versions
FROM public.email_templates t
WHERE %(name)s::text IS NULL OR t.template_type = %(name)s
ORDER BY t.template_type
