"""What deploy/ holds, and whether the commands and settings in it exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from mailgres.cli import main

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROGRAM = "/opt/mailgres/bin/mailgres"
"""Where the guides install it."""

_CALL = re.compile(
    r"(?:^\s*|&& |; |\{ |/bin/|exec \w+ )mailgres ([a-z][^;&|>`)\n#{]*)", re.MULTILINE
)


def read(*names: str) -> str:
    """The text of a file of deploy/."""
    return DEPLOY.joinpath(*names).read_text(encoding="utf-8")


def code(file: Path) -> str:
    """Return what of a file is code: of a page, its blocks, and what is in backquotes."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".md":
        return re.sub(r"^(#|--).*$", "", text, flags=re.MULTILINE)
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    return "\n".join([*blocks, *inline])


def calls(text: str) -> list[list[str]]:
    """The arguments of every call of mailgres in a text."""
    return [shlex.split(found) for found in _CALL.findall(text)]


def check_call(words: list[str]) -> None:
    """Assert that a command and its options exist."""
    command: click.Command = main
    options: set[str] = set()
    for word in words:
        if word.startswith("-"):
            options.add(word.partition("=")[0])
        elif isinstance(command, click.Group):
            found = command.get_command(click.Context(command, **command.context_settings), word)
            assert found, f"mailgres {' '.join(words)}: no {word}"
            command = found
    known = {name for one in command.params for name in one.opts}
    assert options <= known, f"mailgres {' '.join(words)}: no {options - known}"
