-- What enqueue_email and enqueue_emails have in common: a request, and what is
-- wrong with it. The fields are the arguments of enqueue_email without `p_`.

CREATE TYPE mailgres.request AS (
    user_id          uuid,
    template_type    text,
    recipient_email  text,
    payload          jsonb,
    tenant_id        text,
    priority         int,
    scheduled_for    timestamptz,
    expires_at       timestamptz,
    idempotency_key  text,
    correlation_id   text,
    route            text,
    retry_policy     text,
    max_retries      int,
    retry_delay      interval,
    max_retry_delay  interval,
    from_email       text,
    reply_to         text,
    subject          text,
    html             text,
    text             text,
    headers          jsonb,
    tags             jsonb,
    cc               text[],
    bcc              text[],
    attachments      jsonb
);

-- An address is a dot-atom of at most 64 characters, @, and a domain of at least two
-- labels, the last of which starts with a letter; at most 254 bytes in all. Letters
-- beyond ASCII are accepted on both sides (RFC 6531); quoted local parts, comments,
-- address literals and display names are not. The classes are written as what is
-- excluded, because what counts as a letter would depend on the collation. U+2028 and
-- U+2029 are line breaks to some programs.
CREATE FUNCTION mailgres.is_address(p_address text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN octet_length(p_address) <= 254
    AND strpos(p_address, '@') <= 65
    AND p_address ~ (
        '^[^\x01-\x20\x7f-\xa0\u2028\u2029"(),.:;<>@\[\\\]]+(?:\.[^\x01-\x20\x7f-\xa0\u2028\u2029"(),.:;<>@\[\\\]]+)*'
        || '@(?:[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029](?:[^\x01-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029]*[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029])?\.)+'
        || '[^\x01-\x40\x5b-\x60\x7b-\xa0\u2028\u2029](?:[^\x01-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029]*[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029])?$');

COMMENT ON FUNCTION mailgres.is_address(text) IS 'Whether a text is one plain email address.';

-- A sender may carry a display name: Example <mail@example.com>.
CREATE FUNCTION mailgres.is_sender(p_sender text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_sender !~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]' AND length(p_sender) <= 320
    AND mailgres.is_address(coalesce(substring(p_sender FROM '^[^<>]*<([^<>]*)>$'), p_sender));

COMMENT ON FUNCTION mailgres.is_sender(text) IS
    'Whether a text is an address, with or without a display name.';

CREATE FUNCTION mailgres.are_addresses(p_addresses text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN cardinality(p_addresses) <= 50
    AND NOT EXISTS (SELECT FROM unnest(p_addresses) a WHERE mailgres.is_address(a) IS NOT TRUE);

-- Header names that mailgres or the provider sets itself must not be given.
CREATE FUNCTION mailgres.are_headers(p_headers jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_typeof(p_headers) = 'object' AND NOT EXISTS (
    SELECT FROM jsonb_each(CASE WHEN jsonb_typeof(p_headers) = 'object' THEN p_headers END) h
    WHERE h.key !~ '^[A-Za-z0-9-]{1,76}$'
       OR lower(h.key) IN ('from', 'to', 'cc', 'bcc', 'subject', 'date', 'message-id', 'reply-to',
                           'sender', 'return-path', 'content-type', 'content-transfer-encoding',
                           'mime-version', 'dkim-signature', 'received')
       OR jsonb_typeof(h.value) <> 'string'
       OR length(h.value #>> '{}') > 998
       OR h.value #>> '{}' ~ '[\x01-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]');

CREATE FUNCTION mailgres.are_tags(p_tags jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_typeof(p_tags) = 'object' AND NOT EXISTS (
    SELECT FROM jsonb_each(CASE WHEN jsonb_typeof(p_tags) = 'object' THEN p_tags END) t
    WHERE t.key !~ '^[A-Za-z0-9_-]{1,255}$'
       OR jsonb_typeof(t.value) <> 'string'
       OR t.value #>> '{}' !~ '^[A-Za-z0-9_-]{1,255}$');

-- An array of {filename, content (base64), content_type?, content_id?}, 40 MB in all.
CREATE FUNCTION mailgres.are_attachments(p_attachments jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
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

COMMENT ON FUNCTION mailgres.are_addresses(text[]) IS 'Whether these are at most 50 plain email addresses.';
COMMENT ON FUNCTION mailgres.are_headers(jsonb) IS 'Whether this is an object of header lines that an email may bring.';
COMMENT ON FUNCTION mailgres.are_tags(jsonb) IS 'Whether this is an object of tags that providers take.';
COMMENT ON FUNCTION mailgres.are_attachments(jsonb) IS 'Whether this is an array of attachments, 40 MB in all.';
