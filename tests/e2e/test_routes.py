"""Which provider an email goes to: failover, accounts of tenants, and routes that lead nowhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

from doubles.resend import KEY, Fault, ResendDouble
from doubles.ses import Fault as SesFault
from doubles.ses import SesDouble
from doubles.smtp import SmtpDouble
from e2e.harness import ORDINARY, URGENT, E2eHarness, accepted, once_each
from mailgres.errors import MailgresError
from support.queue import HOLD, RESEND
from worker.harness import SOURCE

NOBODY = "http://127.0.0.1:9"
BOTH = pytest.mark.parametrize("priority", [URGENT, ORDINARY], ids=["single", "batch"])


class TestFailover:
    @pytest.fixture(autouse=True)
    def _resend_then_ses(self, harness: E2eHarness, ses: SesDouble, resend: ResendDouble) -> None:
        assert ses.url
        harness.use("resend", "ses", resend_api_key=KEY, resend_api_url=resend.url)

    @BOTH
    def test_after_refused_connections_the_fallback_sends_at_once(
        self, harness: E2eHarness, resend: ResendDouble, ses: SesDouble, priority: int
    ) -> None:
        """Nothing was sent, so SES takes over at once; the log shows the path."""
        harness.set(resend_api_url=NOBODY)
        emails = harness.send(5, priority=priority)
        harness.work_until_settled()
        assert (accepted(resend), accepted(ses)) == ({}, once_each(emails))
        assert harness.state() == {("sent", 1, None): 5}
        path = [(entry.event, entry.provider) for entry in harness.log(emails[0]) if entry.provider]
        assert path == [("retry", "resend"), ("sent", "ses")]

    @BOTH
    def test_failover_while_the_circuit_is_open(
        self, harness: E2eHarness, resend: ResendDouble, ses: SesDouble, priority: int
    ) -> None:
        """A wrong key costs no email anything; all of them leave by SES."""
        harness.set(resend_api_key="re_wrong")
        first = harness.send(3, priority=priority)
        second = harness.send(3, priority=priority)
        harness.work_until_settled()
        assert (accepted(resend), accepted(ses)) == ({}, once_each(first + second))
        assert harness.state() == {("sent", 0, None): 6}
        assert harness.provider("resend").circuit == "open"

    @BOTH
    @pytest.mark.parametrize("taken", [False, True], ids=["lost", "taken"])
    def test_no_failover_after_an_ambiguous_attempt(
        self,
        harness: E2eHarness,
        resend: ResendDouble,
        ses: SesDouble,
        priority: int,
        *,
        taken: bool,
    ) -> None:
        resend.add_faults(Fault(reset=True, accepts=taken, times=-1))
        emails = harness.send(3, priority=priority)
        resend.clear_faults()
        harness.work_until_settled()
        assert (accepted(resend), accepted(ses)) == (once_each(emails), {})

    def test_failover_when_the_quota_is_used_up(
        self, harness: E2eHarness, resend: ResendDouble, ses: SesDouble
    ) -> None:
        resend.set(daily=2)
        first = harness.send(2, priority=URGENT)
        second = harness.send(3, priority=URGENT)
        harness.work_until_settled()
        assert accepted(resend) == once_each(first)
        assert accepted(ses) == once_each(second)
        assert harness.state() == {("sent", 0, None): 5}

    def test_emails_wait_when_no_provider_of_the_route_can_send(
        self, harness: E2eHarness, resend: ResendDouble, ses: SesDouble
    ) -> None:
        """Both are down: the emails wait, and leave by the first that is back."""
        harness.set(resend_api_url=NOBODY)
        ses.add_faults(SesFault("SendingPausedException", "paused", times=-1))
        emails = harness.send(3)
        harness.work_until_nothing_is_due()
        assert set(harness.statuses()) == {"pending"}
        harness.set(resend_api_url=resend.url)
        harness.work_until_settled()
        assert accepted(resend) + accepted(ses) == once_each(emails)


class TestAccounts:
    ACME = "re_acme"

    @pytest.fixture(autouse=True)
    def _two_accounts(self, harness: E2eHarness, resend: ResendDouble) -> None:
        resend.set(keys=[KEY, self.ACME])
        harness.use("resend", "resend-acme", resend_api_key=KEY, resend_acme_api_key=self.ACME)
        harness.work()
        harness.run(
            "INSERT INTO mailgres.tenants (tenant_id, route) VALUES ('acme', 'resend-acme')"
        )

    @BOTH
    def test_each_tenant_is_sent_with_its_own_key(
        self, harness: E2eHarness, resend: ResendDouble, priority: int
    ) -> None:
        acme = [harness.enqueue(tenant_id="acme", priority=priority) for _ in range(3)]
        others = harness.send(3, priority=priority)
        keys = {each["mailgres_id"]: each["api_key"] for each in resend.accepted()}
        assert keys == dict.fromkeys(map(str, acme), self.ACME) | dict.fromkeys(
            map(str, others), KEY
        )
        assert {harness.email(email).provider for email in acme} == {"resend-acme"}
        assert all(harness.email(email).resend_id for email in acme)

    @BOTH
    def test_one_tenants_bad_key_harms_no_other(
        self, harness: E2eHarness, resend: ResendDouble, priority: int
    ) -> None:
        resend.set(suspended=[self.ACME])
        acme = [harness.enqueue(tenant_id="acme", priority=priority) for _ in range(3)]
        others = harness.send(3, priority=priority)
        assert accepted(resend) == once_each(others)
        circuits = [harness.provider(name).circuit for name in ("resend", "resend-acme")]
        assert circuits == ["closed", "open"]
        assert harness.state() == {("sent", 0, None): 3, ("pending", 0, "config"): 3}
        resend.set(suspended=[])
        harness.work_until_settled()
        assert accepted(resend) == once_each(acme + others)


class TestNotConfigured:
    def test_a_worker_refuses_a_route_to_a_provider_it_does_not_have(
        self, harness: E2eHarness, smtp: SmtpDouble
    ) -> None:
        """Refused at the start, instead of emails that wait forever."""
        harness.work()
        harness.run("INSERT INTO mailgres.providers (name, kind) VALUES ('ses', 'ses')")
        harness.run("INSERT INTO mailgres.routes (route) VALUES ('bulk')")
        harness.run("INSERT INTO mailgres.route_providers VALUES ('bulk', 1, 'ses')")
        with pytest.raises(MailgresError) as refused:
            harness.work()
        assert "bulk" in refused.value.message
        assert "ses" in refused.value.message
        assert "MAILGRES_PROVIDERS" in str(refused.value.hint)
        assert smtp.accepted() == []

    @pytest.mark.parametrize(
        ("provider", "setting"),
        [
            ("resend", "RESEND_API_KEY"),
            ("resend-acme", "MAILGRES_RESEND_ACME_API_KEY"),
            ("smtp", "MAILGRES_SMTP_URL"),
        ],
    )
    def test_a_worker_refuses_a_provider_without_credentials(
        self, harness: E2eHarness, provider: str, setting: str
    ) -> None:
        harness.enqueue()
        harness.use(provider)
        with harness.script("process") as process:
            assert process.popen.wait(60) != 0
        assert setting in process.log
        assert "Traceback" not in process.log
        assert harness.statuses() == {"pending": 1}

    def test_a_worker_says_which_package_a_provider_needs(self, harness: E2eHarness) -> None:
        """boto3 is missing: the message says what to install."""
        harness.enqueue()
        harness.use("ses", ses_region="eu-west-1")
        without = (
            "import sys; sys.modules['boto3'] = None; sys.argv = ['mailgres', 'process'];"
            "from mailgres.cli import main; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", without],
            env={**harness.variables, "PYTHONPATH": str(SOURCE)},
            cwd=harness.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode != 0
        assert "pip install boto3" in done.stderr
        assert "Traceback" not in done.stderr
        assert harness.statuses() == {"pending": 1}


@pytest.mark.parametrize("letter", [HOLD, RESEND])
def test_smtp_is_the_fallback_of_ses(
    harness: E2eHarness, ses: SesDouble, smtp: SmtpDouble, letter: str
) -> None:
    """Without keys: another provider after a refusal, and never after an ambiguous try."""
    harness.use("ses", "smtp", ses_region="eu-west-1")
    ses.add_faults(SesFault("Surprise", "a teapot", 418, times=-1))
    refused = harness.send(2, letter)
    harness.work_until_settled()
    assert (accepted(ses), accepted(smtp)) == ({}, once_each(refused))

    ses.clear_faults()
    ses.add_faults(SesFault(reset=True, accepts=True, times=-1))
    uncertain = harness.send(2, letter)
    ses.clear_faults()
    harness.work_until_settled()
    assert accepted(smtp) == once_each(refused)
    again = once_each(uncertain if letter == RESEND else [])
    assert accepted(ses) == once_each(uncertain) + again
