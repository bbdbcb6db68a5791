"""How mailgres is installed: nothing names a package of an index that is not ours."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from mailgres.cli.commands.serve import OF_THE_EXTRA

ROOT = Path(__file__).parent.parent.parent
BY_NAME = re.compile(
    r"""\b(?:pip3?|pipx|uv\ pip|uv\ tool|conda)\ install\b[^\n`]*?[\s'"]mailgres(?![\w/.-])
      | \b(?:uv|poetry|pdm)\ add\b[^\n`]*?[\s'"]mailgres(?![\w/.-])
      | \buvx\ mailgres\b""",
    re.VERBOSE,
)
"""Commands that install a package of this name from an index."""
PLACES = (
    *("*.md", "Makefile", "pyproject.toml", ".ci/*", "docs/**/*", "deploy/**/*", "sql/**/*.sql"),
    *("src/**/*.py", "scripts/**/*", "benchmarks/**/*.md", "tests/**/*.py"),
)


def named(text: str) -> list[str]:
    return [found.group() for found in BY_NAME.finditer(text)]


def test_no_file_says_to_install_mailgres_from_an_index() -> None:
    files = [path for place in PLACES for path in sorted(ROOT.glob(place)) if path.is_file()]
    assert len(files) > 300
    found = {}
    for file in files:
        lines = named(file.read_text(encoding="utf-8", errors="replace"))
        if lines and file != Path(__file__):
            found[file.relative_to(ROOT).as_posix()] = lines
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "pip install mailgres",
        "pip install -U mailgres",
        "pip install 'mailgres[http]'",
        "/opt/mailgres/bin/pip install mailgres",
        "python -m pip install --upgrade mailgres==1.0",
        "uvx mailgres",
        "uv add 'mailgres[ses]'",
        "pipx install mailgres",
    ],
)
def test_an_installation_by_name_is_recognized(text: str) -> None:
    assert named(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install .",
        "/opt/mailgres/bin/pip install '.[http]'",
        "pip install mailgres-0.1.0-py3-none-any.whl",
        "pip install dist/mailgres-0.1.0-py3-none-any.whl",
        "pip install /path/to/mailgres/checkout",
    ],
)
def test_an_installation_from_a_checkout_or_a_wheel_file_is_none_by_name(text: str) -> None:
    assert not named(text)


def test_hints_about_a_missing_package_name_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        extra: [re.split(r"[<>=\[]", package)[0] for package in packages]
        for extra, packages in project["optional-dependencies"].items()
    }
    (boto, cryptography) = extras["ses"]
    of_events = (ROOT / "src/mailgres/webhooks/sns.py").read_text(encoding="utf-8")
    assert f'"pip install {cryptography}"' in of_events
    extras["ses"] = [boto]  # the provider needs this one only
    hints = {
        "ses": "src/mailgres/providers/ses/__init__.py",
        "embedded": "src/mailgres/embedded/binaries.py",
        "http": "src/mailgres/cli/commands/serve.py",
    }
    for extra, file in hints.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"pip install {' '.join(extras[extra])}" in text
    assert set(extras["http"]) == OF_THE_EXTRA
