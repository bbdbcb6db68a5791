-- An expired suppression has no effect. It stays for a week, so that `mailgres suppressions explain` can
-- say why an email of the last days was cancelled.

CREATE FUNCTION mailgres.delete_expired_suppressions(p_limit int DEFAULT 1000) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    c_kept   constant interval := '7 days';
    v_count  int;
BEGIN
    -- a row that another session changes just now may be valid again
    DELETE FROM public.email_suppressions s
    WHERE s.ctid = ANY (ARRAY(
        SELECT x.ctid FROM public.email_suppressions x
        WHERE x.expires_at <= mailgres.now() - c_kept
        ORDER BY x.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

COMMENT ON FUNCTION mailgres.delete_expired_suppressions(int) IS
    'Deletes suppressions that expired a week ago; returns how many.';
