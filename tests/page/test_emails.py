"""The list of emails: its filter, its pages, and how far it looked."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit
from uuid import UUID

import pytest

from mailgres.page import search as searching
from mailgres.page.filters import Filter
from mailgres.page.search import FIRST, search
from mailgres.page.users import Role
from page.client import Client
from page.sending import enqueue, kill
from support.queue import Queue
from support.web_client import Answer

MANY = """
    SELECT enqueue_email(NULL, 'welcome_user', format('n%%s@example.com', n), p_tenant_id => 'bulk')
    FROM generate_series(1, %s) n
"""


def ids(answer: Answer) -> list[str]:
    return re.findall(r'class="row" href="[^"]*?emails/([0-9a-f-]{36})', unescaped(answer.text))


def unescaped(text: str) -> str:
    return text.replace("&#x2f;", "/").replace("&amp;", "&")


def test_the_page_lists_the_newest_emails_first(operator: Client, queue: Queue) -> None:
    found = [str(enqueue(queue)) for _ in range(3)]
    assert ids(operator.get("/emails")) == found[::-1]


@pytest.mark.parametrize(
    "condition",
    [
        "status=failed",
        "status=dead",
        "template=invoice",
        "tenant=acme",
        "recipient=BEN@example.com",
        "recipient=@example.org",
        "code=invalid_to",
        "reason=permanent",
        "status=failed&tenant=acme&template=invoice&since=1h&code=invalid_to",
    ],
)
def test_each_field_of_the_filter_on_the_page_finds_its_email(
    operator: Client, queue: Queue, condition: str
) -> None:
    enqueue(queue)
    to = "ben@example.org" if "@example.org" in condition else "ben@example.com"
    wanted = enqueue(queue, to, template="invoice", tenant="acme")
    kill(queue, wanted)
    enqueue(queue, "cem@example.net")
    assert ids(operator.get(f"/emails?{condition}")) == [str(wanted)]


def test_since_and_until_bound_the_list_on_the_page(operator: Client, queue: Queue) -> None:
    old = enqueue(queue)
    queue.run("UPDATE email_queue SET created_at = now() - interval '3 days'")
    new = enqueue(queue)
    assert ids(operator.get("/emails?since=1d")) == [str(new)]
    assert ids(operator.get("/emails?until=1d")) == [str(old)]


def test_emails_with_ids_of_the_application_are_found_by_time_on_the_page(
    operator: Client, queue: Queue
) -> None:
    queue.run(
        "INSERT INTO email_queue (id, template_type, recipient_email)"
        " VALUES ('f0000000-0000-4000-8000-000000000001', 'welcome_user', 'a@example.com'),"
        " ('00000000-0000-4000-8000-000000000001', 'welcome_user', 'b@example.com')"
    )
    assert len(ids(operator.get("/emails?since=1h&template=welcome_user"))) == 2


@pytest.mark.parametrize("status", ["", "pending", "sent"])
def test_the_pages_of_the_list_have_every_email_once(
    operator: Client, queue: Queue, status: str
) -> None:
    queue.run(MANY, 120)
    if status == "sent":
        queue.run("UPDATE email_queue SET status = 'sent'")
    wanted = [str(row.id) for row in queue.rows("SELECT id FROM email_queue ORDER BY id DESC")]
    found, address = [], f"/emails?status={status}&tenant=bulk"
    while address:
        answer = operator.get(address)
        found += ids(answer)
        older = re.search(r'href="(\?[^"]*)">Older', unescaped(answer.text))
        address = f"/emails{older[1]}" if older else ""
        if older:
            assert f"status={status}" in older[1] or not status
            assert "tenant=bulk" in older[1]
    assert found == wanted


def test_a_search_without_an_index_stops_and_says_how_far_it_looked(
    stranger: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = enqueue(queue, template="invoice")
    queue.run(MANY, 100)
    monkeypatch.setattr(searching, "STEPS", (10, 30))
    store, chosen = stranger.app.store, Filter(template="invoice")
    found = search(store, Role.VIEWER, chosen, None, budget=0)
    assert (found.ids, found.looked, found.after is not None) == ([], 10, True)
    looked = [found.looked]
    while found.after:
        found = search(store, Role.VIEWER, chosen, found.after, budget=0)
        looked.append(found.looked)
    assert found.ids == [wanted]
    assert looked[:-1] == [10] * 10


def test_an_unfinished_search_continues_where_it_stopped(
    operator: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = enqueue(queue, template="invoice")
    queue.run(MANY, 60)
    monkeypatch.setattr(searching, "STEPS", (50, 50))
    monkeypatch.setattr(searching.search, "__defaults__", (0.0,))
    answer = operator.get("/emails?template=invoice")
    assert "Looked at 50 emails, back to" in answer.text
    assert "none of them matches" in answer.text
    address = re.search(r'href="(\?[^"]*)">Search further back', unescaped(answer.text))
    assert address
    assert ids(operator.get(f"/emails{address[1]}")) == [str(wanted)]


def test_the_list_of_a_status_is_the_same_with_and_without_its_index(
    stranger: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.run(MANY, 30)
    wanted = search(stranger.app.store, Role.VIEWER, Filter(status="pending"), None).ids
    monkeypatch.setattr(searching, "FEW", 20)
    assert search(stranger.app.store, Role.VIEWER, Filter(status="pending"), None).ids == wanted


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("status=nosuch", "There is no status nosuch"),
        ("reason=nosuch", "There is no reason nosuch"),
        ("reason=expired&status=sent", "Only dead emails have a reason"),
        ("since=yesterday", "yesterday is not a time"),
        ("since=1h&until=2h", "The time window ends before it begins"),
        ("tenant=" + "x" * 400, "The tenant is not valid"),
        ("template=%00", "The template is not valid"),
        ("since=99999999999999999999d", "is not a time"),
    ],
)
def test_a_malformed_filter_on_the_page_gets_one_clear_error(
    operator: Client, queue: Queue, condition: str, told: str
) -> None:
    enqueue(queue)
    answer = operator.get(f"/emails?{condition}")
    assert (answer.status, told in unescaped(answer.text)) == (400, True)
    assert not ids(answer)


@pytest.mark.parametrize("after", ["x", "", str(FIRST), "f" * 32, "%27%3B--"])
def test_a_malformed_position_in_the_list_is_no_error(
    operator: Client, queue: Queue, after: str
) -> None:
    enqueue(queue)
    assert operator.get(f"/emails?after={after}").status == 200


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "' OR 1=1 --", "%", "_", "\\"])
def test_a_hostile_filter_finds_nothing_and_is_shown_as_text(
    operator: Client, queue: Queue, text: str
) -> None:
    enqueue(queue)
    for name in ("template", "tenant", "recipient", "code", "provider"):
        answer = operator.get(f"/emails?{name}={quote(text)}")
        assert answer.status == 200
        assert not ids(answer)
        assert "<script>alert" not in answer.text


def test_the_filter_for_a_domain_takes_no_wildcards(operator: Client, queue: Queue) -> None:
    enqueue(queue, "ana@examplexcom.example")
    assert not ids(operator.get("/emails?recipient=@example_com.example"))
    assert len(ids(operator.get("/emails?recipient=@examplexcom.example"))) == 1


def test_viewers_see_masked_recipients_and_cannot_search_for_one(
    viewer: Client, queue: Queue
) -> None:
    enqueue(queue)
    page = viewer.get("/emails").text
    assert "a***@example.com" in page
    assert "ana@example.com" not in page
    assert 'name="recipient"' not in page
    answer = viewer.get("/emails?recipient=ana@example.com")
    assert answer.status == 403
    assert "Viewers do not see recipients" in answer.text


def test_no_query_of_the_list_counts_or_sorts_the_table(queue: Queue) -> None:
    """However many emails there are, a page reads a bounded number of them."""
    queue.run(MANY, 3000)
    queue.run("UPDATE email_queue SET status = 'sent'")
    queue.run("ANALYZE email_queue")
    text = queries_of_the_page()["search"]
    values = Filter(template="nosuch").parameters() | {
        "before": UUID(int=2**128 - 1),
        "first": FIRST,
        "step": 100,
        "limit": 51,
    }
    plan = "\n".join(
        row[0] for row in queue.conn.execute(f"EXPLAIN (ANALYZE, BUFFERS) {text}", values)
    )
    assert "Index Scan Backward using email_queue_pkey" in plan
    assert "Seq Scan" not in plan


def queries_of_the_page() -> dict[str, str]:
    from mailgres import queries

    return dict(queries.load("page/page.sql"))


def test_the_address_of_the_list_keeps_the_filter(operator: Client, queue: Queue) -> None:
    enqueue(queue)
    page = unescaped(operator.get("/emails?status=pending&tenant=default").text)
    assert 'value="pending" selected' in page
    assert 'name="tenant" value="default"' in page
    assert urlsplit("/emails?status=pending").path == "/emails"
