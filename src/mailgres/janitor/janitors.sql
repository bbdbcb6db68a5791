-- One chunk of each janitor. Lock and work are one statement, so that the lock belongs to the
-- transaction that works, also behind a transaction pooler. No row: somebody else is at it.

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

-- measure_depth --
SELECT mailgres.measure_depth() WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- delete_stale_workers --
SELECT mailgres.delete_stale_workers(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- log_dead_letters --
SELECT (x.done).handled, (x.done).to_log
FROM (SELECT mailgres.log_dead_letters(%(chunk)s) AS done
      WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s)) OFFSET 0) x

-- notify_dead_letters --
SELECT (x.done).handled, (x.done).to_log
FROM (SELECT mailgres.notify_dead_letters(%(chunk)s, %(alert_email)s) AS done
      WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s)) OFFSET 0) x

-- check_alerts --
SELECT (x.done).handled, (x.done).to_log
FROM (SELECT mailgres.check_alerts(%(alert_email)s) AS done
      WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s)) OFFSET 0) x

-- deliver_notifications --
SELECT (x.done).handled, (x.done).notifications
FROM (SELECT mailgres.deliver_notifications(%(webhook)s) AS done
      WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s)) OFFSET 0) x

-- record_webhook_result --
SELECT mailgres.record_webhook_result(%(webhook)s, %(ok)s, %(notification)s)

-- record_janitor_run --
SELECT mailgres.record_janitor_run(%(janitor)s, %(worker)s, %(error)s, %(every)s)

-- heartbeat --
SELECT mailgres.heartbeat(%(worker)s, %(version)s, %(details)s, %(providers)s)
