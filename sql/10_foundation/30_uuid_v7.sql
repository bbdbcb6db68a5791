-- A time-ordered uuid (RFC 9562, version 7), so that indexes stay warm. Written out
-- because PostgreSQL has uuidv7() only from version 18 on. The first half of a random
-- uuid is replaced: 48 bits of milliseconds since 1970, the version (7), and 12 bits
-- for the fraction of the millisecond, so that ids keep the order of enqueuing. The
-- second half has the right variant already.

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
