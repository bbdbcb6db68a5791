"""Values that come in a list, such as the secrets of a webhook while one is being replaced."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from mailgres.values.kinds import MASK, BadValue, Kind, Text

_SEPARATOR = re.compile(r"[\s,]+")
_MOST = 20
_PREFIX = "whsec_"
_FEWEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Several(Kind[tuple[str, ...]]):
    """One or more texts of one form: a list, or a text with commas or blanks between them."""

    each: Text

    @property
    def allowed(self) -> str:
        """What each of them may be."""
        return f"{self.each.allowed}; several in a list or with commas"

    @property
    def metavar(self) -> str:
        """The placeholder of one of them, and more."""
        return f"{self.each.metavar},…"

    def parse(self, given: object) -> tuple[str, ...]:
        """Parse a list, or texts with commas or blanks between them."""
        parts = _SEPARATOR.split(given.strip(" ,")) if isinstance(given, str) else given
        if not isinstance(parts, list | tuple):
            raise BadValue("the value is not a list of texts")
        if not 1 <= len(parts) <= _MOST:
            raise BadValue(f"the value is not a list of 1 to {_MOST}")
        return tuple(dict.fromkeys(map(self.each.parse, parts)))

    def show(self, value: tuple[str, ...]) -> str:
        """Write them with commas."""
        return ",".join(value)

    def mask(self, value: tuple[str, ...]) -> str:
        """Show how many there are."""
        return MASK if len(value) == 1 else f"{MASK} ({len(value)} secrets)"


@dataclass(frozen=True, slots=True)
class SigningSecret(Text):
    """A secret of Standard Webhooks: `whsec_` and base64."""

    allowed: str = "a signing secret: whsec_ and at least 16 bytes in base64"
    metavar: str = "SECRET"

    def parse(self, given: object) -> str:
        """Refuse what no signature could be checked with."""
        text = super(SigningSecret, self).parse(given)
        if not text.startswith(_PREFIX):
            raise BadValue("the value does not start with whsec_")
        key = text.removeprefix(_PREFIX)
        try:
            decoded = base64.b64decode(key + "=" * (-len(key) % 4), validate=True)
        except (binascii.Error, ValueError):
            decoded = b""
        if len(decoded) < _FEWEST_BYTES:
            raise BadValue("the value has the wrong form")
        return text


SIGNING_SECRETS = Several(SigningSecret())
URL_SECRETS = Several(
    Text("16 to 200 letters, digits, - and _", r"[A-Za-z0-9_-]{16,200}", "SECRET")
)
TOPICS = Several(
    Text(
        "the ARN of a topic such as arn:aws:sns:eu-west-1:123456789012:mail",
        r"arn:aws(-[a-z]+)*:sns:[a-z]{2,3}(-[a-z]+)+-\d{1,2}:\d{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?",
        "ARN",
    )
)
