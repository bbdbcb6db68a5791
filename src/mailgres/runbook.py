"""The sections of the runbook, for people who have the package but not the repository.

The page is `docs/runbook.md`; a wheel has a copy of it.
"""

from __future__ import annotations

import re

from mailgres.resources import runbook_page

_LINK = re.compile(r"\[([^\]]+)\]\(#\w+\)")


def sections() -> dict[str, str]:
    """Return the section of each alert rule by its name."""
    text = runbook_page().read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    named = (part.split("\n", 1) for part in parts)
    return {name: f"{name}\n\n{_without_links(body)}" for name, body in named}


def _without_links(text: str) -> str:
    return _LINK.sub(r"\1", text).strip()
