-- Where the email is known, its own recipients are masked in every spelling that is in use:
-- ana+40example.com (SMTP's xtext), ana=example.com (VERP), ana (at) example.com, o%27brien,
-- o&#39;brien, and the mailbox alone: "User ana unknown". After the local part and any spelling
-- of @, every domain is masked, so A-labels and U-labels are treated alike.
-- src/mailgres/sender/spellings.py does the same before a text leaves the worker.

-- A mailbox with such a name identifies nobody, and masking the word would spoil other texts.
CREATE FUNCTION mailgres.ordinary_words() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '{abuse,account,address,admin,and,any,are,arrived,attempt,bad,batch,before,but,call,can,cancelled,code,
    connection,contact,content,copy,daily,domain,earlier,email,error,exceeded,expired,failed,false,fault,for,from,
    hand,has,hello,help,host,info,invalid,key,last,late,limit,longer,mail,mailbox,marked,message,missing,monthly,
    name,none,noreply,not,"null",office,policy,postmaster,provider,quota,rate,reason,recipient,refused,rejected,
    repeat,reported,request,safely,sales,send,sender,sent,server,service,subject,support,suppressed,team,template,
    test,text,the,this,time,too,true,try,unavailable,unknown,user,variable,verified,was,webmaster,whole,with,
    without,worker,you,your}'::text[];

COMMENT ON FUNCTION mailgres.ordinary_words() IS
    'Words that are common in errors: they are not masked, even if a mailbox has that name.';

-- Whether the local part alone identifies a person: three characters with a letter, or six digits.
CREATE FUNCTION mailgres.names_somebody(p_local text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_local ~ '^[\x01-\x40\x5b-\x60\x7b-\x7f]*$'
                THEN length(regexp_replace(p_local, '[^0-9]', '', 'g')) >= 6
            ELSE length(p_local) >= 3 AND lower(p_local COLLATE "C") <> ALL (mailgres.ordinary_words()) END;

COMMENT ON FUNCTION mailgres.names_somebody(text) IS
    'Whether the local part of an address is masked where it stands alone.';

-- Letters and digits of ASCII are always written as they are.
CREATE FUNCTION mailgres.spellings_of(p_local text) RETURNS text
    LANGUAGE sql IMMUTABLE
RETURN (
    SELECT string_agg(CASE
        WHEN ascii(c.one) BETWEEN 48 AND 57 OR ascii(c.one) BETWEEN 65 AND 90 OR ascii(c.one) BETWEEN 97 AND 122 THEN c.one
        ELSE concat('(?:\\?', CASE WHEN ascii(c.one) < 128 THEN '\' END, c.one,
            CASE WHEN ascii(c.one) > 127 THEN '|' || mailgres.lower_unicode(c.one) END,
            '|', regexp_replace(encode(convert_to(c.one, 'UTF8'), 'hex'), '(..)', '(?:%(?:25)?|[+=])\1', 'g'),
            '|&#0{0,4}', ascii(c.one), ';|&#x0{0,4}', to_hex(ascii(c.one)), ';',
            CASE c.one WHEN '&' THEN '|&amp;' WHEN '''' THEN '|&apos;' WHEN '+' THEN '|&plus;|%20' END, ')')
        END, '' ORDER BY c.place)
    FROM string_to_table(p_local, NULL) WITH ORDINALITY c(one, place));

COMMENT ON FUNCTION mailgres.spellings_of(text) IS
    'A pattern of the ways in which URLs, HTML and SMTP spell the local part of an address.';

CREATE FUNCTION mailgres.recipient_pattern(p_local text) RETURNS text
    LANGUAGE sql IMMUTABLE
RETURN '(?:(?<![[:alnum:]])|(?<=%[0-9a-f][0-9a-f]))' || mailgres.spellings_of(p_local) || '(?:(?:"|&quot;)?\s{0,3}'
    || '(?:@|\uff20|\ufe6b|%(?:25)?40|[+=]40|&#0{0,4}64;|&#x0{0,4}40;|&commat;|\\u0040|[(\[{]\s{0,3}at\s{0,3}[)\]}]'
    || '|(?:=|\sat\s)(?=\s{0,3}[^\s.]+\.[^\s]))\s{0,3}[^\s<>"''(),;:]+'
    || CASE WHEN mailgres.names_somebody(p_local) THEN '|(?![[:alnum:]])' ELSE '' END || ')';

COMMENT ON FUNCTION mailgres.recipient_pattern(text) IS
    'A pattern of an address by its local part, in the spellings that texts use.';

CREATE FUNCTION mailgres.redact_recipient(p_text text, p_local text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN regexp_replace(p_text, mailgres.recipient_pattern(p_local), '<address>', 'gi');
EXCEPTION
    -- The same statement writes the outcomes of other emails, so this must not fail.
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN 'the address could not be masked in the text: see error_detail';
END
$$;

COMMENT ON FUNCTION mailgres.redact_recipient(text, text) IS
    'The text with the address of this local part replaced by a placeholder, however it is spelled.';

CREATE FUNCTION mailgres.redact_recipients(
    p_text text, p_recipient text, p_also_to text[], p_cc text[], p_bcc text[]
) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    c_longest  constant int := 64;  -- no local part is longer, and the size of a pattern is limited
    v_text     text := mailgres.redact_addresses(p_text);
    v_lower    constant text := lower(v_text COLLATE "C");
    v_local    text;
BEGIN
    -- Most texts quote no recipient. The first letters show that without a pattern.
    FOR v_local IN
        SELECT DISTINCT l.local
        FROM (SELECT p_recipient UNION ALL SELECT unnest(p_also_to)
              UNION ALL SELECT unnest(p_cc) UNION ALL SELECT unnest(p_bcc)) a(address),
             LATERAL (SELECT left(split_part(a.address, '@', 1), c_longest)) l(local)
        WHERE l.local <> '' AND strpos(v_lower, coalesce(substring(lower(l.local COLLATE "C") FROM '[a-z0-9]+'), '')) > 0
        ORDER BY l.local DESC
    LOOP
        v_text := mailgres.redact_recipient(v_text, v_local);
    END LOOP;
    RETURN left(v_text, 2000);
END
$$;

COMMENT ON FUNCTION mailgres.redact_recipients(text, text, text[], text[], text[]) IS
    'The text without addresses; the email''s own recipients are removed in any spelling.';

-- For every writer of error_message: a worker's outcome, an old processor, a person.
CREATE FUNCTION mailgres.mask_error() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.error_message := mailgres.redact_recipients(
        NEW.error_message, NEW.recipient_email, NEW.also_to, NEW.cc, NEW.bcc);
    RETURN NEW;
END
$$;

COMMENT ON FUNCTION mailgres.mask_error() IS 'Masks the addresses in error_message, which analysts may read.';

CREATE TRIGGER mask_error
    BEFORE UPDATE OF error_message ON public.email_queue
    FOR EACH ROW
    WHEN (NEW.error_message IS NOT NULL AND NEW.error_message IS DISTINCT FROM OLD.error_message)
    EXECUTE FUNCTION mailgres.mask_error();

CREATE TRIGGER mask_imported_error
    BEFORE INSERT ON public.email_queue
    FOR EACH ROW WHEN (NEW.error_message IS NOT NULL)
    EXECUTE FUNCTION mailgres.mask_error();
