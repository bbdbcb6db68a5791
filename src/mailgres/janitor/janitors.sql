-- One chunk of each janitor. Lock and work are one statement, so that the lock belongs to the
-- transaction that works, also behind a transaction pooler. No row: another process has the lock.

-- limits --
SELECT pg_catalog.set_config('statement_timeout', '5s', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)

-- promote --
SELECT mailgres.promote(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- reap --
SELECT mailgres.reap(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- expire --
SELECT mailgres.expire(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- archive_dead_letters --
SELECT mailgres.archive_dead_letters(%(chunk)s)
WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- purge_archive --
SELECT mailgres.purge_archive(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- delete_expired_emails --
SELECT mailgres.delete_expired_emails(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- fold_rollups --
SELECT mailgres.fold_rollups(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- delete_expired_rollups --
SELECT mailgres.delete_expired_rollups(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- run_bulk_actions --
SELECT mailgres.run_bulk_actions(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- report_captured --
SELECT mailgres.report_captured(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- delete_captured --
SELECT mailgres.delete_captured(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- delete_expired_suppressions --
SELECT mailgres.delete_expired_suppressions(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- match_email_events --
SELECT mailgres.match_email_events(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- measure_depth --
SELECT mailgres.measure_depth() WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- delete_stale_workers --
SELECT mailgres.delete_stale_workers(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- notify --
SELECT (x.done).handled, (x.done).to_log, (x.done).to_post
FROM (SELECT mailgres.notify(%(chunk)s, %(alert_email)s, %(webhook)s) AS done
      WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s)) OFFSET 0) x

-- record_webhook_result --
SELECT mailgres.record_webhook_result(%(webhook)s, %(ok)s, %(notification)s)

-- record_janitor_run --
SELECT mailgres.record_janitor_run(%(janitor)s, %(worker)s, %(error)s, %(every)s)

-- heartbeat --
SELECT mailgres.heartbeat(%(worker)s, %(version)s, %(details)s, %(providers)s)
