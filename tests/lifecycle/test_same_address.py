# ruff: noqa: RUF001 - characters that look like others are what this is about
"""One mailbox, however its address is written: a suppression holds, or the address is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import idna
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from mailgres import migrate, resources
from support.queue import WITHOUT_KEYS, Queue

DISGUISES = {
    "zero width space": "sup@exam\u200bple.com",
    "zero width space in the local part": "s\u200bup@example.com",
    "zero width joiner": "sup@exam\u200dple.com",
    "soft hyphen": "sup@exam\u00adple.com",
    "soft hyphen in the local part": "su\u00adp@example.com",
    "word joiner": "su\u2060p@example.com",
    "byte order mark": "\ufeffsup@example.com",
    "right-to-left override": "sup\u202e@example.com",
    "left-to-right mark": "sup@example.com\u200e",
    "isolate": "sup@\u2068example.com",
    "combining grapheme joiner": "su\u034fp@example.com",
    "hangul filler": "su\u3164p@example.com",
    "variation selector": "sup\ufe0f@example.com",
    "supplementary variation selector": "sup\U000e0100@example.com",
    "tag": "sup\U000e0061@example.com",
    "full-width letters": "ｓｕｐ@example.com",
    "full-width domain": "sup@ｅｘａｍｐｌｅ.com",
    "full-width at sign": "sup＠example.com",
    "full-width dot": "sup@example．com",
    "ideographic full stop": "sup@example。com",
    "half-width ideographic full stop": "sup@example｡com",
    "mathematical letters": "𝓼𝓾𝓹@example.com",
    "circled letters": "ⓢⓤⓟ@example.com",
    "superscript": "ˢup@example.com",
    "ligature": "sup@eﬃce.com",
    "mongolian vowel separator": "su\u180ep@example.com",
    "line separator": "sup\u2028@example.com",
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_an_address_in_disguise_is_refused(queue: Queue, disguise: str) -> None:
    address = DISGUISES[disguise]
    with pytest.raises(psycopg.Error) as raised, queue.conn.transaction():
        queue.enqueue(recipient_email=address)
    assert raised.value.sqlstate == "MG002"
    email = {"template_type": "welcome_user", "recipient_email": address}
    with pytest.raises(psycopg.Error) as raised, queue.conn.transaction():
        queue.run("SELECT enqueue_emails(%s)", Jsonb([email]))
    assert raised.value.sqlstate == "MG002"
    for field in ({"cc": [address]}, {"bcc": [address]}, {"from_email": address}):
        with pytest.raises(psycopg.Error) as raised, queue.conn.transaction():
            queue.enqueue(**field)
        assert raised.value.sqlstate == "MG016"
    entry: dict[str, Any] = {"recipient_email": address}
    (reported,) = queue.rows("SELECT outcome FROM mailgres.suppress(%s)", Jsonb([entry]))
    assert reported.outcome == "address"


INSERT = "INSERT INTO email_queue (template_type, recipient_email) VALUES ('welcome_user', %s)"


@pytest.mark.parametrize("disguise", DISGUISES)
def test_an_address_in_disguise_inserted_by_hand_is_refused(queue: Queue, disguise: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        queue.run(INSERT, DISGUISES[disguise])


SAME = [
    ("ana@bücher.example", "ana@xn--bcher-kva.example"),
    ("ana@BÜCHER.example", "ana@xn--bcher-kva.example"),
    ("ANA@Bücher.EXAMPLE", "ana@bücher.example"),
    ("ana@XN--BCHER-KVA.example", "ana@bücher.example"),
    ("ana@bu\u0308cher.example", "ana@bücher.example"),
    ("an\u0303a@example.com", "aña@example.com"),
    ("AÑA@example.com", "aña@example.com"),
    ("ана@почта.рф", "АНА@xn--80a1acny.xn--p1ai"),
    ("ana@例え.テスト", "ana@xn--r8jz45g.xn--zckzah"),
    ("ana@faß.example", "ana@xn--fa-hia.example"),
]


@pytest.mark.parametrize(("one", "other"), [*SAME, *((b, a) for a, b in SAME)])
@pytest.mark.parametrize("way", ["suppress", "insert", "event"])
def test_two_spellings_of_an_address_are_one_suppression(
    queue: Queue, one: str, other: str, way: str
) -> None:
    if way == "suppress":
        queue.run("SELECT mailgres.suppress(%s)", Jsonb([{"recipient_email": one}]))
    elif way == "insert":
        queue.suppress(one)
    else:
        sent = queue.enqueue(recipient_email=one)
        queue.attempt("sent")
        queue.run(
            "SELECT record_email_event(NULL, 'bounced', p_queue_id => %s, p_detail => %s)",
            sent,
            Jsonb({"kind": "hard"}),
        )
    queue_id = queue.enqueue(recipient_email=other)
    assert queue.claim() == []
    assert queue.email(queue_id).status == "cancelled"
    assert [row[0] for row in queue.rows("SELECT mailgres.unsuppress(%s)", [other])] == [other]
    assert queue.value("SELECT count(*) FROM email_suppressions") == 0


def test_a_suppression_between_claim_and_call_holds_in_every_spelling(queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue(recipient_email="ana@bücher.example")
    claimed = queue.claim_one()
    queue.suppress("ana@xn--bcher-kva.example")
    assert queue.start_attempts([claimed]) == set()
    assert queue.email(claimed.id).status == "cancelled"


def test_two_spellings_are_suppressed_once(queue: Queue) -> None:
    entries = [{"recipient_email": address} for address in SAME[0]]
    reported = queue.rows("SELECT outcome FROM mailgres.suppress(%s)", Jsonb(entries))
    assert [row.outcome for row in reported] == ["added", "known"]
    queue.run("UPDATE email_suppressions SET recipient_email = 'Ana@Bücher.Example'")
    stored = queue.value("SELECT recipient_email FROM email_suppressions")
    assert stored == "ana@xn--bcher-kva.example"


DOMAINS = [
    "bücher.example",
    "faß.example",
    "почта.рф",
    "例え.テスト",
    "미국.example",
    "ليهمابتكلموشعربي.example",
    "प्र.example",
    "😀.example",
    "a-ü-b.example",
    "3年b組金八先生.example",
    "他们为什么不说中文.example",
    "ｘ.example",
    "ü.ü.ü.example",
    f"{'ü' * 40}.example",
]


@pytest.mark.parametrize("domain", DOMAINS)
def test_sql_has_the_a_labels_that_the_worker_sends_to(queue: Queue, domain: str) -> None:
    try:
        worker = idna.encode(domain, uts46=True).decode("ascii")
    except idna.IDNAError:
        labels = (label.encode("punycode").decode("ascii") for label in domain.split("."))
        worker = ".".join(f"xn--{label}" if label[-1] != "-" else label[:-1] for label in labels)
    assert queue.value("SELECT mailgres.canonical_address(%s)", f"ana@{domain}") == f"ana@{worker}"


def _attempt(queue: Queue, address: str) -> None:
    """Send to an address that came past the door, as a restore from elsewhere brings it."""
    queue.open_the_door()
    queue_id = queue.enqueue()
    queue.run("UPDATE email_queue SET recipient_email = %s WHERE id = %s", address, queue_id)


def _by_event(queue: Queue, address: str, event: str) -> None:
    _attempt(queue, address)
    statement = "SELECT record_email_event(NULL, %s, p_queue_id => %s, p_detail => %s)"
    queue.run(statement, event, queue.attempt("sent").id, Jsonb({"kind": "hard"}))


def _by_finish(queue: Queue, address: str) -> None:
    _attempt(queue, address)
    queue.attempt("permanent", code="550", message="unknown", suppress=True)


def _by_suppress(queue: Queue, address: str) -> None:
    (reported,) = queue.rows(
        "SELECT outcome FROM mailgres.suppress(%s)", Jsonb([{"recipient_email": address}])
    )
    if reported.outcome == "address":  # refused, and nobody thinks that it is suppressed
        queue.suppress("sup@example.com")


def _by_update(queue: Queue, address: str) -> None:
    queue.suppress("another@example.com")
    queue.run("UPDATE email_suppressions SET recipient_email = %s", address)


def _by_copy(queue: Queue, address: str) -> None:
    rows = "COPY email_suppressions (recipient_email, reason) FROM STDIN"
    with queue.conn.cursor() as cursor, cursor.copy(rows) as copy:
        copy.write_row((address, "manual"))


WRITERS: dict[str, Callable[[Queue, str], None]] = {
    "suppress": _by_suppress,
    "INSERT": lambda queue, address: queue.suppress(address),
    "UPDATE": _by_update,
    "COPY": _by_copy,
    "a bounce": lambda queue, address: _by_event(queue, address, "bounced"),
    "a complaint": lambda queue, address: _by_event(queue, address, "complained"),
    "finish": _by_finish,
}
ODD = {
    name: address
    for name, address in DISGUISES.items()
    if name != "ligature"  # another domain
}
ODD |= {"upper case": "SUP@Example.COM", "plain": "sup@example.com"}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_of_suppressions_stores_the_canonical_address(
    queue: Queue, writer: str
) -> None:
    for name, address in ODD.items():
        with queue.conn.transaction(force_rollback=True):
            WRITERS[writer](queue, address)
            assert queue.value("SELECT recipient_email FROM email_suppressions") == (
                "sup@example.com"
            ), name
            queue_id = queue.enqueue(recipient_email="Sup@example.com")
            assert queue.claim() == []
            assert queue.email(queue_id).status == "cancelled", name


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(("one", "other"), SAME[:3])
def test_every_writer_of_suppressions_treats_u_label_and_a_label_alike(
    queue: Queue, writer: str, one: str, other: str
) -> None:
    WRITERS[writer](queue, one)
    queue_id = queue.enqueue(recipient_email=other)
    assert queue.claim() == []
    assert queue.email(queue_id).status == "cancelled"


def test_the_form_does_not_depend_on_the_locale_of_the_database(
    empty_database_url: str, connect: Callable[..., psycopg.Connection]
) -> None:
    """In Turkish an I has no dot in lower case."""
    conn = connect(empty_database_url)
    name = f"{conn.info.dbname}_tr"
    try:
        conn.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"
            " LOCALE_PROVIDER icu ICU_LOCALE 'tr'".encode()
        )
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("the server has no ICU")
    try:
        url = make_conninfo(empty_database_url, dbname=name)
        migrate.upgrade(url)
        turkish = connect(url)
        row = turkish.execute(
            "SELECT lower('INFO'), mailgres.canonical_address('INFO@EXAMPLE.COM')"
        ).fetchone()
        assert row == ("\u0131nfo", "info@example.com")
        turkish.close()
    finally:
        conn.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_a_search_finds_every_spelling(queue: Queue) -> None:
    found = {queue.enqueue(recipient_email=address) for address in SAME[0]}
    queue.enqueue(recipient_email="ana@example.com")
    for given in (*SAME[0], "ANA@B\u00dccher.example", "@b\u00fccher.example"):
        asked = Jsonb({"recipient": [given]})
        rows = queue.rows("SELECT mailgres.find_emails(%s) AS id", asked)
        assert {row.id for row in rows} == found, given


def test_addresses_are_compared_in_one_form_only() -> None:
    """`lower()` of an address is no form of its own: only the function that defines it has one."""
    for path in resources.sql_directory().rglob("*.sql"):
        if path.name in {"30_canonical_address.sql", "42_without_recipients.sql"}:
            continue
        text = path.read_text()
        found = re.findall(r"\blower\([^()]*(?:recipient|email|address)[^()]*\)", text)
        assert [each for each in found if 'COLLATE "C"' not in each] == [], path.name
