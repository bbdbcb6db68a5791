-- record_events --
-- The answer promises that they are stored, whatever synchronous_commit says.
SELECT public.record_email_events(%(events)s) AS result,
       CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
            THEN set_config('synchronous_commit', 'on', true) END
