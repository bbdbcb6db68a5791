from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from doubles import resend as resend_double
from e2e.kit import House
from mailgres import testing
from service.kit import Site, site


@pytest.fixture
def house(conn: psycopg.Connection, database_url: str, tmp_path: Path) -> House:
    """The queue of the test's own database."""
    house = House(conn, database_url, tmp_path)
    testing.reset(conn)
    return house


@pytest.fixture
def resend(house: House) -> Iterator[resend_double.ResendDouble]:
    """Resend, which the service uses."""
    with resend_double.serve(resend_double.ResendDouble()) as double:
        house.use_resend(double)
        yield double


@pytest.fixture
def service(house: House, resend: resend_double.ResendDouble) -> Iterator[Site]:  # noqa: ARG001
    """The service, running."""
    with site(house) as running:
        yield running
