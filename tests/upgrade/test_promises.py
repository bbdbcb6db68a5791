"""Views of `public` only gain columns at the end, functions only gain arguments with defaults."""

from __future__ import annotations

from pathlib import Path

import psycopg

from support.postgres import Connect
from upgrade.harness import Release, last_wheel

FUNCTIONS = """
    SELECT p.proname, ARRAY(
               SELECT concat(a.mode, ' ', p.proargnames[a.place], ' ', format_type(a.type, NULL))
               FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]),
                           coalesce(p.proargmodes::text[], array_fill('i'::text, ARRAY[p.pronargs::int])))
                   WITH ORDINALITY a(type, mode, place) WHERE a.mode <> 't' ORDER BY a.place),
           p.pronargs - p.pronargdefaults, pg_get_function_result(p.oid)
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
"""  # noqa: E501
VIEWS = """
    SELECT c.relname, array_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) ORDER BY a.attnum)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'v' GROUP BY 1
"""  # noqa: E501


def broken(before: psycopg.Connection, after: psycopg.Connection) -> list[str]:
    """What a user of the release would miss."""
    found = []
    views: dict[str, list[str]] = dict(after.execute(VIEWS).fetchall())
    for name, columns in before.execute(VIEWS):
        if views.get(name, [])[: len(columns)] != columns:
            found.append(f"view {name}: {columns}, now {views.get(name)}")
    functions = {name: rest for name, *rest in after.execute(FUNCTIONS)}
    for name, arguments, required, result in before.execute(FUNCTIONS):
        now, needed, returned = functions.get(name, ([], 0, None))
        if now[: len(arguments)] != arguments or needed > required or returned != result:
            found.append(f"function {name}: {arguments}, now {now}, {needed} of them needed")
    return found


def test_every_public_name_of_the_last_release_still_exists(
    empty_database_url: str, conn: psycopg.Connection, connect: Connect, tmp_path: Path
) -> None:
    Release(last_wheel(), tmp_path).run(empty_database_url, "migrate")
    released = connect(empty_database_url)
    assert broken(released, conn) == []
    # and this test would notice
    conn.execute("DROP FUNCTION calculate_next_retry_time")
    conn.execute("ALTER VIEW email_kpis RENAME TO email_figures")
    assert len(broken(released, conn)) == 2
