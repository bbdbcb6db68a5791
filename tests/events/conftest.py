from __future__ import annotations

from support.fixtures import clock, committed, queue, shared_connection, shared_url

__all__ = ["clock", "committed", "queue", "shared_connection", "shared_url"]
