"""What the catalog says about a foreign database, as values; nothing here asks the database."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["text", "number", "boolean", "time", "local_time", "json", "uuid", "enum", "other"]

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("text", "varchar", "bpchar", "citext", "name"), "text"),
    **dict.fromkeys(("int2", "int4", "int8", "numeric", "float4", "float8"), "number"),
    "bool": "boolean",
    "timestamptz": "time",
    "timestamp": "local_time",
    "json": "json",
    "jsonb": "json",
    "uuid": "uuid",
}
_SQL_COMMENT = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, and what it may contain."""

    name: str
    type: str
    base: str
    not_null: bool = False
    default: str | None = None
    generated: bool = False
    array: bool = False
    labels: tuple[str, ...] = ()
    """The values of an enum."""

    @property
    def kind(self) -> Kind:
        """Return the kind of values; an array has the kind of its elements."""
        if self.labels:
            return "enum"
        return _KINDS.get(self.base.lstrip("_"), "other")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint, in PostgreSQL's words."""

    table: str
    kind: Literal["p", "u", "c", "f"]
    name: str
    definition: str
    columns: tuple[str, ...] = ()
    target: str | None = None
    """The table that a foreign key refers to."""
    target_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of row security."""

    name: str
    command: str
    roles: tuple[str, ...]
    using: str | None
    checked: str | None
    permissive: bool = True

    @property
    def definition(self) -> str:
        """Return the policy as SQL."""
        parts = [f'POLICY "{self.name}" FOR {self.command} TO {", ".join(self.roles)}']
        if self.using is not None:
            parts.append(f"USING ({self.using})")
        if self.checked is not None:
            parts.append(f"WITH CHECK ({self.checked})")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Table:
    """A table and what belongs to it."""

    schema: str
    name: str
    full_name: str
    """Schema and name as SQL, quoted where they need it."""
    columns: tuple[Column, ...]
    constraints: tuple[Constraint, ...] = ()
    references: tuple[Constraint, ...] = ()
    """Foreign keys of other tables onto this one."""
    indexes: tuple[str, ...] = ()
    policies: tuple[Policy, ...] = ()
    grants: dict[str, tuple[str, ...]] = field(default_factory=dict)
    publications: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    row_security: bool = False
    readable: bool = True
    filtered: bool = False
    """Whether policies hide rows from this user."""
    estimate: int = 0

    def column(self, name: str) -> Column:
        """Return a column by its name."""
        return next(each for each in self.columns if each.name == name)

    @property
    def key(self) -> tuple[str, ...]:
        """Return the columns of the primary key, or else of a unique constraint."""
        for kind in ("p", "u"):
            for each in self.constraints:
                if each.kind == kind:
                    return each.columns
        return ()


@dataclass(frozen=True, slots=True)
class Function:
    """A function: who may call it, and its source."""

    oid: int
    schema: str
    name: str
    arguments: str
    types: str
    source: str
    definer: bool = False
    for_trigger: bool = False
    volatility: str = "v"
    config: tuple[str, ...] = ()
    executors: tuple[str, ...] = ()
    """Those of PUBLIC, anon and authenticated that may execute it."""

    @property
    def signature(self) -> str:
        """Return the name and the types of the arguments."""
        return f"{quoted(self.schema)}.{quoted(self.name)}({self.types})"

    @property
    def code(self) -> str:
        """Return the source without comments."""
        return without_comments(self.source)

    @property
    def pinned(self) -> bool:
        """Return whether the function sets its own search_path."""
        return any(each.startswith("search_path=") for each in self.config)


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger of a table."""

    table: str
    name: str
    function: int
    definition: str
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """A job of pg_cron."""

    id: int
    name: str | None
    schedule: str
    command: str
    active: bool = True

    @property
    def title(self) -> str:
        """Return the job's name, or its number."""
        return self.name or f"number {self.id}"


@dataclass(frozen=True, slots=True)
class Rows:
    """What some rows of a table showed: whole rows, and the values of columns with few of them."""

    sample: tuple[dict[str, Any], ...] = ()
    values: dict[str, dict[str | None, int]] = field(default_factory=dict)

    def of(self, column: str) -> list[Any]:
        """Return the sampled values of a column that are not null."""
        return [row[column] for row in self.sample if row.get(column) is not None]


@dataclass(frozen=True, slots=True)
class Catalog:
    """A foreign database."""

    tables: tuple[Table, ...]
    functions: tuple[Function, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    jobs: tuple[Job, ...] = ()
    pgmq: tuple[str, ...] = ()
    """The names of pgmq's queues."""
    timezone: str = "UTC"
    installed: bool = False
    """Whether mailgres is installed in this database."""
    unreadable: tuple[str, ...] = ()
    """What the user may not read, such as cron.job."""

    def table(self, full_name: str) -> Table | None:
        """Return a table by schema and name."""
        return next((each for each in self.tables if each.full_name == full_name), None)


def without_comments(source: str) -> str:
    """Return SQL without comments. A literal that has two hyphens loses its end: good enough."""
    return _SQL_COMMENT.sub(" ", source)


def quoted(name: str) -> str:
    """Return an identifier as SQL: plain if it may be, else in double quotes."""
    if _PLAIN.fullmatch(name):
        return name
    return '"' + name.replace('"', '""') + '"'


def line_with(source: str, pattern: str) -> str | None:
    """Return the first line of a source that matches, without the space around it."""
    for line in source.splitlines():
        if re.search(pattern, without_comments(line), re.IGNORECASE):
            return line.strip()
    return None
