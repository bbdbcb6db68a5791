-- Which values the columns of email_queue accept, from every writer: a worker must be able
-- to prepare every email in the queue, or one email would stall others.
--
-- Domains, because a cached plan keeps their checks, and because the error of a table's
-- CHECK quotes the failing row, which has the recipient. The functions run with the rights
-- of the writer; their bodies are parsed when they are created, so no search_path changes
-- their meaning. A check that returns null passes, so each function returns null for null only.
--
-- Every statement that inserts prepares the checks of all columns. So a long check of a column
-- that is usually null is a strict function: it is not inlined, and a null does not call it.

-- An address is a dot-atom of at most 64 characters, @, and a domain of at least two
-- labels, the last of which starts with a letter; at most 254 bytes in all. Letters
-- beyond ASCII are accepted on both sides (RFC 6531); quoted local parts, comments,
-- address literals and display names are not. The character classes exclude characters,
-- because the set of letters depends on the collation. Some programs read U+2028 and U+2029
-- as line breaks. Beyond ASCII, characters that are invisible or can be read in two ways are
-- refused: see mailgres.is_unambiguous().
CREATE FUNCTION mailgres.is_address(p_address text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN octet_length(p_address) <= 254
    AND strpos(p_address, '@') <= 65
    AND (
        -- Most addresses have this simple form, which the pattern below accepts, too; it takes half the time.
        p_address ~ '^[A-Za-z0-9](?:[._+-]?[A-Za-z0-9])*@[A-Za-z0-9](?:[.-]?[A-Za-z0-9])*\.[A-Za-z]+$'
        OR p_address ~ (
            '^[^\x01-\x20\x7f-\xa0\u2028\u2029"(),.:;<>@\[\\\]]+(?:\.[^\x01-\x20\x7f-\xa0\u2028\u2029"(),.:;<>@\[\\\]]+)*'
            || '@(?:[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029](?:[^\x01-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029]*[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029])?\.)+'
            || '[^\x01-\x40\x5b-\x60\x7b-\xa0\u2028\u2029](?:[^\x01-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029]*[^\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\xa0\u2028\u2029])?$')
        AND (p_address !~ '[^\x01-\x7f]' OR mailgres.is_unambiguous(p_address)));

COMMENT ON FUNCTION mailgres.is_address(text) IS 'Whether a text is one plain email address.';

-- A sender may carry a display name: Example <mail@example.com>.
CREATE FUNCTION mailgres.is_sender(p_sender text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN p_sender !~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]' AND length(p_sender) <= 320
    AND mailgres.is_address(coalesce(substring(p_sender FROM '^[^<>]*<([^<>]*)>$'), p_sender));

COMMENT ON FUNCTION mailgres.is_sender(text) IS
    'Whether a text is an address, with or without a display name.';

-- One dimension only: the worker would read an element of a larger array as an array.
CREATE FUNCTION mailgres.are_addresses(p_addresses text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN cardinality(p_addresses) <= 50
    AND coalesce(array_ndims(p_addresses) = 1 AND array_lower(p_addresses, 1) = 1, true)
    AND NOT EXISTS (SELECT FROM unnest(p_addresses) a WHERE mailgres.is_address(a) IS NOT TRUE);

COMMENT ON FUNCTION mailgres.are_addresses(text[]) IS
    'Whether these are at most 50 plain email addresses in an array of one dimension.';

-- Headers that mailgres, a server or a provider sets itself or acts on are refused:
-- src/mailgres/providers/header.py has the same list.
CREATE FUNCTION mailgres.are_headers(p_headers jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN jsonb_typeof(p_headers) = 'object' THEN
    octet_length(p_headers::text) <= 16384
    AND jsonb_array_length(jsonb_path_query_array(p_headers, '$.keyvalue()')) <= 50
    AND NOT jsonb_path_exists(p_headers, '$.keyvalue() ? (
        !(@.key like_regex "^[A-Za-z0-9-]{1,76}$")
        || @.key like_regex "^(?:from|to|cc|bcc|subject|date|message-id|reply-to|sender|return-path|mime-version|delivered-to|dkim-signature|domainkey-signature|authentication-results|x-smtpapi|x-msys-api|received(?:-.*)?|(?:resent|content|arc|x-ses|x-mc|x-pm|x-mailgun|x-mj|x-mailin|x-sg)-.*)$" flag "i"
        || @.value.type() != "string"
        || @.value like_regex "[\u0001-\u0008\u000a-\u001f\u007f-\u009f\u2028\u2029]")')
    WHEN p_headers IS NOT NULL THEN false END;

COMMENT ON FUNCTION mailgres.are_headers(jsonb) IS
    'Whether this is an object of at most 50 headers that an email may set, 16 KB in all.';

CREATE FUNCTION mailgres.are_tags(p_tags jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN jsonb_typeof(p_tags) = 'object' THEN
    jsonb_array_length(jsonb_path_query_array(p_tags, '$.keyvalue()')) <= 40
    AND NOT jsonb_path_exists(p_tags, '$.keyvalue() ? (
        !(@.key like_regex "^[A-Za-z0-9_-]{1,255}$")
        || @.value.type() != "string"
        || !(@.value like_regex "^[A-Za-z0-9_-]{1,255}$"))')
    WHEN p_tags IS NOT NULL THEN false END;

COMMENT ON FUNCTION mailgres.are_tags(jsonb) IS
    'Whether this is an object of at most 40 tags that providers accept.';

CREATE FUNCTION mailgres.is_subject(p_subject text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN length(p_subject) BETWEEN 1 AND 998 AND p_subject !~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]';

COMMENT ON FUNCTION mailgres.is_subject(text) IS 'Whether a text is a subject: one line of at most 998 characters.';

CREATE DOMAIN mailgres.template_name AS text
    CONSTRAINT is_a_name CHECK (octet_length(VALUE) BETWEEN 1 AND 100);
CREATE DOMAIN mailgres.tenant AS text COLLATE "C"
    CONSTRAINT is_a_name CHECK (length(VALUE) BETWEEN 1 AND 200);
CREATE DOMAIN mailgres.key AS text
    CONSTRAINT is_short CHECK (length(VALUE) BETWEEN 1 AND 256);
CREATE DOMAIN mailgres.address AS text
    CONSTRAINT is_an_address CHECK (mailgres.is_address(VALUE));
CREATE DOMAIN mailgres.sender AS text
    CONSTRAINT is_a_sender CHECK (mailgres.is_sender(VALUE));
CREATE DOMAIN mailgres.addresses AS text[]
    CONSTRAINT are_addresses CHECK (mailgres.are_addresses(VALUE));
CREATE DOMAIN mailgres.more_addresses AS mailgres.addresses
    CONSTRAINT are_at_most_49 CHECK (cardinality(VALUE) <= 49);  -- providers accept 50 with recipient_email
CREATE DOMAIN mailgres.headers AS jsonb
    CONSTRAINT are_headers CHECK (mailgres.are_headers(VALUE));
CREATE DOMAIN mailgres.tags AS jsonb
    CONSTRAINT are_tags CHECK (mailgres.are_tags(VALUE));
CREATE DOMAIN mailgres.subject AS text
    CONSTRAINT is_one_line CHECK (mailgres.is_subject(VALUE));
CREATE DOMAIN mailgres.body AS text
    CONSTRAINT is_at_most_5_mib CHECK (octet_length(VALUE) <= 5242880);
-- The largest size that 1 MiB of text can have as jsonb, and some more. The || makes it a value
-- in memory, whose size is that of its content: a compressed value of another table looks small.
CREATE DOMAIN mailgres.payload AS jsonb
    CONSTRAINT is_an_object CHECK (CASE WHEN jsonb_typeof(VALUE) = 'object'
        THEN pg_column_size(VALUE || '{}') <= 8388608 ELSE VALUE IS NULL END);
CREATE DOMAIN mailgres.delay AS interval
    CONSTRAINT is_at_most_30_days CHECK (VALUE BETWEEN '0' AND '30 days');
CREATE DOMAIN mailgres.priority AS smallint CHECK (VALUE BETWEEN 1 AND 9);
-- Limited, so that a sum with it does not overflow.
CREATE DOMAIN mailgres.count AS int CHECK (VALUE BETWEEN 0 AND 1000000000);
CREATE DOMAIN mailgres.most_retries AS int CHECK (VALUE BETWEEN 0 AND 100);
-- A time for arithmetic, and one that programs can read: infinity would make claims, janitors
-- and figures fail for all emails. The time that an email waits for may be infinite.
CREATE DOMAIN mailgres.moment AS timestamptz
    CONSTRAINT is_in_years_1_to_9999
    CHECK (VALUE <@ tstzrange '[0001-01-01 00:00:00+00, 10000-01-01 00:00:00+00)');
