"""Write docs/metrics.md from the definitions of the metrics; a test compares them."""

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
      credentials_file: /etc/prometheus/mailgres-metrics-token  # the same as MAILGRES_METRICS_TOKEN
    static_configs:
      - targets: ["mail.example.com:8725"]
```

Two kinds of metrics are served:

- **of the queue**: the work of all workers together, and the backlog. They come from the
  database's own counts, in one short transaction that may take at most 5 seconds, and are cached
  for 5 seconds. Every serving process has the same values: scrape one of them, or take the
  maximum, never the sum. If the database does not answer, `mailgres_up` is 0 and they are missing;
  the request itself still succeeds.
- **of the process**: what the answering process has measured since it started. Add them up over
  processes. With `mailgres worker --serve --processes N` the parent answers, which makes only the
  calls requested by HTTP: to get them from every worker, run N workers with one process each, each
  on its own port.

Counters restart with the process that serves them. The {MOST_TENANTS} tenants with most have
labels of their own; the label `other` stands for the rest. An alert on `other` is one on the worst
of them.
"""


def table(title: str, metrics: list[Metric]) -> str:
    """Return a table of metrics."""
    rows = [
        f"| `{each.full_name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)}"
        f" | {each.about} |"
        for each in metrics
    ]
    head = ["| metric | type | labels | what it is |", "|---|---|---|---|"]
    return f"\n## {title}\n\n" + "\n".join([*head, *rows]) + "\n"


def bounds() -> str:
    """Return the upper bounds of the histograms."""
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
    """Return the whole page."""
    of_queue = [each for each in METRICS.values() if each.source == "queue"]
    of_process = [each for each in METRICS.values() if each.source == "process"]
    return HEAD + table("Of the queue", of_queue) + table("Of the process", of_process) + bounds()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
