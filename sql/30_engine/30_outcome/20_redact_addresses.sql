-- Providers quote addresses in their texts. Texts that analysts may read have a placeholder
-- instead; the unchanged text is in error_detail, for operators. The @ may be written as in a URL
-- (%40, %2540), in HTML (&#64;), in JSON (\u0040), or with a compatibility character.
-- src/mailgres/safe_errors.py has the same pattern.

CREATE FUNCTION mailgres.redact_addresses(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_replace(left(p_text, 2000),
    '("[^"]*"|[^\s<>"''(),;:][^\s<>"(),;:]*)'
    || '(@|\uff20|\ufe6b|%(25)?40|&#0{0,4}64;|&#x0{0,4}40;|&commat;|\\u0040)[^\s<>"''(),;:]+', '<address>', 'gi');

COMMENT ON FUNCTION mailgres.redact_addresses(text) IS
    'The text with email addresses replaced by a placeholder.';
