"""One bad row among good ones: whatever PostgreSQL accepts, the others are sent once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb

from doubles.resend import ResendDouble
from doubles.ses import SesDouble
from doubles.smtp import SmtpDouble
from e2e.harness import E2eHarness, accepted, once_each
from support.queue import HOLD

GOOD = 99
PLAIN = {"template_type": "letter", "recipient_email": "bad@example.org"}
CONTENT = {**PLAIN, "subject": "Hello", "text": "Hello"}
LONG, DEEP = "a number of 5000 digits", "5000 arrays"
AS_JSON = {"headers", "tags", "payload"}

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
keys = st.sampled_from(["X-A", "a", "Bcc", "", "Content-Type", "\n"]) | texts
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    scalars, lambda each: st.lists(each, max_size=3) | st.dictionaries(keys, each, max_size=3)
)
addresses = st.sampled_from(["a@b.cc", "Ana <a@b.cc>", "a", "", "a@b.cc\nX: y", "ж@b.cc"])
lists = st.lists(st.none() | addresses, max_size=3)
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "cc": lists | st.lists(lists, max_size=2),
    "bcc": lists | st.lists(lists, max_size=2),
    "headers": values,
    "tags": values,
    "payload": values,
    "from_email": addresses | texts,
    "reply_to": addresses | texts,
    "recipient_email": addresses | texts,
    "subject": texts,
    "html": texts,
    "text": texts,
    "template_type": texts,
    "template_version": st.integers(-5, 5),
    "generation": st.integers(0, 2**31),
    "retries": st.integers(0, 2**31),
    "max_retries": st.integers(0, 2**31),
    "retry_delay": st.sampled_from(["178000000 years", "-1 day", "1 day"]),
    "next_retry_at": st.sampled_from(["-infinity", "4000-01-01 BC", "2020-01-01"]),
    "expires_at": st.sampled_from(["infinity", "2999-01-01"]),
    "tenant_id": texts,
    "correlation_id": texts,
    "has_attachments": st.booleans(),
    "batch_id": st.uuids(),
    "provider": texts,
    "lease_losses": st.integers(0, 2),
}
CONTENT_COLUMNS = ["cc", "bcc", "headers", "tags", "payload", "from_email", "reply_to", "subject"]
CONTENT_COLUMNS += ["recipient_email", "html", "text", "template_type"]


def rows_of(columns: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Rows in which one to three of these columns have strange values."""
    return st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: COLUMNS[name] for name in names})
    )


found_in_the_wild: list[dict[str, Any]] = [
    {"cc": [["a@b.cc"]]},
    {"cc": [None]},
    {"headers": [1]},
    {"headers": {"X-A": 5}},
    {"tags": ["a"]},
    {"headers": {"X-A": LONG}},
    {"headers": {"X-A": DEEP}},
]


def insert(harness: E2eHarness, row: dict[str, Any]) -> Any:
    """Insert a row by hand; return None if PostgreSQL refuses it."""
    columns = {**CONTENT, "ready": True, **row}
    query = sql.SQL("INSERT INTO email_queue ({}) VALUES ({}) RETURNING id").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(map(sql.Placeholder, columns)),
    )
    given = {
        name: Jsonb(value, dumps=dumps) if name in AS_JSON else value
        for name, value in columns.items()
    }
    try:
        return harness.conn.execute(query, given).fetchone()[0]  # type: ignore[index]
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError):
        return None


def dumps(value: Any) -> str:
    """JSON with what Python can hardly write, and not read."""
    deep = "[" * 5000 + "]" * 5000
    return json.dumps(value).replace(f'"{LONG}"', "1" + "0" * 5000).replace(f'"{DEEP}"', deep)


def try_among_others(
    harness: E2eHarness,
    double: ResendDouble | SesDouble | SmtpDouble,
    row: dict[str, Any],
    count: int,
) -> None:
    """Send a bad row among good ones, and see that it harms none."""
    harness.run("TRUNCATE email_queue CASCADE")
    if (bad := insert(harness, row)) is None:
        return
    emails = [{"template_type": HOLD, "recipient_email": f"u{n}@example.org"} for n in range(count)]
    found = harness.rows("SELECT enqueue_emails(%s) AS id", Jsonb(emails))
    good = [each.id for each in found]
    harness.work()
    sent = accepted(double)
    assert {each: sent[each] for each in once_each(good)} == once_each(good)
    assert {harness.status_of(each) for each in good} == {"sent"}
    kept = harness.row(
        "SELECT status, error_class, dead_reason, uncertain_since FROM email_queue WHERE id = %s",
        bad,
    )
    assert kept.uncertain_since is None
    assert kept.error_class != "ambiguous"
    assert kept.status in {"sent", "failed"} or (kept.status, kept.error_class) == (
        "pending",
        "config",
    )
    assert sent[str(bad)] == (kept.status == "sent")


@pytest.mark.parametrize("row", found_in_the_wild, ids=str)
def test_a_row_that_cannot_be_prepared_harms_no_other_of_its_batch(
    harness: E2eHarness, resend: ResendDouble, row: dict[str, Any]
) -> None:
    """Even if it came past the door, by a restore from elsewhere or a constraint that is gone."""
    harness.open_the_door()
    try_among_others(harness, resend, row, GOOD)


@pytest.mark.parametrize("row", found_in_the_wild, ids=str)
def test_a_row_that_cannot_be_prepared_harms_no_other_at_ses(
    harness: E2eHarness, ses: SesDouble, row: dict[str, Any]
) -> None:
    harness.open_the_door()
    try_among_others(harness, ses, row, 5)


@pytest.mark.parametrize("row", [row for row in found_in_the_wild if "tags" not in row], ids=str)
def test_a_row_that_cannot_be_prepared_harms_no_other_at_an_smtp_server(
    harness: E2eHarness, smtp: SmtpDouble, row: dict[str, Any]
) -> None:
    harness.open_the_door()
    try_among_others(harness, smtp, row, 5)


SLOWLY = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@SLOWLY
@given(row=rows_of(sorted(COLUMNS)))
@example(row={"cc": [["a@b.cc"]]})
@example(row={"retry_delay": "178000000 years", "from_email": "a"})
@example(row={"next_retry_at": "-infinity", "from_email": "a"})
def test_any_row_that_postgres_accepts_harms_no_other_of_its_batch(
    harness: E2eHarness, resend: ResendDouble, row: dict[str, Any]
) -> None:
    try_among_others(harness, resend, row, GOOD)


@SLOWLY
@given(row=rows_of(CONTENT_COLUMNS))
def test_any_content_that_came_past_the_door_harms_no_other_of_its_batch(
    harness: E2eHarness, resend: ResendDouble, row: dict[str, Any]
) -> None:
    harness.open_the_door()
    try_among_others(harness, resend, row, GOOD)
