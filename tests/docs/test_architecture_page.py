"""docs/architecture.md: paths exist, recipes are complete, tables are those of the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATH = re.compile(r"`((?:sql|src|tests|docs|migrations)/[\w./-]*|pyproject\.toml)`")
GENERATED = {"src/mailgres/doctor/schema.json"}
SOURCES = [
    path
    for folder in ("sql", "src")
    for path in (ROOT / folder).rglob("*.*")
    if path.suffix in {".py", ".sql", ".json"}
]
RECIPES = {part.partition("\n")[0]: part.partition("\n## ")[0] for part in PAGE.split("\n### ")[1:]}
EXAMPLES = {
    "Add a provider": r"providers[./]smtp\b",
    "Add a setting": r"\balert_webhook\b",
    "Add a view": r"\bemail_throughput\b",
    "Add an alert rule": r"\bjanitor_failing\b",
    "Add a command": r'"senders"|-- \w*senders? --|\b(?:dis)?allow_sender\b',
    "Add a field of an email": r"\balso_to\b",
    "Add a status": r"""['"]cancelled['"]""",
    "Add an endpoint of the HTTP service": r"\breadyz\b",
    "Add an event of a provider": r"\bemail\.delivery_delayed\b",
    "Change the retry formula": r"\bretry_delay\(",
    "Find why an email died": r"\.dead_reason :=|[ ,]dead_reason = (?:'|CASE|coalesce)",
}
"""What finds the example of each recipe in the sources."""
WRITES = r"^(?! *--).*\b(?:INSERT INTO|UPDATE|DELETE FROM) public\.email_queue\b"
LAYERS = "imports point one way"


def names_path(text: str, path: str) -> bool:
    """Return whether a text names a file, or a directory that it is in."""
    return any(
        path == named or (named.endswith("/") and path.startswith(named))
        for named in PATH.findall(text)
    )


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_every_path_of_the_page_exists() -> None:
    missing = [path for path in PATH.findall(PAGE) if not (ROOT / path).exists()]
    assert missing == []


def test_every_recipe_has_an_example() -> None:
    assert set(RECIPES) == set(EXAMPLES)


@pytest.mark.parametrize("recipe", EXAMPLES)
def test_a_recipe_names_every_file_that_has_its_example(recipe: str) -> None:
    pattern = re.compile(EXAMPLES[recipe])
    found = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if pattern.search(path.read_text(encoding="utf-8"))
    }
    assert found - GENERATED, "the example is gone: choose another"
    assert {path for path in found - GENERATED if not names_path(RECIPES[recipe], path)} == set()


@pytest.mark.parametrize("recipe", [name for name in EXAMPLES if name.startswith("Add")])
def test_a_recipe_names_the_tests_that_fail_until_it_is_done(recipe: str) -> None:
    assert re.search(r"Tests that fail until then:\s+`tests/", RECIPES[recipe])


def test_every_writer_of_the_queue_is_listed() -> None:
    writers = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.suffix == ".sql" and re.search(WRITES, path.read_text("utf-8"), re.MULTILINE)
    }
    listed = section("What may touch what")
    assert {path for path in writers if not names_path(listed, path)} == set()


def test_every_trigger_of_the_queue_is_listed(conn: psycopg.Connection) -> None:
    triggers = conn.execute(
        "SELECT tgname FROM pg_trigger"
        " WHERE tgrelid = 'public.email_queue'::regclass AND NOT tgisinternal"
    )
    listed = section("What may touch what")
    assert {name for (name,) in triggers if f"`{name}`" not in listed} == set()


def test_the_layers_are_those_that_are_checked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["name"] == LAYERS)
    shown = re.findall(r"^\| \d+ \| (.*) \|$", section("Packages"), re.MULTILINE)
    assert [set(re.findall(r"\w+", row)) for row in shown] == [
        set(re.findall(r"\w+", layer)) for layer in layers
    ]


def test_every_directory_of_the_sql_is_explained() -> None:
    rooms = {
        f"{path.parent.relative_to(ROOT)}/" for path in SOURCES if path.is_relative_to(ROOT / "sql")
    }
    assert {room for room in rooms if f"| `{room}` |" not in PAGE} == set()


def test_every_function_of_the_walk_is_in_its_file() -> None:
    for name, path in re.findall(
        r"`(\w+)` in `((?:sql|src)/[^`]*[^/`])`", section("The walk of one email")
    ):
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8")), (name, path)
