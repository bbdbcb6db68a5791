"""Figures for Prometheus: what is served, where it comes from, how it is written."""

from mailgres.metrics.definitions import METRICS, Metric
from mailgres.metrics.exposition import Exposition

__all__ = ["METRICS", "Exposition", "Metric"]
