"""What docs/http.md shows is what happens: its commands run, its tables are complete."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from doubles.resend import ResendDouble
from e2e.harness import E2eHarness
from mailgres.http.app import Service, endpoints, make_app
from mailgres.http.webhooks import Webhooks
from service.harness import SECRET, TOKEN, site

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
COMMANDS = [
    block
    for text in re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for block in re.split(r"(?<!\\)\n(?=curl)", text)
]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_commands_of_the_page_on_http_run(harness: E2eHarness, resend: ResendDouble) -> None:  # noqa: ARG001
    harness.enqueue()
    with site(harness, metrics_token=TOKEN) as service:
        answers = []
        for command in COMMANDS:
            done = subprocess.run(
                ["bash", "-ec", command.replace(":8725", f":{service.port}")],
                env={
                    "PATH": "/usr/bin:/bin",
                    "MAILGRES_SERVE_SECRET": SECRET,
                    "MAILGRES_METRICS_TOKEN": TOKEN,
                },
                capture_output=True,
                text=True,
                check=True,
            )
            answers.append(done.stdout)
    summary, health, ready, *metrics = answers
    assert json.loads(summary)["sent"] == 1
    assert json.loads(health)["status"] == "ok"
    assert json.loads(ready).keys() == {"status", "schema", "lastRun"}
    assert len(metrics) == 1
    assert "mailgres_up 1.0" in metrics[0]


def test_the_page_on_http_lists_every_endpoint() -> None:
    nothing: Any = None
    service = Service(nothing, nothing, nothing, secret="", metrics_token=None)
    listed = re.findall(r"^\| `((?:GET|POST) /\S+)`", PAGE, re.MULTILINE)
    assert listed == endpoints(make_app(service, Webhooks(nothing, nothing)))
    for name in ("serve_host", "serve_port", "serve_secret", "metrics_token"):
        assert f"`{name}`" in PAGE
