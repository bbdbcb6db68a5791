"""`mailgres adopt` and `mailgres adopt --undo` as commands, and the database after them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from adopt.moves import ALL, emails, moved, undone, value
from adopt.test_counting import mapped
from mailgres import database
from mailgres.adopt import Options, move, moves, undo
from mailgres.errors import MailgresError
from support.postgres import Connect, Server, run_program, run_script
from support.program import Program

Load = Callable[[str], str]
SHAPE = "spanish-comma-list"


def inspected(program: Program, tmp_path: Path) -> list[str]:
    """Write the mapping, answer its questions, and return the arguments that name it."""
    file = tmp_path / "adopt.toml"
    program("adopt", "--inspect", "--file", str(file))
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('= "?"', '= "unknown"'), encoding="utf-8")
    return ["--file", str(file)]


def test_adopt_asks_about_old_rows_then_moves_then_says_that_it_did(
    load_beside: Load, connect: Connect, tmp_path: Path
) -> None:
    url = load_beside(SHAPE)
    program = Program(url)
    file = inspected(program, tmp_path)
    what, hint = program.fails("adopt", *file)
    assert what == "1 waiting rows are older than 30 days"
    assert "--old leave" in hint
    assert not value(connect(url), "SELECT count(*) FROM email_queue")
    printed = program("adopt", "--old", "leave", *file)
    assert printed.startswith("public.cola_correos is a view now; the table is ")
    assert ": older than the limit\n" in printed
    again = program("adopt", "--old", "leave", *file)
    assert again.startswith("public.cola_correos was adopted before: nothing to do.\n")
    assert again.splitlines()[1:] == printed.splitlines()[2:]
    assert program("adopt", "--undo").startswith("public.cola_correos is a table again")


def test_adopt_lists_everything_that_would_stop_working_before_it_changes_anything(
    load_beside: Load, connect: Connect
) -> None:
    url = load_beside("retry-queue-priority")
    connection = connect(url)
    connection.execute("CREATE PUBLICATION live FOR TABLE mail_queue")
    connection.execute("GRANT INSERT, UPDATE ON mail_queue TO service_role, authenticated")
    connection.execute(
        "CREATE POLICY own ON mail_queue FOR INSERT TO authenticated WITH CHECK (true)"
    )
    with pytest.raises(MailgresError) as refused:
        moved(url, "retry-queue-priority", Options(old="send"))
    lines = str(refused.value).splitlines()
    assert lines[0] == "3 things would stop working:"
    assert "publication live" in lines[1]
    assert "view public.mail_queue_stats" in lines[3]
    assert lines[5] == "  authenticated may INSERT the table under row security"
    assert value(connection, "SELECT to_regnamespace('mailgres_adopted') IS NULL")


@pytest.mark.parametrize(
    ("shape", "message"),
    [("lovable-pgmq", "is a queue of pgmq"), ("drizzle-serial", "mailgres is not installed")],
)
def test_adopt_refuses_what_it_cannot_move_whole(load: Load, shape: str, message: str) -> None:
    url = load(shape)
    if shape == "lovable-pgmq":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA mailgres")
            connection.execute("CREATE TABLE mailgres.schema_version ()")
    with pytest.raises(MailgresError, match=message):
        moved_without_templates(url, shape)


def moved_without_templates(url: str, shape: str) -> list[str]:
    with database.connect(url, autocommit=True) as connection:
        return list(move(connection, mapped(connection, shape)[0], ALL))


def test_adopt_refuses_a_schema_of_another_with_the_name_of_ours(
    load_beside: Load, connect: Connect
) -> None:
    url = load_beside(SHAPE)
    connect(url).execute("CREATE SCHEMA mailgres_adopted CREATE TABLE mine ()")
    with pytest.raises(MailgresError, match="mailgres_adopted that is not ours"):
        moved(url, SHAPE)


class Killed(BaseException):
    """The process dies here."""


def kill_after(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """Let the process die at the statement after `allowed` ones."""
    left = [allowed]

    def ask(*given: Any, **more: Any) -> list[dict[str, Any]]:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return moves.ask(*given, **more)

    for module in ("moving", "undoing"):
        monkeypatch.setattr(f"mailgres.adopt.{module}.ask", ask)


@pytest.mark.parametrize("way", ["move", "undo"])
def test_a_move_and_an_undo_killed_at_any_statement_are_completed_by_the_next_command(
    load_beside: Load, connect: Connect, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Each attempt gets one statement further than the one before."""
    monkeypatch.setattr("mailgres.adopt.moving.CHUNK", 5)
    monkeypatch.setattr("mailgres.adopt.undoing.CHUNK", 5)
    expected = moved(load_beside(SHAPE), SHAPE)[2:]
    url = load_beside(SHAPE)
    connection = connect(url)
    mapping, _ = mapped(connection, SHAPE)
    if way == "undo":
        moved(url, SHAPE)

    def act() -> list[str]:
        with database.connect(url, autocommit=True) as own:
            return list(move(own, mapping, ALL) if way == "move" else undo(own))

    kills = 0
    for allowed in range(60):
        kill_after(monkeypatch, allowed)
        try:
            act()
        except Killed:
            kills += 1
        else:
            break
    monkeypatch.undo()
    assert 3 < kills < 59
    if way == "move":
        assert act()[1:] == expected
        steps = "SELECT array_agg(step ORDER BY done_at) FROM mailgres_adopted.adopted_steps"
        assert value(connection, steps) == ["move", "import"]
    else:
        kind = "SELECT relkind = 'r' FROM pg_class WHERE relname = 'cola_correos'"
        assert value(connection, kind)
        assert value(connection, "SELECT to_regnamespace('mailgres_adopted') IS NULL")


def test_an_adopted_database_migrates_is_healthy_and_can_be_restored(
    load_beside: Load, server: Server, connect: Connect
) -> None:
    url = load_beside(SHAPE)
    moved(url, SHAPE)
    program = Program(url)
    assert program.run("migrate").returncode == 0
    assert program.run("migrate", "--check").returncode == 0
    assert "mailgres_adopted" not in program.run("doctor", "--sql").stdout
    with server.database() as copy:
        run_script(copy, run_program("pg_dump", url), "-v", "ON_ERROR_STOP=1")
        with psycopg.connect(copy, autocommit=True) as connection:
            assert emails(connection) == emails(connect(url))
            new = value(connection, "SELECT encolar_correo('ana@example.com', 'Hola', 'x')")
            assert emails(connection)[str(new)] == {"pending"}
        undone(copy)


def test_nothing_of_a_move_is_open_to_others(load_beside: Load, connect: Connect) -> None:
    url = load_beside("simulated-send")
    connection = connect(url)
    connection.execute("GRANT ALL ON mail_queue TO anon, service_role")
    connection.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO anon")
    connection.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO anon")
    moved(url, "simulated-send")
    rights = """SELECT array_agg(c.relname || ' ' || a.privilege_type)
                FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
                WHERE a.grantee IN (0, 'anon'::regrole)
                  AND (c.oid = 'public.mail_queue'::regclass OR c.relname LIKE 'adopted%')"""
    assert value(connection, rights) is None
    functions = """SELECT array_agg(p.proname) FROM pg_proc p
                   CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                   WHERE p.pronamespace = 'mailgres_adopted'::regnamespace
                     AND a.grantee IN (0, 'anon'::regrole)"""
    assert value(connection, functions) is None
    assert not value(connection, "SELECT has_schema_privilege('anon', 'mailgres_adopted', 'USAGE')")
    paths = """SELECT bool_and('search_path=pg_catalog, pg_temp' = ANY (p.proconfig)) FROM pg_proc p
               WHERE p.pronamespace = 'mailgres_adopted'::regnamespace"""
    assert value(connection, paths)
    connection.execute("SET ROLE service_role")
    insert = """INSERT INTO mail_queue (to_email, subject, body, email_type)
                VALUES ('ana@example.com', 'Hi', 'x', 'confirmation') RETURNING status"""
    assert value(connection, insert) == "pending"
    assert value(connection, "SELECT count(*) FROM mail_queue") > 0
