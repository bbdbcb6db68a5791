"""What this process measured itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres import __version__, meters
from mailgres.metrics.samples import Sample, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator


def of_this_process() -> Iterator[Sample]:
    """All figures of the process."""
    yield "build_info", (__version__,), 1
    for reading in meters.SEND_SECONDS.read():
        yield "send_duration_seconds", (reading.label,), _spread(meters.SEND_SECONDS, reading)
    for reading in meters.BACKOFF_SECONDS.read():
        yield "retry_backoff_delay_seconds", (), _spread(meters.BACKOFF_SECONDS, reading)
    if meters.LAST_CLAIM.at is not None:
        yield "last_run_timestamp_seconds", (), meters.LAST_CLAIM.at


def _spread(histogram: meters.Histogram, reading: meters.Reading) -> Spread:
    return Spread(histogram.bounds, reading.at_most, reading.count, reading.total)
