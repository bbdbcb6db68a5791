-- How much may be sent now under rate limits and quotas. A claim locks the buckets, so that two
-- claims do not take the same tokens.

-- A bucket that was filled in the future was filled before the clock was set back. Nobody knows
-- how long ago that was, so it counts as full, as it would be after a second. (Up to 10 seconds
-- are normal: the transaction of this claim may have started before the one that filled it.)
CREATE FUNCTION mailgres.tokens_of(b mailgres.buckets) RETURNS double precision
    LANGUAGE sql STABLE
RETURN CASE
    WHEN b.filled_at > mailgres.now() + interval '10 seconds' THEN greatest(b.per_second, 1)
    ELSE least(
        greatest(b.per_second, 1),
        b.tokens + b.per_second * greatest(date_part('epoch', mailgres.now() - b.filled_at), 0))
END;

COMMENT ON FUNCTION mailgres.tokens_of(mailgres.buckets) IS 'How many tokens a bucket holds now.';

-- A transaction that waited for the bucket may be older than the one that filled it last: the
-- time in between must not be filled twice.
CREATE FUNCTION mailgres.filled_until(b mailgres.buckets) RETURNS timestamptz
    LANGUAGE sql STABLE
RETURN CASE WHEN b.filled_at BETWEEN mailgres.now() AND mailgres.now() + interval '10 seconds' THEN b.filled_at
            ELSE mailgres.now() END;

COMMENT ON FUNCTION mailgres.filled_until(mailgres.buckets) IS 'The new filled_at of a bucket that is filled now.';

-- Sets a limit; null removes it. A bucket whose rate changes keeps its tokens.
CREATE FUNCTION mailgres.set_bucket(p_name text, p_per_second double precision) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_per_second IS NULL THEN
        DELETE FROM mailgres.buckets b WHERE b.name = p_name;
        RETURN;
    END IF;
    INSERT INTO mailgres.buckets AS b (name, per_second, tokens)
    VALUES (p_name, p_per_second, greatest(p_per_second, 1))
    ON CONFLICT (name) DO UPDATE
        SET per_second = excluded.per_second, tokens = mailgres.tokens_of(b),
            filled_at = mailgres.filled_until(b)
        WHERE b.per_second <> excluded.per_second;
END
$$;

COMMENT ON FUNCTION mailgres.set_bucket(text, double precision) IS
    'Sets how much may be sent in a second; null means no limit.';

CREATE FUNCTION mailgres.take_tokens(p_name text, p_tokens bigint) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE mailgres.buckets b
    SET tokens = mailgres.tokens_of(b) - p_tokens, filled_at = mailgres.filled_until(b)
    WHERE b.name = p_name;
END
$$;

COMMENT ON FUNCTION mailgres.take_tokens(text, bigint) IS 'Takes tokens out of a bucket, if there is one.';

CREATE FUNCTION mailgres.used_of_quota(u mailgres.quota_usage, p_at timestamptz) RETURNS int
    LANGUAGE sql IMMUTABLE
RETURN CASE WHEN u.reported_until > p_at THEN u.reported ELSE u.emails END;

COMMENT ON FUNCTION mailgres.used_of_quota(mailgres.quota_usage, timestamptz) IS
    'How much of a quota is used: by a recent report of the provider, or else by our own count.';

CREATE FUNCTION mailgres.quota_left(p mailgres.providers) RETURNS int
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_used  int;
BEGIN
    IF p.daily_quota IS NULL AND p.monthly_quota IS NULL THEN
        RETURN NULL;
    END IF;
    -- Emails that are being sent will count.
    SELECT count(*) INTO v_used FROM public.email_queue q
    WHERE q.status = 'sending' AND q.due_at IS NOT NULL AND q.provider = p.name;
    RETURN (
        SELECT min(x.quota - v_used - coalesce(mailgres.used_of_quota(u, mailgres.now()), 0))
        FROM (VALUES ('day', p.daily_quota), ('month', p.monthly_quota)) AS x(period, quota)
        LEFT JOIN mailgres.quota_usage u
            ON u.provider = p.name AND u.period = x.period
            AND u.starts = date_trunc(x.period, mailgres.now(), 'UTC')
        WHERE x.quota IS NOT NULL);
END
$$;

COMMENT ON FUNCTION mailgres.quota_left(mailgres.providers) IS
    'How many emails the quotas of a provider allow now; null means it has no quota.';

-- How much a claim may take for a provider.
CREATE FUNCTION mailgres.provider_room(p_provider text, INOUT p_emails int, OUT p_calls int)
    LANGUAGE plpgsql
AS $$
DECLARE
    v_bucket    mailgres.buckets;
    v_provider  mailgres.providers;
BEGIN
    p_calls := p_emails;
    FOR v_bucket IN
        SELECT * FROM mailgres.buckets b
        WHERE b.name IN ('calls:' || p_provider, 'emails:' || p_provider)
        ORDER BY b.name FOR UPDATE
    LOOP
        IF v_bucket.name LIKE 'calls:%' THEN
            p_calls := least(p_calls, floor(mailgres.tokens_of(v_bucket)))::int;
        ELSE
            p_emails := least(p_emails, floor(mailgres.tokens_of(v_bucket)))::int;
        END IF;
    END LOOP;
    SELECT * INTO v_provider FROM mailgres.providers p WHERE p.name = p_provider;
    p_emails := least(p_emails, mailgres.quota_left(v_provider));
    IF NOT v_provider.fixed_batches THEN
        p_emails := least(p_emails, p_calls * v_provider.batch_size);
    END IF;
    IF p_calls < 1 THEN
        p_emails := 0;
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.provider_room(text, int) IS
    'How many emails, in how many calls, may be claimed for a provider now.';

-- When a provider's next token arrives; null if it has one or has no limit.
CREATE FUNCTION mailgres.next_token_at(p_provider text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT max(mailgres.now() + (1 - mailgres.tokens_of(b)) / b.per_second * interval '1 second')
        FROM mailgres.buckets b
        WHERE b.name IN ('calls:' || p_provider, 'emails:' || p_provider) AND mailgres.tokens_of(b) < 1);
END
$$;

COMMENT ON FUNCTION mailgres.next_token_at(text) IS
    'When the rate limits of a provider allow the next call; null means now.';

-- If another claim has locked the bucket of a tenant, this claim skips the tenant: claims visit
-- tenants in any order, so they must not wait for each other.
CREATE FUNCTION mailgres.tenant_room(p_tenant text) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    c_most   constant int := 1000;  -- no claim is larger
    v_room   int;
BEGIN
    PERFORM FROM mailgres.buckets b WHERE b.name = 'tenant:' || p_tenant;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT least(greatest(floor(mailgres.tokens_of(b)), 0), c_most) INTO v_room
    FROM mailgres.buckets b WHERE b.name = 'tenant:' || p_tenant FOR UPDATE SKIP LOCKED;
    RETURN coalesce(v_room, 0);
END
$$;

COMMENT ON FUNCTION mailgres.tenant_room(text) IS
    'How many emails the rate limit of a tenant allows now; null means no limit.';

-- A worker that drains the queue and claims nothing may only have to wait for a rate limit:
-- emails are ready but there is no token, or a provider just deferred them.
CREATE FUNCTION mailgres.rate_limit_ends_at() RETURNS timestamptz
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_soon constant interval := '10 seconds';
BEGIN
    RETURN least(
        (SELECT min(q.due_at) FROM public.email_queue q
         WHERE q.status = 'pending' AND q.due_at <= mailgres.now() + c_soon
           AND NOT q.ready AND q.error_class = 'rate'),
        CASE WHEN EXISTS (SELECT FROM public.email_queue q WHERE q.ready) THEN (
            SELECT min(greatest(x.token_at, x.limited_until))
            FROM (
                SELECT mailgres.next_token_at(p.name) AS token_at,
                       CASE WHEN p.limited_by = 'rate' AND p.limited_until > mailgres.now() THEN p.limited_until END
                           AS limited_until
                FROM mailgres.providers p
                WHERE p.enabled AND p.circuit = 'closed'
            ) x) END);
END
$$;

COMMENT ON FUNCTION mailgres.rate_limit_ends_at() IS
    'When emails that only wait for a rate limit can be sent; null if there are none.';
