"""`pip install` of the wheel file and `mailgres migrate` work with no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mailgres import __version__, resources

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "runtime.txt"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a program that knows nothing about this checkout's environment."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command, cwd=cwd, env=environ | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist, so that both are complete."""
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, ROOT, cwd=target)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console script in an environment with the wheel and the locked packages."""
    place = tmp_path_factory.mktemp("elsewhere")
    run(sys.executable, "-m", "venv", "venv", cwd=place)
    python = place / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--require-hashes", "--requirement", LOCK, cwd=place)
    run(python, "-m", "pip", "install", "--no-deps", wheel, cwd=place)
    run(python, "-m", "pip", "check", cwd=place)
    return python.with_name("mailgres")


def files(name: str) -> set[str]:
    tree = (path for path in (ROOT / name).rglob("*") if path.is_file())
    return {
        f"mailgres/{path.relative_to(ROOT).as_posix()}"
        for path in tree
        if "__pycache__" not in path.parts
    }


def package_files() -> set[str]:
    """The files of the package: pages, styles, scripts and queries, too."""
    tree = (path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.is_file())
    return {path.as_posix() for path in tree if "__pycache__" not in path.parts}


def test_the_wheel_contains_the_package_sql_and_migrations(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert package_files() <= names
    assert files("sql") <= names
    assert files("migrations") <= names
    assert "mailgres/py.typed" in names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"mailgres", f"mailgres-{__version__}.dist-info"}


def test_the_wheel_migrates_a_database(program: Path, empty_database_url: str) -> None:
    elsewhere = program.parents[2]
    created = run(program, "migrate", cwd=elsewhere, DATABASE_URL=empty_database_url)
    assert created == f"Created the schema at {resources.schema_revision()}.\n"
    run(program, "migrate", "--check", cwd=elsewhere, DATABASE_URL=empty_database_url)


def test_the_wheel_prints_the_sql_and_the_runbook(program: Path) -> None:
    assert "provider" in run(program, "alerts", "explain", "circuit_open", cwd=program.parent)
    assert "CREATE TABLE public.email_queue" in run(program, "migrate", "--sql", cwd=program.parent)
