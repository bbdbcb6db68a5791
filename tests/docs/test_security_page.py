"""docs/security.md says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LOGINS = ("acme_app", "acme_mail_worker", "acme_operator", "acme_bi")
MAY_CALL = """
    SELECT has_function_privilege(%(role)s, oid, 'EXECUTE') FROM pg_proc
    WHERE oid = to_regproc(%(function)s)
"""


def test_the_sql_of_the_page_on_security_gives_each_role_what_the_page_says(
    conn: psycopg.Connection,
) -> None:
    # Rolled back, because roles belong to the whole server.
    with conn.transaction(force_rollback=True):
        for block in BLOCKS:
            conn.execute(block.encode())
        for function, roles in {
            "public.enqueue_email": {"acme_app", "acme_operator"},
            "mailgres.claim": {"acme_mail_worker"},
            "public.cancel_email": {"acme_operator"},
        }.items():
            may = {
                role
                for role in LOGINS
                if conn.execute(MAY_CALL, {"role": role, "function": function}).fetchone()
                == (True,)
            }
            assert may == roles, function
        assert conn.execute(
            "SELECT has_database_privilege('acme_app', current_database(), 'TEMPORARY')"
        ).fetchone() == (False,)


def test_the_page_on_security_has_all_its_blocks() -> None:
    assert len(BLOCKS) == 3
