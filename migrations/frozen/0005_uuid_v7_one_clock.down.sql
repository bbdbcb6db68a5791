-- 0005_uuid_v7_one_clock, undone, with emails in the queue.

CREATE OR REPLACE FUNCTION mailgres.uuid_v7() RETURNS uuid
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
