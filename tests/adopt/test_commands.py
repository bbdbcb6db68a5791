"""`mailgres adopt --inspect` and `mailgres doctor --foreign`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from mailgres.adopt import read
from support.dump import dump
from support.postgres import Connect, Server
from support.program import Program

Load = Callable[[str], str]
QUEUE = """CREATE TABLE {} (id serial PRIMARY KEY, to_email text, subject text, body text,
           status text DEFAULT 'pending', attempts int)"""


def queue(connection: psycopg.Connection, name: str) -> None:
    connection.execute(sql.SQL(QUEUE).format(sql.Identifier(name)))


def as_role(url: str, role: str) -> Program:
    """The program, with the rights of a role."""
    return Program(url, {"PGOPTIONS": f"-c role={role}"})


def test_inspect_explains_and_writes_the_mapping(load: Load, tmp_path: Path) -> None:
    program, file = Program(load("boolean-sent")), tmp_path / "adopt.toml"
    printed = program("adopt", "--inspect", "--file", str(file))
    assert printed.startswith("The queue is public.email_queue.\n")
    assert "swallowed_errors: public.send_deposit_email" in printed
    assert "      EXCEPTION WHEN OTHERS THEN\n" in printed
    assert printed.endswith(
        f"Wrote {file}. It has 1 questions for you. Every guess in it has a comment; check them.\n"
    )
    text = file.read_text(encoding="utf-8")
    assert 'sent = "status"  # guess: by its name\n' in text
    assert read(text).queues[0].table == "public.email_queue"


def test_a_mapping_is_not_overwritten_by_accident(load: Load, tmp_path: Path) -> None:
    program, file = Program(load("failed-is-final")), tmp_path / "adopt.toml"
    file.write_text("mine", encoding="utf-8")
    what, hint = program.fails("adopt", "--inspect", "--file", str(file))
    assert what == f"{file} is there already; it may have answers of yours"
    assert "--overwrite" in hint
    assert file.read_text(encoding="utf-8") == "mine"
    program("adopt", "--inspect", "--file", str(file), "--overwrite")
    assert file.read_text(encoding="utf-8") != "mine"


def test_inspect_reports_a_mapping_file_that_cannot_be_written(load: Load, tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "adopt.toml"
    program = Program(load("failed-is-final"))
    what, hint = program.fails("adopt", "--inspect", "--file", str(file))
    assert what == f"Cannot write {file}: No such file or directory"
    assert "--file" in hint


@pytest.mark.parametrize("given", [("--inspect", "--dry-run"), ("--dry-run", "--undo")])
def test_adopt_takes_one_of_inspect_dry_run_and_undo(
    empty_database_url: str, given: tuple[str, ...]
) -> None:
    message = Program(empty_database_url).misused("adopt", *given)
    assert message == "Give one of --inspect, --dry-run and --undo."


def test_adopt_dry_run_lists_every_open_question_first(load: Load, tmp_path: Path) -> None:
    program, file = Program(load("drizzle-serial")), tmp_path / "adopt.toml"
    program("adopt", "--inspect", "--file", str(file))
    done = program.run("adopt", "--dry-run", "--file", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "Error: 2 questions of the mapping are open:",
        "  public.email_queue, statuses: archived: What does 'archived' mean?",
        "  public.email_queue, timezone: In which time zone are the times that have none?",
        'Hint: Replace each "?" in the file by an answer.',
    ]


def test_adopt_dry_run_prints_counts_samples_and_the_query(load: Load, tmp_path: Path) -> None:
    url, file = load("drizzle-serial"), tmp_path / "adopt.toml"
    program = Program(url)
    program("adopt", "--inspect", "--file", str(file))
    text = file.read_text(encoding="utf-8")
    text = text.replace('timezone = "?"', 'timezone = "UTC"')
    file.write_text(text.replace('archived = "?"', 'archived = "unknown"'), encoding="utf-8")
    before = dump(url)
    printed = program("adopt", "--dry-run", "--file", str(file))
    lines = printed.splitlines()
    assert lines[0] == "public.email_queue: 41 rows"
    assert "         18  waiting     would be sent (1 older than 30 days)" in lines
    assert "          4  unmappable  cannot be mapped: listed, and left where they are" in lines
    assert any("unmappable" in line and "no usable address" in line for line in lines)
    assert lines[-1] == "Nothing was changed: this was a dry run."
    assert "SELECT" not in printed
    assert "SELECT r.id" in program("adopt", "--dry-run", "--sql", "--file", str(file))
    assert dump(url) == before


def test_adopt_dry_run_without_a_mapping_says_how_to_get_one(
    empty_database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "adopt.toml"
    what, hint = Program(empty_database_url).fails("adopt", "--dry-run", "--file", str(file))
    assert what == f"Cannot read {file}: No such file or directory"
    assert "--inspect" in hint
    file.write_bytes(b"\xff")
    what, _ = Program(empty_database_url).fails("adopt", "--dry-run", "--file", str(file))
    assert what == f"Cannot read {file}: it is not UTF-8"


def test_a_mapping_of_another_database_is_refused_by_its_table(
    load: Load, empty_database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "adopt.toml"
    Program(load("failed-is-final"))("adopt", "--inspect", "--file", str(file))
    what, _ = Program(empty_database_url).fails("adopt", "--dry-run", "--file", str(file))
    assert what == "there is no table public.email_queue"


@pytest.mark.parametrize("shape", ["failed-is-final", "drizzle-serial", "scheduled-trigger-fed"])
def test_migrate_beside_a_foreign_queue_points_to_the_guide_and_changes_nothing(
    load: Load, shape: str
) -> None:
    url = load(shape)
    before = dump(url)
    what, hint = Program(url).fails("migrate")
    assert what.endswith("already exists")
    assert "docs/moving-in.md" in hint
    assert "mailgres doctor --foreign" in hint
    assert dump(url) == before


def test_inspecting_a_database_without_a_queue_is_an_error(empty_database_url: str) -> None:
    what, hint = Program(empty_database_url).fails("doctor", "--foreign")
    assert what == "No queue of emails was found in this database"
    assert "--table" in hint


def test_inspection_does_not_take_the_queue_of_mailgres_for_a_foreign_one(
    database_url: str,
) -> None:
    what, _ = Program(database_url).fails("doctor", "--foreign")
    assert what == "No queue of emails was found in this database"


def test_inspection_asks_for_a_name_if_three_tables_may_be_the_queue(
    empty_database_url: str, connect: Connect, tmp_path: Path
) -> None:
    connection = connect(empty_database_url)
    for name in ("email_queue", "mail_queue", "Email_Outbox"):
        queue(connection, name)
    program, file = Program(empty_database_url), str(tmp_path / "adopt.toml")
    what, hint = program.fails("adopt", "--inspect", "--file", file)
    names = 'public."Email_Outbox", public.email_queue, public.mail_queue'
    assert what == f"3 tables may be the queue: {names}"
    assert "--table" in hint
    both = ("--table", 'public."Email_Outbox"', "--table", "mail_queue")
    program("adopt", "--inspect", "--file", file, *both)
    found = read(Path(file).read_text(encoding="utf-8"))
    assert [each.table for each in found.queues] == ['public."Email_Outbox"', "public.mail_queue"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch", "There is no table public.nosuch"),
        ("public.people", "public.people does not look like a queue of emails"),
    ],
)
def test_inspection_refuses_a_named_table_that_is_not_a_queue(
    empty_database_url: str, connect: Connect, name: str, message: str
) -> None:
    connect(empty_database_url).execute("CREATE TABLE people (id int PRIMARY KEY, email text)")
    what, _ = Program(empty_database_url).fails("adopt", "--inspect", "--table", name)
    assert what == message


def test_a_read_only_role_inspects_everything_and_changes_nothing(
    load: Load, server: Server, connect: Connect, shape: str
) -> None:
    url = load(shape)
    before = dump(url)
    with server.role() as role:
        admin = connect(url)
        name = sql.Identifier(role)
        admin.execute(sql.SQL("ALTER ROLE {} BYPASSRLS").format(name))
        admin.execute(sql.SQL("GRANT pg_read_all_data TO {}").format(name))
        try:
            printed = as_role(url, role)("doctor", "--foreign")
        finally:
            admin.execute(sql.SQL("REVOKE pg_read_all_data FROM {}").format(name))
    assert "may not read" not in printed
    assert printed == Program(url)("doctor", "--foreign")
    assert dump(url) == before


def test_inspection_without_the_right_to_read_rows_explains_the_catalog(
    load: Load, server: Server
) -> None:
    url = load("retry-queue-priority")
    with server.role() as role:
        printed = as_role(url, role)("doctor", "--foreign")
    assert "Your role may not read its rows" in printed
    assert "queued: waits to be sent" in printed


def test_inspection_as_json_has_the_same_findings(load: Load) -> None:
    found = Program(load("simulated-send")).json("doctor", "--foreign")
    (queue,) = found["queues"]
    assert queue["columns"]["to_email"] == "recipient_email"
    assert {"open_relay", "no_claim"} <= {each["name"] for each in queue["faults"]}


def test_a_key_in_a_cron_job_is_reported_and_not_shown(load: Load, connect: Connect) -> None:
    url = load("boolean-sent")
    key = "eyJhbGciOiJIUzI1NiJ9.eyJyb2xlIjoic2VydmljZSJ9.c2lnbmF0dXJl"
    connect(url).execute(
        "SELECT cron.schedule('process-deposit-email-queue', '* * * * *', %s)",
        (f"SELECT net.http_post('https://x/functions/v1/process-email-queue', '{key}')",),
    )
    printed = Program(url)("doctor", "--foreign")
    assert "secret_in_cron: the cron job process-deposit-email-queue has a key" in printed
    assert "eyJhbG…" in printed
    assert key not in printed


def test_inspection_prints_no_address_of_a_person(load: Load, shape: str) -> None:
    printed = Program(load(shape))("doctor", "--foreign")
    assert "@example.com" not in printed


def test_a_table_whose_rows_cannot_be_read_is_explained_by_the_catalog(
    load: Load, server: Server, connect: Connect
) -> None:
    url = load("retry-queue-priority")
    admin = connect(url)
    with server.role() as role:
        name = sql.Identifier(role)
        admin.execute(sql.SQL("GRANT SELECT ON email_queue TO {}").format(name))
        admin.execute("CREATE POLICY broken ON email_queue USING (1 / (retry_count * 0) = 1)")
        printed = as_role(url, role)("doctor", "--foreign")
        admin.execute(sql.SQL("REVOKE SELECT ON email_queue FROM {}").format(name))
    assert (
        "Not read: public.email_queue; your role may not read it, or it took too long." in printed
    )
    assert "queued: waits to be sent" in printed
