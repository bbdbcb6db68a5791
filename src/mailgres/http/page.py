"""The operator's page at /page/ of the HTTP service: `mailgres serve --page`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres import page
from mailgres.errors import MailgresError
from mailgres.web import slash_added

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from mailgres.settings import Settings

PATH = "/page"
HOW_TO_NAME = (
    "MAILGRES_PAGE_USER_HEADER is for people whom a proxy signed in: name the proxy's address in"
    " MAILGRES_PAGE_PROXIES."
)


def make_page(settings: Settings) -> page.Page:
    """Return the page of the settings; refuse settings that would leave it open."""
    if settings.page_user_header and not settings.page_proxies:
        raise MailgresError("The page has a header for names and no proxy", HOW_TO_NAME)
    proxy = page.Proxy(
        _names(settings.page_proxies),
        settings.page_user_header or "",
        _names(settings.page_operators),
    )
    return page.app(
        settings.database_url or "",
        secret=settings.page_secret,
        viewer_secret=settings.page_viewer_secret,
        hosts=_names(settings.page_hosts),
        proxy=proxy if settings.page_proxies else None,
        environment=settings.page_environment or "",
        read_only=settings.page_read_only == "on",
    )


def open_page(settings: Settings) -> page.Page:
    """Return the page; refuse a database role that may not act as viewer and operator."""
    opened = make_page(settings)
    opened.check()
    return opened


def mount_page(app: Starlette, opened: page.Page) -> None:
    """Let the service answer below /page."""
    app.add_route(PATH, _add_slash)
    app.mount(PATH, opened)


def _names(given: str | None) -> list[str]:
    return [name.strip() for name in (given or "").split(",") if name.strip()]


async def _add_slash(request: Request) -> Response:
    return slash_added(request.scope)
