"""A database in which the story of `sessions.py` runs, and its results."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import set_json_loads

from guest.sessions import STORY
from mailgres.testing import freeze, travel

TABLES = """
    SELECT format('%I.%I', n.nspname, c.relname)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND (n.nspname = 'mailgres' OR n.nspname = 'public')
      AND c.relname NOT IN ('sleepers', 'time_travel') ORDER BY 1
"""
CHANGING = {"took", "lease_token", "filled_at", "updated_at", "emitted_at"}
"""Columns that no two runs have in common."""
UUIDS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIMES = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?[+-]\d\d:\d\d$")

Reported = dict[str, Any]


def _read_latin(text: str | bytes) -> Any:
    return json.loads(text if isinstance(text, str) else text.decode("latin-1"))


class StoryRun:
    """One database in which the story runs, in a session with settings of its own."""

    def __init__(self, url: str, settings: dict[str, str], now: datetime) -> None:
        self._url, self._now = url, now
        self._labels: dict[str, str] = {}
        self._kept: dict[str, Any] = {"now": now}
        with psycopg.connect(url, autocommit=True) as admin:
            freeze(admin, now)
            admin.execute("CREATE SCHEMA decoy")
        self._session = psycopg.connect(url, autocommit=True)
        # psycopg takes the text of JSON for UTF-8 whatever the encoding of the session is.
        latin = settings.get("client_encoding") == "LATIN1"
        set_json_loads(_read_latin if latin else json.loads, self._session)
        for name, value in settings.items():
            self._session.execute("SELECT set_config(%s, %s, false)", (name, value))

    def run(self) -> Reported:
        """Run every call; return what each gave, and in the end what every table holds."""
        reported: Reported = {}
        with self._session:
            for number, call in enumerate(STORY):
                reported[f"{number}: {call.sql}"] = self._call(call)
        with psycopg.connect(self._url, autocommit=True) as neutral:
            neutral.execute("SET TimeZone = 'UTC'")
            for (table,) in neutral.execute(TABLES).fetchall():
                reported[table] = self._rows(neutral, table)
        return reported

    def _call(self, call: Any) -> Any:
        if call.forward:
            with psycopg.connect(self._url, autocommit=True) as admin:
                amount, unit = call.forward.split()
                travel(admin, timedelta(**{unit: int(amount)}))
        role = sql.Identifier(f"mailgres_{call.role}")
        self._session.execute(sql.SQL("SET ROLE {}").format(role))
        rows = self._session.execute(call.sql, self._kept, binary=True).fetchall()
        if call.keep:
            self._keep(call.keep, rows)
        return sorted((self._plain(row) for row in rows), key=repr)

    def _keep(self, name: str, rows: list[Any]) -> None:
        if len(rows[0]) > 1:  # a claim: its token, and its emails
            self._kept[name], self._kept[f"{name}_ids"] = rows[0][0], [row[1] for row in rows]
            return
        self._kept[name] = rows[0][0]
        found = [row[0] for row in rows]
        for place, queue_id in enumerate(found[0] if isinstance(found[0], list) else found):
            self._labels[str(queue_id)] = f"<{name} {place}>"

    def _rows(self, connection: psycopg.Connection, table: str) -> list[str]:
        query = f"SELECT to_jsonb(t) FROM {table} t"
        rows = [row for (row,) in connection.execute(query).fetchall()]
        kept = [{k: v for k, v in row.items() if k not in CHANGING} for row in rows]
        return sorted(repr(self._plain(row)) for row in kept)

    def _plain(self, value: Any) -> Any:
        """The value as both tellings have it."""
        match value:
            case dict():
                return {key: self._plain(each) for key, each in value.items()}
            case list() | tuple():
                return [self._plain(each) for each in value]
            case datetime():
                return value.astimezone(UTC).isoformat()
            case str() if TIMES.match(value):
                return self._plain(datetime.fromisoformat(value))
            case str() | UUID():
                return UUIDS.sub(lambda found: self._labels.get(found[0], "<uuid>"), str(value))
        return value
