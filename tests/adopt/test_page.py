"""docs/moving-in.md shows what the commands print."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support.program import Program

PAGE = Path(__file__).parents[2] / "docs" / "moving-in.md"
BLOCKS = re.findall(
    r"^<!-- ([\w-]+) -->\n```console\n\$ mailgres ([^\n]*)\n(.*?)^```$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)


def test_the_page_on_moving_in_has_an_example_of_each_known_queue() -> None:
    shapes = {shape for shape, _, _ in BLOCKS}
    assert shapes >= {"failed-is-final", "lovable-pgmq", "django-post-office"}


@pytest.mark.parametrize("block", BLOCKS)
def test_the_page_on_moving_in_shows_what_the_commands_print(
    load: Callable[[str], str],
    load_beside: Callable[[str], str],
    tmp_path: Path,
    block: tuple[str, str, str],
) -> None:
    shape, command, output = block
    file = tmp_path / "adopt.toml"
    arguments = command.split()
    if arguments[0] == "adopt":
        arguments += ["--file", str(file)]
    moves = arguments[0] == "adopt" and not {"--inspect", "--dry-run"} & set(arguments)
    program = Program((load_beside if moves else load)(shape))
    if moves or "--dry-run" in arguments:
        program("adopt", "--inspect", "--file", str(file))
    if moves:
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace('= "?"', '= "unknown"'), encoding="utf-8")
    if "--undo" in arguments:
        program("adopt", "--old", "leave", "--file", str(file))
    printed = program(*arguments).replace(str(file), "adopt.toml")
    lines = [line.rstrip() for line in printed.splitlines()]
    # A line of dots on the page leaves something out.
    parts = [
        part.strip("\n").splitlines() for part in re.split(r"^…\n", output, flags=re.MULTILINE)
    ]
    at = 0
    for part in parts:
        at = find(part, lines, at)
    if not output.rstrip().endswith("…"):
        assert at == len(lines), "the page ends before the output does"


def find(part: list[str], lines: list[str], start: int) -> int:
    """Where lines of the page end in the output."""
    for at in range(start, len(lines) - len(part) + 1):
        if lines[at : at + len(part)] == part:
            return at + len(part)
    pytest.fail("not printed:\n" + "\n".join(part) + "\n\nbut:\n" + "\n".join(lines[start:]))
