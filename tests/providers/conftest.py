from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from doubles.resend import KEY, ResendDouble, serve
from mailgres.providers.resend.provider import ResendProvider

NOW = datetime(2026, 11, 16, 22, 30, tzinfo=UTC)


@pytest.fixture
def double() -> Iterator[ResendDouble]:
    with serve(ResendDouble()) as running:
        yield running


@pytest.fixture
def opened(double: ResendDouble) -> Iterator[Callable[..., ResendProvider]]:
    """Opens providers that are closed in the end."""
    made: list[ResendProvider] = []

    def open_one(api_key: str = KEY, url: str | None = None, **options: Any) -> ResendProvider:
        options = {"timeout": 30.0, "now": lambda: NOW, **options}
        made.append(ResendProvider(api_key, url or double.url, **options))
        return made[-1]

    yield open_one
    for each in made:
        each.close()


@pytest.fixture
def provider(opened: Callable[..., ResendProvider]) -> ResendProvider:
    return opened()
