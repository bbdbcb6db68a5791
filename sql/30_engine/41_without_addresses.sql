-- Providers quote addresses in their texts. What analysts may read has a
-- placeholder instead; the text as it came is in error_detail, for operators.

CREATE FUNCTION mailgres.without_addresses(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_replace(left(p_text, 2000), '("[^"]*"|[^\s<>"''(),;:][^\s<>"(),;:]*)(@|%40)[^\s<>"''(),;:]+', '<address>', 'gi');

COMMENT ON FUNCTION mailgres.without_addresses(text) IS
    'The text with email addresses replaced by a placeholder.';
