"""A message is what was asked for and nothing else, whatever is in the fields."""

from __future__ import annotations

import email
import email.policy
import re
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailgres.model import Attachment
from mailgres.providers.header import Unsendable, mailbox
from mailgres.providers.mime import Letter, compose, envelope, message_id, write
from providers.mails import PDF, mail

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
LOGO = Attachment("logo.png", "image/png", "logo", b"\x89PNG")


def parse(data: bytes) -> EmailMessage:
    """Read it as a stranger does, and check that every server would take it."""
    assert data.endswith(b"\r\n")
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)", data)
    assert max(map(len, data.split(b"\r\n"))) <= 998
    return email.message_from_bytes(data, policy=email.policy.default)


def of(**given: Any) -> EmailMessage:
    data = compose(mail(**given), NOW)
    assert data.isascii()
    return parse(data)


def shape(message: EmailMessage) -> Any:
    kind = message.get_content_type()
    if message.is_multipart():
        return kind, [shape(part) for part in message.iter_parts()]  # type: ignore[arg-type]
    return kind


def test_a_message_has_its_headers_and_hides_bcc() -> None:
    message = mail(
        reply_to="Help <help@example.com>",
        cc=["c1@example.com", "c2@example.com"],
        bcc=["b@example.com"],
        headers={"List-Unsubscribe": "<https://example.com/u>", "X-Name": "José"},
        generation=2,
    )
    parsed = parse(compose(message, NOW))
    assert list(parsed.items()) == [
        ("From", "Shop <noreply@example.com>"),
        ("To", "ana@example.org"),
        ("Cc", "c1@example.com, c2@example.com"),
        ("Reply-To", "Help <help@example.com>"),
        ("Subject", "Hello"),
        ("Message-ID", f"<{message.email.id}.2@example.com>"),
        ("Date", "Mon, 04 May 2026 12:30:00 +0000"),
        ("List-Unsubscribe", "<https://example.com/u>"),
        ("X-Name", "José"),
        ("MIME-Version", "1.0"),
        ("Content-Type", parsed["Content-Type"]),
    ]


def test_the_message_id_is_the_same_for_every_attempt() -> None:
    message = mail(from_email="Ana <ana@Faß.de>")
    assert message_id(message) == f"<{message.email.id}.0@xn--fa-hia.de>"
    assert compose(message).count(message_id(message).encode()) == 1
    assert compose(message).count(message_id(message).encode()) == 1


def test_the_envelope_names_each_recipient_once() -> None:
    who = envelope(mail(cc=["c@example.com"], bcc=["b@faß.de", "c@example.com", "ana@example.org"]))
    assert who.sender == "noreply@example.com"
    assert who.recipients == ("ana@example.org", "c@example.com", "b@xn--fa-hia.de")
    assert not who.needs_utf8
    assert envelope(mail(recipient_email="josé@example.org")).needs_utf8


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("multipart/alternative", ["text/plain", "text/html"])),
        ({"html": None}, "text/plain"),
        ({"text": ""}, "text/html"),
        ({"html": None, "text": None}, "text/plain"),
        (
            {"attachments": [PDF]},
            (
                "multipart/mixed",
                [("multipart/alternative", ["text/plain", "text/html"]), "application/pdf"],
            ),
        ),
        (
            {"attachments": [LOGO, PDF]},
            (
                "multipart/mixed",
                [
                    (
                        "multipart/alternative",
                        ["text/plain", ("multipart/related", ["text/html", "image/png"])],
                    ),
                    "application/pdf",
                ],
            ),
        ),
        ({"attachments": [LOGO], "html": None}, ("multipart/mixed", ["text/plain", "image/png"])),
    ],
)
def test_a_message_has_the_mime_structure_of_its_parts(
    given: dict[str, Any], expected: Any
) -> None:
    assert shape(of(**given)) == expected


def test_inline_files_are_found_by_the_html() -> None:
    parsed = of(html='<img src="cid:logo">', attachments=[LOGO])
    (logo,) = (part for part in parsed.walk() if part.get_content_type() == "image/png")
    assert logo["Content-ID"] == "<logo>"
    assert logo.get_content_disposition() == "inline"
    assert logo.get_content() == LOGO.content


@pytest.mark.parametrize("kind", ["message/rfc822", "Multipart/mixed"])
def test_attached_messages_stay_files(kind: str) -> None:
    parsed = of(attachments=[Attachment("a.eml", kind, None, b"Subject: x\r\n\r\nx")])
    (file,) = parsed.iter_attachments()
    assert file.get_content_type() == "application/octet-stream"
    assert file.get_content() == b"Subject: x\r\n\r\nx"


FILE_NAMES = [
    "a.pdf",
    'a "b".pdf',
    "a\\b.pdf",
    "Überweisung.pdf",
    "é" * 255,
    "=?utf-8?q?x?=",
    "a;b=c",
]


@pytest.mark.parametrize("name", FILE_NAMES)
def test_names_of_attachments_arrive_unchanged(name: str) -> None:
    parsed = of(attachments=[Attachment(name, "application/pdf", None, b"x")])
    assert [part.get_filename() for part in parsed.iter_attachments()] == [name]


TEXTS = [
    "",
    "x",
    "a\n.\nb",
    ".",
    "a\r\nb\rc\n",
    "x" * 5000,
    "é" * 500,
    "From me",
    "a \n b\t\n",
    "日" * 999,
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_arrive_as_they_were_written(text: str) -> None:
    parsed = of(text=text or "-", html=text + "<br>")
    for subtype, sent in (("plain", text or "-"), ("html", text + "<br>")):
        part = parsed.get_body((subtype,))
        assert part is not None
        assert part.get_content().splitlines() == re.split(r"\r\n|\r|\n", sent.rstrip("\n"))


SENDERS = [
    ("a@b.de", "", "a@b.de"),
    ("Ana <a@b.de>", "Ana", "a@b.de"),
    ("Ana, Acme & Co. <a@b.de>", "Ana, Acme & Co.", "a@b.de"),
    ('"Ana, \\"Acme\\"" <a@b.de>', 'Ana, "Acme"', "a@b.de"),
    ("Zoë <zoe@bücher.example>", "Zoë", "zoe@xn--bcher-kva.example"),
    ("=?utf-8?q?=0ABcc=3A_x?= <a@b.de>", "=?utf-8?q?=0ABcc=3A_x?=", "a@b.de"),
    ("x@evil.de, y <a@b.de>", "x@evil.de, y", "a@b.de"),
    ("  <a@b.de>", "", "a@b.de"),
    ("日本" * 7 + " <a@b.de>", "日本" * 7, "a@b.de"),
]


@pytest.mark.parametrize(("sender", "name", "address"), SENDERS)
def test_senders_with_names_are_encoded(sender: str, name: str, address: str) -> None:
    (found,) = of(from_email=sender)["From"].addresses
    assert (found.display_name, found.addr_spec) == (name, address)
    assert mailbox(sender, "it").isascii()


LINE_BREAKS = [
    "\n",
    "\r",
    "\r\n",
    "\x00",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\u2028",
    "\u2029",
    "\x7f",
]


@pytest.mark.parametrize("breaks", LINE_BREAKS)
@pytest.mark.parametrize(
    "given",
    [
        {"subject": "a{}Bcc: x@evil.example"},
        {"from_email": "a{}Bcc: x@evil.example <a@b.de>"},
        {"from_email": "a@b.de{}"},
        {"reply_to": "a@b.de{}Bcc: x@evil.example"},
        {"recipient_email": "a@b.de{}Bcc: x@evil.example"},
        {"cc": ["a@b.de{}Bcc: x@evil.example"]},
        {"bcc": ["a@b.de{}Bcc: x@evil.example"]},
        {"headers": {"X-A": "a{}Bcc: x@evil.example"}},
        {"headers": {"X-A{}Bcc": "x@evil.example"}},
    ],
)
def test_no_field_of_an_email_can_add_a_header_line(given: dict[str, Any], breaks: str) -> None:
    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {fill(key): fill(each) for key, each in value.items()}
        return [fill(each) for each in value] if isinstance(value, list) else value.format(breaks)

    message = mail(**fill(given))
    with pytest.raises(Unsendable) as raised:
        _ = (envelope(message), compose(message))
    assert raised.value.result.verdict == ("config" if "from_email" in given else "permanent")
    assert "evil" not in raised.value.message


@pytest.mark.parametrize("name", ["Bcc", "FROM", "", "X A", "X:A", "é", "X" * 77])
def test_headers_that_an_email_may_not_set_are_refused(name: str) -> None:
    with pytest.raises(Unsendable, match="may not set"):
        compose(mail(headers={name: "x"}))


@pytest.mark.parametrize(
    "file",
    [
        Attachment("a\r\nX: y", "application/pdf", None, b""),
        Attachment("a", "application/pdf\r\nX: y", None, b""),
        Attachment("a", "pdf", None, b""),
        Attachment("a", "application/pdf", "x>\r\nX: y", b""),
    ],
)
def test_attachments_with_line_breaks_in_their_fields_are_refused(file: Attachment) -> None:
    with pytest.raises(Unsendable):
        compose(mail(attachments=[file]))


@settings(deadline=None)  # of a busy machine
@given(
    subject=st.text(max_size=300),
    name=st.text(max_size=100),
    value=st.text(max_size=300),
    file=st.text(min_size=1, max_size=100),
    text=st.text(max_size=2000),
)
def test_any_composed_message_is_read_back_unchanged(
    subject: str, name: str, value: str, file: str, text: str
) -> None:
    try:
        data = compose(
            mail(
                subject=subject,
                from_email=f"{name} <a@example.com>",
                headers={"X-Value": value},
                attachments=[Attachment(file, "text/plain", None, text.encode())],
                text=text,
            ),
            NOW,
        )
    except Unsendable:
        return
    parsed = parse(data)
    assert len(parsed.items()) == 8
    assert str(parsed["Subject"]).split() == subject.split()
    assert [each.addr_spec for each in parsed["From"].addresses] == ["a@example.com"]
    assert str(parsed["X-Value"]).split() == value.split()
    (attached,) = parsed.iter_attachments()
    assert attached.get_payload(decode=True) == text.encode()


def test_long_header_values_without_blanks_stay_whole() -> None:
    url = f"<https://example.com/{'a' * 870}>"
    assert of(headers={"List-Unsubscribe": url})["List-Unsubscribe"] == url
    assert of(subject="x" * 998)["Subject"] == "x" * 998


def test_a_message_with_only_the_required_fields_is_valid() -> None:
    parsed = parse(write(Letter("a@b.de", "c@d.de", "Hi")))
    assert [name for name, _ in parsed.items()][:3] == ["From", "To", "Subject"]
