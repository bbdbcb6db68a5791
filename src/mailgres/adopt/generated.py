"""The view, the functions and the triggers of one adopted queue, as SQL.

The old table is `base`: it keeps its rows, its keys and its own triggers, in another schema. The
view has its name. A trigger of `base` updates our emails when a row changes, for any session;
the trigger of the view only passes changes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.sql import NULL, SQL, Composable, Composed, Identifier, Literal

from mailgres import queries
from mailgres.adopt.expressions import FALSE, TRUE, Expressions
from mailgres.adopt.labels import finals
from mailgres.adopt.mapping import NO_PLACE, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from mailgres.adopt.catalog import Catalog, Column, Table
    from mailgres.adopt.mapping import Queue

SCHEMA: Final = "mailgres_adopted"
QUERIES = queries.load("adopt/move.sql")
FAR: Final = "2999-01-01 00:00:00+00"
"""What the view shows as the next attempt of a row that mailgres has: no processor picks it."""
HELD: Final = "mailgres"
"""What it shows as the status of such a row, if rows without a status wait."""
FUNCTIONS: Final = ("take", "kind_of", "changed", "replace", "write", "import_", "give_back")
_NOT_CONTENT: Final = frozenset(
    {
        *("id", "status", "retries", "sent_at", "dead_at", "last_attempt_at", "error_message"),
        *("provider_message_id", "lease_until", "locked_at", "next_retry_at", NO_PLACE),
    }
)
"""What a processor writes; a change of another column is one of the application's."""


def part(name: str, **values: Composable) -> Composed:
    """Return a named part with its values."""
    return SQL(QUERIES[name]).format(**values)


def names(number: int) -> dict[str, Composable]:
    """Return the functions of a queue."""
    return {each: Identifier(SCHEMA, f"{each.strip('_')}_{number}") for each in FUNCTIONS}


@dataclass(frozen=True)
class Generated:
    """What a move creates for one queue."""

    connection: psycopg.Connection[Any]
    queue: Queue
    table: Table
    catalog: Catalog
    number: int
    labels: dict[str, str]

    @property
    def base(self) -> Identifier:
        """Return the old table after the move."""
        return Identifier(SCHEMA, self.table.name)

    @property
    def view(self) -> Identifier:
        """Return the view, which has the old name."""
        return Identifier(self.table.schema, self.table.name)

    @property
    def id(self) -> Identifier:
        """Return the column that identifies a row."""
        source = self.queue.source("id")
        assert source is not None  # noqa: S101 - `carrying` refuses a queue without one
        return Identifier(source.column)

    def statements(self) -> Iterator[Composed]:
        """Yield what makes the functions, the view and the triggers; the table has moved."""
        yield from self._functions()
        yield part("view", view=self.view, base=self.base, **self._shown())
        yield part("attach", view=self.view, base=self.base, **names(self.number))

    def default(self, column: str, expression: str) -> Composed:
        """Return what gives the view the default of a column, as the catalog prints it."""
        name = Identifier(column)
        printed = SQL(expression)
        return part("default", view=self.view, column=name, expression=printed)

    def _functions(self) -> Iterator[Composed]:
        row = SQL("(SELECT (p_row).*)")
        expressions = Expressions(self.queue, self.catalog)
        classified = expressions.classified(row)
        content = expressions.content(row)
        key = {"id": self.id, "base": self.base, "number": Literal(self.number)}
        own = names(self.number)
        bodies: dict[str, Composed] = {
            "kind_of": part("kind_of_body", classified=classified),
            "take": part("take_body", classified=classified, content=content, **key),
            "replace": part("replace_body", take=own["take"], **key),
            "changed": part("changed_body", **own, **key, **self._changed()),
            "write": part("write_body", **key, **self._write()),
            "import_": part("import_body", take=own["take"], **key, **self._pages(key)),
            "give_back": part("give_back_body", mark=self._mark(key), **key),
        }
        zone = Literal(self.queue.timezone or "UTC")
        for name, body in bodies.items():
            text = Literal(body.as_string(self.connection))
            yield part(name.strip("_"), base=self.base, zone=zone, body=text, **{name: own[name]})

    def _pages(self, key: dict[str, Composable]) -> dict[str, Composable]:
        pages = {name: part(name, **key) for name in ("first", "next")}
        return {name: Literal(each.as_string(self.connection)) for name, each in pages.items()}

    def _changed(self) -> dict[str, Composable]:
        columns = [each for each, to in self.queue.columns.items() if to not in _NOT_CONTENT]
        different = [_different(each) for each in columns]
        error = self.queue.source("error_message")
        return {
            "content_changed": _any(different),
            "deleted": Literal("cancelled" if self.queue.source("status") else "sent"),
            "error": NULL if error is None else _of("NEW", error),
        }

    def _write(self) -> dict[str, Composable]:
        written = [each for each in self.table.columns if not _computed(each)]
        status, masked = self.queue.source("status"), self._masked()
        comma = SQL(", ")
        return {
            "columns": comma.join([Identifier(each.name) for each in written]),
            "new_values": comma.join([self._new(each) for each in written]),
            "all_columns": comma.join([Identifier(each.name) for each in self.table.columns]),
            "new_fields": comma.join(
                [SQL("NEW.{}").format(Identifier(each.name)) for each in self.table.columns]
            ),
            "assignments": comma.join(
                [_assignment(each) for each in written if not each.generated]
            ),
            "claim_lost": FALSE if status is None else self._claim_lost(status.column),
            "unmask": SQL("")
            if masked is None or not masked.path
            else part(
                "unmask",
                column=Identifier(masked.column),
                path=Literal(list(masked.path)),
                mask=Literal(FAR),
            ),
        }

    def _claim_lost(self, column: str) -> Composable:
        """Return whether a claim of the old processor comes after that of another one."""
        name = Identifier(column)
        claimed = self._is_claimed(SQL("NEW.{}").format(name))
        return SQL("{} AND v_row.{}::text IS DISTINCT FROM OLD.{}::text").format(
            claimed, name, name
        )

    def _new(self, column: Column) -> Composable:
        value = SQL("NEW.{}").format(Identifier(column.name))
        if not column.generated:
            return value
        sequence = SQL("nextval(pg_get_serial_sequence({}, {}))").format(
            Literal(self.base.as_string(self.connection)), Literal(column.name)
        )
        return SQL("coalesce({}, {})").format(value, sequence)

    def _masked(self) -> Source | None:
        """Return a next attempt so late that the old processor skips the row (without a status)."""
        if self.queue.source("status"):
            return None
        return self.queue.source("next_retry_at") or self.queue.source("scheduled_for")

    def _shown(self) -> dict[str, Composable]:
        given: dict[str, Composable] = {"number": Literal(self.number), "id": self.id}
        status, masked = self.queue.source("status"), self._masked()
        columns = []
        for each in self.table.columns:
            name = Identifier(each.name)
            shown: Composable = SQL("o.{}").format(name)
            if status is not None and each.name == status.column:
                value = SQL("o.{}").format(name)
                labels = self._labels()
                final, claimed = self._is_final(value), self._is_claimed(value)
                shown = part(
                    "shown", column=name, is_final=final, is_claimed=claimed, **labels, **given
                )
            elif masked is not None and each.name == masked.column:
                json = {"path": Literal(list(masked.path))} if masked.path else {}
                kind = "shown_json" if masked.path else "shown_time"
                shown = part(kind, column=name, mask=Literal(FAR), **json, **given)
            columns.append(SQL("{} AS {}").format(shown, name))
        condition = TRUE if status is not None else part("unsent", **given)
        return {"columns": SQL(", ").join(columns), "condition": condition}

    def _labels(self) -> dict[str, Composable]:
        """Return what the view shows as the status of a row that mailgres has.

        While it waits here, no pick of the old processor may find it: null is in no comparison. It
        is also a value that no processor writes, so that every report is a change.
        """
        held = Literal(HELD) if null_waits(self.queue, self.table) else NULL
        found: dict[str, Composable] = {"sent": Literal(self.labels["sent"]), "held": held}
        for name, meaning in (("failed", "failed_final"), ("cancelled", "cancelled")):
            label = self.labels.get(meaning)
            found[name] = held if label is None else Literal(label)
        return found

    def _is_final(self, value: Composable) -> Composed:
        return part("is_one_of", value=value, statuses=Literal(finals(self.queue)))

    def _is_claimed(self, value: Composable) -> Composed:
        claims = [each for each, what in self.queue.statuses.items() if what == "processing"]
        return part("is_one_of", value=value, statuses=Literal(claims))

    def _mark(self, key: dict[str, Composable]) -> Composed:
        status = self.queue.source("status")
        if status is None:
            return part("mark_gone", **key)
        column = Identifier(status.column)
        value = SQL("b.{}").format(column)
        labels = self.labels
        failed = labels.get("failed_final")
        written = {
            "sent": labels["sent"],
            "gone": labels["sent"],
            "failed": failed,
            "uncertain": labels.get("processing") or failed or labels["sent"],
            "cancelled": labels.get("cancelled") or failed or labels["sent"],
        }
        cases = [
            SQL("WHEN {} THEN {}").format(Literal(state), Literal(label))
            for state, label in written.items()
            if label is not None
        ]
        assignments = [
            SQL("{} = CASE v_state {} ELSE {} END").format(column, SQL(" ").join(cases), value)
        ]
        at = self.queue.source("sent_at")
        if at is not None and not at.path:
            assignments.append(
                SQL("{} = coalesce(v_at, b.{})").format(
                    Identifier(at.column), Identifier(at.column)
                )
            )
        marked = Literal([state for state, label in written.items() if label is not None])
        return part(
            "mark_status",
            assignments=SQL(", ").join(assignments),
            marked=marked,
            is_final=self._is_final(value),
            is_claimed=self._is_claimed(value),
            **key,
        )


def null_waits(queue: Queue, table: Table) -> bool:
    """Return whether the old processor may pick rows without a status; of booleans, none does."""
    source = queue.source("status")
    if source is None or table.column(source.column).kind == "boolean":
        return False
    return queue.null_status in ("waiting", "failed_retriable")


def _computed(column: Column) -> bool:
    """Return whether PostgreSQL computes a column; an identity is generated, too."""
    return column.generated and column.default is not None


def _of(row: str, source: Source) -> Composable:
    column = SQL("{}.{}").format(SQL(row), Identifier(source.column))
    if not source.path:
        return column
    return SQL("({} #>> {})").format(column, Literal(list(source.path)))


def _different(source: Source) -> Composable:
    return SQL("{}::text IS DISTINCT FROM {}::text").format(_of("NEW", source), _of("OLD", source))


def _assignment(column: Column) -> Composable:
    name = Identifier(column.name)
    return SQL("{} = CASE WHEN {} THEN NEW.{} ELSE b.{} END").format(
        name, _different(Source(column.name)), name, name
    )


def _any(found: list[Composable]) -> Composable:
    return SQL("({})").format(SQL(" OR ").join(found)) if found else FALSE
