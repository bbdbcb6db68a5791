"""What a template and a payload become, and what they cannot do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from mailgres.errors import TemplateFailed
from mailgres.templates import Content, Rendered, Template, render
from support.concurrency import at_once
from support.rendering import SECRET, content, failure, html_of, subject_of, text_of


def test_a_template_renders_subject_html_and_text() -> None:
    made = render({"en": Content("Hi {{ n }}", "Text {{ n }}", "<b>{{ n }}</b>")}, {"n": "Ana"})
    assert made == Rendered("Hi Ana", "<b>Ana</b>", "Text Ana\n")


def test_a_template_may_have_only_text() -> None:
    assert render({"en": content("Hello")}, {}).html is None


# What comes from the payload stays text.


def test_html_is_escaped_in_html_alone() -> None:
    value = """<script>alert("x") & 'y'</script>"""
    made = render(
        {"en": Content("{{ v }}", "{{ v }}", '<a title="{{ v }}">{{ v }}</a>')}, {"v": value}
    )
    assert made.subject == value
    assert made.text == f"{value}\n"
    assert made.html is not None
    assert "<script" not in made.html
    assert made.html.count("&lt;script&gt;alert(&quot;x&quot;) &amp; &#x27;y&#x27;") == 2


def test_links_in_html_stay_readable() -> None:
    link = '<a href="https://x.example/?a=1&amp;b=&quot;">'
    assert html_of('<a href="{{ v }}">', v='https://x.example/?a=1&b="') == link
    assert html_of("{{ v }}", v="</b> &#x2f;") == "&lt;/b&gt; &amp;#x2f;"


@pytest.mark.parametrize("long", ["", "x" * 5000])
def test_values_inside_objects_are_escaped(long: str) -> None:
    payload = {"o": {"v": ["<b>"]}, "long": long}
    assert (
        html_of("{{ o.v[0] }}{% for x in o.v %}{{ x }}{% endfor %}", **payload) == "&lt;b&gt;" * 2
    )


@pytest.mark.parametrize("syntax", ["{{ 7 * 7 }}", "{% for x in y %}", "{# no #}", "{{ debug() }}"])
def test_template_syntax_in_values_stays_text(syntax: str) -> None:
    assert text_of("{{ v }}", v=syntax) == syntax
    assert subject_of("{{ v }}", v=syntax) == syntax


def test_template_syntax_in_values_is_not_put_together() -> None:
    assert text_of("{{ a }}{{ b }}", a="{", b="{ 7 * 7 }}") == "{{ 7 * 7 }}"


@pytest.mark.parametrize(
    "value",
    ["a\r\nBcc: eve@example.com", "a\nb", "a\rb", "a\x00\x0b\x85\u2028b", "\n a \n", "a\tb"],
)
def test_a_rendered_subject_is_one_line(value: str) -> None:
    subject = subject_of("{{ v }}", v=value)
    assert subject == " ".join(subject.split())
    assert subject.isprintable()


def test_a_long_subject_is_cut() -> None:
    subject = subject_of("{{ v }}", v="x" * 1_000_000)
    assert len(subject) == 998
    assert subject.endswith("x…")


def test_an_empty_subject_is_a_fault() -> None:
    with pytest.raises(TemplateFailed, match="subject: it is empty"):
        subject_of("{{ v }}", v="\r\n")


def test_keys_of_the_payload_may_be_anything() -> None:
    payload = {"self": 1, "template_name": 2, "name": 3, "two words": 4, "range": 5, "": 6}
    assert text_of("{{ self }}{{ template_name }}{{ name }}{{ range }}", **payload) == "1235"


# Nothing of Python is in reach.


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ s.__class__ }}",
        "{{ o.__class__ }}",
        "{{ o.l.__class__ }}",
        "{{ o.clear() }}",
        "{{ o.pop('l') }}",
        "{{ o.l.append(1) }}",
        "{{ o.values }}",
        "{{ o.l.append }}",
        "{{ values() }}",
        "{{ clear() }}",
        "{{ debug() }}",
    ],
)
def test_a_template_cannot_use_attributes_and_methods_of_python(source: str) -> None:
    payload = {"s": SECRET, "o": {"l": [1]}}
    failure(source, payload)
    assert payload == {"s": SECRET, "o": {"l": [1]}}


@pytest.mark.parametrize("name", ["items", "keys", "values", "get", "copy", "pop", "update"])
def test_names_of_methods_are_names_like_others(name: str) -> None:
    asked = f"{{% if {name} is defined %}}{{{{ {name} }}}}{{% else %}}no{{% endif %}}"
    assert text_of(asked) == "no"
    assert text_of(asked, **{name: "yes"}) == "yes"
    asked = asked.replace(name, f"o.{name}")
    assert text_of(asked, o={"a": 1}) == "no"
    assert text_of(asked, o={name: "yes"}) == "yes"


def test_objects_and_arrays_of_the_payload_can_be_used() -> None:
    source = "{% for k, v in o | items %}{{ k }}={{ v }};{% endfor %}{{ l | join('-') }}"
    assert text_of(source, o={"a": 1, "b": "x"}, l=[1, 2]) == "a=1;b=x;1-2"
    assert text_of("{{ o is mapping }} {{ l is sequence }} {{ o | tojson }}", o={"a": 1}, l=[]) == (
        'True True {"a": 1}'
    )


def test_only_its_own_parts_can_be_included() -> None:
    assert "only its own parts" in failure("{% include v %}", {"v": SECRET})
    assert text_of("{% include 'subject.txt' %}!") == "Hi!"


# Faults say where and what, and quote no value.


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("\n\n{{ name }}", "text, line 3: `name` is undefined"),
        ("{{ o.name }}", "text, line 1: `o.name` is undefined"),
        ("{% if name %}{% endif %}", "text, line 1: `name` is undefined"),
        ("{% for x in name %}{% endfor %}", "text, line 1: `name` is undefined"),
        ("{{ o.a.b.c }}", "text, line 1: `o.a` is undefined"),
        ("{{ v / 0 }}", "text, line 1: invalid operation in `v / 0`"),
        ("é{{ v | int }}", "text, line 1: invalid operation in `int`"),
        ("{{ v | nonsense }}", "text, line 1: filter nonsense is unknown"),
        ("{{ v.nonsense() }}", "text, line 1: string has no method named nonsense"),
        ("{% if v %}", "text, line 1: unexpected end of input, expected end of block"),
        ("{% for a, b in l %}{% endfor %}", "text, line 1: cannot unpack in `a, b`"),
    ],
)
def test_a_template_error_names_place_and_reason_without_values(source: str, said: str) -> None:
    assert failure(source, {"v": SECRET, "o": {}, "l": [SECRET]}) == said


@pytest.mark.parametrize("part", ["subject", "html"])
def test_a_template_error_names_the_part(part: str) -> None:
    parts = {"subject": "Hi", "html": "x", "text": "x"} | {part: "{{ name }}"}
    with pytest.raises(TemplateFailed, match=rf"\(en\), {part}.*`name` is undefined"):
        render({"en": Content(parts["subject"], parts["text"], parts["html"])}, {})


def test_a_template_version_without_content_is_an_error() -> None:
    with pytest.raises(TemplateFailed, match="has no content"):
        Template({})


# null counts as not given.


def test_null_in_a_payload_counts_as_undefined() -> None:
    source = "{% if n is defined %}<{{ n }}>{% endif %}{{ n | default('d') }}{% if n %}x{% endif %}"
    assert text_of(source, n=None) == "d"
    assert text_of(source, n="v") == "<v>vx"
    assert text_of("<{{ n }}><{{ o.n }}>", n=None, o={"n": None}) == "<><>"
    assert (
        text_of("{{ n is undefined }}{{ z | d(1) }}{{ '' | default(2, true) }}", n=None) == "True12"
    )


def test_an_undefined_variable_is_an_error_though_the_payload_has_nulls() -> None:
    assert failure("{{ name }}", {"n": None}) == "text, line 1: `name` is undefined"


# Text.


def test_lines_with_only_template_tags_leave_no_empty_lines() -> None:
    source = "a\n\n{% if v is defined %}\nb\n  {% endif %}\n\nc\n\n\n"
    assert text_of(source) == "a\n\nc"
    assert text_of(source, v=1) == "a\n\nb\n\nc"


# Languages.


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("en", "en"),
        ("pt-BR", "pt"),
        ("pt_PT.UTF-8", "pt"),
        ("PT", "pt"),
        ("zh-Hant-TW", "zh-Hant"),
        ("zh-TW", "zh-Hant"),
        ("zh", "zh-Hant"),
        ("de_AT", "de_AT"),
        ("de-AT", "de_AT"),
        ("de", "de_AT"),
        ("fr", "en"),
        ("", "en"),
        ("-", "en"),
        (".", "en"),
        ("x" * 5000, "en"),
        (None, "en"),
        (5, "en"),
        (["pt"], "en"),
        ({"pt": 1}, "en"),
    ],
)
def test_the_language_of_the_payload_is_chosen(wanted: Any, chosen: str) -> None:
    template = Template({each: content(each) for each in ("de_AT", "en", "pt", "zh-Hant")})
    for _ in range(2):
        assert template.render({"locale": wanted}).text == f"{chosen}\n"


def test_the_locale_argument_overrides_the_locale_of_the_payload() -> None:
    contents = {"en": content("en"), "pt": content("pt")}
    assert render(contents, {"locale": "en"}, "pt-BR").text == "pt\n"


@pytest.mark.parametrize(
    ("locales", "chosen"), [("de en fr", "en"), ("de fr", "de"), ("de* en", "de"), ("fr", "fr")]
)
def test_the_default_language_is_used_where_none_matches(locales: str, chosen: str) -> None:
    contents = {
        each.rstrip("*"): Content("Hi", each.rstrip("*"), default=each.endswith("*"))
        for each in locales.split()
    }
    assert render(contents, {"locale": "it"}).text == f"{chosen}\n"


def test_payloads_that_ask_for_anything_fill_no_memory() -> None:
    template = Template({"en": content(), "pt": content()})
    for number in range(1000):
        template.render({"locale": f"x{number}"})
    assert len(template._choices) <= 64


# Threads.


@pytest.fixture
def often_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often_switching")
def test_threads_do_not_mix_up_their_emails() -> None:
    source = "{% for i in range(5) %}{{ n }}:{{ o.a }}:{{ z | default('-') }};{% endfor %}"
    template = Template({"en": Content("{{ n }}", source, source), "pt": content("pt {{ n }}")})

    def work(thread: int) -> None:
        for number in range(100):
            n = f"{thread}.{number}"
            long = "x" * 5000 * (number % 2)  # every other one carefully
            payload = {"n": n, "o": {"a": n}, "z": None if number % 3 else "-", "long": long}
            if number % 5 == 0:
                with pytest.raises(TemplateFailed):
                    template.render({"n": "x" * 900_000, "o": {"a": ""}})
            made = template.render(json.dumps(payload))
            assert made == Rendered(n, f"{n}:{n}:-;" * 5, f"{n}:{n}:-;" * 5 + "\n")

    at_once([partial(work, thread) for thread in range(8)])
