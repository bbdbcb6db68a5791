"""The guides of deploy/: what they name is there, and nothing in them is secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.files import DEPLOY, ROOT, calls, check_call, code, read
from mailgres.settings import DEFINITIONS

WAYS = sorted(path.name for path in DEPLOY.iterdir() if path.is_dir())
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
PAGES = [path for path in FILES if path.suffix == ".md"]
SECRETS = re.compile(r"eyJ[\w-]{10,}|re_\w{8,}|Bearer [\w.~+/-]{8,}|AKIA\w{8,}|sb_secret_\w+")


IN_ARGUMENTS = re.compile(
    r"--database-url|_DATABASE_URL\"|-e \w+=|--env \w+=|PASSWORD '\w|PGPASSWORD=\w|psql \S*://"
)
"""What would show a secret to everybody who lists processes, or in a log of statements."""


def name(path: Path) -> str:
    return path.relative_to(DEPLOY).as_posix()


def test_every_way_has_its_steps_and_is_in_the_table() -> None:
    table = read("README.md")
    for way in WAYS:
        assert (DEPLOY / way / "README.md").is_file()
        assert f"({way}/README.md)" in table


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_of_the_guides_exists(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_is_named_is_there(page: Path) -> None:
    for path in re.findall(r"\bdeploy/[\w./-]+\w", page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists() or list(ROOT.glob(f"{path}*")), path


@pytest.mark.parametrize("file", FILES, ids=name)
def test_every_command_and_option_exists(file: Path) -> None:
    for words in calls(code(file)):
        check_call(words)


def test_the_calls_in_the_guides_are_found() -> None:
    """Otherwise the test above would say nothing."""
    found = {name(file): [words[0] for words in calls(code(file))] for file in FILES}
    assert found["cron/mailgres"] == ["process", "janitor"]
    assert found["systemd/mailgres-process.service"] == ["process", "janitor"]
    assert found["systemd/mailgres-worker.service"] == ["worker"]
    assert {"migrate", "worker", "serve", "process"} <= set(found["supabase/README.md"])
    with pytest.raises(AssertionError, match="--nothing"):
        check_call(["process", "--nothing"])
    with pytest.raises(AssertionError, match="no reign"):
        check_call(["reign"])


@pytest.mark.parametrize("file", FILES, ids=name)
def test_every_setting_in_the_guides_exists(file: Path) -> None:
    known = {variable for one in DEFINITIONS.values() for variable in one.variables}
    used = set(re.findall(r"\bMAILGRES_[A-Z_]+\b", file.read_text(encoding="utf-8")))
    assert used - known == set()


@pytest.mark.parametrize("file", FILES, ids=name)
def test_the_guides_hold_no_secret(file: Path) -> None:
    assert not SECRETS.search(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", FILES, ids=name)
def test_no_command_has_a_secret_among_its_arguments(file: Path) -> None:
    assert not IN_ARGUMENTS.search(code(file))


@pytest.mark.parametrize("way", ["cron", "systemd"])
def test_only_migrate_reads_the_password_of_the_owner(way: str) -> None:
    guide = read(way, "README.md")
    assert "(set -a && . /etc/mailgres-migrate.env && /opt/mailgres/bin/mailgres migrate)" in guide
    assert "install -m 600 deploy/mailgres-migrate.env.example" in guide
    for file in (DEPLOY / way).iterdir():
        if file.suffix != ".md":
            assert "mailgres-migrate" not in file.read_text(encoding="utf-8")
