"""The notifier with a webhook of the test's own, and what people get from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from doubles.http_server import Reply
from janitor.harness import ME, JanitorHarness, put
from mailgres.janitor import JANITORS, AlertTargets, notify, run
from mailgres.model import ClaimedEmail
from mailgres.sender import Renderer
from mailgres.worker.store import Store

MINUTE = timedelta(minutes=1)
ADMIN = "admin@example.com"
SECRET = "s3cr3t"
WITHOUT_WEBHOOK = f"SELECT mailgres.notify(NULL, '{ADMIN}')"
"""The notifier in SQL: what it finds waits for a process that has the webhook."""
DIE = """
    UPDATE email_queue SET status = 'failed', error_message = 'no such mailbox', error_code = %s
    WHERE id = ANY (%s)
"""


@dataclass
class Hook:
    """A webhook, its answers, and the notifications that it got."""

    status: int = 200
    reset: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    got: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def __call__(self, method: str, path: str, _headers: dict[str, str], body: bytes) -> Reply:
        assert (method, path) == ("POST", f"/{SECRET}")
        self.got.append(json.loads(body))
        return Reply(self.status, b"ok", headers=self.headers, reset=self.reset)


class Notifier:
    """The janitor `notify` with the settings of a worker."""

    def __init__(self, harness: JanitorHarness, hook: Hook) -> None:
        self.harness = harness
        self.alerts = AlertTargets(ADMIN, hook.url)

    def run(self, *, after: timedelta = timedelta(0)) -> list[dict[str, Any]]:
        """Run the notifier in a worker that lives, some time later; return what it logged."""
        self.harness.clock.forward(after)
        found: list[Any] = []

        def report(action: str, rows: Sequence[Any], *rest: Any) -> None:
            found.extend(rows)
            notify.report(action, rows, *rest)

        worker = replace(ME, alerts=self.alerts)
        run(JANITORS["heartbeat"], self.harness.pool.connection, worker)
        run(replace(JANITORS["notify"], after=report), self.harness.pool.connection, worker)
        return [one for to_log, _ in found for one in to_log]

    def alerts_notified(self, *, after: timedelta = timedelta(0)) -> int:
        """Run the notifier; return of how many alerts it notified the operators."""
        return sum(
            len(one["firing"]) + len(one["resolved"]) + one["more"]
            for one in self.run(after=after)
            if (one["event"], one.get("audience")) == ("Alerts", "operators")
        )

    def dead_letters_notified(self, *, after: timedelta = timedelta(0)) -> int:
        """Run the notifier; return of how many dead letters it notified the operators."""
        return sum(
            one["new"]
            for one in self.run(after=after)
            if (one["event"], one.get("audience")) == ("DeadLetters", "operators")
        )

    def die(self, count: int = 1, *, code: str | None = None, **fields: str) -> None:
        """Let emails with these fields die."""
        made = put(self.harness, "pending", count)
        for column, value in fields.items():
            update = f"UPDATE email_queue SET {column} = %s WHERE id = ANY(%s)"
            self.harness.run(update, value, made)
        self.harness.run(DIE, code, made)

    def mails(self, to: str = ADMIN) -> list[Any]:
        """Return the notification emails to an address."""
        return self.harness.rows(
            "SELECT * FROM email_queue WHERE recipient_email = %s"
            " AND template_type = 'mailgres_alert' ORDER BY id",
            to,
        )

    def firing(self) -> list[tuple[str, str]]:
        """Return rules and subjects of the alerts that fire now."""
        found = self.harness.rows("SELECT rule, subject FROM email_alerts")
        return [(row.rule, row.subject) for row in found]


def rendered(
    harness: JanitorHarness, queue_id: object, locale: str | None = None
) -> tuple[str, str]:
    """Return subject and text of a notification, as the worker renders it."""
    harness.use_provider("resend")
    (email,) = [one for one in harness.claim() if one.id == queue_id]
    store = Store(harness.url, worker="test")
    try:
        names = ClaimedEmail.__dataclass_fields__.keys() - {"alone"}
        known = {name: getattr(email, name) for name in names}
        known["payload"] = json.dumps(email.payload | ({"locale": locale} if locale else {}))
        (message,) = Renderer(store, "mailgres@example.com").render([ClaimedEmail(**known)])
    finally:
        store.close()
    assert message.text, message  # type: ignore[union-attr]
    return message.subject, message.text  # type: ignore[union-attr]
