"""Emails that cannot be sent, mixed into a soak: each has to die alone, for its own reason.

They come by INSERT, and some past the checks of the table, as a restore from elsewhere brings them.
Their template types begin with `bad_`: the old processor reports those as failed, as it does not
know them, and a worker has to settle them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from e2e.old_processor import UNKNOWN
from support.queue import OPEN_THE_DOOR

LONG_NUMBER = "1" + "0" * 5000
DEEP = "[" * 5000 + "]" * 5000
DOUBLING = (
    "{% set ns = namespace(s=note) %}"
    "{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}"
)


@dataclass(frozen=True)
class Bad:
    """An email that cannot be sent, and what has to be in its row in the end.

    `body`: of its template; None if it has none. `says`: a part of its error_message.
    """

    name: str
    code: str
    says: str
    body: str | None = None
    row: Mapping[str, Any] = field(default_factory=dict)

    @property
    def template_type(self) -> str:
        return f"{UNKNOWN}{self.name}"

    def ended(self, row: Any) -> bool:
        """Return whether the email is dead for its own reason.

        If a worker was killed that held it, a call may have been made: it is uncertain as
        any other is, and without a key it is held for that alone.
        """
        own = row.error_code == self.code and self.says in row.error_message
        if row.dead_reason == "uncertain":
            return "the worker died" in row.error_message or (own and row.lost)
        return own and (row.status, row.dead_reason) == ("failed", "permanent")


def _template(name: str, says: str, body: str, **payload: Any) -> Bad:
    return Bad(name, "template_failed", says, body, {"payload": payload})


def _given(name: str, says: str, payload: str) -> Bad:
    return Bad(name, "template_failed", says, "{{ note }}", {"payload": payload})


def _content(name: str, code: str, says: str, **row: Any) -> Bad:
    return Bad(name, code, says, None, {"subject": "Hello", "text": "Hello", **row})


def _past_the_door(name: str, **row: Any) -> Bad:
    return _content(name, "not_prepared", "could not be prepared", **row)


ENDLESS = "{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}"
MALFORMED = [
    _template("variable", "`note` is undefined", "{{ note }}"),
    _template("syntax", "unexpected end of block", "{% if %}"),
    _template("filter", "filter nosuch is unknown", "{{ 'a' | nosuch }}"),
    _template("division", "invalid operation", "{{ 1 // 0 }}"),
    _template("endless", "does not come to an end", ENDLESS),
    Bad("nobody", "template_failed", "there is no template"),
    _given("number", "it is not JSON", f'{{"note": {LONG_NUMBER}}}'),
    _given("deep", "nested more than", f'{{"note": {DEEP}}}'),
    _content(
        "domain", "invalid_address", "an invalid domain", recipient_email="ana@\u2603.example"
    ),
    _content("line_break", "invalid_header", "a line break", recipient_email="a@b.example\nX: y"),
    _past_the_door("list_in_a_list", cc=[["a@example.org"]]),
    _past_the_door("null", cc=[None]),
    _past_the_door("no_object", headers=Jsonb([1])),
    _past_the_door("no_text", headers=Jsonb({"X-A": 5})),
]
BOMBS = [
    _template("indent", "it needs more", "{{ note | indent(4000000000) }}", note="a\nb"),
    _template("replace", "it needs more", "{{ note | replace('a', note) }}", note="a" * 100_000),
    _template("join", "it needs more", "{{ l | join(note) }}", l=[1] * 9_000, note="a" * 100_000),
    _template("slice", "it needs more", "{{ note | slice(4000000000) | list }}", note=[1]),
    _template("concatenation", "it needs more", DOUBLING, note="a" * 8),
]
"""Templates that ask for gigabytes."""


class BadEmails:
    """Puts them into a queue, one after the other, and remembers which is which."""

    def __init__(self, kinds: list[Bad]) -> None:
        self.kinds = kinds
        self.ids: dict[str, Bad] = {}
        self._next = cycle(kinds)

    def prepare(self, conn: psycopg.Connection) -> None:
        """Push their templates, and let malformed rows in."""
        conn.execute(OPEN_THE_DOOR)
        for kind in self.kinds:
            if kind.body is not None:
                content = {"en": {"subject": "Hello", "text": kind.body}}
                conn.execute(
                    "SELECT mailgres.push_template(%s, %s, '{}', 'en')",
                    [kind.template_type, Jsonb(content)],
                )

    def insert(self, conn: psycopg.Connection, **columns: Any) -> None:
        """Insert the next one."""
        kind = next(self._next)
        row = {
            "template_type": kind.template_type,
            "recipient_email": "bad@example.org",
            "ready": True,
            "max_retries": 100,  # the old processor spends some
            **columns,
            **kind.row,
        }
        given = [Jsonb(value) if isinstance(value, dict) else value for value in row.values()]
        names = sql.SQL(", ").join(map(sql.Identifier, row))
        places = sql.SQL(", ").join(sql.Placeholder() * len(row))
        query = sql.SQL("INSERT INTO email_queue ({}) VALUES ({}) RETURNING id")
        (queue_id,) = conn.execute(query.format(names, places), given).fetchone() or ("",)
        self.ids[str(queue_id)] = kind

    def wrong(self, rows: Mapping[str, Any], accepted: Mapping[str, int]) -> dict[str, Any]:
        """Those that did not end as they have to."""
        ends = [(kind, rows[each]) for each, kind in self.ids.items() if each in rows]
        return {
            "bad_not_enqueued": len(self.ids) - len(ends),
            "bad_not_dead_for_its_own_reason": [
                [kind.name, row.status, row.dead_reason, row.error_code, row.error_message]
                for kind, row in ends
                if not kind.ended(row)
            ],
            "bad_accepted": len(self.ids.keys() & accepted.keys()),
        }
