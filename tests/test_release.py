"""A release: one place for the version, a changelog section, equal builds."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
from pathlib import Path

import pytest

import mailgres
import release

ROOT = Path(__file__).resolve().parents[1]
TODAY = dt.date(2026, 12, 24)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the files that a release changes, as a repository with one commit."""
    place = tmp_path / "checkout"
    for name in (release.VERSION_FILE, release.CHANGELOG, release.RELEASED):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    shutil.copytree(ROOT / "migrations/versions", place / "migrations/versions")
    git("init", "--quiet", cwd=place)
    commit(place)
    return place


def git(*arguments: str, cwd: Path) -> None:
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    subprocess.run(["git", *who, *arguments], cwd=cwd, check=True, capture_output=True)


def commit(place: Path) -> None:
    git("add", "--all", cwd=place)
    git("commit", "--quiet", "--message", "All", cwd=place)


def test_the_version_is_written_in_one_place() -> None:
    assert release.version() == mailgres.__version__
    assert f'"{mailgres.__version__}"' not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_prepare_writes_version_and_section(checkout: Path) -> None:
    log = checkout / release.CHANGELOG
    log.write_text("# Changelog\n\n## [Unreleased]\n\n- A new thing.\n", encoding="utf-8")
    release.prepare(checkout, "9.8.7rc6", TODAY)
    assert release.version(checkout) == "9.8.7rc6"
    assert release.changes(checkout, "9.8.7rc6") == "- A new thing.\n"
    assert "## [Unreleased]\n\n## [9.8.7rc6] - 2026-12-24\n" in log.read_text(encoding="utf-8")


def test_prepare_protects_every_revision(checkout: Path) -> None:
    (checkout / "migrations/versions/0099_more.py").touch()
    release.prepare(checkout, "9.8.7", TODAY)
    listed = (checkout / release.RELEASED).read_text(encoding="utf-8").splitlines()
    assert {"0001_initial", "0099_more"} <= set(listed)
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("wanted", ["1.0", "v1.0.0", "1.0.0-alpha", "1.0.0 ", ""])
def test_prepare_refuses_malformed_versions(checkout: Path, wanted: str) -> None:
    with pytest.raises(release.Refused, match="is not a version"):
        release.prepare(checkout, wanted, TODAY)
    assert release.version(checkout) == mailgres.__version__


def test_prepare_refuses_a_version_twice(checkout: Path) -> None:
    release.prepare(checkout, "9.8.7", TODAY)
    with pytest.raises(release.Refused, match=r"has a section for 9\.8\.7 already"):
        release.prepare(checkout, "9.8.7", TODAY)


def test_build_refuses_uncommitted_changes(checkout: Path, tmp_path: Path) -> None:
    (checkout / "stray").touch()
    with pytest.raises(release.Refused, match="uncommitted changes"):
        release.build(checkout, tmp_path / "dist")


def test_build_refuses_a_version_without_section(checkout: Path, tmp_path: Path) -> None:
    place = checkout / release.VERSION_FILE
    place.write_text('__version__ = "9.8.7"\n', encoding="utf-8")
    commit(checkout)
    with pytest.raises(release.Refused, match=r"has no section for 9\.8\.7"):
        release.build(checkout, tmp_path / "dist")


@pytest.mark.slow
def test_two_builds_are_equal_byte_by_byte(tmp_path: Path) -> None:
    first, second = (release.build_once(ROOT, tmp_path / name) for name in ("one", "another"))
    assert [path.name for path in first] == [path.name for path in second]
    assert [path.suffix for path in first] == [".whl", ".gz"]
    for path, other in zip(first, second, strict=True):
        assert path.read_bytes() == other.read_bytes(), path.name


@pytest.mark.parametrize("name", ["dev", "runtime", "release"])
def test_lock_files_have_hashes_and_no_host(name: str) -> None:
    text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    for entry in text.replace("\\\n", "").splitlines():
        if not entry.startswith("#"):
            assert "==" in entry, entry
            assert "--hash=sha256:" in entry, entry
