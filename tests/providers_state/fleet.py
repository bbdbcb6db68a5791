"""Workers and providers at random: what was accepted under which key is written down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from providers_state.harness import ACCOUNT, SECOND, ProviderHarness
from support.queue import Clock, report

Call = list[Any]

REACTIONS = {
    "accepted": 8,
    "accepted, answer lost": 3,
    "answer lost": 3,
    "transient": 3,
    "down": 2,
    "rate": 1,
    "quota": 1,
    "config": 1,
    "wrong key": 1,
    "permanent": 1,
}


class Fleet:
    """A few workers on one queue, and providers of which all but `plain` take keys."""

    def __init__(self, harness: ProviderHarness, clock: Clock, seed: int) -> None:
        self.harness = harness
        self.clock = clock
        self.random = Random(seed)  # noqa: S311 - to repeat a run
        self.content: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.accepted: Counter[Any] = Counter()
        self.unkeyed: set[Any] = set()

    def work(self, *, reactions: dict[str, int] | None = None, may_die: bool = True) -> int:
        """Claim once and do something with it; returns how many emails were claimed."""
        limit = self.random.choice([1, 3, 10, 40])
        claimed = self.harness.claim(f"worker-{self.random.randrange(3)}", limit)
        for call in self._calls(claimed):
            if may_die and self.random.random() < 0.06:
                continue  # before the call
            self._make(call, reactions or REACTIONS, may_die=may_die)
        return len(claimed)

    def _calls(self, claimed: list[Any]) -> Iterable[Call]:
        calls: dict[Any, Call] = {}
        for email in claimed:
            calls.setdefault(email.batch_id or email.id, []).append(email)
        return [sorted(call, key=lambda email: email.id) for call in calls.values()]

    def _make(self, call: Call, reactions: dict[str, int], *, may_die: bool) -> None:
        broken = [email for email in call if email.id.int % 23 == 0]
        outcomes = [report(email, "permanent", code="render") for email in broken]
        call = [email for email in call if email not in broken]
        if call and call[0].provider == "plain":
            started = self.harness.start_attempts(call)
            call = [email for email in call if email.id in started]
        if call:
            (reaction,) = self.random.choices([*reactions], [*reactions.values()])
            outcomes += self._outcomes(call, reaction)
        if may_die and self.random.random() < 0.08:
            outcomes = outcomes[: self.random.randrange(len(outcomes) + 1)]
        if outcomes:
            self.harness.finish(*outcomes)

    def _outcomes(self, call: Call, reaction: str) -> list[dict[str, Any]]:
        size = {"batch_size": len(call)} if len(call) > 1 else {}
        known = (call[0].provider, self._key(call)) in self.content
        if reaction.startswith("accepted") or (known and reaction == "permanent"):
            refused = self._accept(call)
            if refused:
                return [report(email, "uncertain", **size) for email in call]
            if reaction == "accepted, answer lost":
                return [report(email, "ambiguous", **size) for email in call]
            return [report(email, "sent", **size) for email in call]
        outcome, reported = {
            "answer lost": ("ambiguous", {}),
            "transient": ("transient", {}),
            "down": ("transient", ACCOUNT),
            "rate": ("rate", {"retry_after": 5 * SECOND}),
            "quota": ("quota", {"retry_after": 60 * SECOND}),
            "config": ("config", {}),
            "wrong key": ("config", ACCOUNT),
            "permanent": ("permanent", {})
            if len(call) == 1
            else ("transient", {"code": "validation_error", "batch_refused": True}),
        }[reaction]
        return [report(email, outcome, **reported, **size) for email in call]

    def _key(self, call: Call) -> str:
        first = call[0]
        return f"batch/{first.batch_id}" if first.batch_id else f"{first.id}/{first.generation}"

    def _accept(self, call: Call) -> bool:
        """Take a call as a provider does; return whether its key was used with other content."""
        ids = tuple(email.id for email in call)
        if call[0].provider == "plain":
            self.accepted.update(ids)
            self.unkeyed.update(ids)
            return False
        key = (call[0].provider, self._key(call))
        if key not in self.content:
            self.content[key] = ids
            self.accepted.update(ids)
        return self.content[key] != ids
