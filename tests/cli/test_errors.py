"""`mailgres errors explain`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mailgres.cli import main
from mailgres.providers.explain import CONSEQUENCES, TABLES, explain, kind
from mailgres.providers.faults import UNKNOWN, classify
from mailgres.providers.ses.faults import SES_RULES
from mailgres.sqlstates import with_sqlstate


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["errors", "explain", *arguments])


def reported(code: str) -> list[dict[str, Any]]:
    result = run(code, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert document["code"] == code
    found: list[dict[str, Any]] = document["explanations"]
    return found


@pytest.mark.parametrize(
    ("code", "provider", "verdict"),
    [
        ("daily_quota_exceeded", "Resend", "quota"),
        ("DAILY_QUOTA_EXCEEDED", "Resend", "quota"),
        ("invalid_idempotent_request", "Resend", "uncertain"),
        ("AccountSuspendedException", "SES", "config"),
        ("5.1.1", "SMTP", "permanent"),
        ("5.7.26", "SMTP", "config"),
        ("4.2.2", "SMTP", "transient"),
        ("550", "SMTP", "permanent"),
        ("535", "SMTP", "config"),
        ("429", "Resend", "rate"),
        ("502", "Resend", "ambiguous"),
        (" 404 ", "Resend", "config"),
    ],
)
def test_errors_explain_names_provider_and_class_of_a_code(
    code: str, provider: str, verdict: str
) -> None:
    found = reported(code)
    assert (provider, verdict) in {(each["provider"], each["class"]) for each in found}
    text = run(code).output
    assert provider in text
    assert verdict in text


def test_errors_explain_says_what_happens_to_the_email() -> None:
    [found] = reported("daily_quota_exceeded")
    assert found["consequence"] == CONSEQUENCES["quota"]
    [found] = reported("5.1.1")
    assert "is suppressed" in found["consequence"]
    [found] = reported("security_error")
    assert found["consequence"] == CONSEQUENCES["config of a sender"]


def test_a_status_of_one_protocol_is_not_explained_by_another() -> None:
    assert {each["provider"] for each in reported("550")} == {"SMTP"}
    assert {each["provider"] for each in reported("429")} == {"Resend", "SES"}


def test_a_code_with_several_meanings_says_when() -> None:
    found = reported("validation_error")
    assert len(found) > 2
    assert [each["when"] for each in found][-1] is None
    assert "with status 403" in run("validation_error").output


@pytest.mark.parametrize("state", [cls.sqlstate for cls in with_sqlstate()])
def test_errors_explain_knows_every_sqlstate(state: str) -> None:
    [found] = reported(state)
    assert found["provider"] == "mailgres"
    assert found["meaning"]
    assert run(state.lower()).exit_code == 0


@pytest.mark.parametrize(
    "code", sorted({rule.code for rules in TABLES.values() for rule in rules if rule.code})
)
def test_errors_explain_knows_every_code_of_the_rules(code: str) -> None:
    assert run(code).exit_code == 0


def test_errors_explain_has_a_consequence_for_every_class() -> None:
    assert {kind(rule) for rules in TABLES.values() for rule in rules} == set(CONSEQUENCES)


@pytest.mark.parametrize("code", ["daily_quota_exceded", "999", "", "9.9.9", "ü", "[", "MG999"])
def test_errors_explain_exits_with_1_for_an_unknown_code(code: str) -> None:
    result = run(code)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert "unknown error code" in result.output
    assert explain(code) == []


def test_the_nearest_code_is_suggested() -> None:
    assert "Did you mean daily_quota_exceeded" in run("daily_quota_exceded").output


@pytest.mark.parametrize("code", ["500", "503", "550", "451", "429", "404", "413"])
def test_a_status_shows_every_rule_that_may_decide_about_it(code: str) -> None:
    """Also codes that depend on the text of the answer."""
    shown = {(each["provider"], each["meaning"]) for each in reported(code)}
    status = int(code)
    for provider, rules in TABLES.items():
        first = {
            classify(rules, status=status, code=code_, text=text).meaning
            for code_ in (None, f"http_{status}")
            for text in ("", "5.7.1 blocked", "4.2.2 full", "4.7.0 later")
            if provider in {each for each, _ in shown}
        } - {UNKNOWN.meaning}
        assert {(provider, meaning) for meaning in first} <= shown


@pytest.mark.parametrize("code", ["ServiceUnavailable", "ServiceUnavailableException"])
def test_a_service_that_is_unavailable_is_transient(code: str) -> None:
    [found] = reported(code)
    assert (found["provider"], found["class"], found["scope"]) == ("SES", "transient", "account")
    assert classify(SES_RULES, status=503, code=code).verdict == "transient"


def test_a_mail_from_domain_that_is_not_verified_is_known_by_both_of_its_names() -> None:
    [short], [long] = (
        reported("MailFromDomainNotVerified"),
        reported("MailFromDomainNotVerifiedException"),
    )
    assert {**short, "code": None} == {**long, "code": None}
    assert (short["class"], short["scope"]) == ("config", "sender")
