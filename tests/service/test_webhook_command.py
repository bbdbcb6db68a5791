"""`mailgres webhooks test` against a real service, and the doctor's opinion of silence."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from doubles.resend import ResendDouble
from doubles.sns import TOPIC
from e2e.harness import E2eHarness
from mailgres.webhooks import samples
from service.harness import Site, site
from service.webhook_calls import ACME, OWN, RELAY, RESEND, call, sent, unmatched
from support import forked
from worker.harness import PROGRAM

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
SES = "s3cr3t-part-of-the-address"
ALL = {
    "resend_webhook_secret": RESEND,
    "ses_webhook_secret": SES,
    "ses_webhook_topics": TOPIC,
    "smtp_webhook_secret": RELAY,
    "events_secret": OWN,
}


def run(harness: E2eHarness, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the settings of the service, and others."""
    ours = {f"MAILGRES_{name.upper()}": value for name, value in variables.items()}
    return forked.run([PROGRAM, *arguments], env=harness.environment() | ours, cwd="/")


def trial(harness: E2eHarness, service: Site, *arguments: str, **more: str) -> Any:
    """The result of a test, as a program reads it, and its exit code."""
    given = ("webhooks", "test", *arguments, "--serve-port", str(service.port), "--json")
    done = run(harness, *given, **more)
    assert "s3cr3t" not in done.stdout + done.stderr
    return json.loads(done.stdout), done.returncode


def test_webhooks_test_sends_signed_samples_through_every_endpoint(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    assert resend.url
    with site(harness, **ALL) as service:
        found, code = trial(harness, service)
    assert code == 0, found
    assert [row["event"] for row in found if row["account"] == "resend"] == list(samples.RESEND)
    others = {row["account"]: (row["status"], row["result"]) for row in found}
    assert others["smtp"] == others["events"] == others["resend"] == (200, "unmatched")
    status, words = others["ses"]
    assert status == 403
    assert words.startswith("reached; only SNS can sign")
    assert len(unmatched(harness)) == len(samples.RESEND) + 2


def test_the_page_on_events_shows_what_webhooks_test_prints(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    assert resend.url
    with site(harness, **ALL) as service:
        done = run(harness, "webhooks", "test", "resend", "--serve-port", str(service.port))
    shown = re.search(r"\n\$ mailgres webhooks test resend\n(.*?)```", PAGE, re.DOTALL)
    assert shown
    assert done.stdout == shown[1]


def test_webhooks_test_reports_a_refused_sample_as_an_error(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    assert resend.url
    with site(harness, **ALL) as service:
        found, code = trial(harness, service, "resend", resend_webhook_secret=ACME)
        assert code == 1
        assert {row["status"] for row in found} == {401}
        assert "No matching signature found" in found[0]["result"]
        found, code = trial(harness, service, "ses", ses_webhook_secret="x" * 20)
        assert (code, [row["status"] for row in found]) == (1, [404])


def test_webhooks_test_of_a_silent_service_is_one_clear_error(harness: E2eHarness) -> None:
    harness.set(events_secret=OWN)
    done = run(harness, "webhooks", "test", "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr == (
        "Error: http://127.0.0.1:1 does not answer: ConnectionError\n"
        "Hint: Start `mailgres serve`, or name its address with --url.\n"
    )


@pytest.mark.parametrize("arguments", [[], ["resend-acme"]])
def test_webhooks_test_without_a_webhook_is_one_clear_error(
    harness: E2eHarness, arguments: list[str]
) -> None:
    if arguments:
        harness.set(events_secret=OWN)
    done = run(harness, "webhooks", "test", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: The settings have no webhook secret")
    assert "docs/events.md" in done.stderr


def findings(harness: E2eHarness, **variables: str) -> list[tuple[str, str]]:
    done = run(harness, "doctor", "--only", "webhooks", "--json", **variables)
    return [(each["severity"], each["message"]) for each in json.loads(done.stdout)]


def test_doctor_warns_if_a_webhook_is_configured_and_no_event_comes(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    assert resend.url
    assert findings(harness) == [("ok", "no email was sent in the last two days")]
    with site(harness, resend_webhook_secret=RESEND) as service:
        about = sent(harness, service)
        assert findings(harness)[0][0] == "ok"  # too early to say
        harness.clock.forward(timedelta(hours=2))
        ((severity, message),) = findings(harness)
        assert severity == "warning"
        assert "none of the 1 emails that were sent in the last two days has an event" in message
        ((severity, message),) = findings(harness, resend_webhook_secret="")
        assert severity == "info"
        assert "bounces and complaints are not known" in message
        assert call(service, samples.resend("email.delivered", about)).status == 200
        assert findings(harness) == [("ok", "resend: 1 of 1 emails have events")]
