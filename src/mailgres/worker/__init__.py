"""The worker: claim, render, begin, send, finish."""

from mailgres.worker.build import open_worker
from mailgres.worker.worker import Summary, Worker

__all__ = ["Summary", "Worker", "open_worker"]
