-- The senders that an application may set (docs/senders.md). Without a row it may set any.

CREATE TABLE mailgres.senders (
    tenant_id   text NOT NULL CHECK (length(tenant_id) BETWEEN 1 AND 200),
    sender      text NOT NULL,
    allowed_at  timestamptz NOT NULL DEFAULT mailgres.now(),
    PRIMARY KEY (tenant_id, sender)
);

COMMENT ON TABLE mailgres.senders IS
    'Senders that applications may set in from_email. A tenant uses its own rows, or those of * if it has none; without either, any sender is accepted.';
COMMENT ON COLUMN mailgres.senders.tenant_id IS 'The tenant; * is for tenants without a list of their own.';
COMMENT ON COLUMN mailgres.senders.sender IS
    'A domain, *. and a domain for all its subdomains, or one address; in canonical form.';

-- Roles that may enqueue for one tenant only.

CREATE TABLE mailgres.producers (
    role_name  text PRIMARY KEY,
    tenant_id  text NOT NULL CHECK (length(tenant_id) BETWEEN 1 AND 200),
    bound_at   timestamptz NOT NULL DEFAULT mailgres.now()
);

COMMENT ON TABLE mailgres.producers IS 'Roles that may enqueue for one tenant only; a role without a row may enqueue for any.';
COMMENT ON COLUMN mailgres.producers.role_name IS
    'The role that logs in, or the role that a session switches to with SET ROLE. Stored by name, so that it is still right after a restore.';
