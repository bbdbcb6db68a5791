"""Writes docs/metrics.md from the definitions of the metrics; a test compares them."""

from __future__ import annotations

from pathlib import Path

from mailgres import measurements
from mailgres.metrics.definitions import DEAD_AGES, METRICS, MOST_TENANTS, Metric

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"

HEAD = f"""\
# Metrics

Generated from `mailgres.metrics.definitions` by `scripts/metrics_page.py`.

`mailgres serve` and `mailgres worker --serve` answer `GET /metrics` in the text format of
Prometheus (see [the HTTP service](http.md) for who may read it).

```yaml
# prometheus.yml
scrape_configs:
  - job_name: mailgres
    authorization:
      credentials_file: /etc/prometheus/mailgres-metrics-token  # what MAILGRES_METRICS_TOKEN has
    static_configs:
      - targets: ["mail.example.com:8725"]
```

Two kinds of figures are served:

- **of the queue**: what all workers together do, and what waits. They come out of the database's
  own counts, in one short transaction that may take 5 seconds in all, and hold for 5 seconds,
  however many ask. Every process that serves says the same: scrape one of them, or take the
  maximum over them, never the sum. When the database does not answer, `mailgres_up` is 0 and they
  are missing; the request itself still succeeds.
- **of the process**: what the process that answers has measured itself, since it started. Add them
  up over processes. With `mailgres worker --serve --processes N` the parent answers, which makes no
  calls but those asked for by HTTP: to have them of every worker, run N workers of one process,
  each with a port of its own.

Counters begin anew with the process that serves them. Tenants have labels of their own as long as
they are among the {MOST_TENANTS} with most; the label `other` stands for the rest. An alert on
`other` is one on the worst of them.
"""


def table(title: str, metrics: list[Metric]) -> str:
    """Describe some metrics."""
    rows = [
        f"| `{each.full_name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)}"
        f" | {each.about} |"
        for each in metrics
    ]
    head = ["| metric | type | labels | what it is |", "|---|---|---|---|"]
    return f"\n## {title}\n\n" + "\n".join([*head, *rows]) + "\n"


def bounds() -> str:
    """The upper bounds of the histograms."""
    rows = {
        "send_duration_seconds": measurements.SEND_SECONDS.bounds,
        "retry_backoff_delay_seconds": measurements.BACKOFF_SECONDS.bounds,
        "dlq_age_seconds": DEAD_AGES,
    }
    lines = [
        f"| `{METRICS[name].full_name}` | {', '.join(f'{bound:g}' for bound in found)} |"
        for name, found in rows.items()
    ]
    head = ["| histogram | upper bounds in seconds |", "|---|---|"]
    return "\n## Histograms\n\n" + "\n".join([*head, *lines]) + "\n"


def page() -> str:
    """The whole page."""
    of_queue = [each for each in METRICS.values() if each.source == "queue"]
    of_process = [each for each in METRICS.values() if each.source == "process"]
    return HEAD + table("Of the queue", of_queue) + table("Of the process", of_process) + bounds()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
