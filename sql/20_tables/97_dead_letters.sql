CREATE TABLE mailgres.dead_letters (
    queue_id       uuid PRIMARY KEY,
    tenant_id      text NOT NULL,
    template_type  text NOT NULL,
    dead_reason    text NOT NULL,
    error_code     text,
    dead_at        timestamptz NOT NULL,
    archived_at    timestamptz NOT NULL DEFAULT mailgres.now(),
    expires_at     timestamptz NOT NULL,
    email          jsonb NOT NULL,
    log            jsonb NOT NULL
);

CREATE INDEX dead_letters_newest_idx ON mailgres.dead_letters (dead_at DESC, queue_id);
-- A complaint can come weeks after the email left the queue.
CREATE INDEX dead_letters_message_idx ON mailgres.dead_letters ((email ->> 'provider_message_id'))
    WHERE email ->> 'provider_message_id' IS NOT NULL;
CREATE INDEX dead_letters_expires_idx ON mailgres.dead_letters (expires_at);

COMMENT ON TABLE mailgres.dead_letters IS
    'The archive of dead letters: the whole row of the email and its whole log.';

-- Two outboxes, filled in the transaction in which an email dies, so that what happens in a long
-- transaction is found when it commits. A process that deletes a row of the first logs the dead letter.
CREATE TABLE mailgres.dead_letters_to_log (
    queue_id  uuid NOT NULL,
    log_id    bigint NOT NULL,
    PRIMARY KEY (queue_id, log_id)
);

COMMENT ON TABLE mailgres.dead_letters_to_log IS 'Dead letters that no process has logged yet.';
COMMENT ON COLUMN mailgres.dead_letters_to_log.log_id IS 'The row of email_logs that says how it died.';

-- One row for each statement, tenant, template, reason and code: the notifier deletes and adds them up.
CREATE TABLE mailgres.dead_letters_to_notify (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL DEFAULT mailgres.now(),
    tenant_id      text NOT NULL,
    template_type  text NOT NULL,
    dead_reason    text NOT NULL,
    error_code     text,
    emails         bigint NOT NULL
);

COMMENT ON TABLE mailgres.dead_letters_to_notify IS 'Counts of dead letters that no notification contains yet.';
