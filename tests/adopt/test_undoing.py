"""`mailgres adopt --undo` gives a queue back, with what was sent marked in it."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from adopt.conftest import MOVABLE
from adopt.moves import emails, moved, push_templates, undone, value
from adopt.processors import OldProcessor
from adopt.test_counting import mapped
from mailgres.errors import MailgresError
from support.dump import dump
from support.postgres import Connect

Load = Callable[[str], str]
OURS = ("mailgres.", "public.email_queue ", "public.email_logs ", "public.email_logs_id_seq")


def foreign(url: str) -> list[str]:
    """The statements of a dump without the rows of mailgres."""
    found = ("INSERT INTO ", "SELECT pg_catalog.setval('")
    return [
        each.strip()
        for each in dump(url).split(";\n")
        if not any(each.strip().startswith(word + name) for word in found for name in OURS)
    ]


def prepared(url: str, shape: str) -> list[str]:
    """Make what a move needs, and return the dump before it."""
    with psycopg.connect(url, autocommit=True) as connection:
        mapping, catalog = mapped(connection, shape)
        push_templates(connection, mapping.queues[0], catalog)
    return foreign(url)


@pytest.mark.parametrize("shape", MOVABLE)
def test_undo_of_a_move_that_sent_nothing_changes_nothing(load_beside: Load, shape: str) -> None:
    url = load_beside(shape)
    before = prepared(url, shape)
    moved(url, shape)
    assert foreign(url) != before
    undone(url)
    assert foreign(url) == before


@pytest.mark.parametrize("shape", MOVABLE)
def test_undo_marks_what_was_sent_and_nothing_else(
    load_beside: Load, connect: Connect, shape: str
) -> None:
    url = load_beside(shape)
    before = prepared(url, shape)
    with OldProcessor(url, shape) as old:
        picked = old.pick()
        moved(url, shape)
        connection = connect(url)
        ours = emails(connection)
        row, other, *_ = [each for each in picked if ours.get(each) == {"pending"}]
        sent = """SELECT mark_email_sent(r.email_id, 're_' || r.place)
                  FROM mailgres_adopted.adopted_rows r WHERE r.old_id = %s"""
        connection.execute(sent, (row,))
        undone(url)
        assert row not in old.pick(), "the old processor would send it again"
        assert other in old.pick(), "the old processor sends the others"
    after = foreign(url)
    changed = set(before) ^ set(after)
    assert 1 <= len(changed) <= 2, "one row differs: the one that was sent"
    assert len(before) - len(after) in (0, 1)
    waiting = "SELECT count(*) FROM email_queue WHERE status IN ('pending', 'sending')"
    assert value(connection, waiting) == 0


def test_undo_keeps_rows_that_came_after_the_move(load_beside: Load, connect: Connect) -> None:
    url = load_beside("spanish-comma-list")
    moved(url, "spanish-comma-list")
    connection = connect(url)
    new = value(connection, "SELECT encolar_correo('ana@example.com', 'Hola', 'x')")
    undone(url)
    row = connection.execute(
        "SELECT asunto, estado FROM cola_correos WHERE id = %s", (new,)
    ).fetchone()
    assert row == ("Hola", "Pendiente")
    assert value(connection, "SELECT relkind = 'r' FROM pg_class WHERE relname = 'cola_correos'")


def test_an_email_with_several_recipients_of_which_one_was_sent_is_not_given_back(
    load_beside: Load, connect: Connect
) -> None:
    url = load_beside("spanish-comma-list")
    moved(url, "spanish-comma-list")
    connection = connect(url)
    new = value(connection, "SELECT encolar_correo('ana@example.com, bo@example.com', 'Hola', 'x')")
    connection.execute(
        """SELECT mark_email_sent(email_id, 're_1') FROM mailgres_adopted.adopted_rows
           WHERE old_id = %s AND place = 1""",
        (str(new),),
    )
    ids = """SELECT array_agg(email_id ORDER BY place) FROM mailgres_adopted.adopted_rows
             WHERE old_id = %s"""
    both = value(connection, ids, str(new))
    undone(url)
    assert value(connection, "SELECT estado FROM cola_correos WHERE id = %s", new) == "Enviado"
    left = "SELECT array_agg(status::text ORDER BY id) FROM email_queue WHERE id = ANY (%s)"
    assert value(connection, left, both) == ["sent", "pending"], "the rest stays with mailgres"


def test_undo_waits_for_emails_that_are_being_sent(
    load_beside: Load, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = load_beside("drizzle-serial")
    moved(url, "drizzle-serial")
    connection = connect(url)
    columns = "(recipient_email, subject, body, html_body)"
    new = value(
        connection,
        f"INSERT INTO mail_queue {columns} VALUES ('a@example.com', 'Hi', 'x', 'x') RETURNING id",
    )
    claimed = value(
        connection,
        """UPDATE email_queue
           SET status = 'sending', ready = false, lease_token = gen_random_uuid(),
               leased_at = now(), lease_until = now() + interval '1 hour', lease_worker = 'w'
           WHERE id = (SELECT email_id FROM mailgres_adopted.adopted_rows WHERE old_id = %s)
           RETURNING id""",
        str(new),
    )
    slept = []

    def deliver(seconds: float) -> None:
        slept.append(seconds)
        connection.execute("SELECT mark_email_sent(%s, 're_1')", (claimed,))

    monkeypatch.setattr("mailgres.adopt.undoing.time.sleep", deliver)
    undone(url)
    assert slept, "it waited"
    assert value(connection, "SELECT status FROM mail_queue WHERE id = %s", new) == "sent"


def test_undo_without_a_move_is_an_error(load_beside: Load) -> None:
    with pytest.raises(MailgresError, match="No queue was adopted"):
        undone(load_beside("drizzle-serial"))


def test_a_move_that_was_undone_can_be_made_again(load_beside: Load) -> None:
    url = load_beside("spanish-comma-list")
    first = moved(url, "spanish-comma-list")
    undone(url)
    assert moved(url, "spanish-comma-list") == first
