-- The request that enqueue_email and enqueue_emails share. Its fields are the arguments of
-- enqueue_email without `p_`. Which values a column accepts, from every writer, is in
-- 10_foundation/60_fields.sql.

CREATE TYPE mailgres.request AS (
    user_id             uuid,
    template_type       text,
    recipient_email     text,
    payload             jsonb,
    tenant_id           text,
    priority            int,
    scheduled_for       timestamptz,
    expires_at          timestamptz,
    idempotency_key     text,
    correlation_id      text,
    route               text,
    retry_policy        text,
    max_retries         int,
    retry_delay         interval,
    max_retry_delay     interval,
    from_email          text,
    reply_to            text,
    subject             text,
    html                text,
    text                text,
    headers             jsonb,
    tags                jsonb,
    cc                  text[],
    bcc                 text[],
    attachments         jsonb,
    also_to             text[],
    ignore_suppression  boolean
);

-- An array of {filename, content (base64), content_type?, content_id?}, 40 MB in all.
CREATE FUNCTION mailgres.are_attachments(p_attachments jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN jsonb_typeof(p_attachments) = 'array' AND octet_length(p_attachments::text) <= 56 * 1024 * 1024
    AND NOT EXISTS (
        SELECT FROM jsonb_array_elements(
            CASE WHEN jsonb_typeof(p_attachments) = 'array' THEN p_attachments END) a
        WHERE jsonb_typeof(a) <> 'object'
           OR coalesce(a ->> 'filename', '') !~ '^[^\x01-\x1f\x7f-\x9f\u2028\u2029/\\]{1,255}$'
           OR coalesce(a ->> 'content_type', 'a/b') !~ '^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+$'
           OR coalesce(a ->> 'content_id', 'x') !~ '^[A-Za-z0-9@._-]{1,128}$'
           OR coalesce(a ->> 'content', '?') !~ '^[A-Za-z0-9+/\s]*={0,2}\s*$'
           OR length(regexp_replace(a ->> 'content', '\s', '', 'g')) % 4 <> 0);

COMMENT ON FUNCTION mailgres.are_attachments(jsonb) IS 'Whether this is an array of attachments, 40 MB in all.';
