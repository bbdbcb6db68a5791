-- The only place that computes how long to wait. p_retry is the number of the next retry, the
-- first being 1. An email's own first wait replaces the policy's steps and grows by the policy's
-- factor; its own cap replaces the policy's.

CREATE FUNCTION mailgres.retry_delay(
    p_policy mailgres.retry_policies,
    p_retry int,
    p_first interval DEFAULT NULL,
    p_cap interval DEFAULT NULL
) RETURNS interval
    LANGUAGE sql VOLATILE
RETURN least(
        CASE
            WHEN p_first IS NULL AND p_policy.steps IS NOT NULL
                THEN p_policy.steps[least(greatest(p_retry, 1), cardinality(p_policy.steps))]
            -- In seconds up to the cap: a large factor would exceed the longest interval.
            ELSE make_interval(secs => least(
                date_part('epoch', coalesce(p_first, p_policy.base))
                    * p_policy.factor ^ least(greatest(p_retry, 1) - 1, 100),
                date_part('epoch', coalesce(p_cap, p_policy.cap))))
        END,
        coalesce(p_cap, p_policy.cap))
    * (1 - p_policy.jitter_down + random() * (p_policy.jitter_down + p_policy.jitter_up));

COMMENT ON FUNCTION mailgres.retry_delay(mailgres.retry_policies, int, interval, interval) IS
    'How long to wait before the given retry, jitter included.';
