-- What operators ask and order. A listing gives JSON, as times may be infinite.

-- limits --
SELECT set_config('statement_timeout', %(timeout)s, true)

-- providers --
SELECT jsonb_build_object(
    'provider', p.name,
    'kind', p.kind,
    'enabled', p.enabled,
    'open', mailgres.is_open(p),
    'circuit', p.circuit,
    'circuit_since', p.circuit_since,
    'circuit_until', CASE WHEN p.circuit = 'open' THEN p.circuit_until END,
    'circuit_reason', p.circuit_reason,
    'failures', p.failures,
    'paused_until', CASE WHEN p.paused_until > mailgres.now() THEN p.paused_until END,
    'pause_reason', CASE WHEN p.paused_until > mailgres.now() THEN p.pause_reason END,
    'waits_until', CASE WHEN p.waits_until > mailgres.now() THEN p.waits_until END,
    'waits_for', CASE WHEN p.waits_until > mailgres.now() THEN p.waits_for END,
    'emails', mailgres.bucket_state('emails:' || p.name),
    'calls', mailgres.bucket_state('calls:' || p.name),
    'day', mailgres.quota_state(p, 'day'),
    'month', mailgres.quota_state(p, 'month'),
    'routes', ARRAY(SELECT rp.route FROM mailgres.route_providers rp
                    WHERE rp.provider = p.name ORDER BY rp.position, rp.route))
FROM mailgres.providers p
WHERE p.name = coalesce(%(name)s, p.name)
ORDER BY p.name
