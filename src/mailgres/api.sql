-- Queries of the Python API. Every parameter has an explicit type, because not every driver sends one;
-- times go as text first, because asyncpg would insist on objects that others send differently. The
-- connection is the application's, and so is its search_path: every name has its schema, and no
-- operator is used.

-- enqueue --
SELECT public.enqueue_email(
    p_user_id => CAST(%(user_id)s AS pg_catalog.uuid),
    p_template_type => CAST(%(template_type)s AS pg_catalog.text),
    p_recipient_email => CAST(%(recipient_email)s AS pg_catalog.text),
    p_payload => CAST(%(payload)s AS pg_catalog.jsonb),
    p_tenant_id => CAST(%(tenant_id)s AS pg_catalog.text),
    p_priority => CAST(%(priority)s AS int),
    p_scheduled_for => CAST(CAST(%(scheduled_for)s AS pg_catalog.text) AS pg_catalog.timestamptz),
    p_expires_at => CAST(CAST(%(expires_at)s AS pg_catalog.text) AS pg_catalog.timestamptz),
    p_idempotency_key => CAST(%(idempotency_key)s AS pg_catalog.text),
    p_correlation_id => CAST(%(correlation_id)s AS pg_catalog.text),
    p_route => CAST(%(route)s AS pg_catalog.text),
    p_retry_policy => CAST(%(retry_policy)s AS pg_catalog.text),
    p_max_retries => CAST(%(max_retries)s AS int),
    p_retry_delay => CAST(CAST(%(retry_delay)s AS pg_catalog.text) AS interval),
    p_max_retry_delay => CAST(CAST(%(max_retry_delay)s AS pg_catalog.text) AS interval),
    p_from_email => CAST(%(from_email)s AS pg_catalog.text),
    p_reply_to => CAST(%(reply_to)s AS pg_catalog.text),
    p_subject => CAST(%(subject)s AS pg_catalog.text),
    p_html => CAST(%(html)s AS pg_catalog.text),
    p_text => CAST(%(text)s AS pg_catalog.text),
    p_headers => CAST(%(headers)s AS pg_catalog.jsonb),
    p_tags => CAST(%(tags)s AS pg_catalog.jsonb),
    p_cc => CAST(%(cc)s AS pg_catalog.text[]),
    p_bcc => CAST(%(bcc)s AS pg_catalog.text[]),
    p_attachments => CAST(%(attachments)s AS pg_catalog.jsonb),
    p_also_to => CAST(%(also_to)s AS pg_catalog.text[]),
    p_ignore_suppression => CAST(%(ignore_suppression)s AS boolean))

-- enqueue_many --
SELECT public.enqueue_emails(CAST(%(emails)s AS pg_catalog.jsonb))

-- savepoint --
SAVEPOINT mailgres_enqueue_many

-- rollback_to_savepoint --
ROLLBACK TO SAVEPOINT mailgres_enqueue_many

-- release_savepoint --
RELEASE SAVEPOINT mailgres_enqueue_many

-- cancel --
SELECT public.cancel_email(CAST(%(email_id)s AS pg_catalog.uuid), CAST(%(reason)s AS pg_catalog.text))

-- retry --
SELECT public.retry_email(CAST(%(email_id)s AS pg_catalog.uuid), CAST(%(accept_duplicate)s AS boolean))

-- reschedule --
SELECT public.reschedule_email(CAST(%(email_id)s AS pg_catalog.uuid), CAST(CAST(%(scheduled_for)s AS pg_catalog.text) AS pg_catalog.timestamptz))
