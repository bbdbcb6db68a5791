"""The doctor checks credentials at doubles of providers, and asks a name server of the test's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.dns_server import name_server
from doubles.resend import KEY, ResendDouble, serve
from mailgres.doctor import Finding, dns, examine, resolver, sending
from mailgres.settings import Settings, load

GOOD = {
    "send.acme.example.com": ["v=spf1 include:amazonses.com ~all"],
    "_dmarc.acme.example.com": ["v=DMARC1; p=reject"],
    "resend._domainkey.acme.example.com": ["p=" + "A" * 400],
    "acme.example.com": ["google-site-verification=1"],
}
SENDER = "Acme <mail@acme.example.com>"


def findings(check: str, server: str | None = None, **settings: Any) -> list[Finding]:
    nameservers = (server,) if server else None
    return list(examine(Settings(**settings), only=[check], nameservers=nameservers))


# --- credentials


@pytest.fixture
def double() -> Iterator[ResendDouble]:
    with serve(ResendDouble()) as running:
        yield running


def test_doctor_accepts_valid_credentials(double: ResendDouble) -> None:
    (found,) = findings(
        "credentials", providers="resend", resend_api_key=KEY, resend_api_url=double.url
    )
    assert (found.severity, found.message) == ("ok", "resend: valid")
    assert not double.accepted()


def test_doctor_reports_a_wrong_key(double: ResendDouble) -> None:
    wrong = {"resend_api_key": "re_wrong_and_secret", "resend_api_url": double.url}
    (found,) = findings("credentials", providers="resend", **wrong)
    assert found.severity == "error"
    assert found.fix is not None
    assert found.fix.startswith("mailgres providers test resend  # Create a key at")
    assert "re_wrong_and_secret" not in f"{found}"


def test_doctor_warns_of_an_unreachable_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PROVIDER_TIMEOUT_SECONDS", 2.0)
    (found,) = findings("credentials", providers="smtp", smtp_url="smtp://127.0.0.1:1?tls=none")
    assert found.severity == "warning"


def test_doctor_reports_missing_credentials() -> None:
    (found,) = findings("credentials", providers="resend")
    assert found.severity == "error"


def test_doctor_reports_settings_that_cannot_send(tmp_path: Path) -> None:
    (found,) = examine(Settings(), only=["settings"], as_worker=True)
    assert (found.severity, found.fix) == ("info", "export MAILGRES_PROVIDERS=resend")
    lacks, sender = findings("settings", providers="resend")
    assert "needs resend_api_key" in lacks.message
    assert lacks.severity == "error"
    assert sender.severity == "warning"
    assert "from_email is not set" in sender.message
    env = {"MAILGRES_PROVIDERS": "resend", "RESEND_API_KEY": KEY, "MAILGRES_FROM_EMAIL": SENDER}
    (good,) = examine(load(env, {}, tmp_path), only=["settings"])
    assert good.severity == "ok"
    del env["MAILGRES_PROVIDERS"]
    (odd, _) = examine(load(env, {}, tmp_path), only=["settings"], as_worker=True)
    assert odd.severity == "warning"
    assert odd.message.startswith("resend_api_key is set, but emails are only captured")


# --- domains


def ask(records: dict[str, list[str]], providers: str = "resend", **how: str) -> list[Finding]:
    with name_server(records, **how) as server:
        settings = {"resend_api_key": KEY, "smtp_url": "smtp://127.0.0.1:1?tls=none"}
        return findings("dns", server, providers=providers, from_email=SENDER, **settings)


def test_doctor_accepts_a_domain_with_spf_dmarc_and_dkim() -> None:
    (found,) = ask(GOOD)
    assert found.severity == "ok"


def test_doctor_names_the_missing_dns_records() -> None:
    found = ask({})
    assert [one.severity for one in found] == ["warning"] * 3
    spf, dmarc, dkim = found
    assert spf.fix == 'add: send.acme.example.com. TXT "v=spf1 include:amazonses.com ~all"'
    assert dmarc.fix == 'add: _dmarc.acme.example.com. TXT "v=DMARC1; p=none"'
    assert "resend._domainkey.acme.example.com" in dkim.message


def test_dkim_is_looked_for_only_where_its_name_is_known() -> None:
    assert [one.message.split(" has no ")[1][:4] for one in ask({}, "smtp")] == ["SPF ", "DMAR"]


def test_doctor_accepts_the_dmarc_policy_of_the_parent_domain() -> None:
    records = {**GOOD, "_dmarc.example.com": ["v=DMARC1; p=none"]}
    del records["_dmarc.acme.example.com"]
    assert [one.severity for one in ask(records)] == ["ok"]


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (["v=spf1 mx -all", "v=spf1 a -all"], "has 2 SPF records"),
        (["v=spf1 +all"], "allows everybody to send"),
        (["v=spf1 mx all"], "allows everybody to send"),
    ],
)
def test_doctor_reports_an_spf_record_that_does_harm(records: list[str], words: str) -> None:
    (found,) = ask({**GOOD, "acme.example.com": records})
    assert found.severity == "error"
    assert words in found.message


@pytest.mark.parametrize("spoil", ["silence", "garbage", "other id"])
def test_doctor_does_not_hang_at_a_useless_name_server(
    spoil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never hangs: after a silent name server no other question is asked."""
    monkeypatch.setattr(resolver, "SERVER_TIMEOUT_SECONDS", 0.2)
    (found,) = ask(GOOD, spoil=spoil)
    assert found.severity == "info"
    assert found.message.startswith("not checked: no name server answered for")


def test_doctor_says_that_no_name_server_answers() -> None:
    settings = Settings(providers=("resend",), resend_api_key=KEY, from_email=SENDER)
    (found,) = examine(settings, only=["dns"], nameservers=())
    assert found.severity == "info"


def test_the_next_name_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "SERVER_TIMEOUT_SECONDS", 0.2)
    with name_server({}, spoil="silence") as silent, name_server(GOOD) as good:
        assert resolver.txt("acme.example.com", (silent, good)) == ["google-site-verification=1"]


def test_the_resolver_reads_txt_records() -> None:
    with name_server({"a.example.com": ["", "é" * 200]}) as server:
        assert resolver.txt("A.example.com.", (server,)) == ["", "é" * 200]
        assert resolver.txt("b.example.com", (server,)) == []


@pytest.mark.parametrize("name", ["a..example.com", "x" * 64 + ".com"])
def test_the_resolver_refuses_names_that_are_not_valid(name: str) -> None:
    with name_server({}) as server, pytest.raises(resolver.NoAnswer):
        resolver.txt(name, (server,))


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("192.0.2.1", ("192.0.2.1", 53)),
        ("192.0.2.1:5353", ("192.0.2.1", 5353)),
        ("2001:db8::1", ("2001:db8::1", 53)),
        ("[2001:db8::1]:5353", ("2001:db8::1", 5353)),
        ("[2001:db8::1]", ("2001:db8::1", 53)),
    ],
)
def test_the_resolver_reads_addresses_of_name_servers(given: str, address: tuple[str, int]) -> None:
    assert resolver._address(given) == address


@pytest.mark.parametrize(
    ("sender", "domain"),
    [
        ("mail@Acme.example.com", "acme.example.com"),
        (SENDER, "acme.example.com"),
        (None, None),
        ("nobody", None),
    ],
)
def test_the_domain_of_a_sender_is_found(sender: str | None, domain: str | None) -> None:
    assert dns.domain_of(sender) == domain


def test_doctor_offline_makes_no_network_call() -> None:
    settings = Settings(providers=("resend",), resend_api_key=KEY, from_email=SENDER)
    found = list(examine(settings, only=["dns", "credentials"], offline=True))
    assert {one.message for one in found} == {"not checked: --offline"}
