"""django-post_office draining into a backend that does nothing.

Settings, from its README: BATCH_SIZE 1,000, LOG_LEVEL 0 (successes are not logged), `send_many`
for thousands; nothing is rendered. Its command takes a lock file, so there is one process on a
machine, and cron starts it: it does not notice a new email by itself. A sent email stays in its
table.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

import django
from django.conf import settings
from django.core.mail.backends.base import BaseEmailBackend
from django.core.management import call_command
from protocol import Peer, chunks, main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.core.mail import EmailMessage

GROW = """
    INSERT INTO post_office_email
        (from_email, "to", cc, bcc, subject, message, html_message, status, priority, created,
         last_updated, scheduled_time, backend_alias, number_of_retries)
    SELECT 'hello@acme.example.com', 'user' || n || '@example.com', '', '', '0', '', '', %s, 2,
           now(), now(), now() + %s::interval, '', 0 FROM generate_series(1, %s) n
"""
SENT, QUEUED = 0, 2
peers: list[Peer] = []


class Backend(BaseEmailBackend):
    """Sends nothing."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Note each email; its subject is its number."""
        for message in email_messages:
            peers[0].called(int(message.subject))
        return len(email_messages)


def configure(url: str) -> None:
    """Set up a Django project with only the queue in it."""
    parts = urlsplit(url)
    settings.configure(
        INSTALLED_APPS=["post_office"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts.path.lstrip("/"),
                "USER": unquote(parts.username or ""),
                "PASSWORD": unquote(parts.password or ""),
                "HOST": parts.hostname or parse_qs(parts.query).get("host", [""])[0],
                "PORT": parts.port or "",
            }
        },
        EMAIL_BACKEND="__main__.Backend",
        POST_OFFICE={"BATCH_SIZE": 1000, "LOG_LEVEL": 0, "SENDING_ORDER": ["id"]},
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        USE_TZ=True,
    )
    django.setup()


class PostOffice(Peer):
    """The queue."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        peers.append(self)
        configure(url)
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None

    def email(self, number: int) -> dict[str, object]:
        """Return the arguments for one email."""
        return {
            "recipients": f"user{number}@example.com",
            "sender": "hello@acme.example.com",
            "subject": str(number),
            "message": "Welcome, Ana. https://app.example.com",
            "html_message": "<p>Welcome, Ana.</p>",
        }

    def setup(self) -> None:
        """Make the tables."""
        call_command("migrate", verbosity=0)

    def fill(self, first: int, count: int, tenants: int) -> None:  # noqa: ARG002 - it has none
        """Enqueue with send_many."""
        from post_office import mail  # noqa: PLC0415 - needs the configured project

        for numbers in chunks(first, count):
            mail.send_many([self.email(number) for number in numbers])

    def enqueue_one(self, number: int) -> None:
        """Enqueue one."""
        from post_office import mail  # noqa: PLC0415

        mail.send(**self.email(number))

    def grow(self, sent: int, future: int) -> None:
        """Add rows."""
        from django.db import connection  # noqa: PLC0415

        with connection.cursor() as cursor:
            cursor.execute(GROW, (SENT, "-1 day", sent))
            cursor.execute(GROW, (QUEUED, "1 day", future))
            cursor.execute("ANALYZE post_office_email")

    def left(self) -> int:
        """Count."""
        from post_office.mail import get_queued  # noqa: PLC0415

        return get_queued().count()

    def work(self) -> None:
        """Start a loop of its command."""
        self.stopping.clear()
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def loop(self) -> None:
        """Send what is queued, again and again."""
        from django.db import connection  # noqa: PLC0415
        from post_office import mail  # noqa: PLC0415

        while not self.stopping.is_set():
            if not mail.send_queued()[0]:
                self.stopping.wait(0.1)
        connection.close()

    def stop(self) -> None:
        """Stop it."""
        self.stopping.set()
        self.thread.join()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(PostOffice)
