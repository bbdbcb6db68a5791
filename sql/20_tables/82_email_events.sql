-- What providers report after they accepted an email. One row per event, append-only; janitors delete
-- the events of an email together with the email. An event whose email is not known waits in
-- mailgres.unmatched_events for a day.

CREATE TABLE public.email_events (
    id                   bigint GENERATED ALWAYS AS IDENTITY,
    queue_id             uuid NOT NULL,
    provider             text NOT NULL,
    event                text NOT NULL,
    occurred_at          timestamptz NOT NULL,
    received_at          timestamptz NOT NULL DEFAULT mailgres.now(),
    kind                 text CHECK (kind IN ('hard', 'soft', 'undetermined')),
    reason               text,
    tenant_id            text NOT NULL,
    template_type        text NOT NULL,
    provider_message_id  text,
    event_id             text,
    recipient_email      text,
    detail               jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (queue_id, id)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE UNIQUE INDEX email_events_event_idx ON public.email_events (provider, event_id) WHERE event_id IS NOT NULL;

-- The series of soft bounces of an address, and why it is suppressed.
CREATE INDEX email_events_recipient_idx ON public.email_events (recipient_email, occurred_at)
    WHERE recipient_email IS NOT NULL AND event IN ('delivered', 'bounced', 'complained', 'unsubscribed', 'suppressed');

CREATE TRIGGER email_events_are_append_only
    BEFORE UPDATE OR TRUNCATE ON public.email_events
    FOR EACH STATEMENT EXECUTE FUNCTION mailgres.forbid_change();

COMMENT ON TABLE public.email_events IS
    'What providers reported about emails that they accepted: one row per event. Append-only.';
COMMENT ON COLUMN public.email_events.queue_id IS 'The email.';
COMMENT ON COLUMN public.email_events.provider IS 'The provider that reported it.';
COMMENT ON COLUMN public.email_events.event IS
    'sent, delivered, delayed, bounced, complained, opened, clicked, failed, suppressed, unsubscribed or rejected; or another name, which changes nothing.';
COMMENT ON COLUMN public.email_events.occurred_at IS 'When it happened, by the provider''s clock.';
COMMENT ON COLUMN public.email_events.received_at IS 'When it was recorded.';
COMMENT ON COLUMN public.email_events.kind IS 'Of a bounce: hard, soft or undetermined.';
COMMENT ON COLUMN public.email_events.reason IS
    'Of a bounce: mailbox_unknown, mailbox_full, content, size, reputation, policy, timed_out or other; of a failure also quota.';
COMMENT ON COLUMN public.email_events.provider_message_id IS 'The provider''s id of the email.';
COMMENT ON COLUMN public.email_events.event_id IS 'The provider''s id of the event: a copy with the same id is not recorded again.';
COMMENT ON COLUMN public.email_events.recipient_email IS
    'The recipient whom the event concerns, in the form in which addresses are compared; null if the provider does not say which.';
COMMENT ON COLUMN public.email_events.detail IS 'What the provider said; for operators only, because it may quote addresses.';

CREATE TABLE mailgres.unmatched_events (
    id                   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider             text NOT NULL,
    event                text NOT NULL,
    provider_message_id  text,
    queue_id             uuid,
    event_id             text,
    occurred_at          timestamptz NOT NULL,
    recipient_email      text,
    detail               jsonb NOT NULL,
    received_at          timestamptz NOT NULL DEFAULT mailgres.now(),
    looked_up            int NOT NULL DEFAULT 0,
    next_lookup_at       timestamptz NOT NULL DEFAULT mailgres.now()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE UNIQUE INDEX unmatched_events_event_idx ON mailgres.unmatched_events (provider, event_id)
    WHERE event_id IS NOT NULL;
CREATE INDEX unmatched_events_due_idx ON mailgres.unmatched_events (next_lookup_at);

COMMENT ON TABLE mailgres.unmatched_events IS
    'Events whose email is not known, or not yet: looked up again for a day.';
COMMENT ON COLUMN mailgres.unmatched_events.looked_up IS 'How often a janitor looked for its email.';

-- The state of each email that has events. A narrow table, because no update of email_queue is HOT.
-- Every column merges events in a way that no order and no number of copies changes: seen is the set
-- of the events, times are the earliest, and the state is that of the event that says most.
CREATE TABLE mailgres.deliveries (
    queue_id         uuid PRIMARY KEY,
    seen             int NOT NULL,
    seen_before      int NOT NULL DEFAULT 0,
    made_dead        boolean NOT NULL DEFAULT false,
    sent_at          timestamptz,
    delivered_at     timestamptz,
    delivered_before timestamptz,
    opened_at        timestamptz,
    clicked_at       timestamptz,
    bounced_at       timestamptz,
    bounce_kind      text,
    bounce_reason    text,
    complained_at    timestamptz,
    unsubscribed_at  timestamptz,
    failed_at        timestamptz,
    state            text NOT NULL GENERATED ALWAYS AS (CASE
        WHEN seen & 2048 <> 0 THEN 'complained'
        WHEN seen & 256 <> 0 THEN 'bounced'
        WHEN seen & 1248 <> 0 THEN 'delivered'  -- an email that was opened was delivered
        WHEN seen & 16 <> 0 THEN 'suppressed'
        WHEN seen & 8 <> 0 THEN 'rejected'
        WHEN seen & 4 <> 0 THEN 'failed'
        WHEN seen & 2 <> 0 THEN 'delayed'
        WHEN seen & 1 <> 0 THEN 'sent'
        ELSE 'unknown' END) STORED
) WITH (fillfactor = 80);

COMMENT ON TABLE mailgres.deliveries IS 'The state of each email that has events, whatever their order.';
COMMENT ON COLUMN mailgres.deliveries.seen IS
    'The set of its events: 1 sent, 2 delayed, 4 failed, 8 rejected, 16 suppressed, 32 delivered, 64 opened, 128 clicked, 256 bounced, 512 hard bounce, 1024 unsubscribed, 2048 complained, 4096 failed because of a quota.';
COMMENT ON COLUMN mailgres.deliveries.seen_before IS 'seen before the last change: tells what is new.';
COMMENT ON COLUMN mailgres.deliveries.delivered_before IS 'delivered_at before the last change.';
COMMENT ON COLUMN mailgres.deliveries.made_dead IS 'Whether an event made the email a dead letter.';
COMMENT ON COLUMN mailgres.deliveries.failed_at IS 'When the provider failed, rejected or suppressed it.';
COMMENT ON COLUMN mailgres.deliveries.state IS
    'complained, bounced, delivered, suppressed, rejected, failed, delayed or sent: the first of these that was reported.';
