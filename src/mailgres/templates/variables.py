"""Read a template's source: which variables it needs, and which names in it do not exist.

minijinja lists the variables of a template, but not whether it could do without one. That is read
from the source: a part can do without a variable if it asks whether it is defined, or gives it a
default wherever it is used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from minijinja import Environment, TemplateError

from mailgres.templates.fault import Fault

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from mailgres.templates.content import Content

_STRING = r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
_REST = r"[\"'].*+"  # an unterminated string
TAG = re.compile(
    r"\{%-?\s*+raw\s*+-?%\}(?:.*?\{%-?\s*+endraw\s*+-?%\}|.*+)"
    r"|\{#.*?#\}"
    rf"|\{{\{{(?>{_STRING}|{_REST}|(?!\}}\}}).)*+\}}\}}"
    rf"|\{{%(?>{_STRING}|{_REST}|(?!%\}}).)*+%\}}"
    r"|\{[{%#].*+",
    re.DOTALL,
)
"""A piece of a template that is not text: an expression, a statement, a comment, a raw block.

An unclosed tag extends to the end of the source.
"""

_RAW = re.compile(r"\{%-?\s*raw\b")
_FILTER = re.compile(r"(?<!\|)\|\s*([A-Za-z_]\w*)")
_TEST = re.compile(r"\bis\s+(?:not\s+)?([A-Za-z_]\w*)")
_CALL = re.compile(r"(?<![\w.|])(?<!\|\s)([A-Za-z_]\w*)\s*\(")
_ASKED = r"\s+is\s+(?:not\s+)?(?:un)?defined\b"
_DEFAULTED = r"\s*\|\s*d(?:efault)?\b"

BLANK = Environment()


def required_variables(content: Content, used: Iterable[str]) -> set[str]:
    """Return the used variables without which the content cannot be rendered."""
    code = [_code(source) for source in content.parts().values()]
    return {name for name in used if any(_needs(part, name) for part in code)}


def _needs(code: str, name: str) -> bool:
    variable = rf"(?<![\w.|])(?<!\|\s){re.escape(name)}(?!\w|\s*=[^=])"
    uses = len(re.findall(variable, code))
    if not uses or re.search(variable + _ASKED, code):
        return False
    return len(re.findall(variable + _DEFAULTED, code)) < uses


def check_names(part: str, source: str, variables: Container[str]) -> None:
    """Refuse filters, tests and functions that do not exist.

    minijinja would notice only when it executes them. A variable cannot be called: JSON has no
    functions.
    """
    for tag in _tags(source):
        for kind, name in _unknown(_without_strings(tag[0]), variables):
            line = source.count("\n", 0, tag.start()) + 1
            raise Fault(part, f"there is no {kind} `{name}`", line)


def _unknown(code: str, variables: Container[str]) -> Iterator[tuple[str, str]]:
    for name in _FILTER.findall(code):
        if _is_unknown(f"x|{name}", "UnknownFilter"):
            yield "filter", name
    for name in _TEST.findall(code):
        if _is_unknown(f"x is {name}", "UnknownTest"):
            yield "test", name
    for name in _CALL.findall(code):
        if name in variables:
            yield "function", name


def _is_unknown(expression: str, kind: str) -> bool:
    try:
        BLANK.eval_expr(expression, x="")
    except TemplateError as error:
        return error.kind == kind
    return False


def _tags(source: str) -> Iterator[re.Match[str]]:
    for tag in TAG.finditer(source):
        if not tag[0].startswith("{#") and not _RAW.match(tag[0]):
            yield tag


def _code(source: str) -> str:
    """Return the code of a template, one tag in a line, without its string literals."""
    return "\n".join(_without_strings(tag[0]) for tag in _tags(source))


def _without_strings(code: str) -> str:
    return re.sub(_STRING, '""', code, flags=re.DOTALL)
