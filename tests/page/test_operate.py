"""Providers, routes, tenants, alerts, suppressions, dead letters: shown, and changed."""

from __future__ import annotations

import pytest

from page.client import Client
from page.sending import enqueue, kill
from support.queue import Queue

TABLES = ("/dead-letters", "/providers", "/tenants", "/alerts", "/routes", "/suppressions")
PROVIDER = """
    INSERT INTO mailgres.providers (name, kind, idempotent, enabled)
    VALUES ('resend', 'resend', true, true)
"""


def test_a_provider_is_paused_for_a_while_resumed_and_reset(operator: Client, queue: Queue) -> None:
    queue.run(PROVIDER)
    pause = {"name": "resend", "length": "2h", "reason": "new keys"}
    answer = operator.change("/providers/pause", pause)
    assert (answer.status, answer.headers["location"]) == (303, "../providers?done=1")
    row = queue.row(
        "SELECT pause_reason, paused_until - mailgres.now() BETWEEN '1h 59m' AND '2h' AS is_right"
        " FROM mailgres.providers WHERE name = 'resend'"
    )
    assert (row.pause_reason, row.is_right) == ("new keys (ana)", True)
    assert "new keys (ana)" in operator.get("/providers").text
    assert operator.change("/providers/resume", {"name": "resend"}).status == 303
    assert queue.value("SELECT paused_until FROM mailgres.providers WHERE name = 'resend'") is None
    queue.run("UPDATE mailgres.providers SET circuit = 'open', circuit_since = mailgres.now()")
    assert "Reset resend" in operator.get("/providers").text
    assert operator.change("/providers/reset", {"name": "resend"}).status == 303
    circuit = queue.value("SELECT circuit FROM mailgres.providers WHERE name = 'resend'")
    assert circuit == "closed"


def test_a_provider_is_paused_until_it_is_resumed(operator: Client, queue: Queue) -> None:
    queue.run(PROVIDER)
    assert operator.change("/providers/pause", {"name": "resend"}).status == 303
    row = queue.row(
        "SELECT paused_until = 'infinity' AS is_forever, pause_reason FROM mailgres.providers"
        " WHERE name = 'resend'"
    )
    assert (row.is_forever, row.pause_reason) == (True, "by ana")


def test_a_route_and_a_tenant_are_paused_and_resumed(operator: Client, queue: Queue) -> None:
    enqueue(queue, tenant="a/b <c>")
    for kind, name, is_paused in (
        ("routes", "default", "SELECT paused FROM mailgres.routes WHERE route = 'default'"),
        ("tenants", "a/b <c>", "SELECT paused_at IS NOT NULL FROM mailgres.tenants"),
    ):
        assert operator.change(f"/{kind}/pause", {"name": name}).status == 303
        assert queue.value(is_paused)
        assert "paused" in operator.get(f"/{kind}").text
        assert operator.change(f"/{kind}/resume", {"name": name}).status == 303
        assert not queue.value(is_paused)


def test_a_tenant_gets_a_weight_and_is_found_by_name(operator: Client, queue: Queue) -> None:
    enqueue(queue, tenant="acme")
    enqueue(queue, tenant="globex")
    queue.run("SELECT mailgres.measure_depth()")
    assert operator.change("/tenants/weight", {"name": "acme", "weight": "7"}).status == 303
    assert queue.value("SELECT weight FROM mailgres.tenants WHERE tenant_id = 'acme'") == 7
    shown = operator.get("/tenants?q=acme").text
    assert "acme" in shown
    assert "globex" not in shown


def test_an_alert_rule_is_changed_and_its_alert_has_the_runbook(
    operator: Client, queue: Queue
) -> None:
    kill(queue, enqueue(queue))
    change = {"name": "dead_letters", "threshold": "0", "enabled": "on"}
    assert operator.change("/alerts/set", change).status == 303
    shown = operator.get("/alerts").text
    assert "an outage lasted longer than the retries" in shown
    off = {"name": "dead_letters", "enabled": "off"}
    assert operator.change("/alerts/set", off).status == 303
    row = queue.row(
        "SELECT threshold, enabled FROM mailgres.alert_rules WHERE name = 'dead_letters'"
    )
    assert (row.threshold, row.enabled) == (0, False)
    assert "No alert fires" in operator.get("/alerts").text


def test_an_address_is_suppressed_found_and_released(operator: Client, queue: Queue) -> None:
    add = {"name": "Ana@example.com", "reason": "asked for it"}
    assert operator.change("/suppressions/add", add).status == 303
    row = queue.row("SELECT recipient_email, tenant_id, note FROM email_suppressions")
    assert tuple(row) == ("ana@example.com", "*", "asked for it (ana)")
    assert "ana@example.com" in operator.get("/suppressions?q=ANA@").text
    assert "ana@example.com" not in operator.get("/suppressions?q=ben").text
    remove = {"name": "ana@example.com", "tenant": "*"}
    assert operator.change("/suppressions/remove", remove).status == 303
    assert queue.value("SELECT count(*) FROM email_suppressions") == 0


def test_dead_letters_are_grouped_and_lead_to_their_emails(operator: Client, queue: Queue) -> None:
    for tenant, code in (("acme", "invalid_to"), ("acme", "other"), ("globex", "invalid_to")):
        kill(queue, enqueue(queue, tenant=tenant, template="invoice"), code=code)
    shown = operator.get("/dead-letters").text.replace("&amp;", "&").replace("&#x2f;", "/")
    assert "3 dead letters" in shown
    for link in (
        "emails?status=failed&reason=permanent&code=invalid_to",
        "emails?status=failed&tenant=acme",
        "emails?status=failed&template=invoice",
    ):
        assert link in shown
        assert operator.get(f"/{link}").text.count('class="row"') >= 2
    assert "an outage lasted longer than the retries" in shown


@pytest.mark.parametrize(
    ("path", "form", "told"),
    [
        ("/providers/pause", {}, "names nothing"),
        ("/providers/pause", {"name": "nosuch"}, "nosuch"),
        ("/providers/pause", {"name": "capture", "length": "soon"}, "is not a duration"),
        ("/providers/resume", {"name": "x" * 300}, "names nothing"),
        ("/routes/pause", {"name": "nosuch"}, "nosuch"),
        ("/tenants/weight", {"name": "acme", "weight": "many"}, "is not a number"),
        ("/tenants/weight", {"name": "acme", "weight": "0"}, "from 1 to 100"),
        ("/tenants/weight", {"name": "acme", "weight": "9e99"}, "is not a number"),
        ("/alerts/set", {"name": "nosuch", "threshold": "1"}, "nosuch"),
        ("/alerts/set", {"name": "dead_letters", "threshold": "-1"}, "not a threshold"),
        ("/alerts/set", {"name": "dead_letters", "threshold": "nan"}, "is not a number"),
        ("/suppressions/add", {"name": "not an address"}, "address is not valid"),
        ("/suppressions/add", {}, "address is not valid"),
        ("/suppressions/remove", {"name": "a\0b"}, "names nothing"),
    ],
)
def test_a_change_on_the_page_that_is_refused_gets_one_clear_error(
    operator: Client, queue: Queue, path: str, form: dict[str, str], told: str
) -> None:
    state = (
        "SELECT jsonb_build_array((SELECT jsonb_agg(to_jsonb(p)) FROM mailgres.providers p),"
        " (SELECT jsonb_agg(to_jsonb(t)) FROM mailgres.tenants t),"
        " (SELECT jsonb_agg(to_jsonb(r)) FROM mailgres.alert_rules r),"
        " (SELECT count(*) FROM email_suppressions)) AS state"
    )
    before = queue.rows(state)
    answer = operator.change(path, form)
    assert (answer.status, told in answer.text) == (400, True), answer.text
    assert queue.rows(state) == before


def test_viewers_see_the_tables_of_the_page_without_forms(viewer: Client, queue: Queue) -> None:
    kill(queue, enqueue(queue))
    queue.run(PROVIDER)
    for path in TABLES[:4]:
        answer = viewer.get(path)
        assert answer.status == 200, path
        assert "<form" not in answer.text.partition("</header>")[2].replace(
            '<form class="filter"', ""
        )
        assert "ana@example.com" not in answer.text
    for path in TABLES[4:]:
        assert viewer.get(path).status == 403
        assert f'href="./{path[1:]}"' not in viewer.get("/").text.replace("&#x2f;", "/")
