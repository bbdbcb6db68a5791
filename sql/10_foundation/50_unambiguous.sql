-- Invisible characters (Default_Ignorable_Code_Point), and the marks that change the
-- direction of the text after them.
CREATE FUNCTION mailgres.invisible_characters() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '[\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e'
    || '\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff'
    || '\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]';

COMMENT ON FUNCTION mailgres.invisible_characters() IS
    'A pattern of the characters that an address must not contain because they are invisible.';

-- Some programs read compatibility characters (NFKC changes them: full-width, circled and
-- mathematical letters, ligatures) as plain characters and others do not. They cannot be
-- detected in a database whose encoding is not UTF8, so there an address must be ASCII.
CREATE FUNCTION mailgres.is_unambiguous(p_text text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN CASE WHEN getdatabaseencoding() = 'UTF8' THEN
    p_text !~ mailgres.invisible_characters()
    AND p_text !~ '\u3002'  -- IDNA reads it as a full stop
    AND normalize(p_text, NFKC) = normalize(p_text, NFC)
    ELSE false END;

COMMENT ON FUNCTION mailgres.is_unambiguous(text) IS
    'Whether a text beyond ASCII has no invisible and no compatibility characters.';
