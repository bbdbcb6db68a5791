"""However large, deep or endless: what a template makes of a payload has bounds."""

from __future__ import annotations

from typing import Any

import pytest

from mailgres.errors import TemplateFailed
from mailgres.templates import Content, Template, render
from support.rendering import SECRET, content, failure, html_of, text_of


def nested(levels: int) -> Any:
    value: Any = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("levels", [65, 1000, 100_000])
@pytest.mark.parametrize("source", ["{{ v }}", "{{ v | tojson }}", "nothing"])
def test_a_deep_payload_is_a_fault_and_not_a_crash(levels: int, source: str) -> None:
    said = "payload: it is nested more than 64 levels deep"
    assert failure(source, {"v": nested(levels)}) == said


def test_a_payload_may_be_nested() -> None:
    assert text_of("{{ v | tojson }}", v=nested(64)).count("x") == 1


def test_a_payload_may_be_json() -> None:
    text = Template({"en": content("{{ n }}"), "pt": content("pt")})
    assert text.render('{"n": 1}').text == "1\n"
    assert text.render('{"locale": "pt"}').text == "pt\n"
    assert "nested" in failure("x", '{"v":' + "[" * 100_000 + "]" * 100_000 + "}")
    assert failure("x", f"[{SECRET}") == "payload: it is not JSON"
    assert failure("x", "[]") == "payload: it is not a JSON object"


def test_payloads_with_other_than_json_values_are_refused() -> None:
    said = "payload: it holds a object, which is not a JSON value"
    assert failure("x", {"v": object()}) == said


def test_a_long_value_is_rendered() -> None:
    value = "x" * 1_000_000
    made = render({"en": Content("Hi", "{{ v }}", "<p>{{ v }}</p>")}, {"v": value})
    assert made.html == f"<p>{value}</p>"
    assert made.text == f"{value}\n"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in l %}{% for j in l %}{% for k in l %}x{% endfor %}{% endfor %}{% endfor %}",
    ],
)
def test_an_endless_loop_runs_out_of_fuel(source: str) -> None:
    said = "text, line 1: it does not come to an end within 200000 steps"
    assert failure(source, {"l": [1] * 1000}) == said


def test_an_endless_recursion_of_a_macro_is_an_error() -> None:
    said = failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", {})
    assert said.startswith("text, line 1: invalid operation")


def test_a_thousand_lines_are_rendered() -> None:
    rows = [{"name": f"article {n}", "price": n} for n in range(1000)]
    source = "{% for r in rows %}{{ loop.index }} {{ r.name }} {{ r.price }}\n{% endfor %}"
    assert text_of(source, rows=rows).endswith("1000 article 999 999")


@pytest.mark.parametrize(
    ("source", "payload"),
    [
        ("{% for i in range(3000) %}{{ v }}{% endfor %}", {"v": "x" * 1_000_000}),
        ("{% for i in range(3000) %}{{ v }}{% endfor %}", {"v": ["x" * 1_000_000]}),
        ("{% for i in range(3000) %}{{ v }}{% endfor %}", {"v": "x" * 1000}),
        ("{{ 'x' * 1000001 }}" * 2, {}),
    ],
)
def test_a_huge_output_is_refused(source: str, payload: dict[str, Any]) -> None:
    assert failure(source, payload) == "text: it becomes longer than 1048576 bytes"


def test_bytes_are_counted_and_not_characters() -> None:
    assert "longer than" in failure("{{ v }}", {"v": "é" * 600_000})


def test_html_may_be_twice_as_long() -> None:
    assert len(html_of("{{ v }}{{ v }}", v="x" * 1_000_000)) == 2_000_000
    with pytest.raises(TemplateFailed, match="html: it becomes longer than 2097152 bytes"):
        html_of("{{ v }}", v="<" * 600_000)
