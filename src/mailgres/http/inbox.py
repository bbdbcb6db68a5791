"""The inbox at /inbox/ of the HTTP service, for staging: `mailgres serve --inbox`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.errors import MailgresError
from mailgres.inbox import Inbox
from mailgres.web import slash_added

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from mailgres.settings import Settings

PATH = "/inbox"
HOW_TO_OPEN = (
    "Set MAILGRES_INBOX_SECRET to at least 16 characters: people enter it to see captured emails."
)


def check_inbox(settings: Settings) -> None:
    """Refuse to show captured emails without a secret."""
    if not settings.inbox_secret:
        raise MailgresError("The inbox has no secret", HOW_TO_OPEN)


def open_inbox(settings: Settings) -> Inbox:
    """Return the inbox of the settings; refuse a database role that may not read emails."""
    hosts = [name for host in settings.inbox_hosts.split(",") if (name := host.strip())]
    inbox = Inbox(settings.database_url or "", settings.inbox_secret or "", hosts)
    inbox.check()
    return inbox


def mount_inbox(app: Starlette, inbox: Inbox) -> None:
    """Let the service answer below /inbox."""
    app.add_route(PATH, _add_slash)
    app.mount(PATH, inbox)


async def _add_slash(request: Request) -> Response:
    return slash_added(request.scope)
