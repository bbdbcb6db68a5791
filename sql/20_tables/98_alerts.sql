-- Alerts: rules are rows, and so is the state of each alert that fired, with what people were
-- notified of: once when it fires and once when it resolves.

CREATE TABLE mailgres.alert_rules (
    name         text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_]{0,62}$'),
    threshold    double precision NOT NULL CHECK (threshold >= 0 AND threshold < 'infinity'),
    unit         text NOT NULL,
    reaches      boolean NOT NULL DEFAULT false,
    time_window  interval CHECK (time_window > '0' AND time_window <= '7 days'),
    least        int NOT NULL DEFAULT 0 CHECK (least >= 0),
    severity     text NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    enabled      boolean NOT NULL DEFAULT true,
    about        text NOT NULL DEFAULT 'queue'
                 CHECK (about IN ('queue', 'tenant', 'template', 'provider', 'table', 'session', 'janitor')),
    means        text NOT NULL CHECK (means <> ''),
    runbook      text NOT NULL GENERATED ALWAYS AS ('mailgres alerts explain ' || name) STORED,
    CONSTRAINT alert_rules_percent CHECK (unit <> '%' OR threshold <= 100)
);

COMMENT ON TABLE mailgres.alert_rules IS 'When people are notified; change threshold, window, severity as you like.';
COMMENT ON COLUMN mailgres.alert_rules.threshold IS 'It fires when the figure is larger than this.';
COMMENT ON COLUMN mailgres.alert_rules.unit IS 'What the figure counts.';
COMMENT ON COLUMN mailgres.alert_rules.reaches IS 'It fires when the figure is as large as the threshold, too.';
COMMENT ON COLUMN mailgres.alert_rules.time_window IS
    'The time that the figure is about, or that something has to last; null: neither.';
COMMENT ON COLUMN mailgres.alert_rules.least IS
    'The smallest sample it judges: one failure of two emails at night fires nothing.';
COMMENT ON COLUMN mailgres.alert_rules.about IS 'What it fires for: the queue as a whole, or each tenant, template and so on.';
COMMENT ON COLUMN mailgres.alert_rules.runbook IS 'The command that says what to do.';

CREATE TABLE mailgres.alerts (
    rule         text NOT NULL REFERENCES mailgres.alert_rules ON UPDATE CASCADE ON DELETE CASCADE,
    subject      text NOT NULL DEFAULT '',
    figure       double precision NOT NULL,
    since        timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,
    resolved_at  timestamptz,
    notified     text NOT NULL DEFAULT 'nothing' CHECK (notified IN ('nothing', 'firing', 'resolved')),
    notified_at  timestamptz,
    PRIMARY KEY (rule, subject),
    CONSTRAINT alerts_notified CHECK ((notified = 'nothing') = (notified_at IS NULL))
) WITH (fillfactor = 50);

COMMENT ON TABLE mailgres.alerts IS 'Alerts that fire, or did, and what people were notified of them.';
COMMENT ON COLUMN mailgres.alerts.subject IS 'Which tenant, template, provider; empty: the queue.';
COMMENT ON COLUMN mailgres.alerts.seen_at IS 'When its rule was last true; it resolves when that was some minutes ago.';
COMMENT ON COLUMN mailgres.alerts.resolved_at IS 'When it resolved; null: it fires.';
COMMENT ON COLUMN mailgres.alerts.notified IS 'The last state that people were notified of.';

-- Notifications for the webhook. A row is deleted when a call succeeded. If the process that posts
-- it dies, another one takes it.

CREATE TABLE mailgres.notifications (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT mailgres.now(),
    body         jsonb NOT NULL,
    attempts     int NOT NULL DEFAULT 0,
    taken_until  timestamptz
);

COMMENT ON TABLE mailgres.notifications IS 'Notifications for operators that the webhook was not called with yet.';
COMMENT ON COLUMN mailgres.notifications.attempts IS 'Calls that failed.';
COMMENT ON COLUMN mailgres.notifications.taken_until IS 'Until then a worker is posting it, or it waits after a failure.';
