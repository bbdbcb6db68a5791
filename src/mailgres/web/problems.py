"""What failed requests get: a page that says why, and never a traceback."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from mailgres.errors import DatabaseUnreachable, MailgresError
from mailgres.safe_errors import where
from mailgres.web.pool import TOO_SLOW
from mailgres.web.rendering import HEADERS
from mailgres.web.requests import NotAllowed, relative

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from mailgres.web.rendering import Pages

log = logging.getLogger(__name__)

AWAY = "The database is away"
UNKNOWN = (
    "The database does not answer, so it is not known whether the change was made. Go back, load"
    " the page again when the database is there, and look before you repeat it."
)
_TITLES = {403: "This is not allowed", 404: "This is not here", 409: "This cannot be done now"}
_EXPLAINED = (400, 403, 404, 409)


class Problems:
    """Answers the errors of an application with its template `problem.html`.

    `name`: what the log calls the application. `sign_in`: the page for callers without a session.
    `refused`: the error of a role without a right. `shown`:
    further values of the template.
    """

    def __init__(
        self,
        name: str,
        pages: Pages,
        sign_in: Callable[[Request, NotAllowed], Response],
        refused: MailgresError,
        **shown: object,
    ) -> None:
        self._name = name
        self._pages = pages
        self._sign_in = sign_in
        self._refused = refused
        self._shown = shown

    def handlers(self) -> dict[type[Exception], Callable[..., Awaitable[Response]]]:
        """Return what answers each kind of error."""
        return {
            HTTPException: self._refuse_http,
            NotAllowed: self._refuse_access,
            MailgresError: self._refuse,
            Exception: self._fail,
        }

    async def _refuse_http(self, request: Request, error: HTTPException) -> Response:
        """Answer what there is not, and what a person may not do."""
        title = _TITLES.get(error.status_code, "This cannot be done")
        text = error.detail if error.status_code in _EXPLAINED else "Go back to the first page."
        return self._answer(request, error.status_code, title, text, error.headers)

    async def _refuse_access(self, request: Request, error: NotAllowed) -> Response:
        if error.reason:
            return PlainTextResponse(f"{error.reason}\n", 403, HEADERS)
        return self._sign_in(request, error)

    async def _refuse(self, request: Request, error: MailgresError) -> Response:
        """Answer an error of the database; if it is away, the page comes back by itself."""
        if error is TOO_SLOW:
            return self._answer(request, 503, error.message, "Nothing was changed. Try again.")
        if isinstance(error, DatabaseUnreachable) and request.method == "POST":
            return self._answer(request, 503, AWAY, UNKNOWN)  # a form is not sent twice
        if isinstance(error, DatabaseUnreachable):
            text = "The database does not answer. This page loads again every 2 seconds."
            return self._answer(request, 503, AWAY, text, {"Refresh": "2"})
        status = 403 if error is self._refused else 400
        return self._answer(request, status, error.message, error.hint or "")

    async def _fail(self, request: Request, error: Exception) -> Response:
        text, about = "a request of the %s failed: %s", {"action": self._name}
        log.error(text, self._name, where(error), extra=about)
        return self._answer(request, 500, "Something went wrong", "The log says where.")

    def _answer(
        self,
        request: Request,
        status: int,
        title: str,
        text: str,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        values = {"base": relative(request), "title": title, "text": text, **self._shown}
        return self._pages("problem.html", values, status, headers)
