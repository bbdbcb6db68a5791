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

-- archive --
SELECT mailgres.archive_dead_letters(%(chunk)s)
WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- purge --
SELECT mailgres.purge_archive(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- retention --
SELECT mailgres.retain(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- rollups --
SELECT mailgres.fold(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- trim --
SELECT mailgres.trim_rollups(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- depth --
SELECT mailgres.measure_depth() WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- forget --
SELECT mailgres.forget_workers(%(chunk)s) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s))

-- deaths --
SELECT (x.done).handled, (x.done).told
FROM (SELECT mailgres.take_deaths(%(chunk)s) AS done
      WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s)) OFFSET 0) x

-- tell --
SELECT (x.done).handled, (x.done).told
FROM (SELECT mailgres.tell(%(chunk)s, %(alert_email)s) AS done
      WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s)) OFFSET 0) x

-- alerts --
SELECT (x.done).handled, (x.done).told
FROM (SELECT mailgres.check_alerts(%(alert_email)s) AS done
      WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s)) OFFSET 0) x

-- webhook --
SELECT (x.done).handled, (x.done).news
FROM (SELECT mailgres.take_news(%(webhook)s) AS done
      WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext(%(lock)s)) OFFSET 0) x

-- note_webhook --
SELECT mailgres.note_webhook(%(webhook)s, %(ok)s, %(news)s)

-- note_janitor --
SELECT mailgres.note_janitor(%(janitor)s, %(worker)s, %(error)s, %(every)s)

-- heartbeat --
SELECT mailgres.heartbeat(%(worker)s, %(version)s, %(details)s, %(providers)s)
