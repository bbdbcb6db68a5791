"""docs/settings.md is what would be generated now, and its example works."""

from __future__ import annotations

import re
from pathlib import Path

import settings_page
from mailgres.settings import DEFINITIONS, load


def test_the_page_is_current() -> None:
    written = settings_page.PAGE.read_text(encoding="utf-8")
    assert written == settings_page.page(), "run scripts/settings_page.py"


def test_every_setting_is_on_it() -> None:
    for name, definition in DEFINITIONS.items():
        assert f"\n### {name}\n\n{definition.about}\n" in settings_page.page()
        assert definition.about.endswith(".")


def test_its_example(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", settings_page.page(), re.DOTALL)
    assert len(blocks) == 1
    (tmp_path / "mailgres.toml").write_text(blocks[0])
    assert load({}, {}, tmp_path).providers == ("resend", "ses")
