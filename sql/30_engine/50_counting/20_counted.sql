-- The rollups plus the deltas that are not yet added to them: always exact. A cell may have
-- several rows, so every query has to sum them.

CREATE VIEW mailgres.counted_by_template WITH (security_invoker = true) AS
SELECT r.hour, r.template_type, r.status, r.emails FROM mailgres.rollup_by_template r
UNION ALL
SELECT d.hour, d.template_type, d.status, d.emails FROM mailgres.rollup_deltas d WHERE d.emails <> 0;

CREATE VIEW mailgres.counted_by_tenant WITH (security_invoker = true) AS
SELECT r.hour, r.tenant_id, r.status, r.emails FROM mailgres.rollup_by_tenant r
UNION ALL
SELECT d.hour, d.tenant_id, d.status, d.emails FROM mailgres.rollup_deltas d WHERE d.emails <> 0;

CREATE VIEW mailgres.counted_by_provider WITH (security_invoker = true) AS
SELECT r.hour, r.provider, r.error_code, r.status, r.emails FROM mailgres.rollup_by_provider r
UNION ALL
SELECT d.hour, d.provider, d.error_code, d.status, d.emails FROM mailgres.rollup_deltas d WHERE d.emails <> 0;

CREATE VIEW mailgres.counted_by_retries WITH (security_invoker = true) AS
SELECT r.hour, r.status, r.retries, r.within, r.emails, r.seconds FROM mailgres.rollup_by_retries r
UNION ALL
SELECT d.hour, d.status, d.retries, d.within, d.emails, d.seconds FROM mailgres.rollup_deltas d;

CREATE VIEW mailgres.counted_by_status WITH (security_invoker = true) AS
SELECT r.hour, r.status, r.emails, r.oldest, r.newest FROM mailgres.rollup_by_status r
UNION ALL
SELECT d.hour, d.status, d.here, d.oldest, d.newest FROM mailgres.rollup_deltas d WHERE d.here <> 0;

CREATE VIEW mailgres.counted_dead WITH (security_invoker = true) AS
SELECT r.hour, r.tenant_id, r.error_code, r.dead_reason, r.emails FROM mailgres.rollup_dead r
UNION ALL
SELECT d.dead_hour, d.tenant_id, d.error_code, d.dead_reason, d.here FROM mailgres.rollup_deltas d
WHERE d.status = 'failed' AND d.here <> 0;

CREATE VIEW mailgres.counted_by_minute WITH (security_invoker = true) AS
SELECT r.minute, r.outcome, r.provider, r.emails FROM mailgres.rollup_by_minute r
UNION ALL
SELECT date_trunc('minute', d.at, 'UTC'), d.event, d.provider, d.emails FROM mailgres.attempt_deltas d
WHERE d.event <> 'claimed';

CREATE VIEW mailgres.counted_by_attempt WITH (security_invoker = true) AS
SELECT r.hour, r.attempt, r.outcome, r.attempts, r.seconds FROM mailgres.rollup_by_attempt r
UNION ALL
SELECT date_trunc('hour', d.at, 'UTC'), d.attempt, d.event, d.emails, d.seconds FROM mailgres.attempt_deltas d
WHERE d.event = 'claimed' OR d.claimed_at IS NOT NULL AND d.event IN ('sent', 'retry', 'dead', 'deferred');

CREATE VIEW mailgres.counted_by_fault WITH (security_invoker = true) AS
SELECT r.hour, r.provider, r.error_class, r.error_code, r.outcome, r.attempts FROM mailgres.rollup_by_fault r
UNION ALL
SELECT date_trunc('hour', d.at, 'UTC'), d.provider, d.error_class, d.error_code, d.event, d.emails
FROM mailgres.attempt_deltas d
WHERE d.claimed_at IS NOT NULL AND d.event IN ('retry', 'dead', 'deferred');

CREATE VIEW mailgres.counted_tenants WITH (security_invoker = true) AS
SELECT a.tenant_id, a.processed, a.claimed_at, a.batch, a.claim_number FROM mailgres.tenant_activity a
UNION ALL
SELECT d.tenant_id, d.emails, d.claimed_at, d.emails, d.claim_number FROM mailgres.attempt_deltas d
WHERE d.claimed_at IS NOT NULL AND d.event IN ('sent', 'retry', 'dead', 'deferred');

COMMENT ON VIEW mailgres.counted_by_template IS 'Emails by hour of creation, template and status; sum them.';
COMMENT ON VIEW mailgres.counted_by_tenant IS 'Emails by hour of creation, tenant and status; sum them.';
COMMENT ON VIEW mailgres.counted_by_provider IS
    'Emails by hour of creation, provider, error code and status; sum them.';
COMMENT ON VIEW mailgres.counted_by_retries IS
    'Emails by hour of creation, status, retries and time to delivery; sum them.';
COMMENT ON VIEW mailgres.counted_by_status IS
    'Settled emails in the queue by hour of creation and status; sum them.';
COMMENT ON VIEW mailgres.counted_dead IS
    'Dead letters in the queue by the hour in which they died, tenant, error code and reason; sum them.';
COMMENT ON VIEW mailgres.counted_by_minute IS 'What happened to emails in each minute; sum them.';
COMMENT ON VIEW mailgres.counted_by_attempt IS 'Attempts by hour, number of the attempt and outcome; sum them.';
COMMENT ON VIEW mailgres.counted_by_fault IS
    'Failed attempts by hour, provider, and class and code of the fault; sum them.';
COMMENT ON VIEW mailgres.counted_tenants IS
    'Attempts made for each tenant, and the size of its last claim: sum processed, and batch of the newest claimed_at.';

CREATE VIEW mailgres.counted_by_event WITH (security_invoker = true) AS
SELECT r.hour, r.dimension, r.name, r.reported, r.delivered, r.bounced, r.hard_bounced, r.complained, r.opened,
    r.clicked, r.unsubscribed, r.refused, r.seconds
FROM mailgres.rollup_by_event r
UNION ALL
SELECT x.hour, x.dimension, x.name, d.reported, d.delivered, d.bounced, d.hard_bounced, d.complained, d.opened,
    d.clicked, d.unsubscribed, d.refused, d.seconds
FROM mailgres.event_deltas d
CROSS JOIN LATERAL (VALUES
    ('template', d.template_type, d.hour), ('tenant', d.tenant_id, date_trunc('day', d.hour, 'UTC')),
    ('domain', d.domain, date_trunc('day', d.hour, 'UTC'))) x(dimension, name, hour);

COMMENT ON VIEW mailgres.counted_by_event IS
    'How many emails have which events, by hour of creation and template, and by day and tenant or domain; sum them.';
