"""A Resend emulator that is not ours sends the webhooks, signed by Svix's npm package.

It calls the webhook before it answers the request that sends the email.
"""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from e2e.harness import E2eHarness
from service.harness import site
from service.webhook_calls import PATH, RESEND, recorded, unmatched

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "node_modules"
SCRIPT = ROOT / "tests/doubles/emulate.mjs"
DUE = "UPDATE mailgres.unmatched_events SET next_lookup_at = mailgres.now()"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not all((MODULES / name).exists() for name in ("emulate/dist/api.js", "svix")),
        reason="emulate is not installed: npm install --no-save emulate@0.12.2 svix@1",
    ),
]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_webhooks_of_a_resend_emulator_are_recorded_though_they_come_before_its_answer(
    harness: E2eHarness,
) -> None:
    port = free_port()
    harness.use("resend", resend_api_key="re_test", resend_api_url=f"http://127.0.0.1:{port}")
    with site(harness, resend_webhook_secret=RESEND) as running:
        url = f"http://127.0.0.1:{running.port}{PATH}"
        command = ["node", str(SCRIPT), str(MODULES), str(port), url, RESEND]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as emulator:
            try:
                assert emulator.stdout is not None
                assert emulator.stdout.readline().startswith("http://")
                queue_id = harness.enqueue("welcome_user", "ana@example.com")
                assert running.trigger().json["sent"] == 1
            finally:
                emulator.kill()
    assert [row.event for row in unmatched(harness)] == ["sent", "delivered"]
    harness.run(DUE)
    harness.run("SELECT mailgres.match_email_events()")
    assert [row.event for row in recorded(harness, queue_id)] == ["sent", "delivered"]
    state = "SELECT state FROM email_deliveries WHERE id = %s"
    assert harness.value(state, queue_id) == "delivered"
    assert unmatched(harness) == []
