-- The two questions that enqueuing asks of docs/senders.md: may this tenant's email have this
-- sender, and for which tenant may the caller enqueue?

-- The plain address of a sender: `Example <mail@example.com>` has a name before it.
CREATE FUNCTION mailgres.address_of(p_sender text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(substring(p_sender FROM '^[^<>]*<([^<>]*)>$'), p_sender);

COMMENT ON FUNCTION mailgres.address_of(text) IS 'The plain address of a sender with or without a display name.';

CREATE FUNCTION mailgres.may_send_as(p_tenant text, p_sender text) RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_address  constant text := mailgres.canonical_address(mailgres.address_of(p_sender));
    v_domain   constant text := substring(v_address FROM '[^@]*$');
    v_may      boolean;
BEGIN
    -- The own list counts, if there is one; no row of either: null, and any sender may be set.
    SELECT bool_or(s.sender IN (v_address, v_domain)
                   OR s.sender LIKE '*.%' AND right(v_domain, length(s.sender) - 1) = substr(s.sender, 2))
    INTO v_may
    FROM mailgres.senders s
    WHERE s.tenant_id IN ('*', p_tenant)
    GROUP BY s.tenant_id
    ORDER BY s.tenant_id = p_tenant DESC
    LIMIT 1;
    RETURN coalesce(v_may, true);
END
$$;

COMMENT ON FUNCTION mailgres.may_send_as(text, text) IS
    'Whether an email of a tenant may have this sender.';

-- A function that runs with the rights of its owner cannot ask current_user who called it:
-- session_user logged in, and the setting `role` says what SET ROLE made of it. The binding
-- of either holds, so that a bound role does not escape by switching to another.
CREATE FUNCTION mailgres.tenant_for(p_named text, p_bound text, p_also text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_bound IS NULL THEN p_named
            WHEN p_bound = p_also AND p_named IN ('default', p_bound) THEN p_bound END;

COMMENT ON FUNCTION mailgres.tenant_for(text, text, text) IS
    'For which tenant a caller enqueues that named one and is bound to others; null: it may not. The name default counts as none.';

-- p_many: the error names the place of the email.
CREATE FUNCTION mailgres.for_caller(p_requests mailgres.request[], p_many boolean) RETURNS mailgres.request[]
    LANGUAGE plpgsql
AS $$
DECLARE
    v_bound   text;
    v_also    text;
    v_other   record;
BEGIN
    SELECT min(b.tenant_id), max(b.tenant_id) INTO v_bound, v_also
    FROM mailgres.producers b WHERE b.role_name IN (session_user, current_setting('role'));
    IF v_bound IS NULL THEN
        RETURN p_requests;
    END IF;
    SELECT r.ordinality - 1 AS place INTO v_other
    FROM unnest(p_requests) WITH ORDINALITY r
    WHERE mailgres.tenant_for(r.tenant_id, v_bound, v_also) IS NULL
    ORDER BY r.ordinality LIMIT 1;
    IF FOUND THEN
        PERFORM mailgres.refuse_request('MG019', NULL, CASE WHEN p_many THEN v_other.place END);
    END IF;
    RETURN ARRAY(
        SELECT jsonb_populate_record(r, jsonb_build_object('tenant_id', v_bound)) FROM unnest(p_requests) r);
END
$$;

COMMENT ON FUNCTION mailgres.for_caller(mailgres.request[], boolean) IS
    'The requests with the tenant that the calling role is bound to, if it is; refuses those of another.';
