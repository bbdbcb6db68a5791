-- Who was told what about dead letters: the operators, and tenants that have a contact.

CREATE TABLE mailgres.notices (
    audience           text PRIMARY KEY CHECK (audience = 'operators' OR audience LIKE 'tenant:_%'),
    seen_until         timestamptz NOT NULL DEFAULT '-infinity',
    waiting            bigint NOT NULL DEFAULT 0,
    told_at            timestamptz,
    level              text NOT NULL DEFAULT 'none' CHECK (level IN ('none', 'alarm', 'ceiling')),
    webhook            text,
    webhook_failures   int NOT NULL DEFAULT 0,
    webhook_off_since  timestamptz
);

COMMENT ON TABLE mailgres.notices IS 'What people were told about dead letters, and what they will be.';
COMMENT ON COLUMN mailgres.notices.audience IS 'operators, or tenant: and the name of one.';
COMMENT ON COLUMN mailgres.notices.seen_until IS
    'operators: up to when dead letters were counted; a tenant: since when those waiting became dead.';
COMMENT ON COLUMN mailgres.notices.waiting IS 'Dead letters that they have not been told of.';
COMMENT ON COLUMN mailgres.notices.level IS
    'What was told about their number: alarm is more than 100, ceiling more than 10,000.';
COMMENT ON COLUMN mailgres.notices.webhook IS 'A digest of the webhook that the failures belong to.';
COMMENT ON COLUMN mailgres.notices.webhook_off_since IS 'It failed ten times in a row and is not called since.';
