"""Templates of one part rendered, and what they fail with, for tests."""

from __future__ import annotations

from typing import Any

import pytest

from mailgres.errors import TemplateFailed
from mailgres.templates import Content, Template, render

SECRET = "s3cret-value"


def content(text: str = "Hello", html: str | None = None, subject: str = "Hi") -> Content:
    return Content(subject, text, html)


def text_of(source: str, **payload: Any) -> str:
    return render({"en": content(source)}, payload).text.removesuffix("\n")


def html_of(source: str, **payload: Any) -> str:
    return render({"en": content(html=source)}, payload).html or ""


def subject_of(source: str, **payload: Any) -> str:
    return render({"en": content(subject=source)}, payload).subject


def failure(source: str, payload: dict[str, Any] | str) -> str:
    """Return the message of a text part that fails, after checking that it quotes no value."""
    with pytest.raises(TemplateFailed) as caught:
        Template({"en": content(source)}, "receipt v3").render(payload)
    message = caught.value.message
    assert message.startswith("receipt v3 (en), ")
    assert SECRET not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return message.removeprefix("receipt v3 (en), ")
