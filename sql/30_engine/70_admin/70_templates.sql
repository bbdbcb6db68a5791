-- Templates are pushed: new content becomes a version that never changes, the same content again
-- changes nothing. Content is {locale: {subject, html, text}}; html is optional, text is not,
-- because every email has a text part.

CREATE FUNCTION mailgres.template_contents(p_template_type text, p_version int) RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN (
    SELECT jsonb_object_agg(v.locale, jsonb_build_object(
        'subject', v.subject, 'html', v.html, 'text', v.text, 'default', v.is_default))
    FROM mailgres.template_versions v
    WHERE v.template_type = p_template_type AND v.version = p_version);

COMMENT ON FUNCTION mailgres.template_contents(text, int) IS
    'The content of a version of a template, by locale; null if there is no such version.';

-- Removes white space at the end and empty lines at the start, and makes line ends uniform, so that
-- files and database can be compared.
CREATE FUNCTION mailgres.clean_source(p_source text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN nullif(rtrim(regexp_replace(replace(p_source, E'\r\n', E'\n'), '^([ \t]*\n)+', ''), E' \t\r\n'), '');

COMMENT ON FUNCTION mailgres.clean_source(text) IS 'A part of a template in the form in which it is stored; null if it is empty.';

CREATE FUNCTION mailgres.fault_of_contents(p_contents jsonb) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF jsonb_typeof(p_contents) IS DISTINCT FROM 'object' OR p_contents = '{}' THEN
        RETURN 'the contents are not an object with a locale or more';
    END IF;
    RETURN (
        SELECT format('the content for %L %s', e.key, f.fault)
        FROM jsonb_each(p_contents) e
        CROSS JOIN LATERAL (SELECT CASE
            WHEN e.key !~ '^[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*$' THEN 'is for no locale such as en or pt-BR'
            WHEN jsonb_typeof(e.value) <> 'object' THEN 'is not an object'
            WHEN e.value - '{subject,html,text}'::text[] <> '{}' THEN 'has more than subject, html and text'
            WHEN jsonb_path_exists(e.value, '$.* ? (@.type() != "string" && @.type() != "null")')
                THEN 'has a part that is not a string'
            WHEN mailgres.clean_source(e.value ->> 'subject') IS NULL THEN 'has no subject'
            WHEN mailgres.clean_source(e.value ->> 'subject') ~ E'[\n\r]' THEN 'has a subject of several lines'
            WHEN mailgres.clean_source(e.value ->> 'text') IS NULL THEN 'has no text'
            WHEN octet_length(e.value ->> 'subject') > 4096 OR octet_length(e.value ->> 'html') > 524288
                 OR octet_length(e.value ->> 'text') > 524288 THEN 'is too long'
        END AS fault) f
        WHERE f.fault IS NOT NULL
        ORDER BY e.key LIMIT 1);
END
$$;

COMMENT ON FUNCTION mailgres.fault_of_contents(jsonb) IS 'What is wrong with the contents of a template, or null.';

CREATE FUNCTION mailgres.fault_of_settings(t public.email_templates) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE
        WHEN array_position(t.required_variables, NULL) IS NOT NULL THEN 'required_variables holds a null'
        WHEN NOT mailgres.is_sender(t.from_email) THEN 'from_email is not an email address'
        WHEN NOT mailgres.is_sender(t.reply_to) THEN 'reply_to is not an email address'
        WHEN t.route IS NOT NULL AND NOT EXISTS (
            SELECT FROM mailgres.routes r WHERE r.route = t.route) THEN format('there is no route %L', t.route)
        WHEN t.retry_policy IS NOT NULL AND NOT EXISTS (
            SELECT FROM mailgres.retry_policies p WHERE p.name = t.retry_policy)
            THEN format('there is no retry policy %L', t.retry_policy)
        WHEN t.priority NOT BETWEEN 1 AND 9 THEN 'priority is not 1 (urgent) to 9 (bulk)'
        WHEN t.expires_after <= '0' THEN 'expires_after is not positive'
        WHEN t.on_uncertain NOT IN ('hold', 'resend') THEN 'on_uncertain is neither hold nor resend'
        WHEN jsonb_typeof(t.sample) <> 'object' THEN 'sample is not an object'
    END;
END
$$;

COMMENT ON FUNCTION mailgres.fault_of_settings(public.email_templates) IS
    'What is wrong with the settings of a template, or null.';

-- Settings that are given replace those of the template; null sets the default.
CREATE FUNCTION mailgres.with_settings(t public.email_templates, p_settings jsonb) RETURNS public.email_templates
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c_keys constant text[] := '{description,required_variables,from_email,reply_to,route,priority,
        retry_policy,expires_after,on_uncertain,sample}';
    v_fault text;
BEGIN
    IF jsonb_typeof(p_settings) IS DISTINCT FROM 'object' OR p_settings - c_keys <> '{}' THEN
        v_fault := 'the settings are not an object, or have an unknown key';
    ELSE
        BEGIN
            t := jsonb_populate_record(t, p_settings);
            t.description := coalesce(t.description, '');
            t.required_variables := coalesce(t.required_variables, '{}');
            t.on_uncertain := coalesce(t.on_uncertain, 'hold');
            t.sample := coalesce(t.sample, '{}');
            v_fault := mailgres.fault_of_settings(t);
        EXCEPTION WHEN data_exception THEN
            v_fault := format('a setting has the wrong type: %s', SQLERRM);
        END;
    END IF;
    IF v_fault IS NOT NULL THEN
        PERFORM mailgres.refuse('MG060', format('template %L: %s', t.template_type, v_fault),
            format('The settings are %s.', array_to_string(c_keys, ', ')));
    END IF;
    RETURN t;
END
$$;

COMMENT ON FUNCTION mailgres.with_settings(public.email_templates, jsonb) IS 'The template with the given settings.';

CREATE FUNCTION mailgres.add_version(p_template_type text, p_contents jsonb, p_default_locale text) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_version constant int := 1 + coalesce((
        SELECT max(v.version) FROM mailgres.template_versions v WHERE v.template_type = p_template_type), 0);
BEGIN
    INSERT INTO mailgres.template_versions (template_type, version, locale, subject, html, text, is_default)
    SELECT p_template_type, v_version, c.key, c.value ->> 'subject', c.value ->> 'html', c.value ->> 'text',
           c.key = p_default_locale
    FROM jsonb_each(p_contents) c;
    RETURN v_version;
END
$$;

COMMENT ON FUNCTION mailgres.add_version(text, jsonb, text) IS 'Writes the next version of a template.';

CREATE FUNCTION mailgres.push_template(
    p_template_type text,
    p_contents jsonb,
    p_settings jsonb DEFAULT '{}',
    p_default_locale text DEFAULT NULL
) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_fault     text := mailgres.fault_of_contents(p_contents);
    v_default   text;
    v_contents  jsonb;
    v_before    public.email_templates;
    v_after     public.email_templates;
BEGIN
    IF (p_template_type ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$') IS NOT TRUE THEN
        v_fault := 'a name has letters, digits and _ . : -, at most 100, and begins with a letter or digit';
    ELSIF v_fault IS NULL AND NOT p_contents ? p_default_locale THEN
        v_fault := format('there is no content for the default locale %L', p_default_locale);
    END IF;
    IF v_fault IS NOT NULL THEN
        PERFORM mailgres.refuse('MG060', format('template %L: %s', p_template_type, v_fault),
            'The contents are {locale: {subject, html, text}}: a subject of one line, a text, and html or none; at most 512 KiB each.');
    END IF;

    SELECT coalesce(p_default_locale, min(c.key) FILTER (WHERE c.key = 'en'), min(c.key)) INTO v_default
    FROM jsonb_each(p_contents) c;
    SELECT jsonb_object_agg(c.key, jsonb_build_object(
        'subject', ltrim(mailgres.clean_source(c.value ->> 'subject')), 'html', mailgres.clean_source(c.value ->> 'html'),
        'text', mailgres.clean_source(c.value ->> 'text'), 'default', c.key = v_default)) INTO v_contents
    FROM jsonb_each(p_contents) c;

    -- A session that pushes the same template at the same time waits here and then sees this version.
    INSERT INTO public.email_templates (template_type) VALUES (p_template_type) ON CONFLICT DO NOTHING;
    SELECT * INTO v_before FROM public.email_templates t WHERE t.template_type = p_template_type FOR UPDATE;
    v_after := mailgres.with_settings(v_before, p_settings);
    v_after.retired_at := NULL;
    IF mailgres.template_contents(p_template_type, v_before.active_version) IS DISTINCT FROM v_contents THEN
        v_after.active_version := mailgres.add_version(p_template_type, v_contents, v_default);
    END IF;

    IF v_after IS DISTINCT FROM v_before THEN
        UPDATE public.email_templates t
        SET (description, active_version, required_variables, from_email, reply_to, route, priority,
             retry_policy, expires_after, on_uncertain, sample, retired_at, updated_at)
            = (v_after.description, v_after.active_version, v_after.required_variables, v_after.from_email,
               v_after.reply_to, v_after.route, v_after.priority, v_after.retry_policy, v_after.expires_after,
               v_after.on_uncertain, v_after.sample, v_after.retired_at, mailgres.now())
        WHERE t.template_type = p_template_type;
    END IF;
    RETURN v_after.active_version;
END
$$;

COMMENT ON FUNCTION mailgres.push_template(text, jsonb, jsonb, text) IS
    'Makes this the active content of a template and returns its version: a new one only if it differs. Settings that are given replace those of the template.';

-- Versions never change, so going back only moves the pointer. Emails that were attempted before keep
-- the version of their first attempt.
CREATE FUNCTION mailgres.activate_version(p_template_type text, p_version int, p_required_variables text[])
    RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_before int;
BEGIN
    SELECT t.active_version INTO v_before FROM public.email_templates t
    WHERE t.template_type = p_template_type FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM mailgres.refuse('MG001', format('there is no template %L', p_template_type),
            'Look for its name in email_templates.');
    ELSIF NOT EXISTS (SELECT FROM mailgres.template_versions v
                      WHERE v.template_type = p_template_type AND v.version = p_version) THEN
        PERFORM mailgres.refuse('MG060', format('template %L has no version %s', p_template_type, p_version),
            'Look for its versions in mailgres.template_versions.');
    END IF;
    UPDATE public.email_templates t
    SET active_version = p_version, required_variables = coalesce(p_required_variables, t.required_variables),
        updated_at = mailgres.now()
    WHERE t.template_type = p_template_type AND t.active_version <> p_version;
    RETURN v_before;
END
$$;

COMMENT ON FUNCTION mailgres.activate_version(text, int, text[]) IS
    'Makes a version of a template the active one, with the variables that it needs, and returns the version that was active.';

CREATE FUNCTION mailgres.retire_template(p_template_type text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE public.email_templates t SET retired_at = mailgres.now(), updated_at = mailgres.now()
    WHERE t.template_type = p_template_type AND t.retired_at IS NULL;
    IF FOUND THEN
        RETURN true;
    END IF;
    IF NOT EXISTS (SELECT FROM public.email_templates t WHERE t.template_type = p_template_type) THEN
        PERFORM mailgres.refuse('MG001', format('there is no template %L', p_template_type),
            'Look for its name in email_templates.');
    END IF;
    RETURN false;
END
$$;

COMMENT ON FUNCTION mailgres.retire_template(text) IS
    'Refuses new emails for a template; those in the queue are still sent. False if it was retired before.';
