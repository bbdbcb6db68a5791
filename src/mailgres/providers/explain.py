"""Explains error codes by the rules of all providers."""

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
"""The rules of every provider, in order: the first that matches decides."""

CONSEQUENCES: Mapping[str, str] = {
    "transient": (
        "The email is retried by its policy and spends a retry; after the last retry it is dead"
        " (exhausted)."
    ),
    "rate": (
        "The provider is rate-limited until the time that it names, or briefly if it names none;"
        " no retry is spent."
    ),
    "quota": "The provider is out of quota until the quota is reset; no retry is spent.",
    "config": (
        "The provider's circuit opens until the configuration is fixed; the emails wait and spend"
        " no retry."
    ),
    "config of a sender": (
        "Only the emails of this sender wait, in steps of 15 minutes for at most 3 days, and spend"
        " no retry."
    ),
    "permanent": "The email is dead (permanent) at once: a retry would not help.",
    "ambiguous": (
        "The email may have been delivered. With an idempotency key (Resend) it is retried with the"
        " same key for 23 hours; without one (SES, SMTP) the template's on_uncertain decides, hold"
        " or resend."
    ),
    "uncertain": (
        "An earlier attempt was delivered. The email is dead (uncertain) and not retried; an event"
        " of the provider or an operator settles it."
    ),
}
"""What happens to an email after a fault of each class."""


_SMTP = {each.title for each in PROVIDERS.values() if each.protocol == "smtp"}
_OF_HTTP = frozenset(status.value for status in HTTPStatus)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A rule and its provider."""

    provider: str
    rule: Rule

    @property
    def consequence(self) -> str:
        """Return what happens to the email."""
        return CONSEQUENCES[kind(self.rule)] + self._more()

    def _more(self) -> str:
        if self.rule.suppress:
            return " The address is suppressed."
        if self.rule.pinned and self.rule.verdict == "transient":
            return (
                " No other provider sends it, because an earlier attempt may have been delivered."
            )
        return ""


def kind(rule: Rule) -> str:
    """Return the class of a rule; `config` of one sender differs from that of the account."""
    of_a_sender = rule.verdict == "config" and rule.scope == "sender"
    return "config of a sender" if of_a_sender else rule.verdict


def when(rule: Rule) -> str:
    """Return the condition of a rule apart from its code; empty if there is none."""
    conditions = []
    if rule.status is not None and rule.code is not None:
        conditions.append(f"with status {statuses(rule)}")
    if rule.text is not None:
        conditions.append(f"if the text matches /{rule.text}/")
    return " ".join(conditions)


def statuses(rule: Rule) -> str:
    """Return the statuses of a rule as text."""
    if isinstance(rule.status, range):
        return f"{rule.status.start} to {rule.status.stop - 1}"
    return str(rule.status)


def explain(code: str) -> list[Explanation]:
    """Return the explanations of a code of a provider, a status or an enhanced SMTP code."""
    return [
        Explanation(provider, rule)
        for provider, rules in TABLES.items()
        for rule in dict.fromkeys(_found(provider, rules, code.strip()))
    ]


def similar(code: str) -> list[str]:
    """Return known codes with a similar spelling."""
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
        # A rule for a range of statuses would also match those of other protocols.
        if not isinstance(decided.status, range) or (status in _OF_HTTP) != (provider in _SMTP):
            # Rules that depend on the text come before it.
            first = rules[: rules.index(decided)] if decided is not UNKNOWN else ()
            yield from (rule for rule in first if rule.code is None and _has(rule, status))
            yield from _known(decided)
    elif provider in _SMTP and re.fullmatch(r"[45]\.\d{1,3}\.\d{1,3}", code, re.ASCII):
        # An enhanced code comes with a status; its first digit is enough to choose one.
        yield from _known(classify(rules, status=int(code[0]) * 100 + 50, code=code, text=code))


def _has(rule: Rule, status: int) -> bool:
    """Return whether a rule matches a status."""
    return status in rule.status if isinstance(rule.status, range) else rule.status == status


def _known(rule: Rule) -> Iterator[Rule]:
    if rule is not UNKNOWN:
        yield rule
