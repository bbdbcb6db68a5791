"""Databases that are dumped, restored, published and shared with others."""

from __future__ import annotations

from support.cluster import cluster
from support.fixtures import clock, committed, queue, shared_connection, shared_url

__all__ = ["clock", "cluster", "committed", "queue", "shared_connection", "shared_url"]
