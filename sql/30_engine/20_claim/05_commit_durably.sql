-- Before a worker calls a provider, the database must have recorded it on disk; and where no
-- key protects, the outcome must not be lost. With synchronous_commit = off a crash of
-- PostgreSQL loses the last commits, and those emails would be sent again. So a setting weaker
-- than `on` is raised for this transaction; the stronger remote_apply is kept. A SET clause of a
-- function would not work: it ends before the commit.

CREATE FUNCTION mailgres.commit_durably() RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

COMMENT ON FUNCTION mailgres.commit_durably() IS
    'Makes this transaction commit to disk, whatever synchronous_commit says.';
