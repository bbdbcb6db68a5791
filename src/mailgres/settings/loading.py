"""Load the settings: flag, else environment, else file, else profile, else default."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mailgres.settings import files
from mailgres.settings.account_loading import TABLE, is_secret, is_variable, read_accounts
from mailgres.settings.definitions import PREFIX, Origin
from mailgres.settings.errors import InvalidSettings, Problem
from mailgres.settings.model import DEFINITIONS, PROFILES, Settings, Source
from mailgres.values.kinds import BadValue, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONFIG = "MAILGRES_CONFIG"
OTHER_VARIABLES = frozenset({CONFIG, "MAILGRES_EMBEDDED_BINARIES"})
"""Variables of ours that are not settings. The second one belongs to `mailgres.embedded`."""

# Kubernetes sets variables like these in every container of a namespace with a service called
# mailgres or mailgres-something. Users cannot prevent that, so they are not errors.
_OF_KUBERNETES = re.compile(
    r"MAILGRES_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)"
)


class Given(NamedTuple):
    """A value as it was given."""

    value: object
    origin: Origin


def load(
    environ: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Return the settings, or raise InvalidSettings with everything that is wrong.

    `flags` are values by the names of settings, None for those not given. `config` among them, or
    MAILGRES_CONFIG, names the file; otherwise `mailgres.toml` in `directory` is read if it exists.
    An empty variable counts as not set.
    """
    again = partial(load, dict(environ), dict(flags or {}), directory)
    said = {name: value for name, value in (flags or {}).items() if value is not None}
    file = _file(environ, said.pop("config", None), directory)
    problems = [*_unknown_flags(said), *_unknown_variables(environ)]
    given = _from_environment(environ) | _from_flags(said)
    if file:
        problems += _unknown_keys(file)
        given = _from_file(file) | given
    given = _from_profile(given) | given
    values = _parse(given, problems)
    accounts = read_accounts(environ, file, values.get("providers", ()), problems)
    if problems:
        raise InvalidSettings(problems)
    if file:
        file.warn_if_open(_secrets(accounts.origins))
    origins = {name: each.origin for name, each in given.items()} | accounts.origins
    source = Source(file.path, again) if file else None
    return Settings(**values, named_accounts=accounts.found, origins=origins, source=source)


def _secrets(of_accounts: Iterable[str]) -> Iterable[str]:
    yield from (name for name, each in DEFINITIONS.items() if each.secret)
    yield from (key for key in of_accounts if is_secret(key))


def _file(environ: Mapping[str, str], flag: object, directory: Path | None) -> files.File | None:
    named, source = environ.get(CONFIG, "").strip(), f"{CONFIG} in the environment"
    if flag is not None:
        named, source = str(flag), "--config"
    if named:
        return files.read_named(directory or Path(), named, source)
    return files.read_if_there(directory) if directory else None


def _from_flags(flags: Mapping[str, object]) -> dict[str, Given]:
    return {
        name: Given(flags[name], Origin("flag", definition.flag))
        for name, definition in DEFINITIONS.items()
        if name in flags
    }


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    given = {}
    for name, definition in DEFINITIONS.items():
        for variable in definition.variables:
            value = environ.get(variable, "").strip()
            if value and not _is_of_kubernetes(variable, value):
                origin = Origin("environment", f"{variable} in the environment")
                given[name] = Given(environ[variable], origin)
                break
    return given


def _is_of_kubernetes(variable: str, value: str) -> bool:
    """Return whether Kubernetes set a variable: MAILGRES_SERVE_PORT of mailgres-serve."""
    return "://" in value and _OF_KUBERNETES.fullmatch(variable) is not None


def _from_file(file: files.File) -> dict[str, Given]:
    return {
        name: Given(file.values[name], Origin("file", file.place(name)))
        for name in DEFINITIONS
        if name in file.values
    }


def _from_profile(given: Mapping[str, Given]) -> dict[str, Given]:
    definition = DEFINITIONS["profile"]
    try:
        chosen = given["profile"].value if "profile" in given else definition.default
        profile = definition.kind.parse(chosen)
    except BadValue:
        # Reported together with the others.
        return {}
    origin = Origin("profile", f"profile {profile}")
    return {name: Given(value, origin) for name, value in PROFILES[profile].items()}


def _parse(given: Mapping[str, Given], problems: list[Problem]) -> dict[str, Any]:
    values = {}
    for name, (value, origin) in given.items():
        kind = DEFINITIONS[name].kind
        try:
            values[name] = kind.parse(value)
        except BadValue as why:
            problems.append(Problem(f"{name}, from {origin}: {why}", f"Give {kind.allowed}."))
    return values


def _unknown_flags(flags: Iterable[str]) -> Iterable[Problem]:
    for name in flags:
        if name not in DEFINITIONS:
            yield _unknown(f"Unknown setting {name}", name, DEFINITIONS)


def _unknown_keys(file: files.File) -> Iterable[Problem]:
    for key in file.values:
        if key not in DEFINITIONS and key != TABLE:
            yield _unknown(f"{file.place(key)}: unknown setting {key}", key, DEFINITIONS)


def _unknown_variables(environ: Mapping[str, str]) -> Iterable[Problem]:
    known = {definition.variables[0] for definition in DEFINITIONS.values()} | OTHER_VARIABLES
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in known:
            continue
        if not _OF_KUBERNETES.fullmatch(variable) and not is_variable(variable):
            yield _unknown(
                f"{variable} in the environment is not a mailgres setting", variable, known
            )


def _unknown(message: str, word: str, known: Iterable[str]) -> Problem:
    meant = suggestion(word, known)
    hint = f"Did you mean {meant}?" if meant else f"Known settings: {', '.join(sorted(known))}."
    return Problem(message, hint)
