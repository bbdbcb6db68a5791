"""Every metric: its name, kind, labels and meaning. docs/metrics.md is made of this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "mailgres_"
MOST_TENANTS = 50
"""Tenants with a label of their own; all others are `other`."""
MOST_CODES = 30
"""Error codes with a label of their own."""
DEAD_AGES = (3600.0, 21600.0, 86400.0, 259200.0, 604800.0)
"""Upper bounds for how long dead letters have been dead: 1 h, 6 h, 1 d, 3 d, 7 d."""

Kind = Literal["counter", "gauge", "histogram"]
Source = Literal["queue", "process"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `source`: what all of the queue's workers do, or this process alone."""

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()
    source: Source = "queue"

    @property
    def full_name(self) -> str:
        """The name as it is served."""
        return PREFIX + self.name


_ALL = (
    Metric(
        "up", "gauge", "1 if the database answered; else 0, and those of the queue are missing."
    ),
    Metric("build_info", "gauge", "Always 1; the version is the label.", ("version",), "process"),
    Metric("scrape_seconds", "gauge", "How long the database took to answer."),
    Metric("queue_depth", "gauge", "Emails in the queue.", ("status",)),
    Metric("queue_due", "gauge", "Emails that could be sent now."),
    Metric("queue_parked", "gauge", "Emails that wait for a sender's set-up to be mended."),
    Metric("queue_oldest_due_seconds", "gauge", "For how long the oldest of those due has been."),
    Metric(
        "events_total",
        "counter",
        "What became of tries and emails: sent, retry, deferred, dead, cancelled.",
        ("event",),
    ),
    Metric(
        "retry_attempts_total",
        "counter",
        "Tries by their number, the first being 1; 20 stands for all later ones, too.",
        ("attempt",),
    ),
    Metric(
        "retry_success_rate",
        "gauge",
        "Of the tries with this number in the last 7 days, the part that succeeded: 0 to 1.",
        ("attempt",),
    ),
    Metric(
        "retry_backoff_delay_seconds",
        "histogram",
        "How long emails wait for their next try, as it was decided.",
        (),
        "process",
    ),
    Metric("dlq_entries_total", "counter", "Emails that became dead letters."),
    Metric("dlq_size", "gauge", "Dead letters in the queue."),
    Metric(
        "dlq_age_seconds",
        "histogram",
        "For how long the dead letters in the queue have been dead, now, to the hour.",
    ),
    Metric(
        "dlq_by_error_code",
        "gauge",
        f"Dead letters by error code: the {MOST_CODES} most frequent, and other.",
        ("error_code",),
    ),
    Metric(
        "dlq_by_company",
        "gauge",
        f"Dead letters by tenant: the {MOST_TENANTS} with most, and other.",
        ("tenant",),
    ),
    Metric(
        "tenant_jobs_processed",
        "gauge",
        f"Tries made for a tenant: the {MOST_TENANTS} with most, and the sum of all others.",
        ("tenant",),
    ),
    Metric(
        "tenant_current_priority",
        "gauge",
        "How urgent a tenant is: 5, rising to 1 while it waits; of all others the most urgent.",
        ("tenant",),
    ),
    Metric(
        "tenant_consecutive_batch",
        "gauge",
        "How many emails of a tenant its last claim had; of all others the most.",
        ("tenant",),
    ),
    Metric(
        "tenant_rounds_without_processing",
        "gauge",
        "Claims since a tenant with something due was served; of all others the most.",
        ("tenant",),
    ),
    Metric("tenant_backlog", "gauge", "Emails of a tenant that wait.", ("tenant",)),
    Metric(
        "send_duration_seconds",
        "histogram",
        "How long calls to a provider took.",
        ("provider",),
        "process",
    ),
    Metric("provider_usable", "gauge", "1 if emails may be sent by it now.", ("provider",)),
    Metric(
        "provider_circuit_state",
        "gauge",
        "1 for the state that its circuit is in: closed, open or half_open.",
        ("provider", "state"),
    ),
    Metric(
        "provider_tokens",
        "gauge",
        "What its rate limit leaves now, of emails or of calls; missing if there is no limit.",
        ("provider", "unit"),
    ),
    Metric(
        "provider_quota_used",
        "gauge",
        "How much of its tighter quota is used: 0 to 1; missing if there is none.",
        ("provider",),
    ),
    Metric("workers", "gauge", "Workers heard of in the last 45 seconds."),
    Metric(
        "alerts_firing",
        "gauge",
        "Alerts that fire now, by rule and severity.",
        ("rule", "severity"),
    ),
    Metric(
        "last_run_timestamp_seconds",
        "gauge",
        "When this process last claimed without a fault, as Unix time; missing before the first.",
        (),
        "process",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
"""Every metric by its name without the prefix."""
