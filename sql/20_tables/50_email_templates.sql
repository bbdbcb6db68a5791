-- A template is a row with its settings. Its content is in immutable versions, one row
-- for each locale, so that every retry of an email renders exactly the same as its first
-- attempt.

CREATE TABLE public.email_templates (
    template_type       text PRIMARY KEY CHECK (template_type ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$'),
    description         text NOT NULL DEFAULT '',
    active_version      int NOT NULL DEFAULT 1 CHECK (active_version > 0),
    required_variables  text[] NOT NULL DEFAULT '{}',
    from_email          text,
    reply_to            text,
    route               text REFERENCES mailgres.routes,
    priority            smallint CHECK (priority BETWEEN 1 AND 9),
    retry_policy        text REFERENCES mailgres.retry_policies,
    expires_after       interval CHECK (expires_after > '0' AND expires_after <= '1000 years'),
    on_uncertain        text NOT NULL DEFAULT 'hold' CHECK (on_uncertain IN ('hold', 'resend')),
    sample              jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(sample) = 'object'),
    retired_at          timestamptz,
    created_at          timestamptz NOT NULL DEFAULT mailgres.now(),
    updated_at          timestamptz NOT NULL DEFAULT mailgres.now()
);

COMMENT ON TABLE public.email_templates IS
    'Templates and their settings; the content of each version is in mailgres.template_versions.';
COMMENT ON COLUMN public.email_templates.required_variables IS
    'Keys that the payload must have; checked when an email is enqueued.';
COMMENT ON COLUMN public.email_templates.on_uncertain IS
    'What to do when a provider without idempotency keys may or may not have sent an email: hold (a person decides) or resend (a duplicate is acceptable).';
COMMENT ON COLUMN public.email_templates.sample IS
    'A payload for previews of the template; invented data, never a real person''s.';
COMMENT ON COLUMN public.email_templates.retired_at IS
    'Since when no new email may use the template; emails in the queue are still sent.';

CREATE TABLE mailgres.template_versions (
    template_type  text NOT NULL REFERENCES public.email_templates,
    version        int NOT NULL CHECK (version > 0),
    locale         text NOT NULL DEFAULT 'en' CHECK (locale ~ '^[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*$'),
    subject        text NOT NULL CHECK (subject <> '' AND subject !~ '[\n\r]'),
    html           text,
    text           text NOT NULL CHECK (text <> ''),
    is_default     boolean NOT NULL DEFAULT false,
    created_at     timestamptz NOT NULL DEFAULT mailgres.now(),
    PRIMARY KEY (template_type, version, locale)
);

CREATE UNIQUE INDEX template_versions_one_default ON mailgres.template_versions (template_type, version)
    WHERE is_default;

COMMENT ON TABLE mailgres.template_versions IS 'The content of a template: immutable.';
COMMENT ON COLUMN mailgres.template_versions.is_default IS
    'Whether this locale is used when the requested one does not exist.';

CREATE FUNCTION mailgres.forbid_change() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM mailgres.refuse(
        'MG040',
        format('rows of %I.%I are never changed', TG_TABLE_SCHEMA, TG_TABLE_NAME),
        'Add a new row instead: a new version of a template, a new entry of a log.');
    RETURN NULL;
END
$$;

CREATE TRIGGER template_versions_are_immutable
    BEFORE UPDATE OR DELETE OR TRUNCATE ON mailgres.template_versions
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.forbid_change();
