"""`mailgres providers test`: credentials are tried at doubles of the providers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from doubles import smtp
from doubles.resend import KEY, Fault, ResendDouble, serve
from support.program import Program


@pytest.fixture
def double() -> Iterator[ResendDouble]:
    with serve(ResendDouble()) as running:
        yield running


@pytest.fixture
def program(double: ResendDouble) -> Program:
    """It needs no database."""
    env = {
        "MAILGRES_PROVIDERS": "resend,resend-acme",
        "MAILGRES_RESEND_API_URL": double.url,
        "RESEND_API_KEY": KEY,
        "MAILGRES_RESEND_ACME_API_KEY": KEY,
    }
    return Program("", env)


def test_providers_test_accepts_valid_credentials(program: Program, double: ResendDouble) -> None:
    assert program("providers", "test") == "resend: valid\nresend-acme: valid\n"
    assert program("providers", "test", "resend-acme") == "resend-acme: valid\n"
    assert [one["good"] for one in program.json("providers", "test")] == [True, True]
    assert not double.accepted()


def test_providers_test_reports_a_wrong_key(program: Program) -> None:
    done = program.run("providers", "test", MAILGRES_RESEND_ACME_API_KEY="re_wrong")
    assert done.returncode == 1
    assert done.stdout == "resend: valid\n"
    what, hint = done.stderr.splitlines()
    assert what.startswith("Error: resend-acme: ")
    assert hint.startswith("Hint: Create a key at https://resend.com/api-keys")
    assert "re_wrong" not in done.stderr
    found = program.run("providers", "test", "resend-acme", "--json", RESEND_API_KEY="re_wrong")
    assert found.returncode == 0


def test_providers_test_reports_a_provider_that_is_down(
    program: Program, double: ResendDouble
) -> None:
    double.add_faults(Fault(status=503, times=-1))
    what, hint = program.fails("providers", "test", "resend")
    assert what.startswith("resend: ")
    assert hint.startswith("The provider cannot be reached now: try again")


def test_control_characters_of_a_provider_do_not_reach_the_terminal(
    program: Program, double: ResendDouble
) -> None:
    double.add_faults(Fault(401, "invalid_api_key", "\x1b]0;mine\x07\x1b[2J", times=-1))
    done = program.run("providers", "test", "resend")
    assert done.returncode == 1
    assert "\N{REPLACEMENT CHARACTER}[2J" in done.stderr
    assert done.stderr.replace("\n", "").isprintable()


def test_providers_test_reports_a_missing_key(program: Program) -> None:
    what, hint = program.fails("providers", "test", RESEND_API_KEY="")
    assert "resend needs resend_api_key" in what
    assert "RESEND_API_KEY" in hint


def test_providers_test_suggests_the_nearest_configured_provider(program: Program) -> None:
    what, hint = program.fails("providers", "test", "resend-acm")
    assert what == "The settings name no provider 'resend-acm'"
    assert hint == "Did you mean resend-acme?"
    assert program.fails("providers", "test", "ses")[1] == "Add ses to MAILGRES_PROVIDERS."


def test_providers_test_without_configuration_checks_capture() -> None:
    text = Program("")("providers", "test")
    assert text == "capture: reached, credentials not checked: it needs none\n"


def test_providers_test_checks_the_login_at_an_smtp_server() -> None:
    with smtp.serve(smtp.SmtpDouble(user="ana", password="secret")) as double:
        env = {"MAILGRES_PROVIDERS": "smtp", "MAILGRES_SMTP_URL": double.url}
        assert Program("", env)("providers", "test") == "smtp: valid\n"
    what, hint = Program("", env).fails("providers", "test")
    assert what.startswith("smtp: ")
    assert hint.startswith("The provider cannot be reached now")


def test_providers_test_says_that_an_smtp_url_without_credentials_is_not_checked() -> None:
    with smtp.serve(smtp.SmtpDouble()) as server:
        program = Program("", {"MAILGRES_PROVIDERS": "smtp", "MAILGRES_SMTP_URL": server.url})
        text = program("providers", "test")
        assert text == "smtp: reached, credentials not checked: its URL has none\n"
        (found,) = program.json("providers", "test")
        assert (found["good"], found["untried"]) == (None, "its URL has none")
