-- Messages that the provider `capture` kept instead of sending: for development, demos and
-- tests. The primary key is the idempotency key, so that a repeated call keeps one message,
-- as with a real provider that supports keys.

CREATE TABLE mailgres.captured (
    key          text PRIMARY KEY,
    queue_id     uuid NOT NULL,
    captured_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    message      jsonb NOT NULL,
    report       text CHECK (report IN ('bounced'))
);

CREATE INDEX captured_queue_idx ON mailgres.captured (queue_id);
CREATE INDEX captured_time_idx ON mailgres.captured (captured_at);
CREATE INDEX captured_report_idx ON mailgres.captured (captured_at) WHERE report IS NOT NULL;

COMMENT ON TABLE mailgres.captured IS 'Messages kept by the provider capture instead of being sent.';
COMMENT ON COLUMN mailgres.captured.key IS 'The idempotency key of the call.';
COMMENT ON COLUMN mailgres.captured.report IS
    'The event that mailgres.report_captured() records once the email counts as sent, as a provider''s webhook would.';

CREATE TABLE mailgres.captured_files (
    key           text NOT NULL REFERENCES mailgres.captured ON DELETE CASCADE,
    position      int NOT NULL CHECK (position > 0),
    filename      text NOT NULL,
    content_type  text NOT NULL,
    content_id    text,
    bytes         int NOT NULL,
    content       bytea,
    PRIMARY KEY (key, position)
);

ALTER TABLE mailgres.captured_files ALTER COLUMN content SET STORAGE EXTERNAL;

COMMENT ON TABLE mailgres.captured_files IS 'The attachments of captured messages.';
COMMENT ON COLUMN mailgres.captured_files.content IS
    'Null if it was not kept: the files of one message were too large, or newer ones took its place.';

-- What the provider capture does wrong on purpose, once for each row: with the next email to an
-- address, of a template, or with the next one at all.
CREATE TABLE mailgres.capture_faults (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fault            text NOT NULL CHECK (fault IN ('bounce', 'timeout', 'reject', 'unanswered')),
    recipient_email  text CHECK (length(recipient_email) BETWEEN 1 AND 254),
    template_type    text CHECK (length(template_type) BETWEEN 1 AND 200),
    created_at       timestamptz NOT NULL DEFAULT mailgres.now()
);

COMMENT ON TABLE mailgres.capture_faults IS 'Faults that the provider capture simulates, each once.';
COMMENT ON COLUMN mailgres.capture_faults.fault IS
    'bounce: sent, and reported as bounced later; timeout: no connection; reject: refused for good; unanswered: accepted, but the answer is lost.';
COMMENT ON COLUMN mailgres.capture_faults.recipient_email IS 'Only for an email to this address; null: to any.';
COMMENT ON COLUMN mailgres.capture_faults.template_type IS 'Only for an email of this template; null: of any.';
