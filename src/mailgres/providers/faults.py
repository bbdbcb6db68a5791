"""The faults of providers as data: rules that give each fault a class.

Each provider's module has a table of rules; the first that matches a fault decides.
docs/lifecycle.md says what each class means for an email.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.model import Verdict

Scope = Literal["message", "sender", "account"]
"""What a fault affects: this email, all emails with its from-address, or the whole account.

A provider that fails or cannot be reached affects the whole account; the circuit breaker counts
such faults.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern of faults and their class. A field that is None matches everything.

    `text`: a regular expression that is searched in the provider's text, ignoring case.
    `pinned`: an earlier call with this email's key may have been accepted, so no other provider may
    send it.
    `suppress`: the address does not exist and is suppressed.
    """

    verdict: Verdict
    meaning: str
    code: str | None = None
    status: int | range | None = None
    text: str | None = None
    scope: Scope = "message"
    pinned: bool = False
    suppress: bool = False

    def fits(self, status: int | None, code: str | None, text: str) -> bool:
        """Return whether a fault matches."""
        if self.code is not None and self.code != code:
            return False
        if isinstance(self.status, range) and (status is None or status not in self.status):
            return False
        if isinstance(self.status, int) and self.status != status:
            return False
        return self.text is None or re.search(self.text, text, re.IGNORECASE) is not None


UNKNOWN = Rule("transient", "An unknown fault: retried, with a warning in the log.")


def classify(
    rules: Sequence[Rule], *, status: int | None = None, code: str | None = None, text: str = ""
) -> Rule:
    """Return the first rule that matches, or UNKNOWN."""
    return next((rule for rule in rules if rule.fits(status, code, text)), UNKNOWN)
