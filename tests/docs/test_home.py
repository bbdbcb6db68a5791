"""The files that the code host reads: workflows, issue forms, the security policy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".github"
BIN = Path(sys.executable).parent


def validate(schema: str, *paths: Path) -> None:
    done = subprocess.run(
        [BIN / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_ci_workflows_are_valid() -> None:
    validate("github-workflows", *(HOME / "workflows").glob("*.yml"))


def test_zizmor_finds_nothing_in_the_ci_workflows() -> None:
    done = subprocess.run(
        [BIN / "zizmor", "--offline", "--no-progress", HOME],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_issue_forms_are_valid() -> None:
    validate(
        "github-issue-forms", HOME / "ISSUE_TEMPLATE/bug.yml", HOME / "ISSUE_TEMPLATE/feature.yml"
    )
    validate("github-issue-config", HOME / "ISSUE_TEMPLATE/config.yml")


def test_ci_runs_every_supported_version() -> None:
    jobs = yaml.safe_load((HOME / "workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert matrix["python"] == re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert matrix["postgres"] == ["15", "16", "17", "18"]
    assert any(step.get("run") == ".ci/run" for step in jobs["test"]["steps"])


@pytest.mark.parametrize(
    "page", re.findall(r"\]\(([^)#]+)", (ROOT / "SECURITY.md").read_text("utf-8"))
)
def test_links_of_the_security_policy_exist(page: str) -> None:
    assert (ROOT / page).is_file()
