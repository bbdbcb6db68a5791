"""Settings: one typed, frozen object, made by `load`; nothing is read before.

A flag takes precedence over the environment, that over the file `mailgres.toml`, that over the
profile, that over the default. Each setting is defined once, as a field of `Settings`; flags,
variables, keys of the file, messages and docs/settings.md are derived from that.
"""

from mailgres.providers.base import Account
from mailgres.settings.definitions import Definition, Origin
from mailgres.settings.errors import InvalidSettings, Problem
from mailgres.settings.loading import load
from mailgres.settings.model import (
    DEFINITIONS,
    PROFILES,
    Explanation,
    QueueDefaults,
    Settings,
)
from mailgres.values.kinds import Rate

__all__ = [
    "DEFINITIONS",
    "PROFILES",
    "Account",
    "Definition",
    "Explanation",
    "InvalidSettings",
    "Origin",
    "Problem",
    "QueueDefaults",
    "Rate",
    "Settings",
    "load",
]
