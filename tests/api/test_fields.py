"""`FIELDS` in src/mailgres/request.py is the one list of an email's fields.

The first test names every place that lacks a field. The others give each field a value of its own
at every entrance to the queue, and find it in the row and in the message.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_type_hints
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

import mailgres
from mailgres.cli.commands.enqueue import enqueue
from mailgres.model import ClaimedEmail
from mailgres.providers.capture.provider import as_json
from mailgres.request import DEFAULTS, FIELDS
from providers.mails import mail
from support.program import Program

ROOT = Path(__file__).parents[2]
FILE = b"\x00\xff the file"
LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)

EMAIL: dict[str, Any] = {
    "user_id": UUID("6f9619ff-8b86-4d01-b42d-00cf4fc964ff"),
    "template_type": "welcome_user",
    "recipient_email": "recipient@example.com",
    "payload": {"name": "Payload Name"},
    "tenant_id": "tenant-1",
    "priority": 7,
    "scheduled_for": LATER,
    "expires_at": LATER + timedelta(hours=1),
    "idempotency_key": "idempotency-key-1",
    "correlation_id": "correlation-id-1",
    "route": "second",
    "retry_policy": "patient",
    "max_retries": 6,
    "retry_delay": timedelta(seconds=41),
    "max_retry_delay": timedelta(days=3),
    "from_email": "From <from@example.com>",
    "reply_to": "reply-to@example.com",
    "subject": "The subject",
    "html": "<p>The HTML part</p>",
    "text": "The text part",
    "headers": {"X-Header": "header"},
    "tags": {"tag": "value"},
    "cc": ["cc@example.com"],
    "bcc": ["bcc@example.com"],
    "attachments": [{"filename": "file.bin", "content": FILE, "content_type": "image/png"}],
    "also_to": ["also-to@example.com"],
    "ignore_suppression": True,
}
"""A value for every field, and no value twice."""

IN_THE_MESSAGE = {
    "from_email": "from",
    "recipient_email": "to",
    "also_to": "also_to",
    "cc": "cc",
    "bcc": "bcc",
    "reply_to": "reply_to",
    "subject": "subject",
    "html": "html",
    "text": "text",
    "headers": "headers",
    "tags": "tags",
    "attachments": "attachments",
}
"""The fields that a provider gets, and what the provider `capture` calls them."""
NOT_OPTIONS = {
    *("user_id", "retry_delay", "max_retry_delay", "from_email", "reply_to", "subject"),
    *("html", "text", "headers", "tags", "cc", "bcc", "attachments"),
}
"""The fields that `mailgres enqueue` takes in a file, but not as options."""
REQUIRED_CHECKS = {
    *("user_id", "template_type", "recipient_email", "payload", "tenant_id"),
    "ignore_suppression",  # every value of its type is valid
}
"""The fields that `fault_of` checks for every email; the others are checked if one is given."""
IN_THE_SHORT_INSERT = {"priority", "scheduled_for"}
"""The fields with which `enqueue_email` still uses its statement for most requests."""
SENT_BY_ANY_PROCESSOR = {"recipient_email", "html", "text", "tags", "attachments"}
"""Fields of the message that `is_plain` need not name.

There is no `html` or `text` without `subject`, and `has_attachments` stands for attachments.
"""


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def part(path: str, start: str, end: str) -> str:
    """Return what stands in a file between two texts."""
    text = read(path)
    begin = text.index(start) + len(start)
    return text[begin : text.index(end, begin)]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def catalog(conn: psycopg.Connection, query: str) -> list[str]:
    return [name for (name,) in conn.execute(query)]


ATTRIBUTES = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = '{}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
ARGUMENTS = """
    SELECT substr(unnest(proargnames), 3) FROM pg_proc WHERE oid = 'public.enqueue_email'::regproc
"""


def known_keys(conn: psycopg.Connection) -> list[str]:
    """Return the keys that enqueue_emails says it knows."""
    with pytest.raises(psycopg.Error) as caught, conn.transaction():
        conn.execute("SELECT enqueue_emails(%s)", [Jsonb([{"nonsense": 1}])])
    return words((caught.value.diag.message_hint or "").removeprefix("Known keys: "))


def options() -> list[str]:
    """Return the fields that `mailgres enqueue` has options or arguments for."""
    names = {"template": "template_type", "recipient": "recipient_email"}
    return [names.get(str(each.name), str(each.name)) for each in enqueue.params]


PLACES: dict[str, Callable[[psycopg.Connection], Iterable[str]]] = {
    "tests/api/test_fields.py, EMAIL": lambda _: EMAIL,
    "src/mailgres/request.py, DEFAULTS": lambda _: DEFAULTS,
    "src/mailgres/request.py, EmailOptions": lambda _: [
        *("template_type", "recipient_email", "payload"),  # arguments of enqueue
        *get_type_hints(mailgres.EmailOptions),
    ],
    "src/mailgres/request.py, Email": lambda _: get_type_hints(mailgres.Email),
    "src/mailgres/api.sql, enqueue": lambda _: re.findall(
        r"p_(\w+) => .*%\(\1\)s",
        part("src/mailgres/api.sql", "-- enqueue --", "-- enqueue_many --"),
    ),
    "sql/40_api/10_request.sql, mailgres.request": lambda conn: catalog(
        conn, ATTRIBUTES.format("mailgres.request")
    ),
    "sql/40_api/20_fault_of.sql, fault_of": lambda _: [
        *REQUIRED_CHECKS,
        *re.findall(r"r\.(\w+)", part("sql/40_api/20_fault_of.sql", "num_nonnulls(", ") > 0")),
    ],
    "sql/40_api/30_enqueue_many.sql, columns of rows_of": lambda _: [
        "attachments",
        *re.findall(
            r"(\w+) [a-z]+",
            part("sql/40_api/30_enqueue_many.sql", "RETURNS TABLE (\n        id", ")"),
        ),
    ],
    "sql/40_api/30_enqueue_many.sql, INSERT": lambda _: [
        "attachments",
        *words(part("sql/40_api/30_enqueue_many.sql", "INSERT INTO public.email_queue", ")")),
    ],
    "sql/40_api/30_enqueue_many.sql, INSERT without keys": lambda _: [
        "attachments",
        *words(
            part(
                "sql/40_api/30_enqueue_many.sql",
                "ELSE\n        INSERT INTO public.email_queue",
                ")",
            )
        ),
    ],
    "sql/40_api/40_enqueue_email.sql, arguments": lambda conn: catalog(conn, ARGUMENTS),
    "sql/40_api/40_enqueue_email.sql, INSERT": lambda _: [
        "attachments",
        *words(part("sql/40_api/40_enqueue_email.sql", "IF v_options THEN", ")")),
    ],
    "sql/40_api/40_enqueue_email.sql, v_options": lambda _: [
        *REQUIRED_CHECKS,
        *IN_THE_SHORT_INSERT,
        *re.findall(r"p_(\w+)", part("sql/40_api/40_enqueue_email.sql", "num_nonnulls(", ") > 0")),
    ],
    "sql/40_api/40_enqueue_email.sql, v_request": lambda _: re.findall(
        r"p_(\w+)", part("sql/40_api/40_enqueue_email.sql", "v_request := ROW(", ";")
    ),
    "sql/40_api/41_enqueue_emails.sql, known keys": known_keys,
    "sql/20_tables/60_email_queue.sql, columns": lambda conn: [
        "attachments",
        *catalog(conn, ATTRIBUTES.format("public.email_queue")),
    ],
    "src/mailgres/cli/commands/enqueue.py, options (or NOT_OPTIONS of this test)": lambda _: [
        *NOT_OPTIONS,
        *options(),
    ],
    "sql/60_security/25_intended_grants.sql, enqueue_email": lambda _: list(FIELDS)[
        : part("sql/60_security/25_intended_grants.sql", "enqueue_email(", ")").count(",") + 1
    ],
    "docs/sql.md (make docs)": lambda _: re.findall(
        r"^ +p_(\w+) ", read("docs/sql.md"), re.MULTILINE
    ),
    "docs/stability.md, Fields of an email": lambda _: words(
        part("docs/stability.md", "### Fields of an email", "### Errors and SQLSTATEs")
    ),
}

MESSAGE_PLACES: dict[str, Callable[[], Iterable[str]]] = {
    "src/mailgres/worker/store.sql, claim": lambda: [
        "attachments",
        *words(part("src/mailgres/worker/store.sql", "-- claim --", "FROM")),
    ],
    "src/mailgres/model.py, ClaimedEmail": lambda: [
        "attachments",
        *(field.name for field in dataclasses.fields(ClaimedEmail)),
    ],
    "sql/40_api/30_enqueue_many.sql, first_ids": lambda: [
        "attachments",
        *re.findall(
            r"q\.(\w+)",
            part("sql/40_api/30_enqueue_many.sql", "q.id,\n", "IS NOT DISTINCT FROM"),
        ),
    ],
    "sql/30_engine/20_claim/40_pick.sql, is_plain": lambda: [
        *SENT_BY_ANY_PROCESSOR,
        *re.findall(
            r"q\.(\w+)", part("sql/30_engine/20_claim/40_pick.sql", "num_nonnulls(", ") = 0")
        ),
    ],
}


def test_every_place_that_names_the_fields_has_all_of_them(conn: psycopg.Connection) -> None:
    missing = {
        place: lacking
        for place, names in PLACES.items()
        if (lacking := set(FIELDS) - set(names(conn)))
    }
    missing |= {
        place: lacking
        for place, names in MESSAGE_PLACES.items()
        if (lacking := set(IN_THE_MESSAGE) - set(names()))
    }
    lines = [f"{place} lacks {', '.join(sorted(lacking))}" for place, lacking in missing.items()]
    assert not lines, "\n".join([*lines, "See docs/architecture.md#add-a-field-of-an-email."])


def test_no_place_has_a_field_that_the_list_lacks(conn: psycopg.Connection) -> None:
    exact = [
        place
        for place in PLACES
        if not re.search(r"INSERT|columns|options|docs/", place)  # these name other things, too
    ]
    assert {p: found for p in exact if (found := set(PLACES[p](conn)) - set(FIELDS))} == {}


@pytest.mark.parametrize(
    "place",
    [
        "sql/40_api/10_request.sql, mailgres.request",
        "sql/40_api/40_enqueue_email.sql, arguments",
        "sql/40_api/40_enqueue_email.sql, v_request",
        "sql/40_api/41_enqueue_emails.sql, known keys",
    ],
)
def test_what_is_matched_by_position_has_the_order_of_the_list(
    conn: psycopg.Connection, place: str
) -> None:
    assert list(PLACES[place](conn)) == list(FIELDS)


def test_the_claim_query_has_the_order_of_the_claimed_email() -> None:
    query = part("src/mailgres/worker/store.sql", "-- claim --\nSELECT ", "FROM")
    columns = [re.split(r" AS |::", column.strip())[-1] for column in query.split(",")]
    assert columns == [field.name for field in dataclasses.fields(ClaimedEmail)]


def test_the_captured_message_has_every_field_of_a_message() -> None:
    assert set(as_json(mail())) == set(IN_THE_MESSAGE.values())


# Every entrance.


def plain(email: Mapping[str, Any]) -> dict[str, Any]:
    """An email as JSON has it."""
    return {name: _plain(value) for name, value in email.items()}


def _plain(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case datetime():
            return value.isoformat()
        case timedelta():
            return f"{value.total_seconds()} seconds"
        case [{"content": content}]:
            return [{**value[0], "content": b64encode(content).decode()}]
    return value


def by_enqueue_email(
    conn: psycopg.Connection, _: Program, __: Path, email: Mapping[str, Any]
) -> None:
    values = {
        name: Jsonb(value) if isinstance(value, dict) or name == "attachments" else value
        for name, value in {**email, **plain({"attachments": email["attachments"]})}.items()
    }
    arguments = ", ".join(f"p_{name} => %({name})s" for name in email)
    conn.execute(f"SELECT enqueue_email({arguments})", values)


def by_enqueue_emails(
    conn: psycopg.Connection, _: Program, __: Path, email: Mapping[str, Any]
) -> None:
    conn.execute("SELECT enqueue_emails(%s)", [Jsonb([plain(email)])])


def by_python(conn: psycopg.Connection, _: Program, __: Path, email: Mapping[str, Any]) -> None:
    mailgres.enqueue(conn, **email)


def by_python_many(
    conn: psycopg.Connection, _: Program, __: Path, email: Mapping[str, Any]
) -> None:
    mailgres.enqueue_many(conn, [email])  # type: ignore[list-item]


def by_jsonl(
    _: psycopg.Connection, program: Program, place: Path, email: Mapping[str, Any]
) -> None:
    file = place / "emails.jsonl"
    file.write_text(json.dumps(plain(email)))
    program("enqueue", "--jsonl", str(file))


def by_csv(_: psycopg.Connection, program: Program, place: Path, email: Mapping[str, Any]) -> None:
    file = place / "emails.csv"
    cells = {
        name: json.dumps(value) if FIELDS[name].is_json else value
        for name, value in plain(email).items()
    }
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, cells)
        writer.writeheader()
        writer.writerow(cells)
    program("enqueue", "--csv", str(file))


ENTRANCES = [by_enqueue_email, by_enqueue_emails, by_python, by_python_many, by_jsonl, by_csv]


@pytest.fixture
def program(conn: psycopg.Connection, database_url: str) -> Program:
    """The console script, and a second route to `capture`."""
    conn.execute("INSERT INTO mailgres.routes (route) VALUES ('second')")
    conn.execute("INSERT INTO mailgres.route_providers VALUES ('second', 1, 'capture')")
    return Program(database_url)


def stored(conn: psycopg.Connection) -> dict[str, Any]:
    """The one email of the queue, with its attachments as they were given."""
    cursor = conn.cursor(row_factory=dict_row)
    found = cursor.execute("SELECT * FROM email_queue").fetchone()
    assert found is not None
    files = cursor.execute(
        "SELECT filename, content, content_type FROM mailgres.attachments ORDER BY position"
    ).fetchall()
    return {**found, "attachments": files}


def captured(conn: psycopg.Connection, program: Program) -> dict[str, Any]:
    """The message that a worker makes of the one email of the queue."""
    conn.execute("UPDATE email_queue SET next_retry_at = NULL")
    done = program.run("process", MAILGRES_FROM_EMAIL="noreply@example.com")
    assert done.returncode == 0, done.stderr
    row = conn.execute("SELECT message FROM mailgres.captured").fetchone()
    assert row is not None
    found: dict[str, Any] = row[0]
    return found


@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda entrance: entrance.__name__)
def test_every_field_arrives_in_the_row_and_in_the_message(
    conn: psycopg.Connection,
    program: Program,
    tmp_path: Path,
    entrance: Callable[[psycopg.Connection, Program, Path, Mapping[str, Any]], None],
) -> None:
    entrance(conn, program, tmp_path, EMAIL)
    row = stored(conn)
    assert {name: row[name] for name in FIELDS} == EMAIL
    sent = captured(conn, program)
    expected = {**EMAIL, "attachments": ["file.bin"]}
    assert sent == {key: expected[name] for name, key in IN_THE_MESSAGE.items()}


def test_every_option_arrives_in_the_row_and_the_payload_in_the_message(
    conn: psycopg.Connection, program: Program
) -> None:
    given = {name: value for name, value in plain(EMAIL).items() if name not in NOT_OPTIONS}
    arguments = []
    for parameter in enqueue.params:
        if (value := given.get(str(parameter.name))) is not None:
            (text,) = value if isinstance(value, list) else [value]
            written = json.dumps(text) if isinstance(text, dict) else str(text)
            arguments += [parameter.opts[0], *([] if text is True else [written])]
    program("enqueue", EMAIL["template_type"], EMAIL["recipient_email"], *arguments)
    row = stored(conn)
    assert {name: row[name] for name in given} == {name: EMAIL[name] for name in given}
    assert "Payload Name" in captured(conn, program)["text"]


CONTENT = ["template_type", "payload", *IN_THE_MESSAGE]
OTHER: dict[str, Any] = {
    "str": "other@example.com",
    "dict": {"X-Other": "other"},
    "list": ["other@example.com"],
}


@pytest.mark.parametrize("field", CONTENT)
def test_the_same_idempotency_key_with_another_content_is_refused(
    conn: psycopg.Connection, program: Program, tmp_path: Path, field: str
) -> None:
    by_enqueue_email(conn, program, tmp_path, EMAIL)
    files = [{"filename": "other.txt", "content": FILE}]
    others: dict[str, Any] = {"template_type": "order_receipt", "attachments": files}
    value = others.get(field) or OTHER[type(EMAIL[field]).__name__]
    with pytest.raises(psycopg.Error) as caught:
        by_enqueue_email(conn, program, tmp_path, {**EMAIL, field: value})
    assert caught.value.sqlstate == "MG009"
