"""Several accounts of a kind: where they come from, what they lack, what is wrong with them."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

from mailgres.cli import main
from mailgres.settings import Account, InvalidSettings, Settings, load
from mailgres.values.kinds import MASK
from settings.samples import everything_in, refused

SECRET = "s3cr3t-w0rd"


def toml(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "mailgres.toml"
    path.write_text(text)
    path.chmod(mode)
    return directory


def test_plain_names_are_the_settings() -> None:
    settings = load(
        {
            "MAILGRES_PROVIDERS": "resend,ses,smtp,capture",
            "RESEND_API_KEY": "re_1",
            "AWS_REGION": "eu-west-1",
            "MAILGRES_SES_PROFILE": "acme",
            "MAILGRES_SES_CONFIGURATION_SET": "events",
            "MAILGRES_SMTP_URL": "smtp://mx",
        }
    )
    assert settings.accounts() == (
        Account("resend", "resend", {"api_key": "re_1", "api_url": "https://api.resend.com"}),
        Account(
            "ses", "ses", {"region": "eu-west-1", "configuration_set": "events", "profile": "acme"}
        ),
        Account("smtp", "smtp", {"url": "smtp://mx"}),
        Account("capture", "capture"),
    )


def test_accounts_are_read_from_variables() -> None:
    settings = load(
        {
            "MAILGRES_PROVIDERS": "resend-acme,resend-b_c-d,ses-x,smtp-x,capture-2",
            "RESEND_API_KEY": "re_plain",
            "AWS_REGION": "eu-west-1",
            "MAILGRES_SES_CONFIGURATION_SET": "plain",
            "MAILGRES_RESEND_ACME_API_KEY": " re_acme ",
            "MAILGRES_RESEND_ACME_API_URL": "https://example.com/",
            "MAILGRES_RESEND_B_C_D_API_KEY": "re_bcd",
            "MAILGRES_SES_X_PROFILE": "x",
            "MAILGRES_SMTP_X_URL": "smtps://mx",
        }
    )
    settings.check_providers()
    assert settings.accounts() == (
        Account("resend-acme", "resend", {"api_key": "re_acme", "api_url": "https://example.com"}),
        Account(
            "resend-b_c-d", "resend", {"api_key": "re_bcd", "api_url": "https://api.resend.com"}
        ),
        Account("ses-x", "ses", {"region": "eu-west-1", "profile": "x"}),
        Account("smtp-x", "smtp", {"url": "smtps://mx"}),
        Account("capture-2", "capture"),
    )


def test_accounts_variables_take_precedence_over_the_file(tmp_path: Path) -> None:
    toml(
        tmp_path,
        "providers = ['ses-eu', 'ses-us']\n"
        "[accounts.ses-eu]\n"
        "region = 'eu-west-1'\n"
        "configuration_set = 'events'\n"
        "[accounts.'ses-us']\n"
        "region = 'us-east-1'\n",
    )
    settings = load({"MAILGRES_SES_US_REGION": "us-east-2"}, {}, tmp_path)
    assert [account.options["region"] for account in settings.accounts()] == [
        "eu-west-1",
        "us-east-2",
    ]
    shown = {each.name: (each.value, str(each.origin)) for each in settings.explain()}
    assert shown["accounts.ses-eu.configuration_set"] == ("events", "mailgres.toml line 4")
    assert shown["accounts.ses-us.region"] == (
        "us-east-2",
        "MAILGRES_SES_US_REGION in the environment",
    )
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own
    assert isinstance(hash(settings), int)


@pytest.mark.parametrize(
    ("provider", "message", "hint"),
    [
        (
            "resend-acme",
            "resend-acme needs api_key",
            "Set MAILGRES_RESEND_ACME_API_KEY, or api_key in [accounts.resend-acme] of the file.",
        ),
        (
            "smtp-a",
            "smtp-a needs url",
            "Set MAILGRES_SMTP_A_URL, or url in [accounts.smtp-a] of the file.",
        ),
    ],
)
def test_an_account_without_a_required_option_is_refused(
    provider: str, message: str, hint: str
) -> None:
    settings = load({"MAILGRES_PROVIDERS": provider, "RESEND_API_KEY": "re_another"})
    with pytest.raises(InvalidSettings) as raised:
        settings.check_providers()
    assert raised.value.message == (
        f"providers, from MAILGRES_PROVIDERS in the environment: {message}"
    )
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "[accounts.resend-acme]\napi_kee = 'x'",
            "mailgres.toml line 2: resend-acme has no setting api_kee",
            "Did you mean api_key?",
        ),
        (
            "[accounts.ses-acme]\nurl = 'x'",
            "mailgres.toml line 2: ses-acme has no setting url",
            "Known settings: region, configuration_set, profile, webhook_secret, webhook_topics.",
        ),
        (
            "[accounts.ses-acme]\nregion = 'Frankfurt'",
            ("accounts.ses-acme.region, from mailgres.toml line 2: the value has the wrong form"),
            "Give a region such as eu-west-1.",
        ),
        (
            "[accounts.resnd-a]\n",
            "mailgres.toml line 1: 'resnd-a' is unknown (did you mean resend?)",
            "Start the name with resend, ses, smtp and a dash.",
        ),
        (
            "[accounts.resend]\napi_key = 'x'",
            "mailgres.toml line 1: resend is not an account with a name of its own",
            (
                "Set resend_api_key, resend_api_url, resend_webhook_secret,"
                " or rename it to resend-something."
            ),
        ),
        (
            "[accounts]\nsmtp-a = 'smtp://mx'",
            "mailgres.toml line 2: accounts.smtp-a is not a table",
            "Write a table for each account: [accounts.resend-acme].",
        ),
        (
            "accounts = 1",
            "mailgres.toml line 1: accounts is not a table",
            "Write a table for each account: [accounts.resend-acme].",
        ),
    ],
)
def test_accounts_mistakes_in_the_file_are_reported(
    text: str, message: str, hint: str, tmp_path: Path
) -> None:
    error = refused({}, {}, toml(tmp_path, text))
    assert (error.message, error.hint) == (message, hint)


def test_accounts_mistakes_in_the_environment_are_reported() -> None:
    environ = {"MAILGRES_PROVIDERS": "smtp-a", "MAILGRES_SMTP_A_URL": f"http://{SECRET}@mx"}
    error = refused(environ)
    assert error.message == (
        "accounts.smtp-a.url, from MAILGRES_SMTP_A_URL in the environment:"
        " the value is not an SMTP URL"
    )
    assert SECRET not in everything_in(error)


def test_config_notes_accounts_that_are_not_used(tmp_path: Path) -> None:
    load({"MAILGRES_RESEND_OTHER_API_KEY": "not looked at"})
    toml(tmp_path, "providers = ['ses']\n[accounts.ses-eu]\nregion = 'eu-west-1'\n")
    assert load({}, {}, tmp_path).remarks() == (
        "accounts.ses-eu is set, but providers does not name it",
    )


@pytest.mark.parametrize(
    "variable", ["MAILGRES_RESEND_ACME_KEY", "MAILGRES_SMTP_ACME", "MAILGRES_CAPTURE_A_URL"]
)
def test_variables_of_no_account_are_refused(variable: str) -> None:
    assert "is not a mailgres setting" in refused({variable: "x"}).message


def test_secrets_of_accounts_are_masked() -> None:
    environ = {
        "MAILGRES_PROVIDERS": "resend-acme,smtp-a",
        "MAILGRES_RESEND_ACME_API_KEY": SECRET,
        "MAILGRES_SMTP_A_URL": f"smtp://me:{SECRET}@mx",
    }
    settings = load(environ)
    for text in (repr(settings), str(settings.accounts()), str(settings.explain())):
        assert SECRET not in text
    table = CliRunner().invoke(main, ["config"], env=environ)
    assert SECRET not in table.output
    assert f"accounts.smtp-a.url           smtp://me:{MASK}@mx " in table.output
    listed = json.loads(CliRunner().invoke(main, ["config", "--json"], env=environ).stdout)
    assert listed["settings"]["accounts.resend-acme.api_key"] == {
        "value": MASK,
        "from": "MAILGRES_RESEND_ACME_API_KEY in the environment",
        "layer": "environment",
    }


def test_a_readable_file_with_secrets_of_accounts_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    toml(tmp_path, f"[accounts.resend-acme]\napi_key = '{SECRET}'\n", mode=0o644)
    with caplog.at_level(logging.WARNING):
        load({}, {}, tmp_path)
    assert "mailgres.toml holds accounts.resend-acme.api_key" in caplog.text
    assert SECRET not in caplog.text


def test_accounts_can_be_made_in_python() -> None:
    account = Account("smtp-a", "smtp", {"url": "smtp://mx"})
    settings = Settings(providers=("smtp-a",), named_accounts=(account,))
    assert settings.accounts() == (account,)
    settings.check_providers()
