"""The starter templates: one source, both languages, nothing needed."""

from __future__ import annotations

import html
from html.parser import HTMLParser

import psycopg
import pytest

import starter_templates
from mailgres import resources
from mailgres.templates import Draft, Template, load_contents, read_templates

DRAFTS = {draft.name: draft for draft in read_templates([starter_templates.STARTER])}


@pytest.fixture(params=DRAFTS)
def draft(request: pytest.FixtureRequest) -> Draft:
    return DRAFTS[request.param]


class Tags(HTMLParser):
    """Fails where tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_seed_is_made_from_the_files() -> None:
    seed = (resources.sql_directory() / starter_templates.SEED).read_text(encoding="utf-8")
    assert seed == starter_templates.seed(), "run scripts/starter_templates.py and `make freeze`"


def test_a_migrated_database_has_the_starter_templates(conn: psycopg.Connection) -> None:
    names = conn.execute("SELECT template_type, active_version FROM email_templates ORDER BY 1")
    alert = ("mailgres_alert", 1)
    assert names.fetchall() == [alert, ("signup_confirmation", 1), ("welcome_user", 1)]
    for name, draft in DRAFTS.items():
        assert load_contents(conn, name, 1) == draft.contents


def test_every_starter_template_is_in_english_and_portuguese(draft: Draft) -> None:
    assert set(draft.contents) == {"en", "pt"}
    assert draft.default_locale == "en"
    assert draft.settings["required_variables"] == []


@pytest.mark.parametrize("locale", ["en", "pt-BR"])
@pytest.mark.parametrize("given", ["nothing", "nulls", "the sample"])
def test_every_starter_template_renders_with_any_payload(
    draft: Draft, locale: str, given: str
) -> None:
    sample = draft.settings["sample"]
    payload = {"nothing": {}, "nulls": dict.fromkeys(sample), "the sample": sample}[given]
    made = Template(draft.contents).render({**payload, "locale": locale})
    assert made.html is not None
    Tags(made.html)
    for part in made:
        assert "None" not in str(part)
        assert "{{" not in str(part)
        assert "{%" not in str(part)
    assert ("Acme" in made.text) == (given == "the sample")
    if given == "the sample":
        for value in set(sample.values()) - {"Acme"}:
            assert value in made.text
            assert value in made.html


def test_the_languages_of_the_starter_templates_differ(draft: Draft) -> None:
    template = Template(draft.contents)
    english, portuguese = template.render({}, "en"), template.render({}, "pt")
    assert english.subject != portuguese.subject
    assert 'lang="pt"' in str(portuguese.html)


@pytest.mark.parametrize("locale", ["en", "pt"])
@pytest.mark.parametrize(
    ("payload", "greeted"),
    [
        ({"user_data": {"full_name": "Ana Silva"}}, "Ana Silva"),
        ({"name": "Bob", "user_data": {"full_name": "Ana Silva"}}, "Bob"),
        ({"name": None, "user_data": {"full_name": "Ana <b>"}}, "Ana <b>"),
        ({"user_data": {"full_name": None}}, None),
        ({"user_data": {"full_name": ""}}, None),
        ({"user_data": {}}, None),
        ({"user_data": None}, None),
        ({"user_data": "Ana"}, None),
        ({"user_data": ["Ana"]}, None),
        ({"name": ""}, None),
    ],
)
def test_welcome_user_greets_by_name_or_by_the_full_name_of_the_users_data(
    payload: dict[str, object], greeted: str | None, locale: str
) -> None:
    made = Template(DRAFTS["welcome_user"].contents).render(payload, locale)
    assert made.html is not None
    hello = {"en": "Welcome", "pt": "Boas-vindas"}[locale] + (f", {greeted}!" if greeted else "!")
    assert made.text.splitlines()[0] == hello
    assert f">{html.escape(hello)}<" in made.html
