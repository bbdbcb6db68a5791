"""Write docs/benchmarks.md and its plots from the stored results of the scorecard: `make docs`.

`make bench`, `make bench-quick` and `make bench-chaos` run it, too. The results of a full run
are used if there are some, else those of a quick run.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from svg_plots import Bar, Line, bars, lines, number

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images" / "benchmarks"
OURS, RIVAL = "mailgres", "pgqueuer"
Results = list[dict[str, Any]]
CHAOS_FIGURES = ("recovery_percent", "lost", "stuck", "doubled", "repeated_keys")

INTRODUCTION = """
# Benchmarks

mailgres beside other queues in PostgreSQL, in one run on one server. A run wrote this page: `make
bench` (at most 20 minutes), `make bench-quick` (at most 3) and `make bench-chaos` (at most 25).

Every queue is a process with one protocol, at the best settings that its documentation names: the
scripts in [benchmarks/peers](../benchmarks/peers/protocol.py) say which. The queues take turns, and
all of them handle the same number of emails, or less if a drain would take too long. What they do
for an email differs:

- mailgres renders a template, logs every attempt and keeps counts. The other queues run a handler
  that does nothing.
- pgqueuer, pgmq and graphile-worker delete what is done; the others keep it.
- The two bare loops are the least that is possible: claim 10, then one UPDATE and one commit for
  each; and claim 500, then one UPDATE. They have no retries, no leases and no log.

[The other benchmarks](../benchmarks/README.md) measure the parts of mailgres.

"""


def paragraphs(*texts: str) -> str:
    """Return paragraphs and list items, wrapped, with an empty line before each paragraph."""
    written = ""
    for text in texts:
        is_item = text.startswith("- ")
        lines_of = textwrap.fill(
            text,
            110,
            subsequent_indent="  " if is_item else "",
            break_on_hyphens=False,
            break_long_words=False,
        )
        after_item = written.rpartition("\n\n")[2].startswith("- ")
        written += ("\n" if after_item and not is_item else "") + lines_of
        written += "\n" if is_item else "\n\n"
    return written.rstrip("\n") + "\n\n"


def stored(*names: str) -> Results:
    """Return the lines of the first of these results that exists."""
    for name in names:
        path = RESULTS / f"{name}.jsonl"
        if path.exists():
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return []


def found(results: Results, measure: str, queue: str, **wanted: object) -> dict[str, Any]:
    """Return the line of a measure of a queue, or why there is none."""
    for line in results:
        told = {"measure": measure, "queue": queue, **wanted}
        if all(line.get(key) == value for key, value in told.items()):
            return line
    return {"skipped": "-"}


def cell(line: dict[str, Any], *keys: str, join: str = " / ") -> str:
    """Return figures of a line, or why there are none."""
    if "failed" in line:
        return "failed"
    if "skipped" in line:
        return str(line["skipped"])
    return join.join(number(line[key]) for key in keys)


def queues(results: Results) -> list[str]:
    """Return the queues of a run, in its order."""
    return list(dict.fromkeys(line["queue"] for line in results if line["measure"] == "drain"))


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table."""
    every = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in every) + "\n"


def warnings(head: dict[str, Any]) -> list[str]:
    """Return why the figures of a run say little, if they do."""
    texts = []
    if head["kind"] != "full":
        texts.append(
            "**These figures come from a quick run with small numbers. They show that the scorecard"
            " works; do not quote them.**"
        )
    if head["machine"]["load_average"][0] > head["machine"]["cores"]:
        texts.append("**The machine was busy with other work. Compare CPU and WAL, not times.**")
    return texts


def conditions(results: Results) -> str:
    """Return when, where and how the run was made."""
    head, end = results[0], results[-1]
    machine, sizes = head["machine"], head["sizes"]
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    about = (
        f"A {head['kind']} run of {head['at'][:10]}, {end['seconds']:,} seconds, on"
        f" {machine['cores']} cores ({machine['cpu']}), PostgreSQL"
        f" {machine['postgresql'] // 10000}, fsync on, mailgres"
        f" {machine['mailgres']}. Load average at the start"
        f" {machine['load_average'][0]}, at the end {end['load_average'][0]}. Drains have up to"
        f" {sizes['emails']:,} emails. Versions: {versions or '-'}."
    )
    texts = [about]
    texts += warnings(head)
    texts += [
        f"- Missing: {line['queue']}, {line.get('reason') or line.get('failed')}."
        for line in results
        if line["measure"] in ("missing", "start")
    ]
    return paragraphs(*texts)


def main_table(results: Results) -> str:
    """Return the table of all queues."""
    head = [
        "queue",
        "one process, emails/s",
        "two processes",
        "CPU µs per email, client + server",
        "WAL per email, bytes",
        "commit to call, p50 / p99 ms",
        "enqueue one by one, /s",
        "in bulk, /s",
    ]
    rows = []
    for queue in queues(results):
        one = found(results, "drain", queue, processes=1)
        enqueue = found(results, "enqueue", queue)
        rows.append(
            [
                queue,
                cell(one, "median_per_s"),
                cell(found(results, "drain", queue, processes=2), "median_per_s"),
                cell(one, "client_us", "server_us", join=" + "),
                cell(one, "wal_bytes"),
                cell(found(results, "latency", queue), "p50_ms", "p99_ms"),
                cell(enqueue, "one_by_one_per_s"),
                cell(enqueue, "in_bulk_per_s"),
            ]
        )
    return table(head, rows)


def under_pressure(results: Results) -> str:
    """Return the table of pinned snapshots, growth, fairness and memory."""
    head = [
        "queue",
        "pinned snapshot, last two rounds",
        "beside sent and future rows",
        "many tenants",
        "fairness (Jain)",
        "memory, first / last MB",
    ]
    rows = []
    for queue in queues(results):
        memory = found(results, "memory", queue)
        rss = memory.get("rss_mb") or [0]
        rows.append(
            [
                queue,
                cell(found(results, "pinned", queue), "ratio"),
                cell(found(results, "growth", queue), "ratio"),
                cell(found(results, "tenants", queue), "ratio"),
                cell(found(results, "fairness", queue), "jain"),
                f"{rss[0]:.0f} / {rss[-1]:.0f} ({memory.get('emails', 0):,} emails)",
            ]
        )
    return table(head, rows)


def goals(results: Results) -> str:
    """Return the goals beside the figures of mailgres."""

    def figure(measure: str, key: str, queue: str = OURS, **wanted: object) -> float | None:
        value = found(results, measure, queue, **wanted).get(key)
        return None if value is None else float(value)

    def ratio(measure: str, key: str, **wanted: object) -> float | None:
        ours, rival = (figure(measure, key, queue, **wanted) for queue in (OURS, RIVAL))
        return round(ours / rival, 2) if ours and rival else None

    rows = [
        ("one process against pgqueuer's", ratio("drain", "median_per_s", processes=1), ">=", 1.5),
        ("two processes against its two", ratio("drain", "median_per_s", processes=2), ">=", 1.1),
        ("client CPU per email, µs", figure("drain", "client_us", processes=1), "<=", 35),
        ("server CPU per email, µs", figure("drain", "server_us", processes=1), "<=", 40),
        ("WAL per email, bytes", figure("drain", "wal_bytes", processes=1), "<=", 1500),
        ("commit to call, p50 ms", figure("latency", "p50_ms"), "<=", 1.5),
        ("commit to call, p99 ms", figure("latency", "p99_ms"), "<=", 4),
        ("`enqueue_email` against pgqueuer's", ratio("enqueue", "one_by_one_per_s"), ">=", 1),
        ("`enqueue_emails` against pgqueuer's", ratio("enqueue", "in_bulk_per_s"), ">=", 1),
        ("pinned snapshot, rate against the free one", figure("pinned", "ratio"), ">=", 0.9),
    ]
    return table(
        ["what", "goal", "measured", "met"],
        [[what, f"{sign} {goal}", *_judged(value, sign, goal)] for what, value, sign, goal in rows],
    )


def _judged(value: float | None, sign: str, goal: float) -> tuple[str, str]:
    if value is None:
        return "-", "not measured"
    return number(value), "yes" if (value >= goal if sign == ">=" else value <= goal) else "no"


def plots(results: Results, chaos: Results) -> dict[str, str]:
    """Return the plots: file name and SVG."""
    rates = [
        Bar(f"{queue}, {processes}", line["median_per_s"], 0 if queue == OURS else processes)
        for queue in queues(results)
        for processes in (1, 2)
        if "median_per_s" in (line := found(results, "drain", queue, processes=processes))
    ]
    shares = [
        Line(queue, [held / free for held, free in zip(*rounds, strict=True)])
        for queue in queues(results)
        if "ratio" in (line := found(results, "pinned", queue))
        and (rounds := (line["pinned_per_s"], line["free_per_s"]))
    ]
    drawn = {
        "drain.svg": bars("Emails per second, one and two processes", rates),
        "pinned.svg": lines(
            "Drains while a snapshot stays open", "rate against the free one, by round", shares
        ),
    }
    recovery = [
        Bar(
            f"{line['queue']}, {line['fault']}",
            line["recovery_percent"],
            0 if line["queue"] == OURS else 1,
        )
        for line in chaos
        if line.get("recovery_percent") is not None
    ]
    if recovery:
        drawn["chaos.svg"] = bars("Rate after a disturbance, % of the rate before", recovery)
    return drawn


def chaos_part(results: Results) -> str:
    """Return what the chaos run found."""
    title = "## Chaos\n\n"
    if not results:
        return title + "No results of `make bench-chaos` are stored.\n"
    head = results[0]
    text = (
        f"A {head['kind']} run of {head['at'][:10]}, load average"
        f" {head['machine']['load_average'][0]} at the start. A worker sends emails, twenty at"
        f" once, and each call takes {head['sizes']['delay_ms']} ms. *Recovery* is the rate after"
        " the disturbance in % of the rate before. *Lost*: never sent, and no longer in the queue."
        f" *Stuck*: still in the queue, but no call was made for {head['sizes']['patience_s']} s."
        " *Doubled*: sent more than once. *Repeated*: a call that may have arrived was repeated"
        " with the same idempotency key, so that a provider with keys drops it; the other queues"
        " make no keys."
    )
    rows = [
        [line["fault"], line["queue"], *_chaos_cells(line)]
        for line in results
        if line["measure"] == "chaos"
    ]
    head_row = ["disturbance", "queue", "recovery, %", "lost", "stuck", "doubled", "repeated"]
    cells = table(head_row, rows)
    about = paragraphs(text, *warnings(head))
    return f"{title}{about}{cells}![Recovery](images/benchmarks/chaos.svg)\n"


def _chaos_cells(line: dict[str, Any]) -> list[str]:
    if "failed" in line:
        return [f"failed: {line['failed'][:80].replace('|', '/')}", "-", "-", "-", "-"]
    return ["-" if line[key] is None else number(line[key]) for key in CHAOS_FIGURES]


def explained(sizes: dict[str, Any]) -> str:
    """Return what the columns of the second table mean."""
    return paragraphs(
        f"- **Pinned snapshot**: {sizes['pinned_rounds']} drains while another session keeps a"
        " snapshot, in turn with drains of a database without one; the last two rounds are"
        " compared.",
        f"- **Beside sent and future rows**: {sizes['rows']:,} of each (sent ones where the queue"
        " keeps them), against a small database.",
        f"- **Many tenants**: the emails of a drain belong to {sizes['tenants']:,} tenants instead"
        " of one.",
        f"- **Fairness**: {sizes['light']:,} tenants with one email each, behind a tenant with up"
        f" to {sizes['heavy']:,}. In the first {2 * sizes['light']:,} calls a fair queue serves"
        " every tenant; Jain's index of the shares is 1 then, and near 0 if one tenant gets"
        " everything.",
        "- **Memory** of the first worker process after its first drain and after its last one.",
    )


def page(results: Results, chaos: Results) -> str:
    """Return the page."""
    timed = (
        "A drain is timed from its start to the last call; costs are counted until everything is"
        " written. CPU is that of the worker process and of all processes of the server, from"
        " `/proc`."
    )
    parts = (
        INTRODUCTION.lstrip(),
        "## The run\n\n",
        conditions(results),
        "## Goals\n\n",
        goals(results),
        "## Speed and cost\n\n",
        main_table(results),
        "![Emails per second](images/benchmarks/drain.svg)\n\n",
        paragraphs(timed),
        "## Under pressure\n\n",
        under_pressure(results),
        "![A pinned snapshot](images/benchmarks/pinned.svg)\n\n",
        explained(results[0]["sizes"]),
        chaos_part(chaos),
    )
    return "".join(parts)


def current() -> tuple[str, dict[str, str]]:
    """Return the page and the plots that the stored results give."""
    results = stored("scorecard", "scorecard_quick")
    chaos = stored("chaos", "chaos_quick")
    return page(results, chaos), plots(results, chaos)


def main() -> None:
    """Write them."""
    text, drawn = current()
    PAGE.write_text(text, encoding="utf-8")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        (IMAGES / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
