"""The inbox: captured emails in a browser, for development and staging.

`Inbox` is the door: an ASGI application that runs by itself, or mounted in another one.
"""

from __future__ import annotations

from mailgres.inbox.app import Inbox

__all__ = ["Inbox"]
