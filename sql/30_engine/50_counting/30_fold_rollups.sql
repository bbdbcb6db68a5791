-- Adds the deltas to the rollups, a limited number at a time.

CREATE FUNCTION mailgres.fold_counts(p_limit int) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    WITH taken AS MATERIALIZED (
        DELETE FROM mailgres.rollup_deltas d
        WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM mailgres.rollup_deltas x LIMIT p_limit))
        RETURNING d.*
    ), by_template AS (
        INSERT INTO mailgres.rollup_by_template AS r (hour, template_type, status, emails)
        SELECT t.hour, t.template_type, t.status, sum(t.emails)
        FROM taken t GROUP BY 1, 2, 3 HAVING sum(t.emails) <> 0
        ON CONFLICT (hour, template_type, status) DO UPDATE SET emails = r.emails + excluded.emails
    ), by_tenant AS (
        INSERT INTO mailgres.rollup_by_tenant AS r (hour, tenant_id, status, emails)
        SELECT t.hour, t.tenant_id, t.status, sum(t.emails)
        FROM taken t GROUP BY 1, 2, 3 HAVING sum(t.emails) <> 0
        ON CONFLICT (hour, tenant_id, status) DO UPDATE SET emails = r.emails + excluded.emails
    ), by_provider AS (
        INSERT INTO mailgres.rollup_by_provider AS r (hour, provider, error_code, status, emails)
        SELECT t.hour, t.provider, t.error_code, t.status, sum(t.emails)
        FROM taken t GROUP BY 1, 2, 3, 4 HAVING sum(t.emails) <> 0
        ON CONFLICT (hour, provider, error_code, status) DO UPDATE SET emails = r.emails + excluded.emails
    ), by_retries AS (
        INSERT INTO mailgres.rollup_by_retries AS r (hour, status, retries, within, emails, seconds)
        SELECT t.hour, t.status, t.retries, t.within, sum(t.emails), sum(t.seconds)
        FROM taken t GROUP BY 1, 2, 3, 4 HAVING sum(t.emails) <> 0 OR sum(t.seconds) <> 0
        ON CONFLICT (hour, status, retries, within) DO UPDATE
            SET emails = r.emails + excluded.emails, seconds = r.seconds + excluded.seconds
    ), by_status AS (
        INSERT INTO mailgres.rollup_by_status AS r (hour, status, emails, oldest, newest)
        SELECT t.hour, t.status, sum(t.here), min(t.oldest), max(t.newest)
        FROM taken t WHERE t.here <> 0 GROUP BY 1, 2
        ON CONFLICT (hour, status) DO UPDATE
            SET emails = r.emails + excluded.emails,
                oldest = least(r.oldest, excluded.oldest), newest = greatest(r.newest, excluded.newest)
    ), dead AS (
        INSERT INTO mailgres.rollup_dead AS r (hour, tenant_id, error_code, dead_reason, emails)
        SELECT t.dead_hour, t.tenant_id, t.error_code, t.dead_reason, sum(t.here)
        FROM taken t WHERE t.status = 'failed' AND t.here <> 0 GROUP BY 1, 2, 3, 4 HAVING sum(t.here) <> 0
        ON CONFLICT (hour, tenant_id, error_code, dead_reason) DO UPDATE SET emails = r.emails + excluded.emails
    )
    SELECT count(*) INTO v_count FROM taken;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.fold_counts(int) IS
    'Adds deltas of the outcomes of emails to the rollups; returns how many.';

CREATE FUNCTION mailgres.fold_attempts(p_limit int) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    WITH taken AS MATERIALIZED (
        DELETE FROM mailgres.attempt_deltas d
        WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM mailgres.attempt_deltas x LIMIT p_limit))
        RETURNING d.*
    ), by_minute AS (
        INSERT INTO mailgres.rollup_by_minute AS r (minute, outcome, provider, emails)
        SELECT date_trunc('minute', t.at, 'UTC'), t.event, t.provider, sum(t.emails)
        FROM taken t WHERE t.event <> 'claimed' GROUP BY 1, 2, 3
        ON CONFLICT (minute, outcome, provider) DO UPDATE SET emails = r.emails + excluded.emails
    ), by_attempt AS (
        INSERT INTO mailgres.rollup_by_attempt AS r (hour, attempt, outcome, attempts, seconds)
        SELECT date_trunc('hour', t.at, 'UTC'), t.attempt, t.event, sum(t.emails), sum(t.seconds)
        FROM taken t
        WHERE t.event = 'claimed' OR t.claimed_at IS NOT NULL AND t.event IN ('sent', 'retry', 'dead', 'deferred')
        GROUP BY 1, 2, 3
        ON CONFLICT (hour, attempt, outcome) DO UPDATE
            SET attempts = r.attempts + excluded.attempts, seconds = r.seconds + excluded.seconds
    ), by_fault AS (
        INSERT INTO mailgres.rollup_by_fault AS r (hour, provider, error_class, error_code, outcome, attempts)
        SELECT date_trunc('hour', t.at, 'UTC'), t.provider, t.error_class, t.error_code, t.event, sum(t.emails)
        FROM taken t WHERE t.claimed_at IS NOT NULL AND t.event IN ('retry', 'dead', 'deferred')
        GROUP BY 1, 2, 3, 4, 5
        ON CONFLICT (hour, provider, error_class, error_code, outcome) DO UPDATE SET attempts = r.attempts + excluded.attempts
    ), of_tenants AS (
        INSERT INTO mailgres.tenant_activity AS r (tenant_id, processed, claimed_at, batch, claim_number)
        SELECT x.tenant_id, sum(x.emails), max(x.claimed_at), sum(x.emails) FILTER (WHERE x.is_last), max(x.claim_number)
        FROM (
            SELECT t.tenant_id, t.emails, t.claimed_at, t.claim_number,
                   t.claimed_at = max(t.claimed_at) OVER (PARTITION BY t.tenant_id) AS is_last
            FROM taken t
            WHERE t.claimed_at IS NOT NULL AND t.event IN ('sent', 'retry', 'dead', 'deferred')
        ) x
        GROUP BY 1
        ON CONFLICT (tenant_id) DO UPDATE
            SET processed = r.processed + excluded.processed,
                claimed_at = greatest(r.claimed_at, excluded.claimed_at),
                batch = CASE WHEN excluded.claimed_at > r.claimed_at THEN excluded.batch
                             WHEN excluded.claimed_at = r.claimed_at THEN r.batch + excluded.batch
                             ELSE r.batch END,
                claim_number = greatest(r.claim_number, excluded.claim_number)
    )
    SELECT count(*) INTO v_count FROM taken;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.fold_attempts(int) IS
    'Adds deltas of events to the rollups; returns how many.';

CREATE FUNCTION mailgres.fold_events(p_limit int) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    WITH taken AS MATERIALIZED (
        DELETE FROM mailgres.event_deltas d
        WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM mailgres.event_deltas x LIMIT p_limit))
        RETURNING d.*
    ), folded AS (
        INSERT INTO mailgres.rollup_by_event AS r
            (hour, dimension, name, reported, delivered, bounced, hard_bounced, complained, opened, clicked,
             unsubscribed, refused, seconds)
        SELECT x.hour, x.dimension, x.name, sum(t.reported), sum(t.delivered), sum(t.bounced), sum(t.hard_bounced),
               sum(t.complained), sum(t.opened), sum(t.clicked), sum(t.unsubscribed), sum(t.refused), sum(t.seconds)
        FROM taken t
        CROSS JOIN LATERAL (VALUES
            ('template', t.template_type, t.hour), ('tenant', t.tenant_id, date_trunc('day', t.hour, 'UTC')),
            ('domain', t.domain, date_trunc('day', t.hour, 'UTC'))) x(dimension, name, hour)
        GROUP BY 1, 2, 3
        ON CONFLICT (dimension, name, hour) DO UPDATE
            SET reported = r.reported + excluded.reported, delivered = r.delivered + excluded.delivered,
                bounced = r.bounced + excluded.bounced, hard_bounced = r.hard_bounced + excluded.hard_bounced,
                complained = r.complained + excluded.complained, opened = r.opened + excluded.opened,
                clicked = r.clicked + excluded.clicked, unsubscribed = r.unsubscribed + excluded.unsubscribed,
                refused = r.refused + excluded.refused, seconds = r.seconds + excluded.seconds
    )
    SELECT count(*) INTO v_count FROM taken;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.fold_events(int) IS 'Adds changes of the states of emails to the rollup; returns how many.';

CREATE FUNCTION mailgres.fold_rollups(p_limit int DEFAULT 10000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- One at a time: two folds would lock the same rollup rows in different orders.
    IF NOT pg_try_advisory_xact_lock(hashtext('mailgres.fold_rollups')) THEN
        RETURN 0;
    END IF;
    RETURN greatest(mailgres.fold_counts(p_limit), mailgres.fold_attempts(p_limit), mailgres.fold_events(p_limit));
END
$$;

COMMENT ON FUNCTION mailgres.fold_rollups(int) IS
    'Adds deltas to the rollups; returns how many of the kind that had more.';

-- Counts expire, too. Counts of the queue are deleted when their hour has no emails left, minutes
-- after eight days.
CREATE FUNCTION mailgres.delete_expired_rollups(p_limit int DEFAULT 10000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_hour    constant timestamptz := (SELECT mailgres.now() - s.counts_ttl FROM mailgres.settings s);
    v_minute  constant timestamptz := mailgres.now() - interval '8 days';
    v_table   text;
    v_only    text;
    v_count   int;
    v_total   int := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('mailgres.fold_rollups')) THEN
        RETURN 0;
    END IF;
    FOR v_table, v_only IN VALUES
        ('rollup_by_template', 'hour < $1'), ('rollup_by_tenant', 'hour < $1'),
        ('rollup_by_provider', 'hour < $1'), ('rollup_by_retries', 'hour < $1'),
        ('rollup_by_attempt', 'hour < $1'), ('rollup_by_fault', 'hour < $1'), ('rollup_by_event', 'hour < $1'),
        ('rollup_by_minute', 'minute < $2'), ('tenant_activity', 'claimed_at < $1'),
        ('rollup_by_status', 'hour < $2 AND emails = 0'), ('rollup_dead', 'hour < $2 AND emails = 0')
    LOOP
        EXECUTE format(
            'DELETE FROM mailgres.%1$I WHERE ctid = ANY (ARRAY(SELECT ctid FROM mailgres.%1$I WHERE %2$s LIMIT $3))',
            v_table, v_only) USING v_hour, v_minute, p_limit - v_total;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_total := v_total + v_count;
    END LOOP;
    RETURN v_total;
END
$$;

COMMENT ON FUNCTION mailgres.delete_expired_rollups(int) IS
    'Deletes counts that have expired; returns how many.';
