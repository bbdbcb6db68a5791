"""Write the starter templates into sql/. Run `make freeze` afterwards.

Their source is src/mailgres/starter/.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import mailgres
from mailgres import resources
from mailgres.templates import Draft, read_templates
from mailgres.templates.draft import SETTINGS

if TYPE_CHECKING:
    from mailgres.templates import Content

STARTER = Path(mailgres.__file__).parent / "starter"
SEED = Path("50_seed", "30_starter_templates.sql")

HEAD = """\
-- Two templates to start with, so that the first call works on an empty project. Every
-- variable has a fallback. Never edited by hand: scripts/starter_templates.py writes it
-- from src/mailgres/starter/.
"""


def seed() -> str:
    """Return the SQL that pushes the starter templates."""
    return HEAD + "".join(map(_push, read_templates([STARTER])))


def _push(draft: Draft) -> str:
    settings = {key: default for key, (_, default) in SETTINGS.items()} | draft.settings
    given = {key: value for key, value in settings.items() if value is not None}
    contents = ",\n".join(_content(locale, each) for locale, each in draft.contents.items())
    return f"""
DO $seed$ BEGIN PERFORM mailgres.push_template({_literal(draft.name)},
p_default_locale => {_literal(draft.default_locale)},
p_settings => {_literal(json.dumps(given, ensure_ascii=False))},
p_contents => jsonb_build_object(
{contents})); END $seed$;
"""


def _content(locale: str, content: Content) -> str:
    parts = ",\n".join(f"'{part}', {_literal(text)}" for part, text in content.parts().items())
    return f"'{locale}', jsonb_build_object(\n{parts})"


def _literal(text: str) -> str:
    if "$mail$" in text or "$seed$" in text:
        raise ValueError("a starter template contains the quote of the seed")
    return f"$mail${text}$mail$"


def main() -> None:
    """Write the seed of this checkout."""
    (resources.sql_directory() / SEED).write_text(seed(), encoding="utf-8")


if __name__ == "__main__":
    main()
