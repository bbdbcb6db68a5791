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
CREATE INDEX dead_letters_expires_idx ON mailgres.dead_letters (expires_at);

COMMENT ON TABLE mailgres.dead_letters IS
    'The archive of dead letters: the whole row of the email and its whole log.';

-- Written with the log of a death, whoever caused it; whoever takes the row tells of it.
CREATE TABLE mailgres.dead_letters_to_log (
    queue_id  uuid NOT NULL,
    log_id    bigint NOT NULL,
    PRIMARY KEY (queue_id, log_id)
);

COMMENT ON TABLE mailgres.dead_letters_to_log IS 'Emails that died and of which no log of a process tells yet.';
COMMENT ON COLUMN mailgres.dead_letters_to_log.log_id IS 'The row of email_logs that says how.';
