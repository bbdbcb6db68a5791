-- The two checks of docs/senders.md at enqueue: whether the tenant's email may have this sender, and
-- for which tenant the caller may enqueue.

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
    -- The tenant's own list counts, if there is one. No row of either list: null, and any sender is allowed.
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

-- In a function with the rights of its owner, current_user is not the caller: session_user is the
-- role that logged in, and the setting `role` the one of SET ROLE. The binding of either applies,
-- so that a bound role cannot escape by switching to another role.
CREATE FUNCTION mailgres.tenant_for(p_named text, p_bound text, p_also text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_bound IS NULL THEN p_named
            WHEN p_bound = p_also AND p_named IN ('default', p_bound) THEN p_bound END;

COMMENT ON FUNCTION mailgres.tenant_for(text, text, text) IS
    'The tenant for which a caller enqueues that named p_named and is bound to tenants; null: not allowed. The name default counts as none.';

-- p_many: the error says which element of the array it is about.
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
    'The requests with the tenant that the calling role is bound to, if any; refuses requests for another tenant.';
