"""docs/logs.md names every key, and every action, that lines have."""

from __future__ import annotations

import json
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "logs.md").read_text()
SOURCE = Path(__file__).parents[2] / "src" / "mailgres"


def test_every_key_of_the_example_of_the_log_is_documented() -> None:
    (example,) = re.findall(r"```json\n(.*)\n```", PAGE)
    for key in json.loads(example):
        assert f"`{key}`" in PAGE, key


def test_every_key_of_a_failed_attempt_is_in_the_example_of_the_log() -> None:
    (example,) = re.findall(r"```json\n(.*)\n```", PAGE)
    source = (SOURCE / "worker" / "attempt_log.py").read_text()
    assert set(re.findall(r'^        "(\w+)":', source, re.MULTILINE)) <= json.loads(example).keys()


def test_the_page_names_every_action_of_a_worker() -> None:
    sources = "".join(path.read_text() for path in (SOURCE / "worker").glob("*.py"))
    for action in set(re.findall(r'"action": "(\w+)"', sources)) - {"start", "mark_awake"}:
        assert f"`{action}`" in PAGE, action
