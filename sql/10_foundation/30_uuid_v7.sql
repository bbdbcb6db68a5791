-- A time-ordered uuid (RFC 9562, version 7), so that indexes stay warm. Written
-- out because PostgreSQL has uuidv7() only from version 18 on: the first 48 bits
-- are milliseconds since 1970, two more bits turn version 4 into version 7.

CREATE FUNCTION mailgres.uuid_v7() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN encode(
    set_bit(
        set_bit(
            overlay(
                uuid_send(gen_random_uuid())
                PLACING substring(
                    int8send(floor(date_part('epoch', clock_timestamp()) * 1000)::bigint) FROM 3)
                FROM 1 FOR 6),
            52, 1),
        53, 1),
    'hex')::uuid;

COMMENT ON FUNCTION mailgres.uuid_v7() IS 'A new time-ordered uuid (version 7).';
