"""The faults of providers as data: what a fault looks like, and which class it is of.

Each provider's module has a table of rules; the first that fits a fault decides. What each class
means for an email is in docs/lifecycle.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.model import Verdict

Scope = Literal["message", "sender", "account"]
"""Whom a fault concerns: this email, all emails with its from-address, or the whole account.

A provider that fails or cannot be reached fails for the whole account: this is what the circuit
breaker counts.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault as a provider tells it. What is None is not looked at.

    `text`: a regular expression searched in the provider's words, upper and lower case alike.
    `pinned`: an earlier call with this email's key may have arrived, so nobody else may send it.
    `suppress`: the address does not exist and must not be written to again.
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
        """Tell whether a fault looks like this."""
        if self.code is not None and self.code != code:
            return False
        if isinstance(self.status, range) and (status is None or status not in self.status):
            return False
        if isinstance(self.status, int) and self.status != status:
            return False
        return self.text is None or re.search(self.text, text, re.IGNORECASE) is not None


UNKNOWN = Rule("transient", "A fault that no rule knows: tried again, with a warning in the log.")


def classify(
    rules: Sequence[Rule], *, status: int | None = None, code: str | None = None, text: str = ""
) -> Rule:
    """The first rule that fits, or UNKNOWN."""
    return next((rule for rule in rules if rule.fits(status, code, text)), UNKNOWN)
