-- A bulk action: retry, cancel or reschedule all emails that matched a filter when it was started. The
-- emails that are still to be done are rows of bulk_action_emails. A chunk changes its emails, deletes
-- their rows and adds to the counts in one transaction, so that a chunk is done once or not at all.

CREATE TABLE mailgres.bulk_actions (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action        text NOT NULL CHECK (action IN ('retry', 'cancel', 'reschedule')),
    filter        jsonb NOT NULL,
    options       jsonb NOT NULL DEFAULT '{}',
    started_by    text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT mailgres.now(),
    state         text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'stopped', 'done')),
    chosen        bigint NOT NULL DEFAULT 0 CHECK (chosen >= 0),
    done          bigint NOT NULL DEFAULT 0 CHECK (done >= 0),
    refused       jsonb NOT NULL DEFAULT '{}',
    last_id       uuid,
    is_last_pass  boolean NOT NULL DEFAULT false,
    chunk_at      timestamptz NOT NULL DEFAULT mailgres.now(),
    resumed_by    text,
    stopped_by    text,
    error         text,
    ended_at      timestamptz,
    CONSTRAINT bulk_actions_ended CHECK ((state = 'running') = (ended_at IS NULL))
);

COMMENT ON TABLE mailgres.bulk_actions IS
    'What people did with all emails that matched a filter: who, how many, and how far it is.';
COMMENT ON COLUMN mailgres.bulk_actions.filter IS 'The filter, as for find_emails().';
COMMENT ON COLUMN mailgres.bulk_actions.options IS 'accept_duplicates of retry, reason of cancel, scheduled_for of reschedule.';
COMMENT ON COLUMN mailgres.bulk_actions.chosen IS 'How many emails matched when it was started.';
COMMENT ON COLUMN mailgres.bulk_actions.done IS 'How many of them were changed.';
COMMENT ON COLUMN mailgres.bulk_actions.refused IS 'How many were not, by message, with the code and the hint.';
COMMENT ON COLUMN mailgres.bulk_actions.last_id IS 'The last email that this pass looked at.';
COMMENT ON COLUMN mailgres.bulk_actions.is_last_pass IS
    'The first pass leaves out emails that another session has locked; the last pass does those that are free again.';
COMMENT ON COLUMN mailgres.bulk_actions.chunk_at IS 'When its last chunk was done.';
COMMENT ON COLUMN mailgres.bulk_actions.error IS 'The error of the chunk that stopped it.';

-- No foreign key: it would be checked for each of a hundred thousand emails when an action is started.
CREATE TABLE mailgres.bulk_action_emails (
    action_id  bigint NOT NULL,
    queue_id   uuid NOT NULL,
    PRIMARY KEY (action_id, queue_id)
);

COMMENT ON TABLE mailgres.bulk_action_emails IS 'The emails that bulk actions have still to do.';
