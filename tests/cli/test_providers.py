"""`mailgres providers`, run as a program."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from support.program import Program
from support.queue import Clock, Queue

TOMORROW = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)


@pytest.fixture
def mailgres(mailgres: Program, queue: Queue) -> Program:
    """With the provider resend on the default route."""
    queue.use_provider("resend")
    return mailgres


def state(mailgres: Program, name: str = "resend") -> dict[str, Any]:
    (found,) = [one for one in mailgres.json("providers", "list") if one["provider"] == name]
    return dict(found)


def test_providers_list_shows_state_limits_and_quotas(mailgres: Program, queue: Queue) -> None:
    Clock(queue.conn, datetime(2026, 11, 16, 18, 44, tzinfo=UTC))
    queue.run("SELECT mailgres.limit_provider('resend', 2, 100, 3000)")
    queue.run("SELECT mailgres.learn_limits('resend', 5, NULL, NULL, 40)")
    queue.run(
        "SELECT mailgres.set_circuit('resend', 'open', 'invalid_api_key: API key is invalid', NULL)"
    )
    queue.run("SELECT mailgres.pause_provider('resend', now() + interval '99 years', 'sale')")
    queue.run(
        "UPDATE mailgres.providers SET limited_by = 'quota', limited_until = '2026-11-17 00:00Z'"
        " WHERE name = 'resend'"
    )
    until = queue.value("SELECT paused_until FROM mailgres.providers WHERE name = 'resend'")
    opened = "open circuit since 2026-11-16 18:44:00 UTC, next probe at 2026-11-16 18:46:00 UTC"
    assert mailgres("providers", "list").splitlines() == [
        "provider  kind     circuit  tokens                    today   this month  routes",
        "capture   capture  closed   -                         -       -           -",
        "resend    resend   open     2 at 2/s, 5 calls at 5/s  40/100  0/3000      default",
        f"  paused until {until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: sale",
        f"  {opened}: invalid_api_key: API key is invalid",
        "  when it is fixed: mailgres providers reset resend",
        "  out of quota until 2026-11-17 00:00:00 UTC",
    ]
    found = state(mailgres)
    assert (found["circuit"], found["usable"], found["used_today"]) == ("open", False, 40)
    assert (found["limited_by"], found["routes"]) == ("quota", ["default"])


def test_control_characters_in_reasons_do_not_reach_the_terminal(
    mailgres: Program, queue: Queue
) -> None:
    """A circuit's reason is what the provider said."""
    evil = "\x1b]0;mine\x07\x1b[2J\x9b1m"
    queue.run("SELECT mailgres.set_circuit('resend', 'open', %s, NULL)", evil)
    queue.run("SELECT mailgres.pause_provider('resend', 'infinity', %s)", evil)
    queue.run("SELECT mailgres.pause_tenant('acme', %s)", evil)
    for order in (
        ("providers", "list"), ("providers", "limit", "resend", "--rate", "1/s"),
        ("tenants", "list"),
    ):  # fmt: skip
        printed = mailgres(*order)
        assert "\N{REPLACEMENT CHARACTER}[2J" in printed, order
        assert printed.replace("\n", "").isprintable(), order


def test_capture_is_usable_in_a_new_database(mailgres: Program) -> None:
    assert state(mailgres, "capture")["usable"] is True


def test_a_provider_is_paused_until_it_is_resumed(mailgres: Program) -> None:
    paused = mailgres("providers", "pause", "resend")
    assert paused == (
        "resend: paused until further notice; `mailgres providers resume resend` ends it\n"
    )
    assert state(mailgres)["paused_until"] == "infinity"
    assert mailgres("providers", "resume", "resend") == "resend: usable\n"
    assert state(mailgres)["usable"] is True


def test_a_provider_is_paused_for_a_duration(mailgres: Program, queue: Queue) -> None:
    clock = Clock(queue.conn)
    done = mailgres("providers", "pause", "resend", "--for", "2h", "--reason", "they are down")
    ends = clock.now + timedelta(hours=2)
    assert done == f"resend: paused until {ends:%Y-%m-%d %H:%M:%S} UTC: they are down\n"
    clock.forward(timedelta(hours=3))
    assert state(mailgres)["usable"] is True


def test_a_provider_is_paused_until_a_time(mailgres: Program) -> None:
    mailgres("providers", "pause", "resend", "--until", TOMORROW.isoformat())
    assert datetime.fromisoformat(state(mailgres)["paused_until"]) == TOMORROW
    plain = TOMORROW.replace(tzinfo=None).isoformat()
    mailgres("providers", "pause", "resend", "--until", plain, TZ="Etc/GMT-5")
    there = datetime.fromisoformat(state(mailgres)["paused_until"])
    assert there == TOMORROW - timedelta(hours=5)


def test_pauses_in_the_past_are_refused(mailgres: Program) -> None:
    what, hint = mailgres.fails("providers", "pause", "resend", "--until", "2020-01-01")
    assert what == "the pause would be over already"
    assert "in the future" in hint
    assert "is not a time" in mailgres.misused("providers", "pause", "resend", "--until", "soon")
    assert "not a duration" in mailgres.misused("providers", "pause", "resend", "--for", "x")
    both = ("--for", "1h", "--until", "2099-01-01")
    assert "not both" in mailgres.misused("providers", "pause", "resend", *both)
    assert state(mailgres)["usable"] is True


def test_providers_reset_closes_the_circuit(mailgres: Program, queue: Queue) -> None:
    queue.run("SELECT mailgres.set_circuit('resend', 'open', 'down', NULL)")
    assert mailgres("providers", "reset", "resend") == "resend: usable\n"
    assert state(mailgres)["circuit"] == "closed"


def test_providers_limit_sets_and_removes_limits(mailgres: Program) -> None:
    def limits() -> tuple[Any, ...]:
        found = state(mailgres)
        return found["emails_per_second"], found["daily_quota"], found["monthly_quota"]

    done = mailgres("providers", "limit", "resend", "--rate", "2/s", "--daily", "100")
    assert done == "resend: usable; 2 at 2/s left; 0/100 today\n"
    assert limits() == (2, 100, None)
    mailgres("providers", "limit", "resend", "--monthly", "3000")
    assert limits() == (2, 100, 3000)
    mailgres("providers", "limit", "resend", "--daily", "none", "--rate", "120/m")
    assert limits() == (2, None, 3000)
    mailgres("providers", "limit", "resend", "--rate", "none", "--monthly", "none")
    assert limits() == (None, None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give --rate, --daily or --monthly."),
        (("--rate", "fast"), "is not a rate"),
        (("--rate", "0/s"), "is not a rate"),
        (("--daily", "many"), "is not a whole number"),
        (("--daily", "0"), "0 is too small"),
        (("--monthly", "-1"), "-1 is too small"),
    ],
)
def test_providers_limit_refuses_bad_limits(
    mailgres: Program, arguments: tuple[str, ...], said: str
) -> None:
    assert said in mailgres.misused("providers", "limit", "resend", *arguments)


@pytest.mark.parametrize("command", ["pause", "resume", "reset"])
def test_the_nearest_provider_is_suggested(mailgres: Program, command: str) -> None:
    what, hint = mailgres.fails("providers", command, "resnd")
    assert what == "there is no provider 'resnd'"
    assert hint == "Did you mean resend? `mailgres providers list` shows all."
    _, hint = mailgres.fails("providers", command, "zzz")
    assert hint == "Known providers: capture, resend."


def test_an_unknown_provider_gets_no_limit(mailgres: Program) -> None:
    what, _ = mailgres.fails("providers", "limit", "ses", "--rate", "1/s")
    assert what == "there is no provider 'ses'"


def test_providers_names_the_role_that_a_caller_lacks(
    mailgres: Program, conn: psycopg.Connection
) -> None:
    """An operator may; the error for any other role names the missing role."""
    conn.execute("DROP ROLE IF EXISTS mailgres_somebody")
    conn.execute("CREATE ROLE mailgres_somebody NOLOGIN")
    try:
        as_role = {"PGOPTIONS": "-c role=mailgres_operator"}
        assert "paused" in mailgres("providers", "pause", "resend", **as_role)
        assert "resend" in mailgres("providers", "list", **as_role)
        nobody = {"PGOPTIONS": "-c role=mailgres_somebody"}
        what, hint = mailgres.fails("providers", "list", **nobody)
        assert "permission denied" in what
        assert "GRANT mailgres_operator" in hint
    finally:
        conn.execute(sql.SQL("DROP ROLE mailgres_somebody"))


def test_providers_without_a_schema_names_migrate(empty_database_url: str) -> None:
    _, hint = Program(empty_database_url).fails("providers", "list")
    assert hint == "Run `mailgres migrate`."


def test_providers_reports_an_unreachable_database() -> None:
    what, _ = Program("postgresql://127.0.0.1:1/gone").fails("providers", "list")
    assert "Cannot connect to 127.0.0.1:1/gone" in what
    assert "No database was named" in Program("").fails("routes", "list")[0]
