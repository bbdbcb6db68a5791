-- A time-ordered uuid (RFC 9562, version 7): new ids are neighbours in the index, so few of
-- its pages are written. Written here because PostgreSQL has uuidv7() only since version 18.
-- 48 bits of milliseconds since 1970, the version (7), 12 bits for the fraction of the millisecond,
-- so that ids keep the order of enqueuing, and the second half of a random uuid, which already has
-- the right variant. The clock is asked once: milliseconds and fraction of two moments would be
-- out of order when a millisecond ends between them.

CREATE FUNCTION mailgres.uuid_v7() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (
    overlay(lpad(to_hex(floor(date_part('epoch', clock_timestamp()) * 4096000)::bigint), 15, '0')
            PLACING '7' FROM 13 FOR 0)
    || substr(gen_random_uuid()::text, 20))::uuid;

COMMENT ON FUNCTION mailgres.uuid_v7() IS 'A new time-ordered uuid (version 7).';
