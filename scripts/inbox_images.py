"""Write the pictures of the inbox to docs/images/: a real inbox in a real browser."""

from __future__ import annotations

import base64
import struct
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.json import Jsonb

from mailgres import embedded, migrate
from mailgres.http.dev import serving_inbox
from mailgres.inbox import Inbox
from mailgres.settings import load
from mailgres.worker import open_worker
from support.browser import browser

if TYPE_CHECKING:
    from support.browser import Browser

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SECRET = "a-secret-for-the-pictures"  # noqa: S105 - of an inbox that lives for a minute
ENQUEUE = """
    SELECT enqueue_email(NULL, %(template)s, %(to)s, %(payload)s, p_subject => %(subject)s,
        p_html => %(html)s, p_text => %(text)s, p_cc => %(cc)s, p_headers => %(headers)s,
        p_attachments => %(files)s, p_scheduled_for => %(at)s, p_tenant_id => %(tenant)s)
"""
INVOICE = """
<style>body{margin:0;font-family:sans-serif}
@media (prefers-color-scheme: dark){.page{background:#1d2422;color:#e7edeb}}</style>
<table width="100%" class="page"><tr><td align="center" style="padding:24px">
<table width="100%" style="max-width:560px"><tr><td>
<img src="cid:logo" alt="Acme" width="120" style="border-radius:6px">
<h1 style="font-size:22px">Your invoice for November</h1>
<p>Hello Kim,</p><p>your invoice over <b>12 EUR</b> is attached. It is paid from your balance;
there is nothing to do.</p><p><a href="https://acme.example.com/invoices/1187"
style="background:#0f766e;color:#fff;padding:10px 18px;border-radius:8px;text-decoration:none;
display:inline-block">See the invoice</a></p><p style="color:#777;font-size:13px">Acme Ltd, 1 Main
Street. <a href="https://acme.example.com/u/1">Unsubscribe</a></p>
<img src="https://acme.example.com/pixel.gif" width="1" height="1">
</td></tr></table></td></tr></table>
"""


def main() -> None:
    """Start a database, a worker and an inbox; take the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as place,
        embedded.server(_opened(Path(place))) as server,
    ):
        url = embedded.database(server, "inbox_images")
        migrate.upgrade(url)
        _fill(url)
        with (
            serving_inbox(Inbox(url, SECRET, token_in_url=True), port=0) as address,
            browser(Path(place) / "chromium") as window,
        ):
            _take(window, f"http://127.0.0.1:{address.port}", _newest(url))


def _opened(place: Path) -> Path:
    place.chmod(0o755)
    return place / "data"


def _logo() -> bytes:
    """Return a small picture."""
    width, height = 120, 40
    rows = b"".join(
        b"\0" + b"".join(bytes((15 + x // 2, 118 + y, 110 + x // 3)) for x in range(width))
        for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def _enqueue(conn: psycopg.Connection, template: str, to: str, **given: Any) -> None:  # noqa: ANN401
    fields = dict.fromkeys(("subject", "html", "text", "cc", "headers", "files", "at"))
    values = fields | {"template": template, "to": to, "payload": {}, "tenant": "default"} | given
    json_ = {
        name: Jsonb(values[name])
        for name in ("payload", "headers", "files")
        if values[name] is not None
    }
    conn.execute(ENQUEUE, values | json_)


def _fill(url: str) -> None:
    """Enqueue some emails, and let a worker capture them."""
    files = [
        {
            "filename": "invoice-1187.pdf",
            "content": base64.b64encode(b"%PDF-1.4" * 9000).decode(),
            "content_type": "application/pdf",
        },
        {
            "filename": "logo.png",
            "content": base64.b64encode(_logo()).decode(),
            "content_type": "image/png",
            "content_id": "logo",
        },
    ]
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SELECT mailgres.set_capture_fault('reject', 'old@example.com')")
        _enqueue(
            conn, "welcome_user", "ana@example.com", payload={"name": "Ana", "product": "Acme"}
        )
        confirm = {"name": "João", "confirmation_url": "https://acme.example.com/c/1"}
        _enqueue(conn, "signup_confirmation", "joao@example.com", payload=confirm)
        _enqueue(conn, "welcome_user", "li@example.com", payload={"locale": "pt"}, tenant="acme")
        _enqueue(conn, "welcome_user", "old@example.com")
        _enqueue(conn, "welcome_user", "later@example.com", at="2100-01-01")
        _work(url)
        _enqueue(
            conn,
            "invoice",
            "kim@example.com",
            subject="Your invoice for November",
            html=INVOICE,
            text="Hello Kim,\n\nyour invoice over 12 EUR is attached.\n",
            cc=["books@example.com"],
            headers={"List-Unsubscribe": "<https://acme.example.com/u/1>"},
            files=files,
        )
        _work(url)
        conn.execute("SELECT mailgres.set_capture_fault('bounce', 'ana@example.com')")


def _work(url: str) -> None:
    flags = {"database_url": url, "providers": "capture", "profile": "development"}
    settings = load({}, flags | {"from_email": "Acme <hello@acme.example.com>"})
    with open_worker(settings, janitors=False) as worker:
        worker.drain()


def _newest(url: str) -> str:
    with psycopg.connect(url) as conn:
        row = conn.execute(
            "SELECT queue_id FROM mailgres.captured ORDER BY captured_at DESC"
        ).fetchone()
    assert row is not None  # noqa: S101 - just captured
    return str(row[0])


def _take(window: Browser, base: str, email: str) -> None:
    """Take the pictures: page, width, height, colours of the page."""
    window.open(f"{base}/?token={SECRET}")
    message = f"/messages/{email}"
    pictures = {
        "message": (message, 1280, 800, "light"),
        "dark": (f"{message}?view=html&width=phone&scheme=dark", 1280, 800, "dark"),
        **{
            view: (f"{message}?view={view}", 1280, 800, "light")
            for view in ("text", "source", "headers", "links", "files")
        },
        "list": ("/", 1280, 800, "light"),
        "faults": ("/faults", 1280, 800, "light"),
        "phone": ("/", 360, 740, "light"),
    }
    for name, (path, width, height, scheme) in pictures.items():
        window.resize(width, height)
        window.prefer(scheme)
        window.open(base + path)
        window.until(
            lambda: window.run("return document.readyState === 'complete'"), "it is loaded"
        )
        window.screenshot(IMAGES / f"{name}.png")
        print(f"docs/images/{name}.png")


if __name__ == "__main__":
    main()
