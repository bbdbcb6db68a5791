CREATE FUNCTION mailgres.set_defaults(p_retry_policy text, p_expires_after interval) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = ''
AS $$
BEGIN
    UPDATE mailgres.settings s
    SET retry_policy = p_retry_policy, expires_after = p_expires_after
    WHERE (s.retry_policy, s.expires_after) IS DISTINCT FROM (p_retry_policy, p_expires_after);
END
$$;

COMMENT ON FUNCTION mailgres.set_defaults(text, interval) IS
    'What holds for emails that do not say otherwise: a profile of the worker chooses it.';
