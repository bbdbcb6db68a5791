"""What a code means: the rules of all providers, for people who met one of them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from mailgres.providers.faults import UNKNOWN, Rule, classify
from mailgres.providers.own_faults import OWN_RULES
from mailgres.providers.registry import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TABLES: Mapping[str, Sequence[Rule]] = {
    **{each.title: each.rules for each in PROVIDERS.values() if each.rules},
    "mailgres": OWN_RULES,
}
"""The rules of every provider, in the order in which they are asked."""

CONSEQUENCES: Mapping[str, str] = {
    "transient": (
        "It is tried again by its retry policy and spends a retry; after the last it is dead as"
        " exhausted."
    ),
    "rate": (
        "The provider is paused until the time it names, or for a moment if it names none; no"
        " retry is spent."
    ),
    "quota": "The provider is paused until this quota is reset; no retry is spent.",
    "config": (
        "The provider's circuit opens until somebody mends the set-up; the emails wait and spend"
        " no retry."
    ),
    "config of a sender": (
        "Only the emails of this sender wait, in steps of 15 minutes for at most 3 days, and spend"
        " no retry."
    ),
    "permanent": "It is dead as permanent at once: trying again would not help.",
    "ambiguous": (
        "It may have been sent. With an idempotency key (Resend) it is repeated with the same key"
        " for 23 hours; without (SES, SMTP) the template's on_uncertain decides, hold or resend."
    ),
    "uncertain": (
        "An earlier try arrived. It is dead as uncertain and never sent again by itself; a"
        " provider's event or a person settles it."
    ),
}
"""What happens to an email after a fault of each class."""


_SMTP = {each.title for each in PROVIDERS.values() if each.protocol == "smtp"}
_OF_HTTP = frozenset(status.value for status in HTTPStatus)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A rule, and whose it is."""

    provider: str
    rule: Rule

    @property
    def consequence(self) -> str:
        """What happens to the email."""
        return CONSEQUENCES[kind(self.rule)] + self._more()

    def _more(self) -> str:
        if self.rule.suppress:
            return " The address is not written to again."
        if self.rule.pinned and self.rule.verdict == "transient":
            return " No other provider sends it, because an earlier try may have arrived."
        return ""


def kind(rule: Rule) -> str:
    """The class of a rule; faults of one sender's set-up are told from those of the account."""
    of_a_sender = rule.verdict == "config" and rule.scope == "sender"
    return "config of a sender" if of_a_sender else rule.verdict


def when(rule: Rule) -> str:
    """Which faults with its code a rule is about; empty if it is about all of them."""
    conditions = []
    if rule.status is not None and rule.code is not None:
        conditions.append(f"with status {statuses(rule)}")
    if rule.text is not None:
        conditions.append(f"if the text fits /{rule.text}/")
    return " ".join(conditions)


def statuses(rule: Rule) -> str:
    """The statuses of a rule, as people write them."""
    if isinstance(rule.status, range):
        return f"{rule.status.start} to {rule.status.stop - 1}"
    return str(rule.status)


def explain(code: str) -> list[Explanation]:
    """All that a code can mean: a provider's name for a fault, a status, an enhanced SMTP code."""
    return [
        Explanation(provider, rule)
        for provider, rules in TABLES.items()
        for rule in dict.fromkeys(_found(provider, rules, code.strip()))
    ]


def similar(code: str) -> list[str]:
    """Codes that somebody may have meant."""
    known = {
        rule.code.lower(): rule.code for rules in TABLES.values() for rule in rules if rule.code
    }
    return [known[each] for each in difflib.get_close_matches(code.strip().lower(), known, n=3)]


def _found(provider: str, rules: Sequence[Rule], code: str) -> Iterator[Rule]:
    yield from (rule for rule in rules if rule.code and rule.code.lower() == code.lower())
    if re.fullmatch(r"[1-5]\d\d", code, re.ASCII):
        status = int(code)
        yield from (rule for rule in rules if rule.code and rule.status == status)
        decided = classify(rules, status=status, code=f"http_{status}")
        # A rule for a range of statuses would have an answer for those of other protocols, too.
        if not isinstance(decided.status, range) or (status in _OF_HTTP) != (provider in _SMTP):
            # Before it come those that depend on the text.
            first = rules[: rules.index(decided)] if decided is not UNKNOWN else ()
            yield from (rule for rule in first if rule.code is None and _has(rule, status))
            yield from _known(decided)
    elif provider in _SMTP and re.fullmatch(r"[45]\.\d{1,3}\.\d{1,3}", code, re.ASCII):
        # An enhanced code comes with a status; which one, its first digit tells well enough.
        yield from _known(classify(rules, status=int(code[0]) * 100 + 50, code=code, text=code))


def _has(rule: Rule, status: int) -> bool:
    """Whether a rule is about a status."""
    return status in rule.status if isinstance(rule.status, range) else rule.status == status


def _known(rule: Rule) -> Iterator[Rule]:
    if rule is not UNKNOWN:
        yield rule
