-- One mailbox has many spellings: Ana@Example.com, ana@bücher.example and its A-label
-- ana@xn--bcher-kva.example, full-width letters, a zero-width space that nobody sees. The
-- form that all of them have in common is what suppressions and allowed senders are
-- compared by. It is not the address that is written to.
--
-- Most addresses are ASCII and need no more than lower(), by the rules of C: a Turkish I has no
-- dot in lower case. The functions below are called for the others only. PostgreSQL has no punycode (RFC 3492), so it is written out.

-- Characters that are not seen (Default_Ignorable_Code_Point), and the marks that change
-- the direction of what follows.
CREATE FUNCTION mailgres.invisible_characters() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '[\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e'
    || '\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff'
    || '\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]';

COMMENT ON FUNCTION mailgres.invisible_characters() IS
    'A pattern of the characters that an address must not hold because nobody sees them.';

-- Compatibility characters (NFKC changes them: full-width, circled, mathematical letters,
-- ligatures) are read as plain ones by some programs and not by others. In a database of
-- another encoding than UTF8 there is no way to tell, so an address is ASCII there.
CREATE FUNCTION mailgres.is_unambiguous(p_text text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN CASE WHEN getdatabaseencoding() = 'UTF8' THEN
    p_text !~ mailgres.invisible_characters()
    AND p_text !~ '\u3002'  -- a full stop to IDNA
    AND normalize(p_text, NFKC) = normalize(p_text, NFC)
    ELSE false END;

COMMENT ON FUNCTION mailgres.is_unambiguous(text) IS
    'Whether a text beyond ASCII has no invisible and no compatibility characters.';

-- lower() knows ASCII only where the database has the locale C.
CREATE FUNCTION mailgres.lower_unicode(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN lower(p_text COLLATE pg_catalog."und-x-icu");
EXCEPTION
    WHEN undefined_object OR feature_not_supported THEN  -- a server without ICU
        RETURN lower(p_text);
END
$$;

COMMENT ON FUNCTION mailgres.lower_unicode(text) IS
    'The text in lower case, letters beyond ASCII included, whatever the locale of the database.';

CREATE FUNCTION mailgres.punycode(p_label text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    c_digits  constant text := 'abcdefghijklmnopqrstuvwxyz0123456789';
    v_points  constant int[] := ARRAY(SELECT ascii(c) FROM string_to_table(p_label, NULL) c);
    v_coded   text := regexp_replace(p_label, E'[^\\x01-\\x7f]', '', 'g');
    v_basic   constant int := length(v_coded);
    v_done    int := v_basic;
    v_next    int := 128;
    v_delta   bigint := 0;
    v_bias    int := 72;
    v_least   int;
    v_point   int;
    v_rest    bigint;
    v_k       int;
    v_t       int;
BEGIN
    IF v_basic > 0 THEN
        v_coded := v_coded || '-';
    END IF;
    WHILE v_done < cardinality(v_points) LOOP
        v_least := (SELECT min(p) FROM unnest(v_points) p WHERE p >= v_next);
        v_delta := v_delta + (v_least - v_next)::bigint * (v_done + 1);
        v_next := v_least;
        FOREACH v_point IN ARRAY v_points LOOP
            v_delta := v_delta + (v_point < v_next)::int;
            CONTINUE WHEN v_point <> v_next;
            v_rest := v_delta;
            v_k := 36;
            LOOP
                v_t := least(greatest(v_k - v_bias, 1), 26);
                EXIT WHEN v_rest < v_t;
                v_coded := v_coded || substr(c_digits, (v_t + (v_rest - v_t) % (36 - v_t))::int + 1, 1);
                v_rest := (v_rest - v_t) / (36 - v_t);
                v_k := v_k + 36;
            END LOOP;
            v_coded := v_coded || substr(c_digits, v_rest::int + 1, 1);
            -- how far the next one is likely to be
            v_delta := CASE WHEN v_done = v_basic THEN v_delta / 700 ELSE v_delta / 2 END;
            v_done := v_done + 1;
            v_delta := v_delta + v_delta / v_done;
            v_bias := 0;
            WHILE v_delta > 455 LOOP
                v_delta := v_delta / 35;
                v_bias := v_bias + 36;
            END LOOP;
            v_bias := v_bias + (36 * v_delta / (v_delta + 38))::int;
            v_delta := 0;
        END LOOP;
        v_delta := v_delta + 1;
        v_next := v_next + 1;
    END LOOP;
    RETURN v_coded;
END
$$;

COMMENT ON FUNCTION mailgres.punycode(text) IS 'One label of a domain in punycode (RFC 3492), without xn--.';

CREATE FUNCTION mailgres.canonical_unicode(p_address text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    c_longest  constant int := 2000;  -- no address is as long; what is longer costs no time
    v_address  text;
    v_domain   text;
BEGIN
    IF getdatabaseencoding() <> 'UTF8' OR octet_length(p_address) > c_longest THEN
        RETURN lower(p_address COLLATE "C");
    END IF;
    v_address := normalize(mailgres.lower_unicode(
        regexp_replace(normalize(p_address, NFKC), mailgres.invisible_characters(), '', 'g')), NFKC);
    v_domain := regexp_replace(substring(v_address FROM '[^@]*$'), E'\\u3002', '.', 'g');
    RETURN left(v_address, -length(substring(v_address FROM '[^@]*$'))) || (
        SELECT string_agg(
            CASE WHEN octet_length(l.label) > length(l.label) THEN 'xn--' || mailgres.punycode(l.label)
                 ELSE l.label END, '.' ORDER BY l.place)
        FROM string_to_table(v_domain, '.') WITH ORDINALITY l(label, place));
END
$$;

COMMENT ON FUNCTION mailgres.canonical_unicode(text) IS
    'An address beyond ASCII in the form by which addresses are compared.';

CREATE FUNCTION mailgres.canonical_address(p_address text) RETURNS text
    LANGUAGE sql IMMUTABLE
RETURN CASE WHEN octet_length(p_address) = length(p_address) THEN lower(p_address COLLATE "C")
            ELSE mailgres.canonical_unicode(p_address) END;

COMMENT ON FUNCTION mailgres.canonical_address(text) IS
    'The form by which addresses are compared: lower case, the domain in A-labels. A text without @ is taken for a domain.';
