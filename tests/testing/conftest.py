"""The databases of these tests are on the server of the suite, not on another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from mailgres.testing import Outbox


@pytest.fixture
def outbox(database_url: str) -> Iterator[Outbox]:
    """The outbox of the test's own database."""
    settings: Mapping[str, str] = {"from_email": "Acme <hello@acme.example.com>"}
    with Outbox(database_url, settings) as opened:
        yield opened
