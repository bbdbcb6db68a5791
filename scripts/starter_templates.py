"""Write the starter templates into sql/. Run `make freeze` afterwards.

Their source is src/mailgres/starter/.
"""

from __future__ import annotations

import json
from pathlib import Path

import mailgres
from mailgres import resources
from mailgres.templates import Draft, read_templates
from mailgres.templates.draft import SETTINGS

STARTER = Path(mailgres.__file__).parent / "starter"
SEED = Path("50_seed", "30_starter_templates.sql")

HEAD = """\
-- Two templates to start with, so that the first call works on an empty project. Every
-- variable has a fallback. Never edited by hand: scripts/starter_templates.py writes it
-- from src/mailgres/starter/.
"""


def seed() -> str:
    """Return the SQL that writes the starter templates; a revision calls no other function."""
    return HEAD + "".join(map(_insert, read_templates([STARTER])))


def _insert(draft: Draft) -> str:
    settings = {key: default for key, (_, default) in SETTINGS.items()} | draft.settings
    given = {key: _value(value) for key, value in settings.items() if value not in (None, [])}
    contents = ",\n".join(_content(draft, locale) for locale in draft.contents)
    columns = ", ".join(("template_type", *given))
    values = ", ".join((_literal(draft.name), *given.values()))
    return f"""
INSERT INTO public.email_templates ({columns}) VALUES
({values});

INSERT INTO mailgres.template_versions
(template_type, version, locale, is_default, subject, html, text) VALUES
{contents};
"""  # noqa: S608 - from files of this repository


def _value(value: object) -> str:
    return _literal(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _content(draft: Draft, locale: str) -> str:
    is_default = str(locale == draft.default_locale).lower()
    parts = draft.contents[locale].parts()
    texts = ",\n".join(_literal(parts[part].strip()) for part in ("subject", "html", "text"))
    return f"({_literal(draft.name)}, 1, '{locale}', {is_default},\n{texts})"


def _literal(text: str) -> str:
    if "$mail$" in text:
        raise ValueError("a starter template contains the quote of the seed")
    return f"$mail${text}$mail$"


def main() -> None:
    """Write the seed of this checkout."""
    (resources.sql_directory() / SEED).write_text(seed(), encoding="utf-8")


if __name__ == "__main__":
    main()
