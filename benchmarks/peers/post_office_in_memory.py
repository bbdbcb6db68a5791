"""django-post_office draining into Django's in-memory backend.

    DATABASE_URL=… python post_office_in_memory.py EMAILS

Tuned in its favour: claims of 1,000, successes not logged, nothing rendered (mailgres renders a
template and logs every attempt). Prints the seconds that the drain took.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from urllib.parse import parse_qs, unquote, urlsplit

import django
from django.conf import settings
from django.core import mail as outbox
from django.core.management import call_command


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
        EMAIL_BACKEND="django.core.mail.backends.locmem.EmailBackend",
        POST_OFFICE={"BATCH_SIZE": 1000, "LOG_LEVEL": 0},
        USE_TZ=True,
    )
    django.setup()
    call_command("migrate", verbosity=0)


def main(url: str, count: int) -> None:
    """Fill the queue, then drain it."""
    logging.disable(logging.CRITICAL)
    configure(url)
    from post_office import mail  # noqa: PLC0415 - needs the configured project
    from post_office.models import PRIORITY, STATUS, Email  # noqa: PLC0415

    Email.objects.bulk_create(
        Email(
            from_email="hello@acme.example.com",
            to=f"user{number}@example.com",
            subject="Welcome to Acme, Ana",
            message="Welcome, Ana. https://app.example.com",
            html_message="<p>Welcome, Ana.</p>",
            status=STATUS.queued,
            priority=PRIORITY.medium,
        )
        for number in range(count)
    )
    start = time.perf_counter()
    sent = 0
    while found := mail.send_queued()[0]:
        sent += found
    seconds = time.perf_counter() - start
    if sent != count or len(outbox.outbox) != count:
        sys.exit(f"sent {sent} of {count}")
    print(seconds)


if __name__ == "__main__":
    main(os.environ["DATABASE_URL"], int(sys.argv[1]))
