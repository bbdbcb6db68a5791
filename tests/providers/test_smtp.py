"""SMTP against a server that has faults on order: what each becomes, and what had gone out."""

from __future__ import annotations

import itertools
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubles.smtp import Fault, SmtpDouble, serve
from mailgres.errors import MailgresError
from mailgres.model import Attachment, Result
from mailgres.providers.faults import classify
from mailgres.providers.smtp.faults import SMTP_RULES
from mailgres.providers.smtp.pool import Pool
from mailgres.providers.smtp.provider import SmtpProvider
from mailgres.providers.smtp.server import Server, server_of
from providers.mails import PDF, mail

TIMEOUT = 30.0
"""Seconds that no call takes, also on a busy machine."""
SHORT_TIMEOUT = 2.0
"""Seconds for calls that must exceed their timeout, and reach that step before."""
DELAYS = [0.0, 2 * SHORT_TIMEOUT]


@pytest.fixture
def double() -> Iterator[SmtpDouble]:
    with serve(SmtpDouble()) as running:
        yield running


@pytest.fixture
def provider(double: SmtpDouble) -> Iterator[SmtpProvider]:
    with closing(SmtpProvider(double.url, timeout=TIMEOUT)) as made:
        yield made


@pytest.fixture
def impatient(double: SmtpDouble) -> Iterator[SmtpProvider]:
    with closing(SmtpProvider(double.url, timeout=SHORT_TIMEOUT)) as made:
        yield made


def test_a_message_arrives_over_smtp_with_all_its_parts(
    double: SmtpDouble, provider: SmtpProvider
) -> None:
    message = mail(
        from_email="Ana, Açme <ana@faß.de>",
        cc=["cc@example.com"],
        bcc=["bcc@example.com", "cc@example.com"],
        subject="Olá",
        text="one\n.\n..two",
        attachments=[PDF],
        generation=3,
    )
    (result,) = provider.send([message])
    assert result == Result("sent", f"<{message.email.id}.3@xn--fa-hia.de>")
    (accepted,) = double.accepted()
    assert accepted.message_id == result.provider_message_id
    assert accepted.mailgres_id == str(message.email.id)
    assert accepted.sender == "ana@xn--fa-hia.de"
    assert accepted.recipients == ("ana@example.org", "cc@example.com", "bcc@example.com")
    parsed = accepted.parsed
    assert parsed["Subject"] == "Olá"
    assert parsed["Cc"] == "cc@example.com"
    assert parsed["Bcc"] is None
    text = parsed.get_body(("plain",))
    assert text is not None
    assert text.get_content().splitlines() == ["one", ".", "..two"]


def test_smtp_connections_are_used_again(double: SmtpDouble, provider: SmtpProvider) -> None:
    results = [provider.send([mail()])[0] for _ in range(5)]
    assert {result.verdict for result in results} == {"sent"}
    assert double.connections == 1
    double.hang_up()
    assert provider.send([mail()])[0].verdict == "sent"
    assert double.connections == 2
    assert len(double.accepted()) == 6


@pytest.mark.parametrize("step", ["mail", "rcpt"])
@pytest.mark.parametrize("reply", [None, "421 4.4.2 idle for too long"])
def test_an_idle_smtp_connection_that_was_closed_is_replaced(
    step: Any, reply: str | None, double: SmtpDouble, provider: SmtpProvider
) -> None:
    provider.send([mail()])
    double.add_faults(Fault(step, reply))
    assert provider.send([mail()])[0].verdict == "sent"
    assert (double.connections, len(double.accepted())) == (2, 2)
    double.add_faults(Fault(step, reply, times=2))
    assert provider.send([mail()])[0].verdict == "transient"
    assert (double.connections, len(double.accepted())) == (3, 2)


def test_an_smtp_connection_is_kept_after_a_refusal(
    double: SmtpDouble, provider: SmtpProvider
) -> None:
    double.add_faults(Fault("rcpt", "550 5.1.1 no"), Fault("mail", "451 later"))
    verdicts = [provider.send([mail()])[0].verdict for _ in range(3)]
    assert verdicts == ["transient", "permanent", "sent"]
    assert double.connections == 1


REPLIES: list[tuple[str, str, str, bool, bool]] = [
    # step, reply, verdict, account, suppress
    ("rcpt", "421 4.3.2 closing", "transient", True, False),
    ("rcpt", "450 4.2.0 greylisted, come back", "transient", False, False),
    ("rcpt", "451 4.3.0 problem", "transient", False, False),
    ("rcpt", "452 4.5.3 too many recipients", "transient", False, False),
    ("rcpt", "450 5.1.1 who?", "transient", False, False),
    ("rcpt", "550 4.2.1 mailbox busy", "transient", False, False),
    ("rcpt", "550 no such user", "permanent", False, False),
    ("rcpt", "550 your address 4.3.2.1 is known", "permanent", False, False),
    ("rcpt", "550 5.1.1 no such user", "permanent", False, True),
    ("rcpt", "550 5.1.2 no such domain", "permanent", False, True),
    ("rcpt", "501 5.1.3 bad syntax", "permanent", False, True),
    ("rcpt", "550 5.1.4 ambiguous", "permanent", False, True),
    ("rcpt", "551 5.1.6 moved", "permanent", False, True),
    ("rcpt", "556 5.1.10 null MX", "permanent", False, True),
    ("rcpt", "550 5.2.1 disabled", "permanent", False, True),
    ("rcpt", "552 5.2.2 full", "permanent", False, False),
    ("rcpt", "552 5.2.3 too long", "permanent", False, False),
    ("rcpt", "550 5.7.1 policy", "config", False, False),
    ("rcpt", "554 5.7.26 not authenticated", "config", False, False),
    ("rcpt", "530 5.7.0 authenticate first", "config", True, False),
    ("rcpt", "550 5.4.5 Daily user sending quota exceeded", "quota", True, False),
    ("mail", "454 Throttling failure: Maximum sending rate exceeded.", "rate", True, False),
    ("mail", "454 Throttling failure: Daily message quota exceeded.", "quota", True, False),
    ("mail", "550 we do not like you", "config", False, False),
    ("mail", "553 5.1.8 no such domain", "config", False, False),
    ("mail", "550 5.1.1 odd", "permanent", False, False),
    ("mail", "552 5.3.4 too large", "permanent", False, False),
    ("mail", "530 login first", "config", True, False),
    ("data", "451 later", "transient", False, False),
    ("data", "554 no valid recipients", "permanent", False, False),
    ("data", "250 what?", "transient", True, False),
    ("end", "451 4.3.0 later", "transient", False, False),
    ("end", "550 5.1.1 no such user", "permanent", False, True),
    ("end", "554 5.7.1 spam", "config", False, False),
    ("end", "554 refused", "permanent", False, False),
    ("end", "421 closing", "transient", True, False),
    ("greeting", "421 too busy", "transient", True, False),
    ("greeting", "554 5.7.1 blocked", "config", True, False),
    ("greeting", "421 4.7.0 Too many connections", "rate", True, False),
    ("mail", "999 nonsense", "transient", True, False),
    ("end", "999 nonsense", "ambiguous", True, False),
]


@pytest.mark.parametrize(("step", "reply", "verdict", "account", "suppress"), REPLIES)
def test_each_smtp_reply_has_its_class(
    *,
    step: Any,
    reply: str,
    verdict: str,
    account: bool,
    suppress: bool,
    double: SmtpDouble,
    provider: SmtpProvider,
) -> None:
    double.add_faults(Fault(step, reply))
    (result,) = provider.send([mail()])
    assert (result.verdict, result.account, result.suppress) == (verdict, account, suppress)
    assert result.message == reply.partition(" ")[2]
    assert result.code
    assert double.accepted() == []
    assert provider.send([mail()])[0].verdict == "sent"


@pytest.mark.parametrize("step", ["greeting", "ehlo", "mail", "rcpt", "data"])
@pytest.mark.parametrize("delay", DELAYS)
def test_an_smtp_connection_lost_before_the_message_is_transient(
    step: Any, delay: float, double: SmtpDouble, impatient: SmtpProvider, provider: SmtpProvider
) -> None:
    double.add_faults(Fault(step, delay=delay))
    (result,) = impatient.send([mail()])
    assert (result.verdict, result.account) == ("transient", True)
    assert double.accepted() == []
    assert provider.send([mail()])[0].verdict == "sent"


def test_an_smtp_connection_lost_during_the_message_is_transient(
    double: SmtpDouble, provider: SmtpProvider
) -> None:
    file = Attachment("a.bin", "application/octet-stream", None, bytes(20_000_000))
    double.add_faults(Fault("body"))
    (result,) = provider.send([mail(attachments=[file])])
    assert (result.verdict, result.code) == ("transient", "connection_lost")
    assert double.accepted() == []


@pytest.mark.parametrize("accepts", [True, False])
@pytest.mark.parametrize("delay", DELAYS)
def test_an_smtp_connection_lost_after_the_final_dot_is_ambiguous(
    *,
    accepts: bool,
    delay: float,
    double: SmtpDouble,
    impatient: SmtpProvider,
    provider: SmtpProvider,
) -> None:
    impatient.send([mail()])
    double.add_faults(Fault("end", accepts=accepts, delay=delay))
    message = mail()
    (result,) = impatient.send([message])
    assert (result.verdict, result.code) == ("ambiguous", "lost_after_data")
    assert result.message
    again = provider.send([message])[0]
    assert again.verdict == "sent"
    ids = [each.message_id for each in double.accepted()]
    assert ids[1:] == [again.provider_message_id] * (2 if accepts else 1)


def test_smtp_leaves_out_copies_that_are_refused_for_good(
    double: SmtpDouble, provider: SmtpProvider, caplog: pytest.LogCaptureFixture
) -> None:
    double.add_faults(Fault("rcpt", "550 5.1.1 no such user", to="cc@"))
    message = mail(cc=["cc@example.com"], bcc=["bcc@example.com"])
    with caplog.at_level(logging.WARNING):
        assert provider.send([message])[0].verdict == "sent"
    assert double.accepted()[0].recipients == ("ana@example.org", "bcc@example.com")
    assert caplog.records[0].__dict__["jobId"] == str(message.email.id)
    assert "cc@example.com" not in str(caplog.records[0].__dict__)


def test_an_smtp_copy_that_is_refused_for_now_delays_the_whole_message(
    double: SmtpDouble, provider: SmtpProvider
) -> None:
    double.add_faults(Fault("rcpt", "450 4.2.0 greylisted", to="bcc@"))
    message = mail(bcc=["bcc@example.com"])
    assert provider.send([message])[0].verdict == "transient"
    assert double.accepted() == []
    assert provider.send([message])[0].verdict == "sent"
    assert double.accepted()[0].recipients == ("ana@example.org", "bcc@example.com")


def test_the_smtp_reply_for_the_recipient_decides(
    double: SmtpDouble, provider: SmtpProvider
) -> None:
    double.add_faults(Fault("rcpt", "550 5.1.1 no such user", to="ana@"))
    (result,) = provider.send([mail(cc=["cc@example.com"])])
    assert (result.verdict, result.suppress) == ("permanent", True)
    double.add_faults(Fault("end", "550 5.1.1 no such user"))
    (result,) = provider.send([mail(cc=["cc@example.com"])])
    assert (result.verdict, result.suppress) == ("permanent", False)
    assert double.accepted() == []


def test_a_refused_connection_to_smtp_is_transient() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    provider = SmtpProvider(f"smtp://127.0.0.1:{port}?tls=none", timeout=TIMEOUT)
    for result in (provider.check(), *provider.send([mail()])):
        assert (result.verdict, result.code) == ("transient", "no_connection")
    nowhere = SmtpProvider("smtp://nobody.invalid?tls=none", timeout=TIMEOUT)
    assert nowhere.check().verdict == "transient"


def test_an_smtp_server_that_says_nothing_is_transient() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        provider = SmtpProvider(f"smtp://127.0.0.1:{port}?tls=none", timeout=0.2)
        assert provider.send([mail()])[0].verdict == "transient"


DRIPS = {
    "byte by byte": b"2",
    "line after line": b"220-wait\r\n",
}


@pytest.mark.parametrize("drip", DRIPS)
def test_an_smtp_reply_that_never_ends_is_cut_off(drip: str) -> None:
    """Each piece arrives in time, the whole does not: the call ends at its deadline."""
    done = threading.Event()

    def keep_saying(server: socket.socket) -> None:
        with server.accept()[0] as connection:
            while not done.wait(0.02):
                try:
                    connection.sendall(DRIPS[drip])
                except OSError:  # it has hung up
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=keep_saying, args=(server,))
        thread.start()
        url = f"smtp://127.0.0.1:{server.getsockname()[1]}?tls=none"
        (result,) = SmtpProvider(url, timeout=0.3).send([mail()])
        done.set()
        thread.join()
    assert (result.verdict, result.code, result.account) == ("transient", "no_connection", True)


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_smtp_uses_encryption_and_login(tls: Any) -> None:
    with serve(SmtpDouble(tls=tls, user="me@example.com", password="p/w:@%é"[:-1])) as double:
        provider = SmtpProvider(double.url, timeout=TIMEOUT, context=double.trust())
        assert provider.check() == Result("sent")
        assert double.commands["noop"] == 1
        assert provider.send([mail()])[0].verdict == "sent"
        provider.close()
        stranger = SmtpProvider(double.url, timeout=TIMEOUT)
        for result in (stranger.check(), *stranger.send([mail()])):
            assert (result.verdict, result.code) == ("config", "certificate")
            assert result.account
        assert len(double.accepted()) == 1


def test_a_wrong_smtp_password_is_a_fault_of_the_configuration() -> None:
    with serve(SmtpDouble(user="me", password="right")) as double:
        url = double.url.replace("right", "wrong")
        provider = SmtpProvider(url, timeout=TIMEOUT)
        for result in (provider.check(), *provider.send([mail()])):
            assert (result.verdict, result.account, result.code) == ("config", True, "5.7.8")
            assert "wrong" not in f"{result}"
        with closing(SmtpProvider(url.replace("me:wrong@", ""), timeout=TIMEOUT)) as nobody:
            (result,) = nobody.send([mail()])
        assert result == Result(
            "config",
            code="5.7.0",
            message="5.7.0 Authentication required",
            detail="mail: 530 5.7.0 Authentication required",
            account=True,
        )
        double.add_faults(Fault("auth", "454 4.7.0 Temporary authentication failure"))
        double.add_faults(Fault("auth", "454 4.7.0 Temporary authentication failure"))
        assert SmtpProvider(double.url, timeout=TIMEOUT).check().verdict == "transient"


def test_an_smtp_server_without_tls_or_login_is_a_fault_of_the_configuration(
    double: SmtpDouble,
) -> None:
    plain = double.url
    result = SmtpProvider(plain.replace("none", "starttls"), timeout=TIMEOUT).check()
    assert (result.verdict, result.account, result.code) == ("config", True, "no_starttls")
    assert "?tls=none" in str(result.message)
    result = SmtpProvider(plain.replace("none", "tls"), timeout=TIMEOUT).check()
    assert (result.verdict, result.account, result.code) == ("config", True, "tls_failed")
    result = SmtpProvider(plain.replace("//", "//me:pw@"), timeout=TIMEOUT).check()
    assert (result.verdict, result.account, result.code) == ("config", True, "no_login")


def test_a_mailbox_with_letters_beyond_ascii_needs_a_server_with_smtputf8() -> None:
    message = mail(recipient_email="josé@example.org")
    with serve(SmtpDouble(utf8=True)) as double:
        provider = SmtpProvider(double.url, timeout=TIMEOUT)
        assert provider.send([message, mail()])[0].verdict == "sent"
        assert [each.recipients[0] for each in double.accepted()] == [
            "josé@example.org",
            "ana@example.org",
        ]
        provider.close()
    with serve(SmtpDouble(utf8=False)) as double:
        provider = SmtpProvider(double.url, timeout=TIMEOUT)
        (result,) = provider.send([message])
        assert (result.verdict, result.code, result.suppress) == ("permanent", "no_smtputf8", False)
        assert provider.send([mail()])[0].verdict == "sent"
        assert double.connections == 1
        provider.close()


def test_an_email_too_large_for_the_smtp_server_is_refused() -> None:
    with serve(SmtpDouble(largest=10_000)) as double:
        provider = SmtpProvider(double.url, timeout=TIMEOUT)
        file = Attachment("a.bin", "application/octet-stream", None, bytes(20_000))
        (result,) = provider.send([mail(attachments=[file])])
        assert (result.verdict, result.code) == ("permanent", "message_too_large")
        assert "at most 10000" in str(result.message)
        assert double.commands["mail"] == 0
        assert provider.send([mail()])[0].verdict == "sent"
        provider.close()


@pytest.mark.parametrize(
    ("given", "code", "verdict"),
    [
        ({"subject": "a\r\nBcc: x@example.com"}, "invalid_header", "permanent"),
        ({"headers": {"Subject": "x"}}, "invalid_header", "permanent"),
        ({"recipient_email": "a@b.de>\r\nRCPT TO:<x@b.de"}, "invalid_header", "permanent"),
        ({"recipient_email": "a b@c.de"}, "invalid_address", "permanent"),
        ({"from_email": "A <a@b.de>\n"}, "invalid_sender", "config"),
    ],
)
def test_emails_that_smtp_cannot_send_are_refused_before_the_call(
    given: dict[str, Any], code: str, verdict: str, double: SmtpDouble, provider: SmtpProvider
) -> None:
    (result,) = provider.send([mail(**given)])
    assert (result.verdict, result.code) == (verdict, code)
    assert double.connections == 0


def test_threads_share_a_bounded_pool_of_smtp_connections(double: SmtpDouble) -> None:
    provider = SmtpProvider(double.url, connections=2)
    results: list[Result] = []
    threads = [
        threading.Thread(target=lambda: results.extend(provider.send([mail() for _ in range(10)])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    provider.close()
    assert {result.verdict for result in results} == {"sent"}
    assert double.summary()["different"] == 40


class FakeSession:
    def __init__(self, used_at: float = 0.0, sent: int = 0) -> None:
        self.used_at, self.sent, self.closed = used_at, sent, False

    def close(self) -> None:
        self.closed = True


def test_the_smtp_pool_closes_old_and_worn_connections() -> None:
    now = [100.0]
    pool: Any = Pool(2, idle=30, messages=3, clock=lambda: now[0])
    old, new, third, worn = (
        FakeSession(80),
        FakeSession(100),
        FakeSession(100),
        FakeSession(100, sent=3),
    )
    for session in (worn, old, new, third):
        pool.put(session)
    assert [each.closed for each in (worn, old, new, third)] == [True, False, False, True]
    now[0] = 111.0
    assert pool.take() is new
    assert old.closed
    assert pool.take() is None
    pool.put(new)
    pool.close()
    assert new.closed
    pool.put(late := FakeSession(111))
    assert late.closed


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://mx", Server("mx", 587, "starttls", None, "")),
        ("smtp://mx?tls=none", Server("mx", 25, "none", None, "")),
        ("smtps://mx", Server("mx", 465, "tls", None, "")),
        ("smtp://mx:2525?tls=tls", Server("mx", 2525, "tls", None, "")),
        ("smtp://a%40b:p%2Fw%3A@[::1]:25/", Server("::1", 25, "starttls", "a@b", "p/w:")),
    ],
)
def test_smtp_urls_are_parsed_and_hide_their_password(url: str, server: Server) -> None:
    assert server_of(url) == server
    assert "p/w" not in repr(server)


@pytest.mark.parametrize("url", ["", "http://mx", "smtp://", "smtp://mx?tls=maybe"])
def test_malformed_smtp_urls_are_refused(url: str) -> None:
    with pytest.raises(MailgresError, match="not an SMTP URL"):
        SmtpProvider(url)


def test_smtp_provider_certificates_are_checked() -> None:
    context = SmtpProvider("smtps://mx")._context
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


FACTS = [
    *((status, None, "transient") for status in (421, 450, 451, 452)),
    *((status, None, "config") for status in (530, 534, 535)),
    *((550, f"5.1.{n}", "permanent") for n in (1, 2, 3, 4, 6, 10)),
    (550, "5.2.1", "permanent"),
    *((status, None, "permanent") for status in itertools.chain(range(500, 505), range(550, 555))),
    *((554, code, "permanent") for code in ("5.2.2", "5.2.3", "5.3.4")),
    *((550, f"5.7.{n}", "config") for n in (0, 1, 9, 26, 515)),
]


@pytest.mark.parametrize(("status", "code", "verdict"), FACTS)
def test_every_known_smtp_reply_has_its_class(status: int, code: str | None, verdict: str) -> None:
    rule = classify(SMTP_RULES, status=status, code=code, text=f"{code or ''} some words")
    assert rule.verdict == verdict
    suppressed = code in {"5.1.1", "5.1.2", "5.1.3", "5.1.4", "5.1.6", "5.1.10", "5.2.1"}
    assert rule.suppress == suppressed


@given(st.integers(), st.none() | st.text(), st.text())
def test_only_permanent_smtp_faults_suppress_an_address(
    status: int, code: str | None, text: str
) -> None:
    rule = classify(SMTP_RULES, status=status, code=code, text=text)
    assert not (rule.suppress and rule.verdict != "permanent")
