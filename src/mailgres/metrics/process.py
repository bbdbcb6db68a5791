"""The metrics of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres import __version__, measurements
from mailgres.metrics.samples import Sample, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator


def of_this_process() -> Iterator[Sample]:
    """Yield all metrics of the process."""
    yield "build_info", (__version__,), 1
    for reading in measurements.SEND_SECONDS.read():
        yield "send_duration_seconds", (reading.label,), _spread(measurements.SEND_SECONDS, reading)
    for reading in measurements.BACKOFF_SECONDS.read():
        yield "retry_backoff_delay_seconds", (), _spread(measurements.BACKOFF_SECONDS, reading)
    if measurements.LAST_CLAIM.at is not None:
        yield "last_run_timestamp_seconds", (), measurements.LAST_CLAIM.at


def _spread(histogram: measurements.Histogram, reading: measurements.Reading) -> Spread:
    return Spread(histogram.bounds, reading.at_most, reading.count, reading.total)
