from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from doubles import resend as resend_double
from e2e.harness import E2eHarness
from mailgres import testing
from service.harness import Site, site


@pytest.fixture
def harness(conn: psycopg.Connection, database_url: str, tmp_path: Path) -> E2eHarness:
    """The queue of the test's own database."""
    harness = E2eHarness(conn, database_url, tmp_path)
    testing.reset(conn)
    return harness


@pytest.fixture
def resend(harness: E2eHarness) -> Iterator[resend_double.ResendDouble]:
    """Resend, which the service uses."""
    with resend_double.serve(resend_double.ResendDouble()) as double:
        harness.use_resend(double)
        yield double


@pytest.fixture
def service(harness: E2eHarness, resend: resend_double.ResendDouble) -> Iterator[Site]:  # noqa: ARG001
    """The service, running."""
    with site(harness) as running:
        yield running
