-- The default route uses `capture`, which keeps emails in the database: a new queue sends nothing
-- until a provider is configured.

INSERT INTO mailgres.providers (name, kind, captures, idempotent, batch_size) VALUES ('capture', 'capture', true, true, 100);
INSERT INTO mailgres.routes (route, description, initial) VALUES ('default', 'Emails that name no other route.', true);
INSERT INTO mailgres.route_providers (route, position, provider) VALUES ('default', 1, 'capture');

-- One for each concurrent claim; more than that wait for a slot.
INSERT INTO mailgres.claim_slots (slot) SELECT generate_series(1, 32);
