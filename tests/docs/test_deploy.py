"""What deploy/ tells people to run is there."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from mailgres.cli import main
from mailgres.janitor import JANITORS

CRON = Path(__file__).parent.parent.parent / "deploy" / "cron" / "mailgres"


def test_every_duty_in_the_crontab_exists() -> None:
    [duties] = re.findall(r"for duty in ([\w ]+);", CRON.read_text(encoding="utf-8"))
    assert set(duties.split()) <= set(JANITORS)


def test_every_option_in_the_crontab_exists() -> None:
    [options] = re.findall(r"mailgres process (.*?) >>", CRON.read_text(encoding="utf-8"))
    shown = CliRunner().invoke(main, ["process", "--help"]).output
    for option in re.findall(r"--[\w-]+", options):
        assert option in shown
