-- 0005_uuid_v7_one_clock: ids of one millisecond keep the order of enqueuing, because the clock is asked once.
-- locks: none

CREATE OR REPLACE FUNCTION mailgres.uuid_v7() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (
    overlay(lpad(to_hex(floor(date_part('epoch', clock_timestamp()) * 4096000)::bigint), 15, '0')
            PLACING '7' FROM 13 FOR 0)
    || substr(gen_random_uuid()::text, 20))::uuid;
