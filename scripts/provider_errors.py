"""Write docs/provider-errors.md from the rules of the providers; a test compares them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mailgres.providers.explain import CONSEQUENCES, TABLES, kind, statuses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.providers.faults import Rule

PAGE = Path(__file__).parent.parent / "docs" / "provider-errors.md"

HEAD = """\
# Provider errors

Generated from the rules in `mailgres.providers` by `make docs`. `mailgres errors explain
CODE` explains one code.

Every fault has one class, and the class decides what happens to the email. The first rule in a
provider's table that matches a fault decides its class; a fault that no rule matches is
`transient`, with a warning in the log.

| class | what happens |
|---|---|
"""


def page() -> str:
    """Return the whole page."""
    classes = "".join(f"| {_code(name)} | {text} |\n" for name, text in CONSEQUENCES.items())
    return HEAD + classes + "".join(_section(*each) for each in TABLES.items())


def _section(provider: str, rules: Sequence[Rule]) -> str:
    head = "| code | status | text | class | meaning |\n|---|---|---|---|---|\n"
    return f"\n## {provider}\n\n{head}" + "".join(map(_row, rules))


def _row(rule: Rule) -> str:
    cells = (
        _code(rule.code),
        statuses(rule) if rule.status is not None else "",
        _code(rule.text),
        _code(kind(rule)),
        rule.meaning + (" The address is suppressed." if rule.suppress else ""),
    )
    return f"| {' | '.join(cells)} |\n"


def _code(text: str | None) -> str:
    """Return a text as code in which a pipe does not end the cell."""
    return "`{}`".format(text.replace("|", "\\|")) if text else ""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
