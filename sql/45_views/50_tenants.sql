-- Fairness between tenants: each claim is a round, and the tenant that has waited longest is next.
-- The claim itself goes round by its index; this view shows the result.

CREATE FUNCTION mailgres.round_robin_priority(p_rounds bigint) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN greatest(1, 5 - least(greatest(p_rounds, 0), 4))::int;

COMMENT ON FUNCTION mailgres.round_robin_priority(bigint) IS
    'How urgent a tenant is after waiting for this many rounds: 5, rising to 1.';

CREATE VIEW public.email_tenant_fairness WITH (security_invoker = true) AS
SELECT x.tenant_id, x.last_processed_at, x.rounds AS rounds_without_processing,
       mailgres.round_robin_priority(x.rounds) AS current_priority,
       x.processed AS total_processed, x.batch AS consecutive_batch,
       coalesce(t.weight, 1) AS weight, t.paused_at IS NOT NULL AS paused,
       x.backlog, x.due, x.oldest_due, x.as_of
FROM (
    SELECT coalesce(a.tenant_id, o.tenant_id) AS tenant_id, a.claimed_at AS last_processed_at,
           coalesce(a.processed, 0)::bigint AS processed, coalesce(a.batch, 0)::bigint AS batch,
           coalesce(o.emails, 0)::bigint AS backlog, coalesce(o.due, 0)::bigint AS due, o.oldest_due,
           coalesce(o.as_of, mailgres.now()) AS as_of,
           CASE WHEN o.due > 0 THEN greatest(r.claim_number - greatest(a.claim_number, o.claim_number), 0) ELSE 0 END AS rounds
    FROM (
        SELECT c.tenant_id, sum(c.processed) AS processed, max(c.claimed_at) AS claimed_at, max(c.claim_number) AS claim_number,
               sum(c.batch) FILTER (WHERE c.is_last) AS batch
        FROM (
            SELECT y.*, y.claimed_at = max(y.claimed_at) OVER (PARTITION BY y.tenant_id) AS is_last
            FROM mailgres.counted_tenants y
        ) c
        GROUP BY c.tenant_id
    ) a
    FULL JOIN (
        SELECT w.tenant_id, sum(w.emails) AS emails, sum(w.due) AS due, min(w.oldest_due) AS oldest_due,
               min(w.claim_number) FILTER (WHERE w.due > 0) AS claim_number, max(w.as_of) AS as_of
        FROM mailgres.current_depth_by_tenant w
        GROUP BY w.tenant_id
    ) o ON o.tenant_id = a.tenant_id
    -- counted at the same time as the backlog
    CROSS JOIN (
        SELECT coalesce(
            (SELECT d.claim_number FROM mailgres.depth d WHERE mailgres.now() BETWEEN d.as_of AND d.valid_until),
            mailgres.claim_number()) AS claim_number
    ) r
) x
LEFT JOIN mailgres.tenants t ON t.tenant_id = x.tenant_id;

COMMENT ON VIEW public.email_tenant_fairness IS
'Does every tenant get its turn?
Tenants that have waiting emails or had emails processed. Backlogs are counted at as_of, at most 15 seconds ago.
Example: SELECT * FROM email_tenant_fairness ORDER BY rounds_without_processing DESC, backlog DESC, tenant_id LIMIT 100;';
COMMENT ON COLUMN public.email_tenant_fairness.tenant_id IS 'The tenant.';
COMMENT ON COLUMN public.email_tenant_fairness.last_processed_at IS 'When the emails of its last attempts were claimed.';
COMMENT ON COLUMN public.email_tenant_fairness.rounds_without_processing IS
    'Claims since then, or since one of its emails was due; 0 if none is due.';
COMMENT ON COLUMN public.email_tenant_fairness.current_priority IS
    'How urgent it is because of that: 5, rising by one with each round to 1.';
COMMENT ON COLUMN public.email_tenant_fairness.total_processed IS 'Attempts made for its emails.';
COMMENT ON COLUMN public.email_tenant_fairness.consecutive_batch IS
    'How many of its emails its last claim had: up to 3 x weight per turn while other tenants wait.';
COMMENT ON COLUMN public.email_tenant_fairness.weight IS 'Its weight.';
COMMENT ON COLUMN public.email_tenant_fairness.paused IS 'Whether an operator paused it.';
COMMENT ON COLUMN public.email_tenant_fairness.backlog IS 'Its waiting emails.';
COMMENT ON COLUMN public.email_tenant_fairness.due IS 'Those of them that could be sent now.';
COMMENT ON COLUMN public.email_tenant_fairness.oldest_due IS 'Since when the first of these could be sent.';
COMMENT ON COLUMN public.email_tenant_fairness.as_of IS 'When the backlog was counted.';
