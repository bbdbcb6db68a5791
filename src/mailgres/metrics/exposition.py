"""Write metrics in Prometheus' format: the only module that imports prometheus_client.

Metrics are at most a few seconds old, and concurrent scrapes read the database once. If it does not
answer, `mailgres_up` is 0 and the metrics of this process are still served.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import psycopg
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector
from psycopg_pool import PoolClosed, PoolTimeout

from mailgres.metrics.definitions import METRICS, Metric
from mailgres.metrics.process import of_this_process
from mailgres.metrics.queue import QueueReader, TooSlow
from mailgres.metrics.samples import Samples, Spread
from mailgres.safe_errors import reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric as Family

    from mailgres.worker.store import Store

log = logging.getLogger(__name__)

CACHE_SECONDS = 5.0
"""Seconds for which the queue's metrics are cached."""


class Exposition(Collector):
    """The metrics of one process."""

    def __init__(self, store: Store) -> None:
        self._reader = QueueReader(store)
        self._lock = threading.Lock()
        self._known: Samples = {}
        self._until = 0.0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> tuple[bytes, str]:
        """Return the current metrics, and the content type of the text."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def describe(self) -> Iterator[Family]:
        """Return nothing, so that registering does not read the database."""
        return iter(())

    def collect(self) -> Iterator[Family]:
        """Yield all families, each with its samples."""
        found: Samples = defaultdict(list, self._of_the_queue())
        for name, labels, value in of_this_process():
            found[name].append((labels, value))
        for name, metric in METRICS.items():
            if name in found:
                yield _family(metric, found)

    def _of_the_queue(self) -> Samples:
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._read()
                self._until = time.monotonic() + CACHE_SECONDS
            return {name: list(samples) for name, samples in self._known.items()}

    def _read(self) -> Samples:
        try:
            found = self._reader.read()
        except (psycopg.Error, PoolTimeout, PoolClosed, TooSlow) as error:
            reported = {"action": "metrics", "error": reason(error)}
            log.warning("no metrics from the database", extra=reported)
            return {"up": [((), 0)]}
        return {**found, "up": [((), 1)]}


def _family(metric: Metric, found: Samples) -> Family:
    samples, name, labels = found[metric.name], metric.full_name, metric.labels
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.about, labels=labels)
        for values, value in samples:
            if isinstance(value, Spread):
                histogram.add_metric(values, _buckets(value), value.total)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(name, metric.about, labels=labels)
    for values, value in samples:
        if not isinstance(value, Spread):
            family.add_metric(values, value)
    return family


def _buckets(spread: Spread) -> list[tuple[str, float]]:
    bounds = [*map(str, map(float, spread.bounds)), "+Inf"]
    return list(zip(bounds, (*spread.at_most, spread.count), strict=True))
