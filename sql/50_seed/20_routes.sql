-- The default route leads to `capture`, which keeps emails in the database: a fresh
-- queue sends nothing to anybody until a provider is configured.

INSERT INTO mailgres.providers (name, kind, captures, idempotent, batch_size) VALUES ('capture', 'capture', true, true, 100);
INSERT INTO mailgres.routes (route, description, initial) VALUES ('default', 'What names no other route.', true);
INSERT INTO mailgres.route_providers (route, position, provider) VALUES ('default', 1, 'capture');

-- One for each claim that runs at the same moment; more than that wait for a slot.
INSERT INTO mailgres.claim_slots (slot) SELECT generate_series(1, 32);
