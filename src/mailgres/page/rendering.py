"""The pages of the operator's page, and what is shown only in a closed frame."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response

from mailgres.page.words import clock
from mailgres.web import HEADERS, Pages, frame

STATIC = Path(__file__).parent / "static"
pages = Pages(Path(__file__).parent / "pages", {"clock": clock})


def closed(content: bytes, kind: str) -> Response:
    """Return content from outside: nothing in it can run, load, send or leave its frame."""
    own = {"Content-Security-Policy": frame.POLICY, "X-Frame-Options": "SAMEORIGIN"}
    return Response(content, headers={**HEADERS, **own, "Content-Type": kind})
