"""What `import mailgres` gives, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import mailgres

PUBLIC = [
    "Attachment",
    "Email",
    "EmailOptions",
    "Worker",
    "__version__",
    "cancel",
    "enqueue",
    "enqueue_many",
    "errors",
    "open_worker",
    "reschedule",
    "retry",
]
HEAVY = [
    "alembic",
    "apscheduler",
    "asyncio",
    "boto3",
    "click",
    "minijinja",
    "psycopg",
    "resend",
    "sqlalchemy",
]


def test_the_package_exports_exactly_the_public_names() -> None:
    assert mailgres.__all__ == PUBLIC


@pytest.mark.parametrize("name", [name for name in PUBLIC if not name.startswith("__")])
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(mailgres, name))


def test_the_import_loads_no_library() -> None:
    code = "import sys, mailgres; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert not set(HEAVY) & set(done.stdout.split())


def test_psycopg_alone_does_not_load_sqlalchemy(database_url: str) -> None:
    code = (
        "import sys, psycopg, mailgres\n"
        "with psycopg.connect(sys.argv[1]) as connection:\n"
        "    mailgres.enqueue(connection, 'welcome_user', 'ana@example.com')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, database_url],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "sqlalchemy" not in done.stdout.split()
