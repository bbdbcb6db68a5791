"""Template files: what they say, and what is wrong with those that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mailgres.errors import InvalidTemplate
from mailgres.templates import Content, Draft, read_templates, write_templates
from support.templates import FRONT, Write

FULL = """\
+++
subject = "Hi {{ name }}"
description = "A receipt"
from_email = "Acme <mail@example.com>"
priority = 2
expires_after = "2 hours"

[sample]
name = "Ana"
items = [{ price = 1.5, tags = ["a"] }]
+++

<p>Hello {{ name }}</p>
"""


def one(directory: Path) -> Draft:
    (draft,) = read_templates([directory])
    return draft


def refusal(path: Path) -> tuple[str, str]:
    with pytest.raises(InvalidTemplate) as caught:
        read_templates([path])
    root = path if path.is_dir() else path.parent
    return caught.value.message.replace(f"{root}/", ""), caught.value.hint or ""


def test_a_template_may_be_one_file(write: Write) -> None:
    draft = one(write(receipt__html=FULL))
    assert draft.name == "receipt"
    made = Content("Hi {{ name }}", "Hello {{ name }}", "<p>Hello {{ name }}</p>", default=True)
    assert draft.contents == {"en": made}
    assert draft.settings == {
        "description": "A receipt",
        "from_email": "Acme <mail@example.com>",
        "priority": 2,
        "expires_after": "2 hours",
        "required_variables": ["name"],
        "sample": {"name": "Ana", "items": [{"price": 1.5, "tags": ["a"]}]},
    }


def test_a_template_may_have_files_for_text_and_languages(write: Write) -> None:
    directory = write(
        receipt__html=f"{FRONT}<p>a</p>\r\n\r\n",
        receipt__txt="b\n",
        receipt__pt__txt='+++\nsubject = "Oi"\n+++\nc',
        receipt__de__html="<p>d</p>",
        receipt__de__txt='\ufeff+++\nsubject = "Hallo"\n+++\n\n\n  e\n',
        README__md="not a template",
        __hidden__html="neither",
    )
    assert one(directory).contents == {
        "en": Content("Hi", "b", "<p>a</p>", default=True),
        "pt": Content("Oi", "c"),
        "de": Content("Hallo", "  e", "<p>d</p>"),
    }
    for file in directory.glob("receipt*"):
        assert one(file) == one(directory)


def test_a_template_may_have_another_default_language(write: Write) -> None:
    front = FRONT.replace("+++\n", '+++\nlocale = "de"\n', 1)
    draft = one(write(receipt__txt=f"{front}Hallo", receipt__en__txt=f"{FRONT}Hello"))
    assert set(draft.contents) == {"de", "en"}
    assert draft.default_locale == "de"


def test_template_files_may_have_names_with_dots(write: Write) -> None:
    directory = write(
        order__txt=f"{FRONT}a",
        order__paid__txt=f"{FRONT}b",
        order__new__txt='+++\ntemplate = "order.new"\nsubject = "Hi"\npriority = 1\n+++\nc',
    )
    assert [draft.name for draft in read_templates([directory])] == [
        "order",
        "order.new",
        "order.paid",
    ]


def test_pushing_one_file_reads_only_its_template(write: Write) -> None:
    directory = write(good__txt=f"{FRONT}a", bad__txt=f"{FRONT}{{% if %}}")
    assert one(directory / "good.txt").name == "good"
    refusal(directory)


@pytest.mark.parametrize(
    ("files", "said", "hint"),
    [
        ({"a__html": f"{FRONT}\n<p>\n{{% if x %}}"}, "a.html, line 6: unexpected end of", ""),
        ({"a__html": "<p>\n{{ x y }}", "a__txt": f"{FRONT}b"}, "a.html, line 2: unexpected", ""),
        (
            {"a__txt": f"{FRONT}\n{{{{ x | nonsense }}}}"},
            "a.txt, line 5: there is no filter `nonsense`",
            "",
        ),
        (
            {"a__txt": f"{FRONT}{{% if x is odder %}}{{% endif %}}"},
            "a.txt, line 4: there is no test `odder`",
            "",
        ),
        (
            {"a__txt": f"{FRONT}{{{{ price(x) }}}}"},
            "a.txt, line 4: there is no function `price`",
            "",
        ),
        ({"a__txt": '+++\nsubject = "{{ x"\n+++\nb'}, "a.txt: subject: ", ""),
        (
            {"a__txt": f"{FRONT}b", "a__pt__txt": f"{FRONT}\n\n{{% endif %}}"},
            "a.pt.txt, line 6: ",
            "",
        ),
        ({"a__txt": "+++\nsubjct = 'x'\n+++\nb"}, "a.txt: unknown key 'subjct'", "mean 'subject'?"),
        (
            {"a__txt": f"{FRONT}b", "a__pt__txt": '+++\nsubject = "x"\npriority = 1\n+++\nb'},
            "a.pt.txt: unknown key 'priority'",
            "There are: subject.",
        ),
        (
            {"a__txt": "+++\ndescription = 'x'\n+++\nb"},
            "a.txt: it has no one-line subject",
            "subject =",
        ),
        ({"a__txt": '+++\nsubject = "a\\nb"\n+++\nb'}, "a.txt: it has no one-line subject", ""),
        ({"a__txt": "+++\nsubject = 1\n+++\nb"}, "a.txt: subject is not a quoted string", ""),
        (
            {"a__txt": "+++\nsubject = 'x'\npriority = true\n+++\nb"},
            "a.txt: priority is not a whole number",
            "",
        ),
        ({"a__txt": "+++\n\nsubject = x\n+++\nb"}, "a.txt: Invalid value (at line 3", "TOML"),
        ({"a__txt": "+++\nsubject = 'x'\nb"}, "a.txt: its front matter has no end", "+++"),
        ({"a__txt": "Hello"}, "a.txt: it has no front matter", "+++"),
        (
            {"a__txt": f"{FRONT}a", "a__html": f"{FRONT}b"},
            "a.txt: a.html has front matter too",
            "one",
        ),
        ({"a__txt": FRONT}, "a.txt: it contains no text", "text part"),
        ({"a__html": f"{FRONT}<img src=x>"}, "a.html: it contains no text", "text part"),
        ({"a__txt": b"+++\nsubject = 'x'\n+++\n\xff"}, "a.txt: it is not UTF-8 (byte 22)", "UTF-8"),
        ({"a__txt": f"{FRONT}a\0b"}, "a.txt: it holds a NUL character", ""),
        ({"a__txt": FRONT + "x" * 600_000}, "a.txt: it is larger than 512 KiB", ""),
        ({"a b__txt": f"{FRONT}b"}, "a b.txt: 'a b' cannot be the name", ""),
        (
            {"a__txt": '+++\nsubject = "x"\nlocale = "English"\n+++\nb'},
            "a.txt: 'English' is not a locale",
            "",
        ),
        (
            {"a__txt": f"{FRONT}b", "a__en__txt": f"{FRONT}b"},
            "a.txt: 'en' is not a locale, or is used twice",
            "",
        ),
        (
            {"a__txt": "+++\nsubject = 'x'\nrequired_variables = ['nmae']\n+++\n{{ name }}"},
            "a.txt: required_variables has 'nmae', which is not used",
            "mean 'name'?",
        ),
        (
            {"a__txt": "+++\nsubject = 'x'\n[sample]\nb = 1\n+++\n{{ name }}{{ b }}"},
            "a.txt: the sample lacks 'name'",
            "[sample]",
        ),
        (
            {"a__txt": "+++\nsubject = 'x'\n[sample]\nb = 0\n+++\n{{ 1 / b }}"},
            "a.txt, line 6: invalid operation in `1 / b` (rendered with the sample)",
            "",
        ),
        (
            {"a__txt": "+++\nsubject = 'x'\n[sample]\nb = 2020-01-01\n+++\n{{ b }}"},
            "it holds a date",
            "",
        ),
        (
            {"a__txt": f"{FRONT}{{% if b.c is defined and b is defined %}}{{% endif %}}"},
            "a.txt, line 4: `b` is undefined (rendered with an empty payload)",
            "",
        ),
        (
            {"a__html": f"{FRONT}<p>x</p><style>{{% if y %}}</style>z{{% endif %}}"},
            "a (en), text, line",
            ".txt file",
        ),
        ({}, "there are no templates", "welcome_user.html"),
    ],
)
def test_bad_template_files_are_refused(
    write: Write, files: dict[str, Any], said: str, hint: str
) -> None:
    what, do = refusal(write(**files))
    assert said in what
    assert hint in do
    assert do
    assert "\n" not in what + do


def test_a_missing_template_file_is_a_clear_error(tmp_path: Path) -> None:
    for name in ("none", "none.html", "none.md"):
        assert refusal(tmp_path / name)[0].endswith(": there is no such template file")


def test_a_template_defined_twice_is_refused(write: Write) -> None:
    directory = write(a__txt=f"{FRONT}b")
    with pytest.raises(InvalidTemplate, match="'a' is defined twice"):
        read_templates([directory, directory / "a.txt"])


# Required variables.


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("{{ a }}", "a"),
        ("{{ a | default('x') }}", ""),
        ("{{ a|d('x') }}{{ a }}", "a"),
        ("{% if a is defined %}{{ a }}{% endif %}", ""),
        ("{% if a is not undefined %}{{ a }}{% endif %}", ""),
        ("{% if a %}{% endif %}", "a"),
        ("{{ a.b | default('x') }}", "a"),
        ("{{ a.b }}{{ x.a | default(1) }}{{ x is defined }}", "a"),
        ("{% for a in b %}{{ a }}{{ loop.index }}{% endfor %}", "b"),
        ("{% set a = 1 %}{{ a }}{{ range(3) | list }}", ""),
        ("{{ 'b' }}{{ a }} b {# {{ c }} #}{% raw %}{{ d }}{% endraw %}", "a"),
        ("{% macro m(x) %}{{ x }}{{ y }}{% endmacro %}{{ m(x=z) }}", "y z"),
        ("{{ title | default('x') | title }}", ""),
        ("{{ a == b }}{{ c ~ d }}", "a b c d"),
        ("{{ items }}{{ keys | default('') }}", "items"),
    ],
)
def test_required_variables_are_derived_from_the_source(text: str, required: str) -> None:
    draft = Draft("a", {"en": Content("Hi", text)})
    assert draft.derived_variables() == required.split()


def test_every_part_and_language_is_read_for_variables() -> None:
    contents = {"en": Content("{{ a }}", "{{ b }}", "{{ c }}"), "pt": Content("Oi", "{{ d }}")}
    assert Draft("a", contents).derived_variables() == ["a", "b", "c", "d"]
    # Asked for in one part, taken for granted in another.
    asked = Content("{{ a }}", "{% if a is defined %}{{ a }}{% endif %}")
    assert Draft("a", {"en": asked}).derived_variables() == ["a"]


def test_required_variables_can_be_given(write: Write) -> None:
    front = '+++\nsubject = "Hi"\nrequired_variables = ["a"]\n+++\n'
    draft = one(write(a__txt=front + "{{ a }}{% if b is defined %}{{ c }}{% endif %}"))
    assert draft.settings["required_variables"] == ["a"]


# Back into files.


def test_templates_written_to_files_are_read_back_unchanged(write: Write, tmp_path: Path) -> None:
    directory = write(
        receipt__html=FULL,
        receipt__pt__txt='+++\nsubject = "Olá \\"{{ name }}\\" \\u007f"\n+++\n{{ name }}',
        order__txt=f"{FRONT}a",
        order__new__txt='+++\ntemplate = "order.new"\nsubject = "Hi"\nlocale = "de"\n+++\nc',
        guarded__txt='+++\nsubject = "Hi"\nrequired_variables = []\n+++\n{{ a }}',
    )
    (directory / "guarded.txt").write_text(
        '+++\nsubject = "Hi"\nrequired_variables = ["a"]\n+++\n{{ a }}{{ b | default(c) }}'
    )
    drafts = read_templates([directory])
    written = write_templates(drafts, tmp_path / "new" / "place")
    again = read_templates([tmp_path / "new" / "place"])
    assert [(d.name, d.contents, d.settings) for d in again] == [
        (d.name, d.contents, d.settings) for d in drafts
    ]
    assert len(written) == 6
    assert write_templates(again, tmp_path / "new" / "place") == []


def test_writing_templates_does_not_overwrite_other_files(write: Write, tmp_path: Path) -> None:
    drafts = read_templates([write(a__txt=f"{FRONT}a", b__txt=f"{FRONT}b")])
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(InvalidTemplate, match=r"a\.txt would be overwritten"):
        write_templates(drafts, tmp_path)
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert not (tmp_path / "b.txt").exists()
    assert len(write_templates(drafts, tmp_path, force=True)) == 2
