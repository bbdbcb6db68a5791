"""The differences between two states of a template, as a unified diff."""

from __future__ import annotations

import json
from difflib import unified_diff
from typing import TYPE_CHECKING

from mailgres.templates.draft import SETTINGS

if TYPE_CHECKING:
    from mailgres.templates.draft import Draft


def differences(before: Draft | None, after: Draft, labels: tuple[str, str]) -> list[str]:
    """Return the lines of the diff, for the settings and for each part; none if they are equal."""
    old, new = _parts(before), _parts(after)
    lines: list[str] = []
    for part in dict.fromkeys((*old, *new)):
        first, second = (f"{after.name}, {label}: {part}" for label in labels)
        lines += unified_diff(old.get(part, []), new.get(part, []), first, second, lineterm="")
    return lines


def _parts(draft: Draft | None) -> dict[str, list[str]]:
    if draft is None:
        return {}
    parts = {"settings": _settings(draft)}
    for locale, content in sorted(draft.contents.items()):
        for part, source in content.parts().items():
            parts[f"{locale} {part}"] = source.strip().splitlines()
    return parts


def _settings(draft: Draft) -> list[str]:
    """Return the settings that are not at their default, one in a line."""
    given = {
        name: draft.settings[name]
        for name, (_, default) in SETTINGS.items()
        if draft.settings.get(name, default) != default
    }
    return [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in given.items()]
