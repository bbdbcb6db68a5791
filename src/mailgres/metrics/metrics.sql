-- Queries of metrics and readiness: rollups and counts, never the queue itself. A scrape is one
-- transaction, and `limit` sets how long the next statement may take.

-- read_only --
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- limit --
SELECT pg_catalog.set_config('statement_timeout', %(milliseconds)s, true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)

-- hour --
SELECT date_trunc('hour', mailgres.now(), 'UTC')

-- queue --
SELECT status, emails FROM public.email_queue_state

-- due --
SELECT coalesce(sum(due_count), 0)::bigint,
       -- The time may be -infinity, from which nothing can be subtracted.
       coalesce(greatest(extract(epoch FROM mailgres.now() - min(greatest(oldest_due, 'epoch'))
                                 FILTER (WHERE oldest_due IS NOT NULL)), 0), 0)::double precision,
       coalesce(sum(parked_count), 0)::bigint
FROM public.email_pending_by_template

-- attempts --
SELECT least(attempt, 20)::text, coalesce(sum(attempts) FILTER (WHERE hour < %(until)s), 0)::bigint, sum(attempts)::bigint
FROM mailgres.counted_by_attempt
WHERE hour >= %(since)s AND outcome IN ('sent', 'retry', 'dead')
GROUP BY 1

-- events --
SELECT outcome, coalesce(sum(emails) FILTER (WHERE minute < %(until)s), 0)::bigint, sum(emails)::bigint
FROM mailgres.counted_by_minute
WHERE minute >= %(since)s AND outcome IN ('sent', 'retry', 'deferred', 'dead', 'cancelled')
GROUP BY 1

-- reported --
SELECT event, emails FROM mailgres.reported_emails()

-- success --
SELECT least(attempt, 20)::text, sum(sent)::double precision / sum(attempts)
FROM public.email_success_by_attempt GROUP BY 1

-- dead_by_hour --
SELECT greatest(extract(epoch FROM mailgres.now() - d.hour) - 1800, 0)::double precision, sum(d.emails)::bigint
FROM mailgres.counted_dead d GROUP BY d.hour HAVING sum(d.emails) > 0

-- dead_by_code --
SELECT CASE WHEN place <= %(most)s THEN coalesce(nullif(error_code, ''), 'none') ELSE 'other' END, sum(emails)::bigint
FROM (SELECT error_code, sum(emails) AS emails, row_number() OVER (ORDER BY sum(emails) DESC, error_code) AS place
      FROM public.email_dlq_by_code GROUP BY error_code) x
GROUP BY 1

-- dead_by_tenant --
SELECT CASE WHEN place <= %(most)s THEN tenant_id ELSE 'other' END, sum(emails)::bigint
FROM (SELECT tenant_id, emails, row_number() OVER (ORDER BY emails DESC, tenant_id) AS place
      FROM public.email_dlq_by_tenant) x
GROUP BY 1

-- tenants --
SELECT CASE WHEN place <= %(most)s THEN tenant_id ELSE 'other' END, sum(total_processed)::bigint,
       min(current_priority)::int, max(consecutive_batch)::bigint, max(rounds_without_processing)::bigint,
       sum(backlog)::bigint
FROM (SELECT f.*, row_number() OVER (ORDER BY total_processed DESC, backlog DESC, tenant_id) AS place
      FROM public.email_tenant_fairness f) x
GROUP BY 1

-- providers --
SELECT provider, usable, circuit, email_tokens::double precision, call_tokens::double precision,
       (quota_used / 100)::double precision
FROM public.email_providers

-- workers --
SELECT count(*) FILTER (WHERE alive) FROM public.email_workers

-- alerts --
SELECT rule, severity, count(*) FROM public.email_alerts GROUP BY 1, 2
