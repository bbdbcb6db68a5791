-- Removes all jobs of mailgres from pg_cron: those of janitors.sql and, on Supabase, of process.sql.
SELECT jobname, cron.unschedule(jobid) FROM cron.job WHERE jobname LIKE 'mailgres-%' ORDER BY jobname;
