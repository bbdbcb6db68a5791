"""No template takes memory without bound.

What cannot be bounded is rendered by a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailgres.templates import isolated
from mailgres.templates.bounds import LIMIT, bounds_of
from mailgres.templates.engine import Compiled
from mailgres.templates.payload import context_of
from support.rendering import SECRET, failure, text_of

LONG = "a" * 1_000_000
TOO_MUCH = "it needs more than 384 MB of memory"
NAMESPACE = "{% set ns = namespace(s='aaaaaaaa', l=[1]) %}"
BOMBS: dict[str, tuple[str, dict[str, Any]]] = {
    "indent": ("{{ v | indent(4000000000) }}", {"v": "a\nb"}),
    "indent, as a filter of map": ("{{ v | map('indent', 4000000000) | list }}", {"v": ["a\nb"]}),
    "indent, in a filter block": ("{% filter indent(4000000000) %}a\nb{% endfilter %}", {}),
    "tojson with an indentation": ("{{ v | tojson(indent=4000000000) }}", {"v": [1]}),
    "replace by a long value": ("{{ v | replace('a', v) }}", {"v": LONG}),
    "join by a long value": ("{{ l | join(v) }}", {"l": [1] * 10_000, "v": LONG}),
    "slice": ("{{ v | slice(4000000000) | list }}", {"v": [1]}),
    "batch": ("{{ v | batch(4000000000, 1) | list }}", {"v": [1]}),
    "format": ("{{ '%4000000000d' | format(1) }}", {}),
    "concatenation": (
        NAMESPACE + "{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        {},
    ),
    "addition of texts": (
        NAMESPACE + "{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
        {},
    ),
    "addition of lists": (
        NAMESPACE + "{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"
        "{{ ns.l | list | length }}",
        {},
    ),
    "lists of the same list": (
        NAMESPACE + "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
        {},
    ),
    "captured blocks": (
        "{% set s = v %}" + "{% set s %}{{ s }}{{ s }}{% endset %}" * 40 + "{{ s }}",
        {"v": "aaaa"},
    ),
    "assignments, one after the other": ("{% set v = v ~ v %}" * 40 + "{{ v }}", {"v": "aaaa"}),
    "macros": (
        "{% macro m0(s) %}{{ s }}{{ s }}{% endmacro %}"
        + "".join(
            f"{{% macro m{n}(s) %}}{{{{ m{n - 1}(m{n - 1}(s)) }}}}{{% endmacro %}}"
            for n in range(1, 8)
        )
        + "{{ m7('aaaa') }}",
        {},
    ),
    "long texts in loops": (
        "{% for i in v %}{% for j in v %}" + "x" * 100_000 + "{% endfor %}{% endfor %}",
        {"v": "a" * 1000},
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_a_fault_of_its_own_email(name: str) -> None:
    source, payload = BOMBS[name]
    said = failure(source, {**payload, "secret": SECRET})
    assert said.startswith(("template: it needs more", "template: it does not", "text"))
    assert text_of("Hello {{ name }}", name="Ana") == "Hello Ana"


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_never_rendered_by_this_process(name: str) -> None:
    source, payload = BOMBS[name]
    bounds = bounds_of([source])
    assert bounds is None or bounds.own_output(context_of(payload).size) > LIMIT


def test_after_a_bomb_the_next_email_gets_a_new_helper() -> None:
    assert failure(*BOMBS["indent"]) == f"template: {TOO_MUCH}"
    assert text_of("{% for i in range(3) %}{{ i }}{% endfor %}") == "012"


def test_an_endless_computation_ends_with_its_helper() -> None:
    """minijinja counts steps, and a sort or a comparison of long lists is one step."""
    parts = {"subject": "s", "text": "{{ range(1) }}"}
    helper = isolated._Helper()
    try:
        helper._process.send_signal(signal.SIGXCPU)
        with pytest.raises(isolated._HelperDied) as caught:
            helper.render(parts, {})
        assert str(isolated._fault_of(caught.value)) == (
            "template: it does not come to an end within 5 seconds"
        )
    finally:
        helper.close()


def test_a_killed_helper_is_replaced() -> None:
    assert text_of("{{ range(2) | list | length }}") == "2"
    helper = isolated._POOL._helper
    assert helper is not None
    helper._process.kill()
    helper._process.wait()
    assert text_of("{{ range(2) | list | length }}") == "2"


def test_errors_from_the_helper_read_like_errors_of_the_worker() -> None:
    source = "{{ range(2) | list | length }}{{ nobody }}"
    assert failure(source, {}) == "text, line 1: `nobody` is undefined"
    assert failure("{{ range(1) }}" + "{{ x }}" * 3, {"x": LONG}).startswith("text: it becomes")


def test_many_threads_share_the_helper() -> None:
    made: dict[int, str] = {}

    def render(number: int) -> None:
        made[number] = text_of("{% for i in range(2) %}{{ n }} {% endfor %}", n=number).strip()

    threads = [threading.Thread(target=render, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == {number: f"{number} {number}" for number in range(20)}


def test_a_forked_process_has_a_helper_of_its_own() -> None:
    assert text_of("{{ range(2) | list | length }}") == "2"
    child = os.fork()
    if child == 0:
        answers = {text_of("{% for i in range(3) %}c{% endfor %}") for _ in range(50)}
        os._exit(0 if answers == {"ccc"} else 1)
    assert {text_of("{% for i in range(3) %}p{% endfor %}") for _ in range(50)} == {"ppp"}
    assert os.waitpid(child, 0)[1] == 0


USES_HELPER = """
import os, sys
from mailgres.templates import Content, render
from mailgres.templates import isolated
render({"en": Content("s", "{{ range(2) | list }}")}, {})
sys.stdout.write(f"{isolated._POOL._helper._process.pid}\\n")
sys.stdout.flush()
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("ending", ["ends", "killed"])
def test_no_helper_outlives_its_process(ending: str, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('planted')")
    done = subprocess.run(
        [sys.executable, "-P", "-c", USES_HELPER, ending],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "DATABASE_URL": f"postgresql://{SECRET}@127.0.0.1/x"},
        text=True,
        check=False,
    )
    helper = int(done.stdout)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{helper}").exists():
        state = Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":  # ended, and its new parent has not reaped it yet
            break
        assert time.monotonic() < deadline, "the helper is still there"
        time.sleep(0.02)


def test_the_helper_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESEND_API_KEY", SECRET)
    helper = isolated._Helper()
    try:
        environment = Path(f"/proc/{helper._process.pid}/environ").read_text()
    finally:
        helper.close()
    assert SECRET not in environment


EXPRESSIONS = """
    {{ a }}
    {{ b.c }}
    {{ l }}
    {{ b }}
    {{ n }}
    {{ d | default('x') }}
    {{ a ~ b.c ~ a }}
    {{ l | join(', ') }}
    {{ a | replace('a', 'bbbb') }}
    {{ a | upper | urlencode }}
    {{ b | tojson }}
    {{ a | escape }}
    {{ a if n > 1 else 'no' }}
    text & <b>
"""
PIECES = st.recursive(
    st.sampled_from(EXPRESSIONS.splitlines()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        inner.map(lambda body: f"{{% for x in l %}}{body}{{{{ x }}}}{{% endfor %}}"),
        inner.map(lambda body: f"{{% for x in a %}}{body}{{% endfor %}}"),
        inner.map(lambda body: f"{{% if a is defined and l %}}{body}{{% else %}}no{{% endif %}}"),
        inner.map(lambda body: f"{{% set s = a ~ a %}}{body}{{{{ s }}}}"),
    ),
    max_leaves=6,
)
TEXTS = st.text(st.sampled_from("ab<\"'&é\u200b\U0010ffff"), max_size=12)


@settings(max_examples=300)
@given(
    PIECES,
    st.fixed_dictionaries(
        {
            "a": TEXTS,
            "b": st.fixed_dictionaries({"c": TEXTS, "e": st.none() | st.floats(allow_nan=False)}),
            "l": st.lists(st.one_of(TEXTS, st.integers(), st.lists(TEXTS, max_size=2)), max_size=6),
            "n": st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
        }
    ),
)
def test_no_output_is_longer_than_its_bound(source: str, payload: dict[str, Any]) -> None:
    bounds = bounds_of([source])
    assert bounds is not None, "all of these are known constructs"
    context = context_of(payload)
    compiled = Compiled({"subject": "s", "html": source})
    try:
        rendered = compiled.render_here(context)["html"]
    except Exception:  # noqa: BLE001 - too long or out of fuel: bounded as well
        return
    assert len(rendered.encode()) <= bounds.output(context.size)


@pytest.mark.parametrize(
    "source",
    [
        "Dear {{ name }},",
        "{{ name | default('friend', true) | title }}",
        "{% for item in order.lines %}{{ loop.index }}: {{ item.price | round(2) }}{% endfor %}",
        "{% for k, v in d.items() %}{{ k }}{{ v }}{% if not loop.last %},{% endif %}{% endfor %}",
        "{{ first ~ ' ' ~ last }}",
        "{% set who = name or 'you' %}{{ who }}",
        "{% if plan in ['free', 'pro'] %}{{ plan }}{% elif plan is divisibleby(3) %}x{% endif %}",
        "{{ tags | join(', ') }} {{ text | replace('-', ' ') }} {# a comment #}",
        "{{ list[0] }} {{ list[1:3] }} {{ (a or b).c }}",
    ],
)  # fmt: skip
def test_usual_templates_are_rendered_by_this_process(source: str) -> None:
    assert Compiled({"subject": "s", "text": source})._quick_size > 1000
