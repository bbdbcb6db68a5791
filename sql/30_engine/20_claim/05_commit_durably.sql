-- Before a worker calls a provider, the database must know that it does; and where no key
-- protects, the outcome must not be forgotten. With synchronous_commit = off a crash of
-- PostgreSQL loses commits of the last moments, and those emails would be sent again. So what
-- is weaker than `on` is raised for this transaction; remote_apply, which is stronger, stays.
-- A SET clause of a function would not do: it ends before the commit.

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
    'Lets this transaction commit to disk, whatever synchronous_commit says.';
