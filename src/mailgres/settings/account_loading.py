"""Read accounts: the environment takes precedence over the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from mailgres.providers.base import Account
from mailgres.settings.accounts import OPTIONS, key_of, kind_of, variable_of
from mailgres.settings.definitions import PREFIX, Origin
from mailgres.settings.errors import Problem
from mailgres.settings.model import DEFINITIONS
from mailgres.values.kinds import AccountNames, BadValue, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mailgres.settings.files import File

TABLE = "accounts"
"""The table of the file that has a table for each account."""

_OF_ACCOUNTS = re.compile(
    "|".join(
        rf"{PREFIX}{kind.upper()}_\w+_{option.upper()}"
        for kind, options in OPTIONS.items()
        for option in options
    )
)


class Accounts(NamedTuple):
    """The accounts that were described, and where each of their options came from."""

    found: tuple[Account, ...]
    origins: dict[str, Origin]


def is_variable(variable: str) -> bool:
    """Return whether a variable belongs to an account, also to one that is not used here."""
    return _OF_ACCOUNTS.fullmatch(variable) is not None


def is_secret(key: str) -> bool:
    """Return whether an option, by its name in the file, must not be shown."""
    _, name, option = key.split(".")
    return DEFINITIONS[f"{kind_of(name)}_{option}"].secret


def read_accounts(
    environ: Mapping[str, str],
    file: File | None,
    providers: Iterable[str],
    problems: list[Problem],
) -> Accounts:
    """Return the accounts of the file, and the providers that have variables."""
    tables = dict(_tables(file, problems)) if file else {}
    names = dict.fromkeys([*(name for name in providers if "-" in name), *tables])
    found, origins = [], {}
    for name in names:
        options = {}
        for option in OPTIONS.get(kind_of(name), ()):
            given = _given(environ, file, tables.get(name, {}), name, option)
            if given is None:
                continue
            value, origin = given
            kind = DEFINITIONS[f"{kind_of(name)}_{option}"].kind
            try:
                options[option] = kind.parse(value)
                origins[key_of(name, option)] = origin
            except BadValue as why:
                message = f"{key_of(name, option)}, from {origin}: {why}"
                problems.append(Problem(message, f"Give {kind.allowed}."))
        if options:
            found.append(Account(name, kind_of(name), options))
    return Accounts(tuple(found), origins)


def _given(
    environ: Mapping[str, str],
    file: File | None,
    table: Mapping[str, object],
    name: str,
    option: str,
) -> tuple[object, Origin] | None:
    variable = variable_of(name, option)
    if environ.get(variable, "").strip():
        return environ[variable], Origin("environment", f"{variable} in the environment")
    if file and option in table:
        return table[option], Origin("file", file.place(key_of(name, option)))
    return None


def _tables(file: File, problems: list[Problem]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the tables of accounts; add what is wrong with them to the problems."""
    tables = file.values.get(TABLE, {})
    if not isinstance(tables, dict):
        hint = "Write a table for each account: [accounts.resend-acme]."
        problems.append(Problem(f"{file.place(TABLE)}: accounts is not a table", hint))
        return
    for name, table in tables.items():
        wrong = _wrong_name(file, name, table) or _wrong_key(file, name, table)
        if wrong:
            problems.append(wrong)
        else:
            yield name, table


def _wrong_name(file: File, name: str, table: object) -> Problem | None:
    place, kinds = file.place(f"{TABLE}.{name}"), tuple(OPTIONS)
    if not isinstance(table, dict):
        hint = f"Write a table for each account: [accounts.{kinds[0]}-acme]."
        return Problem(f"{place}: accounts.{name} is not a table", hint)
    if name in OPTIONS:
        settings = ", ".join(f"{name}_{option}" for option in OPTIONS[name])
        return Problem(
            f"{place}: {name} is not an account with a name of its own",
            f"Set {settings}, or rename it to {name}-something.",
        )
    try:
        AccountNames(kinds).check(name)
    except BadValue as why:
        return Problem(f"{place}: {why}", f"Start the name with {', '.join(kinds)} and a dash.")
    return None


def _wrong_key(file: File, name: str, table: Mapping[str, object]) -> Problem | None:
    known = OPTIONS[kind_of(name)]
    for key in table:
        if key not in known:
            meant = suggestion(key, known)
            hint = f"Did you mean {meant}?" if meant else f"Known settings: {', '.join(known)}."
            place = file.place(key_of(name, key))
            return Problem(f"{place}: {name} has no setting {key}", hint)
    return None
