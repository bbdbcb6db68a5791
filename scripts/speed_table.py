"""Write the tables of figures from the results of the benchmarks: `make docs`.

benchmarks/README.md has all of them, the README has four, docs/events.md and docs/inbox.md have
their own.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGE = ROOT / "benchmarks" / "README.md"
EVENTS = ROOT / "docs" / "events.md"
INBOX = ROOT / "docs" / "inbox.md"
RESULTS = ROOT / "benchmarks" / "results"

SPEED = re.compile(
    r"^\| what \| against \| measured \|\n(?:\|.*\n)+\n(?:One email costs .*\n(?:.+\n)*\n)?",
    re.MULTILINE,
)
"""A table of figures, and the sentence below it."""
OF_THE_INBOX = re.compile(r"^- It is ready .*\n(?:  .+\n)*", re.MULTILINE)
"""The line of docs/inbox.md with figures."""


def result(name: str) -> dict[str, Any]:
    """Return the result of a benchmark."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def of_the_queue() -> list[tuple[str, str, str]]:
    """Return the rows about enqueuing and claiming."""
    enqueue = result("enqueue")
    claims = [
        size["ratio"]
        for step, sizes in result("claim").items()
        if step[1:2] == ":"
        for size in sizes.values()
    ]
    return [
        (
            "`enqueue_email`, one commit each",
            "a bare one-row INSERT of the same data",
            f"{enqueue['one_by_one']['ratio']} of its rate",
        ),
        (
            "`enqueue_emails`, a thousand at once",
            "a bare INSERT of a thousand rows",
            f"{enqueue['in_bulk']['ratio']} of its rate",
        ),
        (
            "32 clients enqueuing, workers busy",
            "the same without the check for sleepers",
            f"{enqueue['many_clients']['ratio']} of its rate",
        ),
        (
            "a claim at 4 million rows, 10,000 tenants",
            "a claim at 1,000 rows",
            f"{min(claims)} to {max(claims)} times as long",
        ),
    ]


def of_the_worker() -> list[tuple[str, str, str]]:
    """Return the rows about sending."""
    drain, worker = result("drain"), result("worker")
    null = drain["null_provider"]
    times = {name: each["ratio"] for name, each in null["times_the_rate_of"].items()}
    what = "draining, template rendered, every attempt logged"
    pick_up, slow, size = (worker[part] for part in ("pick_up", "slow_provider", "size"))
    return [
        (
            what,
            "the usual loop: claim 10, UPDATE and commit each",
            f"{times['loop']} times its rate",
        ),
        (
            what,
            "django-post_office into memory, nothing rendered",
            f"{times['post_office_in_memory']} times its rate",
        ),
        (
            what,
            "procrastinate, tasks that do nothing",
            f"{times['procrastinate_noop']} times its rate",
        ),
        ("two processes", "one", f"{null['two_processes']['ratio']} times its rate"),
        (
            "a provider that takes 50 ms, 50 calls at once",
            "1,000 emails/s, the most that allows",
            f"{slow['with_keys']['ratio']} of it, {slow['without_keys']['ratio']} without keys",
        ),
        (
            "draining beside a million sent and a million future rows",
            "draining an empty table",
            f"{size['ratio']} of its rate",
        ),
        (
            "from commit to the provider's call, worker asleep",
            "-",
            f"{pick_up['p50_ms']} ms (median), {pick_up['p99_ms']} ms (99 %)",
        ),
    ]


def of_the_providers() -> list[tuple[str, str, str]]:
    """Return the rows that compare with a provider's own client."""
    found = result("providers")
    resend, ses = found["resend"], found["ses"]
    slow = resend["at_2_requests_per_s"]
    return [
        (
            f"{slow['emails']:,} emails, Resend's double at 2 requests/s",
            "500 s, one by one",
            f"{slow['seconds']} s",
        ),
        (
            "Resend's double without a limit",
            "-",
            (
                f"{resend['in_batches']['per_s']:,} emails/s in batches,"
                f" {resend['one_by_one']['per_s']} one by one"
            ),
        ),
        ("SES's double", "bare boto3 calls, as many at once", f"{ses['ratio']} of their rate"),
    ]


def of_the_webhooks() -> list[tuple[str, str, str]]:
    """Return the rows about what providers report."""
    found = result("webhooks")
    alone, many, health = found["one_caller"], found["8_callers"], found["health_check"]
    return [
        (
            "a webhook's answer, after the commit, one event",
            f"the health check: {health['median_ms']} ms (median)",
            f"{alone['median_ms']} ms (median), {alone['p99_ms']} ms (99 %)",
        ),
        (
            "the same, eight callers at once",
            "-",
            f"{many['median_ms']} ms (median), {many['p99_ms']} ms (99 %)",
        ),
        (
            "a webhook with 100 events in each request",
            "-",
            f"{found['100_events_per_request']['events_per_second']:,} events/s",
        ),
        *of_the_events(),
    ]


def of_the_events() -> list[tuple[str, str, str]]:
    """Return the rows about recording events."""
    found = result("events")
    alone, beside = found["alone"], found["beside_a_drain"]
    return [
        (
            "`record_email_events`, 100 events in a call",
            "-",
            (
                f"{alone['events_per_s']:,} events/s,"
                f" {alone['backend_cpu_us_per_event']} µs of the server each"
            ),
        ),
        (
            "draining while 2,000 events/s are recorded",
            "draining alone",
            f"{beside['ratio']} of its rate",
        ),
    ]


def of_the_inbox() -> list[tuple[str, str, str]]:
    """Return the rows about `mailgres dev`."""
    found = result("inbox")
    seen = found["commit_to_page"]
    return [
        (
            "`mailgres dev` until it is ready",
            f"its first start, with initdb and all revisions: {found['first_start_s']} s",
            f"{found['later_start_s']} s",
        ),
        (
            "from commit to an open page of the inbox, in Chromium",
            "-",
            f"{seen['median_ms']:.0f} ms (median), {seen['p95_ms']:.0f} ms (95 %)",
        ),
    ]


def inbox_line() -> str:
    """Return the line about the inbox for its page."""
    found = result("inbox")
    text = (
        f"- It is ready {found['first_start_s']} s after its first start, which makes"
        f" the database, and {found['later_start_s']} s after a later one. An open page shows an"
        f" email {found['commit_to_page']['median_ms']:.0f} ms after the commit (median;"
        " [how it was measured](../benchmarks/README.md))."
    )
    return textwrap.fill(text, 110, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def of_what_people_ask() -> list[tuple[str, str, str]]:
    """Return the rows about a queue with ten million emails."""
    views, operator = result("monitoring")["views"], result("operator")
    export, few = operator["export_of_all"], operator["export_of_a_thousand"]
    return [
        (
            "any view, ten million emails",
            "-",
            f"at most {views['slowest']['p95_ms']:.0f} ms (95 %)",
        ),
        (
            "the query of `mailgres list` by any filter, a day of ten million",
            "-",
            f"at most {operator['list_worst_median_ms']:.0f} ms (median)",
        ),
        (
            "memory for an export of a million dead letters",
            "of a thousand",
            f"{export['peak_mb']} MB, {few['peak_mb']} MB",
        ),
    ]


def steps() -> str:
    """Return the cost of an email for the worker and the database, step by step."""
    drain = result("drain")
    costs = dict(drain["us_per_email_by_step"])
    start = costs.pop("start (only at providers without keys)")
    each = ", ".join(f"{step} {cost}" for step, cost in costs.items())
    whole = drain["null_provider"]["us_per_email"]
    text = (
        f"One email costs {whole} µs when the steps overlap, as they do in a worker; one after"
        f" another they take, in µs: {each}; and start {start}, only at providers without"
        " idempotency keys."
    )
    return textwrap.fill(text, 100, break_on_hyphens=False) + "\n"


def speed_table() -> str:
    """Return all figures of the committed results."""
    rows = [
        *of_the_queue(),
        *of_the_worker(),
        *of_the_providers(),
        *of_the_webhooks(),
        *of_what_people_ask(),
        *of_the_inbox(),
    ]
    return f"{_table(rows)}{steps()}\n"


def short_table() -> str:
    """Return the four figures of the README."""
    loop, post_office, _, _, _, _, pick_up = of_the_worker()
    views, *_ = of_what_people_ask()
    return _table([loop, post_office, pick_up, views])


def events_table() -> str:
    """Return the figures of docs/events.md."""
    return _table(of_the_webhooks())


def _table(rows: list[tuple[str, str, str]]) -> str:
    head = [("what", "against", "measured"), ("---", "---", "---")]
    return "".join(f"| {' | '.join(row)} |\n" for row in [*head, *rows]) + "\n"


def main() -> None:
    """Write the tables."""
    tables = {EVENTS: events_table, PAGE: speed_table, README: short_table}
    for page, make_table in tables.items():
        table = make_table()
        text = page.read_text(encoding="utf-8")
        page.write_text(SPEED.sub(lambda _: table, text, count=1), encoding="utf-8")  # noqa: B023
    text = INBOX.read_text(encoding="utf-8")
    INBOX.write_text(OF_THE_INBOX.sub(lambda _: inbox_line(), text, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
