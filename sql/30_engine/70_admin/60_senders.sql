-- Settings of senders and producers, for operators: docs/senders.md.

CREATE FUNCTION mailgres.require_sender(p_sender text) RETURNS text
    LANGUAGE plpgsql
AS $$
DECLARE
    -- a domain is checked as part of an address
    v_address constant text := CASE WHEN p_sender LIKE '%@%' THEN p_sender
                                    ELSE 'x@' || CASE WHEN p_sender LIKE '*.%' THEN substr(p_sender, 3)
                                                      ELSE p_sender END END;
BEGIN
    IF mailgres.is_address(v_address) IS NOT TRUE THEN
        PERFORM mailgres.refuse('MG075', 'the sender is neither a domain nor an address',
            'Give a domain such as example.com, *.example.com for all its subdomains, or one plain address.');
    END IF;
    RETURN CASE WHEN p_sender LIKE '%@%' THEN mailgres.canonical_address(p_sender)
                WHEN p_sender LIKE '*.%' THEN '*.' || mailgres.canonical_address(substr(p_sender, 3))
                ELSE mailgres.canonical_address(p_sender) END;
END
$$;

COMMENT ON FUNCTION mailgres.require_sender(text) IS
    'A domain or an address in the form of the list of senders; refuses anything else.';

CREATE FUNCTION mailgres.allow_sender(p_tenant text, p_sender text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coalesce(length(p_tenant), 0) NOT BETWEEN 1 AND 200 THEN
        PERFORM mailgres.refuse('MG013', 'the tenant is not valid', 'tenant_id takes 1 to 200 characters; * means the list of tenants without one.');
    END IF;
    INSERT INTO mailgres.senders (tenant_id, sender) VALUES (p_tenant, mailgres.require_sender(p_sender))
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.allow_sender(text, text) IS
    'Allows a domain or an address as sender for a tenant (* for tenants without a list); false if it was allowed before.';

CREATE FUNCTION mailgres.disallow_sender(p_tenant text, p_sender text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM mailgres.senders s
    WHERE s.tenant_id = p_tenant AND s.sender = mailgres.require_sender(p_sender);
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.disallow_sender(text, text) IS
    'Removes a domain or an address from the list of a tenant; false if it was not on it. Without a list any sender is accepted.';

CREATE FUNCTION mailgres.bind_producer(p_role text, p_tenant text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = p_role) THEN
        PERFORM mailgres.refuse('MG076', format('there is no role %L', p_role),
            'Give the name of a role as pg_roles has it: the one that logs in, or the one that sessions switch to.');
    END IF;
    IF coalesce(length(p_tenant), 0) NOT BETWEEN 1 AND 200 OR p_tenant = '*' THEN
        PERFORM mailgres.refuse('MG013', 'the tenant is not valid', 'tenant_id takes 1 to 200 characters; a role is bound to one.');
    END IF;
    INSERT INTO mailgres.producers AS b (role_name, tenant_id) VALUES (p_role, p_tenant)
    ON CONFLICT (role_name) DO UPDATE SET tenant_id = excluded.tenant_id, bound_at = excluded.bound_at
    WHERE b.tenant_id <> excluded.tenant_id;
END
$$;

COMMENT ON FUNCTION mailgres.bind_producer(text, text) IS
    'Binds a role to one tenant, for which alone it may enqueue. This applies to that role, not to its members.';

CREATE FUNCTION mailgres.unbind_producer(p_role text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM mailgres.producers b WHERE b.role_name = p_role;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION mailgres.unbind_producer(text) IS
    'Lets a role enqueue for any tenant again; false if it was not bound.';
