"""A provider for every kind of account."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from mailgres.errors import MailgresError
from mailgres.providers.registry import PROVIDERS, open_provider
from mailgres.settings import Account

ACCOUNTS = [
    Account("capture", "capture"),
    Account("resend-acme", "resend", {"api_key": "re_1", "api_url": "https://example.com"}),
    Account(
        "ses-eu", "ses", {"region": "eu-west-1", "configuration_set": "events", "profile": "acme"}
    ),
    Account("smtp", "smtp", {"url": "smtp://me:pw@mx", "webhook_secret": ("whsec_x",)}),
]


def keep(messages: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    raise AssertionError(messages)


def test_there_is_a_sample_account_of_every_kind_of_provider() -> None:
    assert {account.kind for account in ACCOUNTS} == set(PROVIDERS)


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.name)
def test_every_kind_of_provider_can_be_opened(account: Account) -> None:
    provider = open_provider(account, timeout=5, connections=2, keep=keep)
    try:
        assert (provider.name, provider.kind) == (account.name, account.kind)
        assert provider.capabilities.idempotent == (account.kind not in {"ses", "smtp"})
    finally:
        provider.close()


@pytest.mark.parametrize(
    ("account", "needed"),
    [(Account("resend-a", "resend"), "api_key"), (Account("smtp-a", "smtp"), "url")],
)
def test_opening_a_provider_names_a_missing_setting(account: Account, needed: str) -> None:
    with pytest.raises(MailgresError, match=f"{account.name} needs {needed}"):
        open_provider(account, timeout=5, connections=2, keep=keep)


def test_opening_an_unknown_kind_of_provider_is_an_error() -> None:
    with pytest.raises(MailgresError, match="no kind of provider 'pigeon'"):
        open_provider(Account("pigeon", "pigeon"), timeout=5, connections=2, keep=keep)


def test_ses_without_boto3_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mailgres.providers.ses.provider", raising=False)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MailgresError) as raised:
        open_provider(Account("ses-eu", "ses"), timeout=5, connections=2, keep=keep)
    assert raised.value.message == "the provider ses-eu needs boto3, which is not installed"
    assert raised.value.hint == "Install it: pip install boto3"
