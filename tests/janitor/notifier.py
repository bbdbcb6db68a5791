"""Where people are told: a webhook of the test's own, and the janitors that tell."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from doubles.http_server import Reply
from janitor.harness import ME, SECOND, JanitorHarness, put
from mailgres.janitor import JANITORS, AlertTargets, run
from mailgres.model import ClaimedEmail
from mailgres.sender import Renderer
from mailgres.worker.store import Store

MINUTE = timedelta(minutes=1)
ADMIN = "admin@example.com"
SECRET = "s3cr3t"


@dataclass
class Hook:
    """A webhook, its answers, and what it was told."""

    status: int = 200
    reset: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    news: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def __call__(self, method: str, path: str, _headers: dict[str, str], body: bytes) -> Reply:
        assert (method, path) == ("POST", f"/{SECRET}")
        self.news.append(json.loads(body))
        return Reply(self.status, b"ok", headers=self.headers, reset=self.reset)


class Notifier:
    """The janitors that tell people, and what comes of them."""

    def __init__(self, harness: JanitorHarness, hook: Hook) -> None:
        self.harness = harness
        self.alerts = AlertTargets(ADMIN, hook.url)

    def run(self, name: str, *, chunk: int | None = None) -> int:
        """Run a janitor with the settings of a worker; how much it handled."""
        janitor = replace(JANITORS[name], chunk=chunk or JANITORS[name].chunk)
        worker = replace(ME, alerts=self.alerts)
        return run(janitor, self.harness.pool.connection, worker).handled

    def call(self) -> int:
        """Call the webhook with what is new."""
        return self.run("deliver_notifications")

    def die(self, count: int = 1, **changes: str) -> None:
        """Let emails die, and so much time pass that this is seen."""
        found = put(self.harness, "failed", count)
        for column, value in changes.items():
            update = f"UPDATE email_queue SET {column} = %s WHERE id = ANY(%s)"
            self.harness.run(update, value, found)
        self.harness.clock.forward(20 * SECOND)

    def tell(self, *, after: timedelta = timedelta(0), chunk: int | None = None) -> int:
        """Tell of dead letters, also by the webhook; how many were new."""
        self.harness.clock.forward(after)
        handled = self.run("notify_dead_letters", chunk=chunk)
        self.call()
        return handled

    def check(self, *, after: timedelta = timedelta(0)) -> int:
        """Tell of alerts as a worker that lives, also by the webhook; of how many."""
        self.harness.clock.forward(after)
        self.run("heartbeat")
        handled = self.run("check_alerts")
        self.call()
        return handled

    def mails(self, to: str = ADMIN) -> list[Any]:
        return self.harness.rows(
            "SELECT * FROM email_queue WHERE recipient_email = %s"
            " AND template_type = 'mailgres_alert' ORDER BY id",
            to,
        )

    def firing(self) -> list[tuple[str, str]]:
        """Rules and subjects of the alerts that fire now."""
        found = self.harness.rows("SELECT rule, subject FROM email_alerts")
        return [(row.rule, row.subject) for row in found]


def rendered(
    harness: JanitorHarness, queue_id: object, locale: str | None = None
) -> tuple[str, str]:
    """Subject and text of an alert, as the worker renders it."""
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
