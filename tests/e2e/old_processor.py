"""A processor as projects have them: claims by the RPC, sends by itself, marks what came of it.

    python -m e2e.old_processor DATABASE_URL RESEND_URL

It knows no tokens and no idempotency keys. Ends with SIGTERM, after the emails that it has.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import psycopg

from doubles.resend import KEY

PAUSE = 0.05
CLAIM = """
    SELECT queue_id, template_type, recipient_email FROM process_pending_emails_for_retry(5)
"""
"""Without the payload: Python cannot read every JSON that PostgreSQL takes."""
UNKNOWN = "bad_"
"""How the names of templates begin that it does not know."""
stopping = threading.Event()


class Processor:
    """One loop: claim, send, mark."""

    def __init__(self, database_url: str, resend_url: str) -> None:
        self.database_url = database_url
        self.resend_url = resend_url
        self.sent = 0
        self.failed = 0
        self._connection: psycopg.Connection | None = None

    def run(self) -> None:
        while not stopping.is_set():
            for queue_id, template, recipient in self.ask(CLAIM, again=False):
                self.process(str(queue_id), template, recipient)
            time.sleep(PAUSE)

    def process(self, queue_id: str, template: str, recipient: str) -> None:
        try:
            resend_id = self.send(queue_id, template, recipient)
        except (OSError, ValueError) as error:
            self.failed += 1
            self.ask("SELECT mark_email_failed(%s, %s)", queue_id, str(error))
        else:
            self.sent += 1
            self.ask("SELECT mark_email_sent(%s, %s)", queue_id, resend_id)

    def send(self, queue_id: str, template: str, recipient: str) -> str:
        if template.startswith(UNKNOWN):
            raise ValueError("the template is not known")
        body = {
            "from": "Shop <noreply@example.com>",
            "to": [recipient],
            "subject": template,
            "text": "hello",
            "tags": [{"name": "mailgres_id", "value": queue_id}],  # so that the double can count
        }
        request = urllib.request.Request(  # noqa: S310 - the double
            f"{self.resend_url}/emails",
            json.dumps(body).encode(),
            {"authorization": f"Bearer {KEY}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            given: str = json.load(answer)["id"]
            return given

    def ask(self, query: str, *parameters: str, again: bool = True) -> list[Any]:
        """Ask the database; a sent email is reported however often the database is away."""
        while True:
            try:
                if self._connection is None:
                    self._connection = psycopg.connect(self.database_url, autocommit=True)
                return self._connection.execute(query, parameters or None).fetchall()
            except psycopg.OperationalError:
                if self._connection is not None:
                    self._connection.close()
                self._connection = None
                time.sleep(PAUSE)
                if not again:
                    return []


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    processor = Processor(*sys.argv[1:])
    processor.run()
    print(json.dumps({"sent": processor.sent, "failed": processor.failed}))  # noqa: T201


if __name__ == "__main__":
    main()
