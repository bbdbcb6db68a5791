"""`mailgres routes` and `mailgres tenants`, run as a program."""

from __future__ import annotations

import pytest

from support.program import Program
from support.queue import Queue


@pytest.fixture
def mailgres(mailgres: Program, queue: Queue) -> Program:
    """With the providers capture, resend and smtp, and the default route to resend."""
    queue.use_provider("smtp")
    queue.use_provider("resend")
    return mailgres


def test_routes_list_shows_providers_and_tenants(mailgres: Program, queue: Queue) -> None:
    mailgres("routes", "set", "bulk", "smtp", "resend", "--description", "newsletters")
    mailgres("tenants", "route", "acme", "bulk")
    queue.run("SELECT mailgres.pause_provider('smtp')")
    assert mailgres("routes", "list").splitlines() == [
        "route    state   providers     tenants  description",
        "bulk     usable  smtp, resend  1        newsletters",
        "default  usable  resend        0        Emails that name no other route.",
    ]
    bulk, _ = mailgres.json("routes", "list")
    assert bulk["providers"] == ["smtp", "resend"]
    assert bulk["usable"] == ["resend"]
    queue.run("SELECT mailgres.pause_provider('resend')")
    assert mailgres("routes", "list").splitlines()[1].split()[1] == "unusable"


def test_routes_set_replaces_the_providers_of_a_route(mailgres: Program) -> None:
    assert mailgres("routes", "set", "bulk", "smtp", "resend", "smtp") == "bulk: smtp, resend\n"
    assert mailgres("routes", "set", "bulk", "resend") == "bulk: resend\n"
    assert mailgres.json("routes", "list")[0]["providers"] == ["resend"]


def test_routes_set_refuses_unknown_providers_and_bad_names(mailgres: Program) -> None:
    what, hint = mailgres.fails("routes", "set", "bulk", "smtp", "resed")
    assert what == "there is no provider 'resed'"
    assert hint == "Did you mean resend? `mailgres providers list` shows all."
    what, hint = mailgres.fails("routes", "set", "Bulk!", "smtp")
    assert what == "a route needs a name and at least one provider"
    assert "PROVIDERS" in mailgres.misused("routes", "set", "bulk")
    assert [one["route"] for one in mailgres.json("routes", "list")] == ["default"]


def test_a_paused_route_is_not_claimed(mailgres: Program, queue: Queue) -> None:
    queue.enqueue()
    assert "routes resume default" in mailgres("routes", "pause", "default")
    assert queue.claim() == []
    assert mailgres("routes", "list").splitlines()[1].split()[1] == "paused"
    assert mailgres("routes", "resume", "default") == "default: resumed\n"
    assert len(queue.claim()) == 1


@pytest.mark.parametrize(
    "command", [("routes", "pause"), ("routes", "resume"), ("tenants", "route", "acme")]
)
def test_the_nearest_route_is_suggested(mailgres: Program, command: tuple[str, ...]) -> None:
    what, hint = mailgres.fails(*command, "defalt")
    assert what == "there is no route 'defalt'"
    assert hint == "Did you mean default? `mailgres routes list` shows all."


def test_tenants_limit_sets_the_rate_of_a_tenant(mailgres: Program, queue: Queue) -> None:
    assert mailgres("tenants", "limit", "acme", "100/m") == "acme: 100/m\n"
    rate = "SELECT per_second FROM mailgres.buckets WHERE name = 'tenant:acme'"
    assert queue.value(rate) == pytest.approx(100 / 60)
    assert mailgres("tenants", "limit", "acme", "none") == "acme: no limit\n"
    assert queue.rows(rate) == []
    assert "is not a rate" in mailgres.misused("tenants", "limit", "acme", "much")
    what, _ = mailgres.fails("tenants", "limit", "", "1/s")
    assert what == "a limit needs a tenant and is above zero"


def test_tenants_route_sets_the_route_of_a_tenant(mailgres: Program, queue: Queue) -> None:
    mailgres("routes", "set", "bulk", "smtp")
    assert mailgres("tenants", "route", "acme", "bulk") == "acme: route bulk\n"
    assert queue.email(queue.enqueue(tenant_id="acme")).route == "bulk"
    mailgres("tenants", "contact", "acme", "postmaster@acme.example")
    assert mailgres("tenants", "route", "acme", "none") == "acme: route none\n"
    assert queue.email(queue.enqueue(tenant_id="acme")).route == "default"
    found = queue.row("SELECT route, contact_email, weight FROM mailgres.tenants")
    assert found == (None, "postmaster@acme.example", 1)


def test_tenants_contact_sets_the_contact_of_a_tenant(mailgres: Program, queue: Queue) -> None:
    said = mailgres("tenants", "contact", "acme", "postmaster@acme.example")
    assert said == "acme: contact_email postmaster@acme.example\n"
    what, hint = mailgres.fails("tenants", "contact", "acme", "Ana <ana@acme.example>")
    assert what == "the contact is not an email address"
    assert "plain address" in hint
    mailgres("tenants", "contact", "acme", "none")
    assert queue.value("SELECT contact_email FROM mailgres.tenants") is None
    assert "tenant" in mailgres.fails("tenants", "contact", "", "none")[0]
