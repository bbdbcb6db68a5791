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
    Account("smtp", "smtp", {"url": "smtp://me:pw@mx"}),
]


def keep(messages: Sequence[Mapping[str, Any]]) -> None:
    raise AssertionError(messages)


def test_there_is_a_sample_of_every_kind() -> None:
    assert {account.kind for account in ACCOUNTS} == set(PROVIDERS)


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.name)
def test_provider_registry_every_kind(account: Account) -> None:
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
def test_provider_registry_what_is_missing(account: Account, needed: str) -> None:
    with pytest.raises(MailgresError, match=f"{account.name} needs {needed}"):
        open_provider(account, timeout=5, connections=2, keep=keep)


def test_a_kind_that_does_not_exist() -> None:
    with pytest.raises(MailgresError, match="no kind of provider 'pigeon'"):
        open_provider(Account("pigeon", "pigeon"), timeout=5, connections=2, keep=keep)


def test_provider_registry_without_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mailgres.providers.ses.provider", raising=False)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MailgresError) as raised:
        open_provider(Account("ses-eu", "ses"), timeout=5, connections=2, keep=keep)
    assert raised.value.message == "the provider ses-eu needs boto3, which is not installed"
    assert raised.value.hint == "Install it: pip install boto3"
