"""Metrics for Prometheus: which there are, where they come from, how they are written."""

from mailgres.metrics.definitions import METRICS, Metric
from mailgres.metrics.exposition import Exposition

__all__ = ["METRICS", "Exposition", "Metric"]
