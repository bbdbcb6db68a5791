"""Phrases that readers had to read twice do not come back: each has a better one."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FILES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "deploy/**/*.*",
    "benchmarks/*.md",
    "benchmarks/**/*.py",
    "scripts/*.py",
    "src/**/*.py",
    "src/**/*.sql",
    "sql/**/*.sql",
    "tests/**/*.py",
)
VERBATIM = ("tests/docs/test_words.py", "tests/monitoring/test_verbatim.py")
"""Files that quote phrases."""


class Phrase(NamedTuple):
    """What must not be written, as a pattern, and what to write instead."""

    pattern: str
    better: str


PHRASES = (
    # One word for each thing.
    Phrase(r"(?<!re)tries", "attempts"),
    Phrase(r"(?:a|the|this|that|each|every|first|last|next|earlier|further|one|no) try", "attempt"),
    Phrase(r"mend(?:s|ed|ing)?", "fix"),
    Phrase(r"repetitions?", "retry"),
    Phrase(r"deaths?", "dead letter; an email dies"),
    Phrase(r"(?:are|is|be|was) given up", "dead, expired"),
    Phrase(r"leases? (?:ends?|ended|comes? back|runs? out|begins? anew)", "the lease expires"),
    Phrase(r"lengthen(?:s|ed|ing)?", "extend"),
    Phrase(r"stand-ins?|stands? in for", "fallback"),
    Phrase(r"(?:those|the one) who send", "provider"),
    Phrase(r"way out of the queue", "route"),
    Phrase(r"(?:are|is) led|leads? (?:no|along|emails)", "a route sends, uses"),
    Phrase(r"dut(?:y|ies)|sweeps?", "janitor"),
    Phrase(r"forgets? (?:workers|emails|counts|rollups)|trimmed", "delete, remove, expire"),
    Phrase(r"set-up (?:is|needs|to be)|sender's set-up", "configuration"),
    # Sending a notification, writing a log line, returning a value.
    Phrase(r"(?:be|is|are|was|were|been) told", "notify, log, get, be configured"),
    Phrase(r"tells? (?:of|who|that|whether|the|a|an|it|in)", "notify, log, say, return"),
    Phrase(r"told (?:of|that|by|to|in|without)|untold", "notified, logged"),
    Phrase(r"(?:alert|rule) (?:is over|tells)", "the alert resolves, fires"),
    Phrase(r"(?:old|the|no|with|of|take) news|news (?:of|are|is)", "notifications"),
    # A noun before every "who" and "what"; it for processes.
    Phrase(
        r"(?-i:Whoever)|(?:[:;] |and |by |for |of |to )whoever", "a noun: the caller, a session"
    ),
    Phrase(r"he|him|his|himself", "the worker, the caller, the session"),
    Phrase(r"somebody", "someone, or a noun: another session, an operator"),
    Phrase(r"what nobody|what somebody|who was to|nobody may do", "a noun"),
    Phrase(r"(?<=\. )who (?:is|was|has|had|cannot|can|may|must)", "a noun: an email that …"),
    # Docstrings of functions begin with a verb; failures and states have a subject.
    Phrase(r"(?:is|are) at it", "is running, holds the lock"),
    Phrase(r"of one's own|of his own", "its own, a separate"),
    Phrase(r"hears? of|heard of", "gets a notification, notices"),
    Phrase(r"makes? no storm|what comes and goes", "causes no flood"),
    Phrase(r"(?<!there )is no (?:threshold|severity|policy|route|tenant|option)", "is not a …"),
    Phrase(r"twice arrives|arrives? only what", "subject first"),
    # Riddles.
    Phrase(r"(?<!there )is no (?:setting|number|filter|mistake|name|kind|one)", "is not a …"),
    Phrase(r"so (?:many|much) of the|for so long|as long as (?:he|one) likes", "at most N"),
    Phrase(r"for ever", "forever, indefinitely"),
    Phrase(
        r"(?<!often )as they come|in the hands of|nothing leaves|cannot be had|may be had",
        "plain words",
    ),
    Phrase(r"see and steer|ask the queue", "operate, views"),
    Phrase(r"unreached|no rule knows", "could not connect, unknown"),
    Phrase(r"(?:whether|if) it is back", "a probe, a check"),
)
NOT_VERBS = "A|All|An|Every|How|Its|No|Nothing|One|That|The|What|Where|Whether|Which|Who|Whose|Why"
EVERY = re.compile(
    "|".join(rf"(?P<p{number}>(?<!\w)(?:{each.pattern})\b)" for number, each in enumerate(PHRASES)),
    re.IGNORECASE,
)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that people read: of Python files, comments and strings."""
    text = path.read_text(encoding="utf-8")
    if path.name == "CHANGELOG.md":
        text = re.split(r"^## \[?\d", text, flags=re.MULTILINE)[0]
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            yield from enumerate(token.string.splitlines(), token.start[0])


def found_in(path: Path) -> Iterator[str]:
    """Yield each phrase with its place, its line and the better words."""
    for number, line in prose(path):
        for match in EVERY.finditer(line):
            better = PHRASES[int(str(match.lastgroup)[1:])].better
            place = f"{path.relative_to(ROOT)}:{number}"
            yield f"{place}: {match[0]!r}, better: {better}\n    {line.strip()}"


def checked() -> list[Path]:
    files = sorted({path for pattern in FILES for path in ROOT.glob(pattern) if path.is_file()})
    return [path for path in files if not str(path).endswith(VERBATIM)]


def test_no_replaced_phrase_is_used_again() -> None:
    found = [each for path in checked() for each in found_in(path)]
    assert not found, f"{len(found)} phrases:\n" + "\n".join(found)


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """Properties are named by nouns, and so are their docstrings."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
                "property" in ast.unparse(each) for each in node.decorator_list
            ):
                text = ast.get_docstring(node) or ""
                if re.match(rf"(?:{NOT_VERBS})\b", text) and node.name != "main":
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text.splitlines()[0]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "who was to try whether it is back makes room for another",
        "MAILGRES_PYTHON in the environment is no setting",
        "after an hour news are none",
        "waiting for the sender's set-up to be mended",
        "So many of the tries that ended lately failed",
        "What nobody will look at may be raised",
    ],
)
def test_phrases_of_earlier_versions_are_found(line: str) -> None:
    assert EVERY.search(line)


@pytest.mark.parametrize(
    "line", ["there is no setting", "it retries", "Try again later.", "the shell tells them apart"]
)
def test_plain_sentences_are_not_found(line: str) -> None:
    assert not EVERY.search(line)
