-- One mailbox has many spellings: Ana@Example.com, ana@bücher.example and its A-label
-- ana@xn--bcher-kva.example, full-width letters, an invisible zero-width space. Suppressions
-- and allowed senders are compared in a canonical form that all spellings share. Emails are
-- sent to the address as it was given, not to its canonical form.
--
-- Most addresses are ASCII and need only lower() with collation C (in a Turkish locale, I
-- becomes a dotless i). The other functions are called for the rest only. PostgreSQL has no
-- punycode function (RFC 3492), so this file has one.

-- In a database with the locale C, lower() only changes ASCII letters.
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
            -- adapt the bias (RFC 3492, section 6.1)
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
    c_longest  constant int := 2000;  -- no address is this long; do not spend time on longer texts
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
    'The form in which addresses are compared, for an address beyond ASCII.';

CREATE FUNCTION mailgres.canonical_address(p_address text) RETURNS text
    LANGUAGE sql IMMUTABLE
RETURN CASE WHEN octet_length(p_address) = length(p_address) THEN lower(p_address COLLATE "C")
            ELSE mailgres.canonical_unicode(p_address) END;

COMMENT ON FUNCTION mailgres.canonical_address(text) IS
    'The form in which addresses are compared: lower case, the domain in A-labels. A text without @ is read as a domain.';
