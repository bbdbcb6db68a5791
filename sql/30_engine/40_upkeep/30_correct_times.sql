-- If the clock of a server was ahead and is set back, times that were stored meanwhile are in the
-- future, and emails and providers would silently wait for as long as the jump was. A lease, a
-- limit or an open circuit that started in the future starts now and keeps its length. Times that
-- a person set are not changed, and emails keep their times: docs/providers.md says what to do
-- about deferred emails. Buckets handle it themselves: mailgres.tokens_of().

CREATE FUNCTION mailgres.correct_leases(p_limit int, p_after timestamptz) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    v_count int;
BEGIN
    -- For the same length again, so that live workers can still report.
    UPDATE public.email_queue q
    SET leased_at = mailgres.now(),
        lease_until = mailgres.now() + least(q.lease_until - q.leased_at, interval '1 hour'),
        last_attempt_at = least(q.last_attempt_at, mailgres.now()),
        attempt_started_at = least(q.attempt_started_at, mailgres.now())
    WHERE q.id = ANY (ARRAY(
        SELECT x.id FROM public.email_queue x
        WHERE x.status = 'sending' AND x.due_at > p_after AND x.leased_at > p_after
        LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.correct_leases(int, timestamptz) IS
    'Makes leases that started in the future start now; returns how many.';

CREATE FUNCTION mailgres.correct_provider(p mailgres.providers, p_after timestamptz) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    v_now      constant timestamptz := mailgres.now();
    v_limited  constant boolean := coalesce(p.limited_since > p_after, false);
    v_circuit  constant boolean := p.circuit_since > p_after;
BEGIN
    UPDATE mailgres.providers x
    SET limited_until = CASE WHEN v_limited THEN v_now + (p.limited_until - p.limited_since) ELSE x.limited_until END,
        limited_since = CASE WHEN v_limited THEN v_now ELSE x.limited_since END,
        circuit_until = CASE WHEN v_circuit THEN v_now + (p.circuit_until - p.circuit_since) ELSE x.circuit_until END,
        probe_until = CASE WHEN v_circuit THEN v_now + (p.probe_until - p.circuit_since) ELSE x.probe_until END,
        circuit_since = CASE WHEN v_circuit THEN v_now ELSE x.circuit_since END,
        failed_at = ARRAY(SELECT f FROM unnest(x.failed_at) f WHERE f <= p_after)
    WHERE x.name = p.name;
    INSERT INTO mailgres.provider_events (provider, event, reason)
    VALUES (p.name, 'ClockCorrected', 'the clock of the database went back: what began in the future begins now');
END
$$;

COMMENT ON FUNCTION mailgres.correct_provider(mailgres.providers, timestamptz) IS
    'Makes limits and circuits of a provider that started in the future start now, and records the event.';

CREATE FUNCTION mailgres.correct_times(p_limit int DEFAULT 500) RETURNS int
    LANGUAGE plpgsql
AS $$
DECLARE
    -- concurrent transactions have slightly different times
    v_after     constant timestamptz := mailgres.now() + interval '1 minute';
    v_provider  mailgres.providers;
    v_count     int := 0;
BEGIN
    FOR v_provider IN
        SELECT * FROM mailgres.providers p
        WHERE p.limited_since > v_after OR p.circuit_since > v_after OR p.failed_at[cardinality(p.failed_at)] > v_after
        ORDER BY p.name FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM mailgres.correct_provider(v_provider, v_after);
        v_count := v_count + 1;
    END LOOP;
    UPDATE mailgres.notification_state n
    SET dead_letters_at = least(n.dead_letters_at, mailgres.now()), alerts_at = least(n.alerts_at, mailgres.now())
    WHERE greatest(n.dead_letters_at, n.alerts_at) > v_after;
    UPDATE mailgres.alerts a SET seen_at = least(a.seen_at, mailgres.now()), notified_at = least(a.notified_at, mailgres.now())
    WHERE greatest(a.seen_at, a.notified_at) > v_after;
    UPDATE mailgres.notifications n SET taken_until = mailgres.now() WHERE n.taken_until > v_after + interval '1 minute';
    UPDATE mailgres.workers w SET seen_at = mailgres.now() WHERE w.seen_at > v_after;
    RETURN v_count + mailgres.correct_leases(p_limit, v_after);
END
$$;

COMMENT ON FUNCTION mailgres.correct_times(int) IS
    'Corrects times that were stored before the clock of the server was set back; returns how many providers and leases.';
