-- 0004_bulk_actions: what operators do with all emails that match a filter.
-- locks: none on tables that exist

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

CREATE TABLE mailgres.bulk_action_emails (
    action_id  bigint NOT NULL,
    queue_id   uuid NOT NULL,
    PRIMARY KEY (action_id, queue_id)
);
