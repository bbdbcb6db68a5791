"""`mailgres adopt` moves a queue: each shape, under a name that is not ours."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from adopt.conftest import MOVABLE, facts_of
from adopt.moves import emails, moved, value
from adopt.processors import OldProcessor
from support.postgres import Connect

Load = Callable[[str], str]
KINDS = ("waiting", "scheduled", "uncertain", "unmappable")


@pytest.fixture(params=MOVABLE)
def movable(request: pytest.FixtureRequest) -> str:
    """Each of the shapes that can be moved."""
    name: str = request.param
    return name


def kinds(connection: psycopg.Connection) -> dict[str, int]:
    rows = connection.execute(
        """SELECT kind, count(DISTINCT old_id) FROM mailgres_adopted.adopted_rows GROUP BY kind"""
    )
    return {row[0]: row[1] for row in rows}


def test_adopt_imports_the_rows_that_the_dry_run_counts(
    load_beside: Load, connect: Connect, movable: str
) -> None:
    url = load_beside(movable)
    printed = moved(url, movable)
    connection = connect(url)
    expected = {kind: facts_of(movable)["expected"].get(kind, 0) for kind in KINDS}
    assert kinds(connection) == {kind: number for kind, number in expected.items() if number}
    left = value(
        connection, "SELECT count(*) FROM mailgres_adopted.adopted_rows WHERE email_id IS NULL"
    )
    assert len([line for line in printed if line.startswith("           ")]) == left


def test_the_old_processor_picks_no_row_that_mailgres_has(
    load_beside: Load, connect: Connect, movable: str
) -> None:
    url = load_beside(movable)
    with OldProcessor(url, movable) as old:
        before = set(old.pick())
        moved(url, movable)
        found = set(old.pick())
    assert before, "it had something to do"
    assert not found & set(emails(connect(url)))


def test_what_the_old_processor_reports_after_the_move_settles_our_emails(
    load_beside: Load, connect: Connect, movable: str
) -> None:
    url = load_beside(movable)
    with OldProcessor(url, movable) as old:
        picked = old.pick()
        moved(url, movable)
        connection = connect(url)
        ours = emails(connection)
        sent, failed, *_ = [row for row in picked if row in ours]
        assert ours[sent] == {"pending"}
        old.process(sent)
        old.process(failed, "failed")
        after = emails(connection)
    assert after[sent] == {"sent"}
    assert after[failed] <= {"pending", "failed"}


def test_a_row_that_the_old_processor_claims_after_the_move_is_uncertain_until_it_reports(
    load_beside: Load, connect: Connect
) -> None:
    url = load_beside("spanish-comma-list")
    reasons = """SELECT array_agg(DISTINCT q.dead_reason::text) FROM email_queue q
                 JOIN mailgres_adopted.adopted_rows r ON r.email_id = q.id WHERE r.old_id = %s"""
    with OldProcessor(url, "spanish-comma-list") as old:
        picked = old.pick()
        moved(url, "spanish-comma-list")
        connection = connect(url)
        row = next(each for each in picked if each in emails(connection))
        old.claim(row)
        assert value(connection, reasons, row) == ["uncertain"]
        old.fail(row)
        assert emails(connection)[row] == {"pending"}
        old.claim(row)
        old.succeed(row)
        assert emails(connection)[row] == {"sent"}


def test_an_insert_through_the_view_is_sent_by_mailgres_at_once(
    load_beside: Load, connect: Connect
) -> None:
    url = load_beside("spanish-comma-list")
    moved(url, "spanish-comma-list")
    connection = connect(url)
    highest = value(connection, "SELECT max(id) FROM cola_correos")
    new = value(connection, "SELECT encolar_correo('ana@example.com, bo@example.com', 'Hola', 'x')")
    assert new > highest
    found = connection.execute(
        """SELECT q.recipient_email::text, q.subject::text, q.html::text, q.status::text, q.ready
           FROM email_queue q JOIN mailgres_adopted.adopted_rows r ON r.email_id = q.id
           WHERE r.old_id = %s ORDER BY 1""",
        (str(new),),
    ).fetchall()
    expected = [(f"{each}@example.com", "Hola", "x", "pending", True) for each in ("ana", "bo")]
    assert found == expected
    row = connection.execute(
        "SELECT asunto, intentos, creado_en IS NULL FROM cola_correos WHERE id = %s", (new,)
    ).fetchone()
    assert row == ("Hola", 0, False), "defaults of the table are those of the view"


def test_a_rolled_back_insert_through_the_view_leaves_no_email(
    load_beside: Load, connect: Connect
) -> None:
    url = load_beside("django-post-office")
    moved(url, "django-post-office")
    connection = connect(url)
    emails_before = value(connection, "SELECT count(*) FROM email_queue")
    insert = """INSERT INTO post_office_email (from_email, "to", cc, bcc, subject, message,
                html_message, status, priority, created, last_updated, backend_alias)
                VALUES ('shop@example.com', 'ana@example.com', '', '', 'Hi', 'x', '', 2, 1, now(),
                now(), '') RETURNING id"""
    with connection.transaction(force_rollback=True):
        value(connection, insert)
    assert value(connection, "SELECT count(*) FROM email_queue") == emails_before
    new = value(connection, insert)
    connection.execute(
        """INSERT INTO post_office_log (date, status, exception_type, message, email_id)
           VALUES (now(), 0, '', '', %s)""",
        (new,),
    )
    assert value(connection, "SELECT count(*) FROM email_queue") == emails_before + 1


def test_a_change_of_a_waiting_row_changes_its_email(load_beside: Load, connect: Connect) -> None:
    url = load_beside("drizzle-serial")
    moved(url, "drizzle-serial")
    connection = connect(url)
    row = next(each for each, status in emails(connection).items() if status == {"pending"})
    until = """SELECT min(q.next_retry_at) FROM email_queue q JOIN mailgres_adopted.adopted_rows r
               ON r.email_id = q.id WHERE r.old_id = %s"""
    before = value(connection, until, row)
    connection.execute("UPDATE mail_queue SET subject = 'Corrected' WHERE id = %s", (int(row),))
    subjects = """SELECT array_agg(q.subject::text || ' ' || q.status) FROM email_queue q
                  JOIN mailgres_adopted.adopted_rows r ON r.email_id = q.id WHERE r.old_id = %s"""
    assert value(connection, subjects, row) == ["Corrected pending"]
    assert value(connection, until, row) >= before, "it is held as long as before"
    connection.execute("DELETE FROM mail_queue WHERE id = %s", (int(row),))
    assert value(connection, subjects, row) == ["Corrected cancelled"]


def test_a_cascade_that_deletes_a_row_cancels_its_email(
    load_beside: Load, connect: Connect
) -> None:
    url = load_beside("scheduled-trigger-fed")
    moved(url, "scheduled-trigger-fed")
    connection = connect(url)
    waiting = """SELECT r.old_id FROM mailgres_adopted.adopted_rows r
                 JOIN mailgres_adopted.mail_queue m ON m.id::text = r.old_id
                 JOIN email_queue q ON q.id = r.email_id
                 WHERE m.booking_id IS NOT NULL AND q.status = 'pending' LIMIT 1"""
    row = value(connection, waiting)
    connection.execute(
        "DELETE FROM bookings WHERE id = (SELECT booking_id FROM mail_queue WHERE id = %s::uuid)",
        (row,),
    )
    assert emails(connection)[row] == {"cancelled"}


def test_the_update_of_another_key_keeps_the_time_of_an_email_in_json(
    load_beside: Load, connect: Connect
) -> None:
    url = load_beside("jsonb-outbox")
    moved(url, "jsonb-outbox")
    connection = connect(url)
    row = next(each for each, status in emails(connection).items() if status == {"pending"})
    at = """SELECT outboxdata ->> 'outbox/next-attempt' FROM mailgres_adopted.outbox
            WHERE id = %s"""
    before = value(connection, at, int(row))
    connection.execute(
        """UPDATE outbox SET outboxdata = outboxdata || '{"note": 1}' WHERE id = %s""", (int(row),)
    )
    assert value(connection, at, int(row)) == before
    assert emails(connection)[row] == {"pending"}
