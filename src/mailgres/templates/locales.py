"""Choose which of a template's languages a reader gets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from mailgres.templates.content import Contents

LOCALE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
"""The form of a locale; the database has the same rule."""

MAX_LENGTH = 35
"""No language tag in use is longer; a longer text is ignored."""


def choose_locale(wanted: Any, available: Collection[str], default: str) -> str:  # noqa: ANN401 - out of a payload
    """Return the best match: `pt-BR`, else `pt`, else another `pt-…`, else the default."""
    if not isinstance(wanted, str) or len(wanted) > MAX_LENGTH:
        return default
    known = {_plain(locale): locale for locale in sorted(available, reverse=True)}
    subtags = _plain(wanted.partition(".")[0]).split("-")  # POSIX writes pt_BR.UTF-8
    for count in range(len(subtags), 0, -1):
        if found := known.get("-".join(subtags[:count])):
            return found
    related = sorted(tag for tag in known if tag.startswith(f"{subtags[0]}-"))
    return known[related[0]] if related and subtags[0] else default


def default_locale(contents: Contents) -> str:
    """Return the locale that is marked as default, else English, else the first."""
    marked = [locale for locale, content in contents.items() if content.default]
    return min(marked, default="en" if "en" in contents else min(contents))


def _plain(locale: str) -> str:
    return locale.replace("_", "-").lower()
