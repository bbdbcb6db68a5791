"""Pages: templates of a package, escaped, with the headers that keep them safe; static files."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minijinja import Environment
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

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
    # Names in the links of a page would be looked up before anybody follows them.
    "X-DNS-Prefetch-Control": "off",
    "Cache-Control": "no-store",
}
_KIB = 1024


class Pages:
    """The templates of a directory."""

    def __init__(
        self, directory: Path, filters: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        self._environment = Environment(
            loader=lambda name: (directory / name).read_text(encoding="utf-8"),
            undefined_behavior="strict",
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for name, filter_ in {"size": size, **(filters or {})}.items():
            self._environment.add_filter(name, filter_)

    def text(self, name: str, values: Mapping[str, object]) -> str:
        """Return a template with its values."""
        return str(self._environment.render_template(name, **values))

    def __call__(
        self,
        name: str,
        values: Mapping[str, object],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> HTMLResponse:
        """Return a page."""
        return HTMLResponse(self.text(name, values), status, {**HEADERS, **(headers or {})})


def size(count: int) -> str:
    """Return a number of bytes as people write it."""
    if count < _KIB:
        return f"{count} B"
    if count < _KIB * _KIB:
        return f"{count / _KIB:.0f} KB"
    return f"{count / _KIB / _KIB:.1f} MB"


def files_in(*directories: Path) -> dict[str, Path]:
    """Return the static files by name: those that all pages share, and those of directories."""
    return {path.name: path for each in (STATIC, *directories) for path in each.iterdir()}


def static_route(files: Mapping[str, Path]) -> Route:
    """Return the route of static files; no secret is needed for them."""

    async def answer(request: Request) -> Response:
        path = files.get(request.path_params["name"])
        if path is None:
            raise HTTPException(404)
        return FileResponse(path, media_type=mimetypes.guess_type(path.name)[0], headers=HEADERS)

    return Route("/static/{name}", answer)
