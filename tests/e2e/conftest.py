from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from doubles import resend as resend_double
from doubles import ses as ses_double
from doubles import smtp as smtp_double
from e2e.harness import E2eHarness


@pytest.fixture
def harness(
    conn: psycopg.Connection, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> E2eHarness:
    """The queue of the test's own database, with its clock stopped: no waiting starts it again."""
    monkeypatch.setattr("mailgres.worker.worker.RATE_LIMIT_WAIT_SECONDS", 0.0)
    return E2eHarness(conn, database_url, tmp_path)


@pytest.fixture
def resend(harness: E2eHarness) -> Iterator[resend_double.ResendDouble]:
    """Resend, which the workers use."""
    with resend_double.serve(resend_double.ResendDouble()) as double:
        harness.use_resend(double)
        yield double


@pytest.fixture
def ses(harness: E2eHarness, monkeypatch: pytest.MonkeyPatch) -> Iterator[ses_double.SesDouble]:
    """SES, which the workers use."""
    with ses_double.serve(ses_double.SesDouble()) as double:
        for name, value in ses_double.environ(double.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        harness.use_ses()
        yield double


@pytest.fixture
def smtp(harness: E2eHarness) -> Iterator[smtp_double.SmtpDouble]:
    """An SMTP server, which the workers use."""
    with smtp_double.serve(smtp_double.SmtpDouble()) as double:
        harness.use_smtp(double)
        yield double
