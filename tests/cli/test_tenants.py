"""`mailgres tenants list|weight|pause|resume`, run as a program."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from support.program import Program
from support.queue import Clock, Queue

DRY = "Nothing was changed: this was a dry run."


def test_tenants_list_shows_counts_and_settings(mailgres: Program, queue: Queue) -> None:
    Clock(queue.conn, datetime(2026, 11, 16, 18, 44, tzinfo=UTC))
    queue.enqueue(tenant_id="shop")
    queue.attempt("sent")
    queue.run("SELECT mailgres.fold_rollups()")
    queue.enqueue(tenant_id="shop")
    queue.attempt("permanent", message="no")
    queue.enqueue(tenant_id="waits")
    mailgres("tenants", "limit", "acme", "100/m")
    mailgres("tenants", "weight", "shop", "5")
    mailgres("tenants", "pause", "shop", "--reason", "a complaint")
    mailgres("tenants", "contact", "shop", "postmaster@shop.example")
    assert mailgres("tenants", "list").splitlines() == [
        "tenant  weight  limit  route  sent  failed  contact",
        "acme    1       100/m  -      0     0       -",
        "shop    5       -      -      1     1       postmaster@shop.example",
        "  paused since 2026-11-16 18:44:00 UTC: a complaint",
        "waits   1       -      -      0     0       -",
    ]
    _, shop, _ = mailgres.json("tenants", "list")
    assert (shop["weight"], shop["pause_reason"], shop["failed"]) == (5, "a complaint", 1)


def test_a_paused_tenant_is_not_claimed(mailgres: Program, queue: Queue) -> None:
    queue.enqueue(tenant_id="shop")
    queue.enqueue(tenant_id="acme")
    said = mailgres("tenants", "pause", "shop")
    assert said == "shop: paused; `mailgres tenants resume shop` ends it\n"
    assert [email.tenant_id for email in queue.claim()] == ["acme"]
    assert queue.claim() == []
    queue.run("LISTEN mailgres")
    assert mailgres("tenants", "resume", "shop") == "shop: resumed\n"
    assert next(queue.conn.notifies()).channel == "mailgres", "workers are woken"
    assert [email.tenant_id for email in queue.claim()] == ["shop"]


def test_a_tenant_with_a_higher_weight_gets_a_larger_share(mailgres: Program, queue: Queue) -> None:
    for _ in range(10):
        queue.enqueue(tenant_id="shop")
        queue.enqueue(tenant_id="acme")
    assert mailgres("tenants", "weight", "shop", "2") == "shop: weight 2\n"
    claimed = [email.tenant_id for email in queue.claim(limit=9)]
    assert (claimed.count("acme"), claimed.count("shop")) == (3, 6)
    assert "0 is not in the range" in mailgres.misused("tenants", "weight", "shop", "0")
    assert "tenant" in mailgres.fails("tenants", "weight", "", "2")[0]


@pytest.mark.parametrize("command", [("pause",), ("weight", "2")])
def test_a_misspelt_tenant_is_noticed(
    mailgres: Program, queue: Queue, command: tuple[str, ...]
) -> None:
    queue.enqueue(tenant_id="shop")
    done = mailgres.run("tenants", command[0], "shp", *command[1:])
    assert done.returncode == 0
    assert done.stderr == "Note: the tenant 'shp' is not known yet. Did you mean shop?\n"


def test_resuming_a_tenant_that_is_not_paused_is_an_error(mailgres: Program, queue: Queue) -> None:
    queue.enqueue(tenant_id="shop")
    assert mailgres.fails("tenants", "resume", "shop") == (
        "The tenant 'shop' is not paused",
        "Paused: none.",
    )
    mailgres("tenants", "pause", "shop")
    assert mailgres.fails("tenants", "resume", "shp")[1] == "Did you mean shop?"


CHANGES = [
    ("tenants", "pause", "shop"),
    ("tenants", "weight", "shop", "3"),
    ("tenants", "limit", "shop", "1/s"),
    ("tenants", "route", "shop", "default"),
    ("tenants", "contact", "shop", "ana@example.com"),
    ("routes", "set", "bulk", "capture"),
    ("routes", "pause", "default"),
    ("providers", "pause", "capture"),
    ("providers", "limit", "capture", "--daily", "5"),
    ("templates", "retire", "welcome_user"),
    ("policies", "set", "stepped", "--retries", "9"),
    ("suppressions", "add", "ana@example.com"),
]
TABLES = (
    *("mailgres.tenants", "mailgres.buckets", "mailgres.routes", "mailgres.providers"),
    *("mailgres.retry_policies", "email_templates", "email_suppressions"),
)


def state(queue: Queue) -> list[object]:
    return [queue.rows(f"SELECT t::text FROM {table} t ORDER BY 1") for table in TABLES]


@pytest.mark.parametrize("change", CHANGES, ids=" ".join)
def test_a_dry_run_changes_nothing(
    mailgres: Program, queue: Queue, change: tuple[str, ...]
) -> None:
    queue.enqueue(tenant_id="shop")
    before = state(queue)
    *said, last = mailgres(*change, "--dry-run").splitlines()
    assert last == DRY
    assert state(queue) == before
    assert mailgres(*change).splitlines() == said
    assert state(queue) != before
