-- A time-ordered uuid (RFC 9562, version 7): new ids are neighbours in the index, so few of
-- its pages are written. Written here because PostgreSQL has uuidv7() only since version 18.
-- The first half of a random uuid is replaced by 48 bits of milliseconds since 1970, the
-- version (7), and 12 bits for the fraction of the millisecond, so that ids keep the order of
-- enqueuing. The second half already has the right variant.

CREATE FUNCTION mailgres.uuid_v7() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN encode(
    overlay(
        uuid_send(gen_random_uuid())
        PLACING int8send(
            (floor(date_part('epoch', clock_timestamp()) * 1000)::bigint << 16)
            | 28672
            | (floor(date_part('epoch', clock_timestamp()) * 4096000)::bigint & 4095))
        FROM 1 FOR 8),
    'hex')::uuid;

COMMENT ON FUNCTION mailgres.uuid_v7() IS 'A new time-ordered uuid (version 7).';
