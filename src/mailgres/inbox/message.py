"""An email as its page shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.inbox.letter import MOST_SOURCE, headers_of, source_of
from mailgres.inbox.links import check_unsubscribe, find_links
from mailgres.inbox.timeline import state_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping

VIEWS = {
    "html": "Preview",
    "text": "Text",
    "source": "Source",
    "headers": "Headers",
    "links": "Links",
    "files": "Files",
}
WIDTHS = {"desktop": "Desktop", "phone": "Phone"}
SCHEMES = {"light": "Light", "dark": "Dark"}
MOST_TEXT = 512 * 1024
"""Characters of the text part that a page shows."""


def scheme_of(chosen: Mapping[str, str]) -> str:
    """Return the colours of the preview that an address asks for."""
    return chosen["scheme"] if chosen.get("scheme") in SCHEMES else "light"


def view_of(found: Mapping[str, Any], chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page of an email shows; `chosen` are the parameters of its address."""
    email, message = found["email"] or {}, found["message"]
    bounced = any(event["event"] == "bounced" for event in found["events"])
    label, mood = state_of(email.get("status") or "deleted", bounced=bounced)
    shown: dict[str, Any] = {
        "to": message["to"] if message else email["recipient_email"],
        "subject": (message["subject"] if message else email["subject"]) or "(no subject yet)",
        "at": found["captured_at"] or email["created_at"],
        "label": label,
        "mood": mood,
        "error": email.get("error_message") or "",
        "template": email.get("template_type") or "",
        "tenant": email.get("tenant_id") or "",
        "version": email.get("template_version"),
        "steps": steps_of(found),
        "is_captured": message is not None,
        "bytes": sum(file["bytes"] for file in found["files"]),
    }
    return shown | _content(found, message, chosen) if message else shown


def _content(
    found: Mapping[str, Any], message: Mapping[str, Any], chosen: Mapping[str, str]
) -> dict[str, Any]:
    views = [view for view in VIEWS if view != "html" or message["html"]]
    view = chosen.get("view", "")
    links = find_links(message["html"], message["text"])
    text = message["text"] or ""
    shown: dict[str, Any] = {
        "from": message["from"],
        "also_to": message["also_to"] or [],
        "cc": message["cc"] or [],
        "bcc": message["bcc"] or [],
        "reply_to": message["reply_to"] or "",
        "view": view if view in views else views[0],
        "views": [(name, VIEWS[name], _count(name, found, len(links.links))) for name in views],
        "width": chosen["width"] if chosen.get("width") in WIDTHS else "desktop",
        "widths": WIDTHS,
        "scheme": scheme_of(chosen),
        "schemes": SCHEMES,
        "text": text[:MOST_TEXT],
        "is_cut": len(text) > MOST_TEXT,
        "links": links.links,
        "loads": links.loads,
        "unsubscribe": check_unsubscribe(message["headers"] or {}),
        "list_unsubscribe": _header(message["headers"], "list-unsubscribe"),
        "files": found["files"],
    }
    if shown["view"] in ("source", "headers"):
        source = source_of(found)
        shown["headers"] = headers_of(source)
        shown["source"] = source.decode("utf-8", "replace")[:MOST_SOURCE]
        shown["is_cut"] = len(source) > MOST_SOURCE
    return shown


def _count(view: str, found: Mapping[str, Any], links: int) -> int | None:
    """Return the number beside the name of a view."""
    return {"links": links, "files": len(found["files"])}.get(view) or None


def _header(headers: Mapping[str, str] | None, name: str) -> str:
    return next((value for key, value in (headers or {}).items() if key.lower() == name), "")
