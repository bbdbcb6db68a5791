"""deploy/systemd: what systemd itself says about the units."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.files import DEPLOY, PROGRAM, read
from support.program import PROGRAM as OURS

ANALYZE = shutil.which("systemd-analyze")
UNITS = sorted(path.name for path in (DEPLOY / "systemd").glob("mailgres-*"))
SERVICES = [unit for unit in UNITS if unit.endswith(".service")]
EXPOSURE = 20
"""Tenths of what `systemd-analyze security` may rate them at most; without hardening it is 96."""

needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed")


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "SYSTEMD_PAGER": "cat"}
    command = [str(ANALYZE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def knows(word: str) -> bool:
    """Return whether this systemd is new enough."""
    return word in analyze("--help").stdout


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units as if mailgres were where they look for it: verifying asks for the program."""
    for unit in UNITS:
        (tmp_path / unit).write_text(read("systemd", unit).replace(PROGRAM, str(OURS)))
    return tmp_path


def directives(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", read("systemd", unit), flags=re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def test_the_guide_has_all_systemd_units() -> None:
    kinds = ["process.service", "process.timer", "serve.service", "worker.service"]
    assert [f"mailgres-{kind}" for kind in kinds] == UNITS


@needs_systemd
def test_systemd_analyze_accepts_every_unit(installed: Path) -> None:
    done = analyze("verify", *(installed / unit for unit in UNITS))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


@needs_systemd
def test_systemd_analyze_finds_a_mistake_in_a_unit(installed: Path) -> None:
    unit = installed / "mailgres-worker.service"
    unit.write_text(unit.read_text().replace("ProtectHome=yes", "ProtectHome=perhaps"))
    assert "protect home" in analyze("verify", unit).stderr


@needs_systemd
@pytest.mark.parametrize("unit", SERVICES)
def test_every_systemd_unit_is_hardened(installed: Path, unit: str) -> None:
    if not knows("--offline"):
        pytest.skip("this systemd cannot rate units offline")
    options = ("security", "--offline=yes", f"--threshold={EXPOSURE}", "--no-pager")
    done = analyze(*options, installed / unit)
    assert done.returncode == 0, done.stdout.splitlines()[-1]


@needs_systemd
def test_a_unit_without_hardening_is_found(installed: Path) -> None:
    if not knows("--offline"):
        pytest.skip("this systemd cannot rate units offline")
    unit = installed / "mailgres-worker.service"
    unit.write_text(f"[Service]\nExecStart={OURS} worker\n")
    options = ("security", "--offline=yes", f"--threshold={EXPOSURE}", "--no-pager")
    assert analyze(*options, unit).returncode != 0


@needs_systemd
def test_the_timer_goes_off_every_two_minutes() -> None:
    (when,) = directives("mailgres-process.timer")["OnCalendar"]
    shown = analyze("calendar", "--iterations=4", "--base-time=2027-01-31 23:57:30 UTC", when)
    times = re.findall(
        r"(?:Next elapse|Iteration #\d+|Iter\. #\d+): .*?(\d\d:\d\d):00", shown.stdout
    )
    assert times == ["23:58", "00:00", "00:02", "00:04"]


def test_the_services_are_hardened_alike() -> None:
    def hardening(unit: str) -> str:
        return (
            read("systemd", unit).partition("# A user of its own")[2].partition("\n\n")[0].strip()
        )

    assert len({hardening(unit) for unit in SERVICES}) == 1


@pytest.mark.parametrize("unit", SERVICES)
def test_secrets_come_from_the_file_alone(unit: str) -> None:
    found = directives(unit)
    assert found["EnvironmentFile"] == ["/etc/mailgres.env"]
    assert "Environment" not in found


@pytest.mark.parametrize("unit", ["mailgres-worker.service", "mailgres-serve.service"])
def test_a_systemd_stop_leaves_time_for_emails_in_flight(unit: str) -> None:
    found = directives(unit)
    assert int(found["TimeoutStopSec"][0]) > 30 + 10  # grace, and giving back the rest
    assert found["KillMode"] == ["mixed"]


@pytest.mark.parametrize("unit", SERVICES)
def test_every_systemd_unit_limits_memory(unit: str) -> None:
    assert directives(unit)["MemoryMax"] == ["512M"]
