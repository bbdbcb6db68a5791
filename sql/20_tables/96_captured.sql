-- Messages that the provider `capture` kept instead of sending: for development, demos and
-- tests. The primary key is the idempotency key, so that a repeated call keeps one message,
-- as with a real provider that supports keys.

CREATE TABLE mailgres.captured (
    key          text PRIMARY KEY,
    queue_id     uuid NOT NULL,
    captured_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    message      jsonb NOT NULL
);

CREATE INDEX captured_queue_idx ON mailgres.captured (queue_id);

COMMENT ON TABLE mailgres.captured IS 'Messages kept by the provider capture instead of being sent.';
COMMENT ON COLUMN mailgres.captured.key IS 'The idempotency key of the call.';
