-- What the Python API asks. Every parameter says its type, because not every driver does; times go
-- as text first, because asyncpg would insist on objects that others send differently.

-- enqueue --
SELECT public.enqueue_email(
    p_user_id => CAST(%(user_id)s AS uuid),
    p_template_type => CAST(%(template_type)s AS text),
    p_recipient_email => CAST(%(recipient_email)s AS text),
    p_payload => CAST(%(payload)s AS jsonb),
    p_tenant_id => CAST(%(tenant_id)s AS text),
    p_priority => CAST(%(priority)s AS int),
    p_scheduled_for => CAST(CAST(%(scheduled_for)s AS text) AS timestamptz),
    p_expires_at => CAST(CAST(%(expires_at)s AS text) AS timestamptz),
    p_idempotency_key => CAST(%(idempotency_key)s AS text),
    p_correlation_id => CAST(%(correlation_id)s AS text),
    p_route => CAST(%(route)s AS text),
    p_retry_policy => CAST(%(retry_policy)s AS text),
    p_max_retries => CAST(%(max_retries)s AS int),
    p_retry_delay => CAST(CAST(%(retry_delay)s AS text) AS interval),
    p_max_retry_delay => CAST(CAST(%(max_retry_delay)s AS text) AS interval),
    p_from_email => CAST(%(from_email)s AS text),
    p_reply_to => CAST(%(reply_to)s AS text),
    p_subject => CAST(%(subject)s AS text),
    p_html => CAST(%(html)s AS text),
    p_text => CAST(%(text)s AS text),
    p_headers => CAST(%(headers)s AS jsonb),
    p_tags => CAST(%(tags)s AS jsonb),
    p_cc => CAST(%(cc)s AS text[]),
    p_bcc => CAST(%(bcc)s AS text[]),
    p_attachments => CAST(%(attachments)s AS jsonb))

-- enqueue_many --
SELECT public.enqueue_emails(CAST(%(emails)s AS jsonb))

-- savepoint --
SAVEPOINT mailgres_enqueue_many

-- rollback_to_savepoint --
ROLLBACK TO SAVEPOINT mailgres_enqueue_many

-- release_savepoint --
RELEASE SAVEPOINT mailgres_enqueue_many

-- cancel --
SELECT public.cancel_email(CAST(%(email_id)s AS uuid), CAST(%(reason)s AS text))

-- retry --
SELECT public.retry_email(CAST(%(email_id)s AS uuid), CAST(%(accept_duplicate)s AS boolean))

-- reschedule --
SELECT public.reschedule_email(CAST(%(email_id)s AS uuid), CAST(CAST(%(scheduled_for)s AS text) AS timestamptz))
