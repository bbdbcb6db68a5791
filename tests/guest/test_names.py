"""Names that other people's tools read correctly."""

from __future__ import annotations

from support.queue import Queue

BODY_WORDS = {"atomic", "begin", "case", "end"}
"""psql counts these words to find the end of a SQL body, also where they are names."""

NAMES = """
    SELECT proname AS name FROM pg_proc WHERE pronamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)
    UNION SELECT unnest(proargnames) FROM pg_proc
        WHERE pronamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)
    UNION SELECT relname FROM pg_class WHERE relnamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)
    UNION SELECT attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
        WHERE relnamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)
    UNION SELECT typname FROM pg_type WHERE typnamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)
"""  # noqa: E501


def test_no_name_is_a_word_of_the_sql_body_syntax(queue: Queue) -> None:
    assert BODY_WORDS & {row.name for row in queue.rows(NAMES)} == set()
