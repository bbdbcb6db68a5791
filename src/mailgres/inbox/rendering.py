"""The pages: templates of this package, escaped, with the headers that keep them safe."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from minijinja import Environment
from starlette.responses import HTMLResponse

PAGES = Path(__file__).parent / "pages"
STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; frame-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of our own pages: nothing inline, nothing from elsewhere."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: browsers would then send forms with the origin `null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_KIB = 1024


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=lambda name: (PAGES / name).read_text(encoding="utf-8"),
        undefined_behavior="strict",
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.add_filter("size", size)
    return environment


def size(count: int) -> str:
    """Return a number of bytes as people write it."""
    if count < _KIB:
        return f"{count} B"
    if count < _KIB * _KIB:
        return f"{count / _KIB:.0f} KB"
    return f"{count / _KIB / _KIB:.1f} MB"


def page(
    name: str, values: dict[str, object], status: int = 200, headers: dict[str, str] | None = None
) -> HTMLResponse:
    """Return a page of the inbox."""
    text = _environment().render_template(name, **values)
    return HTMLResponse(text, status, {**HEADERS, **(headers or {})})
