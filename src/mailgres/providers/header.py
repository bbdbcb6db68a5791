"""Writes header lines by RFC 5322, 2047 and 2231, safe from injection.

Every value is checked first: a control character or a line break in any field makes the email
unsendable, so that no value can add a line. Texts are literal: a subject that looks like an encoded
word is encoded again, so that it is shown as it was written.
"""

from __future__ import annotations

import base64
import itertools
import re
from urllib.parse import quote

import idna

from mailgres.model import Result, Verdict

LINE = 78
"""The length at which lines are folded, if possible; RFC 5322 forbids more than 998."""

_LONGEST_WORD = 900
_WORD_BYTES = 45  # an encoded word has at most 75 characters: 60 of base64 and its frame
_PARAMETER_CHARACTERS = 60
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MAILBOX = re.compile(r"([^<>]*)<([^<>]*)>")
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/^_`{|}~ -]+")
_ATEXT = r"[^\s\"(),.:;<>@\[\\\]]+"
_LABEL = r"[^\s\x00-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\xa0]+"
_ADDRESS = re.compile(rf"({_ATEXT}(?:\.{_ATEXT})*)@({_LABEL}(?:\.{_LABEL})*)")
_NAME = re.compile(r"[A-Za-z0-9-]{1,76}")

_RESERVED = re.compile(
    "from|to|cc|bcc|subject|date|message-id|reply-to|sender|return-path|mime-version|delivered-to"
    "|dkim-signature|domainkey-signature|authentication-results|x-smtpapi|x-msys-api"
    "|received(?:-.*)?|(?:resent|content|arc|x-ses|x-mc|x-pm|x-mailgun|x-mj|x-mailin|x-sg)-.*",
    re.IGNORECASE,
)
"""Headers that an email may not set: mailgres, a server or a provider writes or interprets them.

`mailgres.are_headers` refuses the same names when an email is enqueued.
"""


class Unsendable(Exception):
    """An email cannot be written as a message. The text quotes nothing of the email."""

    def __init__(self, code: str, message: str, verdict: Verdict = "permanent") -> None:
        self.code = code
        self.message = message
        self.verdict = verdict
        super().__init__(message)

    @property
    def result(self) -> Result:
        """Return the result for such an email."""
        return Result(self.verdict, code=self.code, message=self.message, called=False)


def plain(text: str, field: str) -> str:
    """Return the text if it is one line without control characters."""
    if _CONTROL.search(text):
        raise Unsendable("invalid_header", f"{field} has a line break or a control character")
    return text


def address(text: str, field: str) -> str:
    """Return a plain address with its domain in ASCII.

    It follows IDNA 2008, which the standard library does not support: in IDNA 2008 `faß.de` and
    `fass.de` are different domains.
    """
    match = _ADDRESS.fullmatch(plain(text, field))
    if not match:
        raise Unsendable("invalid_address", f"{field} is not an email address")
    local, domain = match.groups()
    if domain.isascii():
        return text
    try:
        return f"{local}@{idna.encode(domain, uts46=True).decode('ascii')}"
    except (idna.IDNAError, UnicodeError):
        raise Unsendable("invalid_address", f"{field} has an invalid domain") from None


def split_mailbox(text: str, field: str) -> tuple[str, str]:
    """Split `Example <mail@example.com>` into name and address; the name may be empty."""
    match = _MAILBOX.fullmatch(plain(text, field).strip())
    if not match:
        return "", address(text.strip(), field)
    name = match[1].strip()
    if len(name) > 1 and name[0] == name[-1] == '"':
        name = re.sub(r"\\(.)", r"\1", name[1:-1])
    return name, address(match[2].strip(), field)


def mailbox(text: str, field: str) -> str:
    """Return an address with or without a name, for a header."""
    name, plain_address = split_mailbox(text, field)
    return f"{_phrase(name)} <{plain_address}>" if name else plain_address


def readable_mailbox(text: str, field: str) -> str:
    """Return an address with or without a name, for an API that encodes the name itself.

    The name is quoted if necessary: a comma or an @ in it must not start another address.
    """
    name, plain_address = split_mailbox(text, field)
    if not name:
        return plain_address
    harmless = not re.search(r'[()<>\[\]:;@\\,."]', name)
    return f"{name if harmless else _quoted(name)} <{plain_address}>"


def _phrase(name: str) -> str:
    if not name.isascii() or "=?" in name:
        return encoded_words(name)
    return name if _ATOMS.fullmatch(name) else _quoted(name)


def _quoted(name: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


def unstructured(text: str, field: str) -> str:
    """Return a text such as a subject, encoded in ASCII."""
    too_long = max(map(len, plain(text, field).split()), default=0) > _LONGEST_WORD
    return encoded_words(text) if too_long or not text.isascii() or "=?" in text else text


def encoded_words(text: str) -> str:
    """Return the text as encoded words (RFC 2047); no character is split."""
    words, word = [], b""
    for character in text:
        encoded = character.encode()
        if len(word) + len(encoded) > _WORD_BYTES:
            words.append(word)
            word = b""
        word += encoded
    words.append(word)
    return " ".join(f"=?utf-8?b?{base64.b64encode(each).decode('ascii')}?=" for each in words)


def own_header(name: str, value: str) -> str:
    """Return a header that the email sets; refuse names in RESERVED."""
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise Unsendable("invalid_header", "the email has a header that it may not set")
    return line(name, unstructured(value.replace("\t", " "), "a header of the email"))


def line(name: str, value: str) -> str:
    """Return a header, folded at blanks."""
    lines, current = [], f"{name}:"
    for word in re.findall(r"(?<! )[ ]*+[^ ]++", f" {value.strip()}"):
        if len(current) + len(word) > LINE and current != f"{name}:":
            lines.append(current)
            current = word
        else:
            current += word
    return "\r\n".join([*lines, current]) + "\r\n"


def parameter(name: str, value: str, field: str) -> str:
    """Return a parameter of a header, such as a file's name, with the `;` before it."""
    if plain(value, field).isascii() and "=?" not in value:
        quoted = re.sub(r'(["\\])', r"\\\1", value)
        return f';\r\n {name}="{quoted}"'
    pieces, piece = [], ""
    for character in value:
        escaped = quote(character, safe="")
        if len(piece) + len(escaped) > _PARAMETER_CHARACTERS:
            pieces.append(piece)
            piece = ""
        piece += escaped
    pieces.append(piece)
    if len(pieces) == 1:
        return f";\r\n {name}*=utf-8''{pieces[0]}"
    charsets = itertools.chain(["utf-8''"], itertools.repeat(""))
    return "".join(
        f";\r\n {name}*{number}*={charset}{each}"
        for number, (charset, each) in enumerate(zip(charsets, pieces, strict=False))
    )
