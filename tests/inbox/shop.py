"""A small application with a sign-up form and a link that confirms an address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs

import psycopg
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

import mailgres
from mailgres.http.server import Server

FORM = """<!doctype html><html lang="en"><title>Shop</title><form method="post" action="/signup">
<label>Email <input name="email"></label><button>Sign up</button></form>"""


class Shop:
    """Knows who confirmed; sends its emails through the queue of a database."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self.base = ""
        self.confirmed: list[str] = []

    async def show_form(self, _request: Request) -> HTMLResponse:
        return HTMLResponse(FORM)

    async def sign_up(self, request: Request) -> HTMLResponse:
        address = parse_qs((await request.body()).decode())["email"][0]
        link = f"{self.base}/confirm?email={address.replace('+', '%2B')}"
        with psycopg.connect(self._url) as connection:
            mailgres.enqueue(
                connection,
                "confirm_address",
                address,
                subject="Confirm your address",
                html=f'<a href="{link}">Confirm</a>',
                text=f"Confirm: {link}",
            )
        return HTMLResponse("We sent you an email.")

    async def confirm(self, request: Request) -> HTMLResponse:
        self.confirmed.append(request.query_params["email"])
        return HTMLResponse("<!doctype html><title>Shop</title><h1>Address confirmed</h1>")


@contextmanager
def open_shop(database_url: str) -> Iterator[Shop]:
    """Serve the application on a port of this machine."""
    shop = Shop(database_url)
    routes = [
        Route("/signup", shop.show_form),
        Route("/signup", shop.sign_up, methods=["POST"]),
        Route("/confirm", shop.confirm),
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        shop.base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = Server(Starlette(routes=routes), listener, grace=0)
        server.start()
        try:
            yield shop
        finally:
            server.stop()
