"""The worker: claim, render, start, send, finish."""

from mailgres.worker.build import Pipeline, open_pipeline, open_worker
from mailgres.worker.worker import Summary, Worker

__all__ = ["Pipeline", "Summary", "Worker", "open_pipeline", "open_worker"]
