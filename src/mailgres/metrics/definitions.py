"""Every metric: its name, kind, labels and meaning. docs/metrics.md is generated from this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "mailgres_"
MOST_TENANTS = 50
"""Tenants with a label of their own; all others are `other`."""
MOST_CODES = 30
"""Error codes with a label of their own."""
DEAD_AGES = (3600.0, 21600.0, 86400.0, 259200.0, 604800.0)
"""Upper bounds for the age of dead letters: 1 h, 6 h, 1 d, 3 d, 7 d."""

Kind = Literal["counter", "gauge", "histogram"]
Source = Literal["queue", "process"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `source`: all workers of the queue, or this process only."""

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
        "up", "gauge", "1 if the database answered; else 0, and the queue's metrics are missing."
    ),
    Metric("build_info", "gauge", "Always 1; the version is the label.", ("version",), "process"),
    Metric("scrape_seconds", "gauge", "How long the database took to answer."),
    Metric("queue_depth", "gauge", "Emails in the queue.", ("status",)),
    Metric("queue_due", "gauge", "Emails that could be sent now."),
    Metric("queue_parked", "gauge", "Emails on hold until the sender's configuration is fixed."),
    Metric("queue_oldest_due_seconds", "gauge", "How long the oldest due email has been due."),
    Metric(
        "events_total",
        "counter",
        "Outcomes of attempts and emails: sent, retry, deferred, dead, cancelled.",
        ("event",),
    ),
    Metric(
        "retry_attempts_total",
        "counter",
        "Attempts by number, the first being 1; 20 includes all later ones.",
        ("attempt",),
    ),
    Metric(
        "retry_success_rate",
        "gauge",
        "Share of the attempts with this number that succeeded in the last 7 days: 0 to 1.",
        ("attempt",),
    ),
    Metric(
        "retry_backoff_delay_seconds",
        "histogram",
        "Delay before the next attempt, as it was decided.",
        (),
        "process",
    ),
    Metric("dlq_entries_total", "counter", "Emails that became dead letters."),
    Metric("dlq_size", "gauge", "Dead letters in the queue."),
    Metric(
        "dlq_age_seconds",
        "histogram",
        "Age of the dead letters in the queue, to the hour.",
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
        f"Attempts for a tenant: the {MOST_TENANTS} with most, and the sum of all others.",
        ("tenant",),
    ),
    Metric(
        "tenant_current_priority",
        "gauge",
        "Urgency of a tenant: 5, rising to 1 while it waits; for other, the most urgent.",
        ("tenant",),
    ),
    Metric(
        "tenant_consecutive_batch",
        "gauge",
        "Emails of a tenant in its last claim; for other, the most.",
        ("tenant",),
    ),
    Metric(
        "tenant_rounds_without_processing",
        "gauge",
        "Claims since a tenant with due emails was served; for other, the most.",
        ("tenant",),
    ),
    Metric("tenant_backlog", "gauge", "Waiting emails of a tenant.", ("tenant",)),
    Metric(
        "send_duration_seconds",
        "histogram",
        "Duration of calls to a provider.",
        ("provider",),
        "process",
    ),
    Metric("provider_usable", "gauge", "1 if the provider can send now.", ("provider",)),
    Metric(
        "provider_circuit_state",
        "gauge",
        "1 for the current state of the circuit: closed, open or half_open.",
        ("provider", "state"),
    ),
    Metric(
        "provider_tokens",
        "gauge",
        "What the rate limit leaves now, in emails or calls; missing if there is no limit.",
        ("provider", "unit"),
    ),
    Metric(
        "provider_quota_used",
        "gauge",
        "Used share of the tighter quota: 0 to 1; missing if there is none.",
        ("provider",),
    ),
    Metric(
        "reported_emails",
        "gauge",
        "Emails of the last 24 hours by what providers reported, and events without an email.",
        ("event",),
    ),
    Metric("workers", "gauge", "Workers with a heartbeat in the last 45 seconds."),
    Metric(
        "alerts_firing",
        "gauge",
        "Firing alerts, by rule and severity.",
        ("rule", "severity"),
    ),
    Metric(
        "last_run_timestamp_seconds",
        "gauge",
        "Unix time of this process's last successful claim; missing before the first.",
        (),
        "process",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
"""Every metric by its name without the prefix."""
