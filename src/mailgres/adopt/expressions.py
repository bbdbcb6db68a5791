"""Turn a mapping into SQL: one query that says what becomes of each row.

The parts are in `rows.sql`; here they are only put together, with names and values quoted by
psycopg. `recipient_sql` is the one piece of SQL that the file itself holds: it runs with the rights
of the user who wrote it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString

from psycopg.sql import NULL, SQL, Composable, Composed, Identifier, Literal

from mailgres import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mailgres.adopt.catalog import Catalog
    from mailgres.adopt.mapping import Log, Queue, Source

QUERIES = queries.load("adopt/rows.sql")
ADDRESS: Final = r"([^@[:space:],;<>]+@[^@[:space:],;<>]+\.[^@[:space:],;<>]+)"
TIME: Final = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?"
    r"( ?(Z|[+-]\d\d(:?\d\d)?))?$"
)
_BODIES: Final = ("html", "text", "body")
TRUE, FALSE = SQL("true"), SQL("false")


def part(name: str, **values: Composable) -> Composed:
    """Return a named part with its values."""
    return SQL(QUERIES[name]).format(**values)


def name_of(table: str, catalog: Catalog) -> Identifier:
    """Return a table of the catalog as an identifier."""
    found = catalog.table(table)
    if found is None:  # the mapping was checked
        raise LookupError(table)
    return Identifier(found.schema, found.name)


@dataclass(frozen=True)
class Expressions:
    """The SQL of one queue's fields, each on a row `q`."""

    queue: Queue
    catalog: Catalog

    def classified(self, given: Composable | None = None) -> Composed:
        """Return the query that says what becomes of each row, of the table or of `given`."""
        queue = self.queue
        rows = [self._row(given or name_of(queue.table, self.catalog), dead=False)]
        if queue.dead_letters is not None:
            rows.append(self._row(name_of(queue.dead_letters, self.catalog), dead=True))
        return part(
            "classified",
            rows=SQL(" UNION ALL ").join(rows),
            is_list=TRUE if "recipient_email" in queue.lists else FALSE,
            address=Literal(ADDRESS),
            without_next_retry=Literal(
                queue.without_next_retry if queue.source("next_retry_at") else "waiting"
            ),
        )

    def known(self) -> list[Composed]:
        """Return queries for the ids under which the log knows rows of this queue."""
        tables = [self.queue.table, self.queue.dead_letters]
        value = self._text("correlation_id")
        return [
            part("known", value=value, table=name_of(each, self.catalog))
            for each in tables
            if each is not None
        ]

    def content(self, given: Composable) -> Composed:
        """Return the query for what an email of ours takes from a row of `given`."""
        return part(
            "content",
            rows=given,
            user_id=self._text("user_id"),
            subject=self._text("subject"),
            html=self._text("html"),
            text=self._text("text"),
            body=self._text("body"),
            template_type=self._text("template_type"),
            payload=self._json("payload"),
            headers=self._json("headers"),
            from_email=self._text("from"),
            reply_to=self._text("reply_to"),
            tenant_id=self._text("tenant_id"),
            correlation_id=self._text("correlation_id"),
            route=self._text("route"),
            cc=self._text("cc"),
            bcc=self._text("bcc"),
            address=Literal(ADDRESS),
            priority=self._text("priority"),
            priorities=Literal(json.dumps(self.queue.priorities)),
        )

    def _json(self, name: str) -> Composable:
        source = self.queue.source(name)
        if source is None:
            return SQL("NULL::jsonb")
        column = SQL("q.{}::jsonb").format(Identifier(source.column))
        if not source.path:
            return column
        return SQL("({} #> {})").format(column, Literal(list(source.path)))

    def _row(self, table: Composable, *, dead: bool) -> Composed:
        times = ("created_at", "sent_at", "next_retry_at", "scheduled_for")
        status, statuses = self._status()
        return part(
            "row",
            table=table,
            id=self._text("id"),
            is_email=self._is_email(),
            is_dead_letter=TRUE if dead else FALSE,
            status=status,
            statuses=Literal(json.dumps(statuses)),
            null_status=Literal(self.queue.null_status),
            recipient=self._recipient(),
            has_content=self._has_content(),
            readable_times=self._readable_times(),
            logged=self._logged(),
            attempts=self._attempts(),
            attempts_limit=self._limit(),
            max_retries=self._number("max_retries"),
            expires_at=self._expires_at(),
            **{name: self._time(name) for name in (*times, "lease_until", "locked_at")},
        )

    def _status(self) -> tuple[Composable, dict[str, str]]:
        """Return the status; without a column for it, a row with the time of sending is sent."""
        if self.queue.source("status"):
            return self._text("status"), self.queue.statuses
        sent = self._time("sent_at")
        return part("sent_if_time", value=sent), {"sent": "sent"}

    def _value(self, source: Source) -> Composable:
        if source.path:
            return part(
                "json_text", column=Identifier(source.column), path=Literal(list(source.path))
            )
        found = SQL("q.{}").format(Identifier(source.column))
        table = self.catalog.table(self.queue.table)
        if table is not None and table.column(source.column).array:
            return part("joined", value=found)
        return found

    def _text(self, name: str) -> Composable:
        texts = [SQL("({})::text").format(self._value(e)) for e in self.queue.sources(name)]
        return _first(texts, SQL("NULL::text"))

    def _time(self, name: str) -> Composable:
        return _first(
            [
                part("json_time", value=self._value(each), pattern=Literal(TIME))
                if each.path
                else SQL("({})::timestamptz").format(self._value(each))
                for each in self.queue.sources(name)
            ],
            SQL("NULL::timestamptz"),
        )

    def _number(self, name: str) -> Composable:
        return _first(
            [
                part("json_number", value=self._value(each))
                if each.path
                else SQL("({})::int8").format(self._value(each))
                for each in self.queue.sources(name)
            ],
            SQL("NULL::int8"),
        )

    def _is_email(self) -> Composable:
        only = self.queue.only
        if only is None:
            return TRUE
        return part("only", value=self._value(only.source), values=Literal(list(only.values)))

    def _recipient(self) -> Composable:
        own = self._text("recipient_email")
        if not self.queue.recipient_sql:
            return own
        # The user wrote it, and it runs with the rights of that user.
        looked_up = SQL(self.queue.recipient_sql)
        return SQL("coalesce(nullif(btrim({}), ''), ({})::text)").format(own, looked_up)

    def _has_content(self) -> Composable:
        bodies = [each for name in _BODIES for each in self.queue.sources(name)]
        found = [part("nonempty", value=self._value(each)) for each in bodies]
        template, templates = self.queue.source("template_type"), self.queue.templates
        if template is not None and templates is not None:
            table, key = name_of(templates.table, self.catalog), Identifier(templates.key)
            value = self._value(template)
            found.append(part("template_exists", table=table, key=key, value=value))
        elif template is not None and not bodies:
            found.append(part("nonempty", value=self._value(template)))
        return _joined(found, " OR ") if found else FALSE

    def _readable_times(self) -> Composable:
        times = ("next_retry_at", "scheduled_for", "expires_at", "lease_until")
        inner = [each for name in times for each in self.queue.sources(name) if each.path]
        found = [part("readable", value=self._value(e), pattern=Literal(TIME)) for e in inner]
        return _joined(found, " AND ") if found else TRUE

    def _logged(self) -> Composable:
        log = self.queue.log
        if log is None or not self.queue.source("correlation_id"):
            return SQL("NULL::text")
        return part("log_outcome", **self._log(log), value=self._text("correlation_id"))

    def _attempts(self) -> Composable:
        log = self.queue.log
        if log is None or not log.attempts or not self.queue.source("correlation_id"):
            return self._number("retries")
        given = self._log(log) | {"attempts": Literal(list(log.attempts))}
        given.pop("meanings")
        return part("log_attempts", **given, value=self._text("correlation_id"))

    def _log(self, log: Log) -> dict[str, Composable]:
        return log_parts(log, self.catalog)

    def _limit(self) -> Composable:
        limit = self.queue.attempts_limit
        return SQL("{}::int8").format(NULL if limit is None else Literal(limit))

    def _expires_at(self) -> Composable:
        own, minutes = self._time("expires_at"), self.queue.expires_after_minutes
        if minutes is None:
            return own
        return SQL("coalesce({}, {} + make_interval(mins => {}))").format(
            own, self._time("created_at"), Literal(minutes)
        )


def log_parts(log: Log, catalog: Catalog) -> dict[str, Composable]:
    """Return the names of a log as parts of a query."""
    return {
        "table": name_of(log.table, catalog),
        "key": Identifier(log.key),
        "status": Identifier(log.status),
        "meanings": Literal(json.dumps(log.meanings)),
    }


def _first(found: Sequence[Composable], otherwise: Composable) -> Composable:
    if not found:
        return otherwise
    return SQL("coalesce({})").format(SQL(", ").join(found)) if len(found) > 1 else found[0]


def _joined(found: Iterable[Composable], word: LiteralString) -> Composed:
    return SQL("({})").format(SQL(word).join(found))
