"""The PostgreSQL that scripts use: the one that DATABASE_URL names, else an embedded one."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

from mailgres import embedded


def given_server() -> AbstractContextManager[str]:
    """Yield the URL of a server for the duration of the `with` block."""
    given = os.environ.get("DATABASE_URL")
    return nullcontext(given) if given else embedded.server()
