-- Which senders an application may set (docs/senders.md). Without a row any may be set.

CREATE TABLE mailgres.senders (
    tenant_id   text NOT NULL CHECK (length(tenant_id) BETWEEN 1 AND 200),
    sender      text NOT NULL,
    allowed_at  timestamptz NOT NULL DEFAULT mailgres.now(),
    PRIMARY KEY (tenant_id, sender)
);

COMMENT ON TABLE mailgres.senders IS
    'Senders that applications may set in from_email. A tenant with rows of its own has those, else those of *; without either any sender is accepted.';
COMMENT ON COLUMN mailgres.senders.tenant_id IS 'Whose list; * is the list of tenants without one.';
COMMENT ON COLUMN mailgres.senders.sender IS
    'A domain, *. and a domain for all its subdomains, or one address; in the canonical form.';

-- Which roles may enqueue for one tenant only.

CREATE TABLE mailgres.producers (
    role_name  text PRIMARY KEY,
    tenant_id  text NOT NULL CHECK (length(tenant_id) BETWEEN 1 AND 200),
    bound_at   timestamptz NOT NULL DEFAULT mailgres.now()
);

COMMENT ON TABLE mailgres.producers IS 'Roles that enqueue for one tenant only; a role without a row is not bound.';
COMMENT ON COLUMN mailgres.producers.role_name IS
    'The role that logs in, or the one that a session switches to. By name, so that it holds after a restore.';
