"""docs/settings.md is what would be generated now, and its example works."""

from __future__ import annotations

import re
from pathlib import Path

import settings_page
from mailgres.settings import DEFINITIONS, load
from mailgres.settings.accounts import OPTIONS, variable_of


def test_the_settings_page_is_current() -> None:
    written = settings_page.PAGE.read_text(encoding="utf-8")
    assert written == settings_page.page(), "run scripts/settings_page.py"


def test_every_setting_is_on_the_settings_page() -> None:
    for name, definition in DEFINITIONS.items():
        assert f"\n### {name}\n\n{definition.about}\n" in settings_page.page()
        assert definition.about.endswith(".")


def test_the_examples_of_the_settings_page_load(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", settings_page.page(), re.DOTALL)
    assert len(examples) == 2
    path = tmp_path / "mailgres.toml"
    path.touch(mode=0o600)
    path.write_text(examples[0])
    assert load({}, {}, tmp_path).providers == ("resend", "ses")
    path.write_text(examples[1])
    settings = load({"MAILGRES_RESEND_ACME_API_KEY": "re_1"}, {}, tmp_path)
    settings.check_providers()
    assert settings.remarks() == ()
    assert [account.name for account in settings.accounts()] == ["resend-acme", "ses-eu", "smtp"]


def test_the_settings_page_lists_every_option_of_accounts() -> None:
    for kind, options in OPTIONS.items():
        for option in options:
            assert f"{kind}_{option}" in DEFINITIONS
            assert f"`{variable_of(kind + '-acme', option)}`" in settings_page.page()


def test_the_port_of_the_service_is_not_that_of_a_mail_catcher() -> None:
    """Mailpit and MailHog listen on 8025, on the same machines as a developer's mailgres."""
    assert DEFINITIONS["serve_port"].default not in (1025, 1080, 8025)
