"""What failed requests get: a page that says why, or JSON from an API, and never a traceback."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from mailgres.errors import DatabaseUnreachable, MailgresError
from mailgres.safe_errors import where
from mailgres.web.limits import RETRY_SOON
from mailgres.web.pool import TOO_SLOW
from mailgres.web.rendering import HEADERS
from mailgres.web.requests import NotAllowed, below_root, relative

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
_TITLES = {
    403: "This is not allowed",
    404: "This is not here",
    408: "This took too long",
    409: "This cannot be done now",
    413: "This is too large",
    503: "Too many requests at once",
}
_TEXTS = {405: "This address does not take such a request."}
API = "/api/"
"""What the paths begin with that answer in JSON."""


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

    def too_many(self, request: Request) -> Response:
        """Answer a request for which there is no room."""
        return self._answer(request, 503, _TITLES[503], "Try again in a moment.", RETRY_SOON)

    async def _refuse_http(self, request: Request, error: HTTPException) -> Response:
        """Answer what there is not, and what a person may not do."""
        title = _TITLES.get(error.status_code, "This cannot be done")
        text = _TEXTS.get(error.status_code, error.detail)
        return self._answer(request, error.status_code, title, text, error.headers)

    async def _refuse_access(self, request: Request, error: NotAllowed) -> Response:
        if error.reason:
            return self._answer(request, 403, _TITLES[403], error.reason)
        return self._sign_in(request, error)

    async def _refuse(self, request: Request, error: MailgresError) -> Response:
        """Answer an error of the database; if it is away, the page comes back by itself."""
        is_away = isinstance(error, DatabaseUnreachable)
        if _is_of_api(request):
            text = f"{error.message}. {error.hint or ''}".strip()
            headers = {"Retry-After": "2"} if is_away else None
            return json_problem(503 if is_away else 400, text, headers)
        if error is TOO_SLOW:
            return self._answer(request, 503, error.message, "Nothing was changed. Try again.")
        if is_away and request.method == "POST":
            return self._answer(request, 503, AWAY, UNKNOWN)  # a form is not sent twice
        if is_away:
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
        if _is_of_api(request):
            return json_problem(status, text, headers)
        values = {"base": relative(request), "title": title, "text": text, **self._shown}
        return self._pages("problem.html", values, status, headers)


def json_problem(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error of an API."""
    return JSONResponse({"error": text}, status, {**HEADERS, **(headers or {})})


def _is_of_api(request: Request) -> bool:
    return below_root(request).startswith(API)
