"""Templates on the page: versions, differences, previews, and going back to a version."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest
from psycopg.types.json import Jsonb

from page.client import Client
from support.queue import Queue

PUSH = "SELECT mailgres.push_template('greeting', %s, %s, 'en')"


def contents(word: str) -> Jsonb:
    return Jsonb(
        {
            "en": {
                "subject": f"{word} {{{{ name }}}}",
                "html": f"<p>{word} <b>{{{{ name }}}}</b>",
                "text": word,
            },
            "pt": {"subject": f"{word}, em pt", "html": None, "text": f"{word} pt"},
        }
    )


@pytest.fixture(autouse=True)
def versions(queue: Queue) -> None:
    """Two versions of a template; the second is active."""
    settings = Jsonb({"sample": {"name": "Sample Ana"}})
    for word in ("Hello", "Welcome"):
        queue.run(PUSH, contents(word), settings)


def page_of(**given: object) -> str:
    return "/templates?" + urlencode({"name": "greeting", **given})


def test_the_page_lists_all_templates(operator: Client) -> None:
    shown = operator.get("/templates").text
    assert "greeting" in shown
    assert "en, pt" in shown


def test_a_template_shows_its_sample_and_what_its_last_version_changed(operator: Client) -> None:
    shown = operator.get(page_of()).text
    assert "version 2" in shown
    assert "Welcome Sample Ana" in shown
    assert '<span class="removed">-Hello {{ name }}</span>' in shown
    assert '<span class="added">+Welcome {{ name }}</span>' in shown


def test_a_preview_has_any_version_language_and_payload(operator: Client) -> None:
    payload = json.dumps({"name": "<script>Ben</script>"})
    shown = operator.get(page_of(version=1, payload=payload)).text
    assert "Hello &lt;script&gt;Ben" in shown
    frame = operator.get(page_of(version=1, payload=payload).replace("?", "/frame?"))
    assert frame.status == 200
    assert "Hello <b>&lt;script&gt;Ben" in frame.text
    assert frame.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert "Hello, em pt" in operator.get(page_of(version=1, locale="pt")).text


def test_an_operator_activates_an_earlier_template_version(operator: Client, queue: Queue) -> None:
    form = {"name": "greeting", "version": "1"}
    answer = operator.change("/templates/activate", form)
    assert (answer.status, answer.headers["location"]) == (303, "../templates?name=greeting&done=1")
    active = "SELECT active_version FROM email_templates WHERE template_type = 'greeting'"
    assert queue.value(active) == 1
    assert "Version 1 is active." in operator.get(page_of(done=1)).text


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        (page_of(payload="{"), 200, "The payload is not JSON"),
        (page_of(payload="[1]"), 200, "not a JSON object"),
        (page_of(payload="{}"), 200, "name"),
        (page_of(payload="x" * 9000), 400, "more than 8192 characters"),
        (page_of(version="x"), 400, "is not a version"),
        (page_of(version="99"), 400, "has no version 99"),
        (page_of(version="9" * 40), 400, "is not a version"),
        ("/templates?name=nosuch", 400, "there is no template"),
        ("/templates?name=%00", 404, "There is no such template"),
    ],
)
def test_a_template_that_cannot_be_shown_gets_one_clear_error(
    operator: Client, path: str, status: int, told: str
) -> None:
    answer = operator.get(path)
    assert (answer.status, told in answer.text) == (status, True), answer.text


@pytest.mark.parametrize("version", ["", "0", "-1", "99", "x"])
def test_a_template_version_that_does_not_exist_is_not_activated(
    operator: Client, queue: Queue, version: str
) -> None:
    answer = operator.change("/templates/activate", {"name": "greeting", "version": version})
    assert answer.status == 400
    active = "SELECT active_version FROM email_templates WHERE template_type = 'greeting'"
    assert queue.value(active) == 2
