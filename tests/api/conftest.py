"""What the tests of the Python API share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.sources import OPENERS, Source, open_source


@pytest.fixture(params=OPENERS)
def source(request: pytest.FixtureRequest, database_url: str) -> Iterator[Source]:
    """A connection of each kind to the test's migrated database, in a transaction of its own."""
    with open_source[request.param](database_url) as opened:
        yield opened
