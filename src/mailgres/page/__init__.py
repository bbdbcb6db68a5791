"""The operator's page: the queue in a browser, for its operators.

`app` is the door: an ASGI application that runs by itself, or mounted in another one.
"""

from __future__ import annotations

from mailgres.page.app import Page, app
from mailgres.page.sign_in import Proxy
from mailgres.page.users import Role, User

__all__ = ["Page", "Proxy", "Role", "User", "app"]
