"""Measure what a developer waits for: the start of `mailgres dev`, and a new email in the inbox.

    python -m benchmarks.inbox [--trial]

`mailgres dev` runs from the console script, first with no data (initdb and all revisions), then
again with the data that it kept. A start ends when the last line of its greeting is printed. With
chromium and chromedriver, the time between the commit of an email and its subject in the open page
is measured as well: enqueued, claimed, captured, announced and shown.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import harness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.browser import Browser

PROGRAM = Path(sys.executable).with_name("mailgres")
LAST_LINE = "Ctrl-C stops it."
ENQUEUE = "SELECT enqueue_email(NULL, 'custom', 'ana@example.com', p_subject => %s, p_text => 'Hi')"
APPEARED = """
    const [text, done] = arguments;
    const look = () => document.body.innerText.includes(text) && done(Date.now());
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
    look();
"""


@contextmanager
def dev(place: Path) -> Iterator[tuple[str, float]]:
    """Run `mailgres dev`; yield what it printed, and the seconds until it had."""
    start = time.perf_counter()
    with subprocess.Popen(
        [PROGRAM, "dev", "--data-dir", str(place)], stdout=subprocess.PIPE, text=True
    ) as process:
        lines = []
        for line in process.stdout or ():
            lines.append(line)
            if line.strip() == LAST_LINE:
                break
        took = time.perf_counter() - start
        try:
            yield "".join(lines), took
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def starts(place: Path, rounds: int) -> dict[str, Any]:
    """Return the times of first and later starts, and the processor time of a later one."""
    first: list[float] = []
    later: list[float] = []
    cpu: list[float] = []
    for number in range(rounds):
        for times in (first, later):
            before = os.times()
            with dev(place / str(number)) as (_, took):
                times.append(took)
            after = os.times()
        used = after.children_user + after.children_system
        cpu.append(used - before.children_user - before.children_system)
    return {
        "first_start_s": round(statistics.median(first), 2),
        "later_start_s": round(statistics.median(later), 2),
        "later_start_cpu_s": round(statistics.median(cpu), 2),
        "rounds": rounds,
    }


def shown(browser: Browser, said: str, emails: int) -> list[float]:
    """Return the seconds from the commit of each email to its subject in the page."""
    (address,) = re.findall(r"^Inbox: (\S+)$", said, re.MULTILINE)
    (url,) = re.findall(r"^DATABASE_URL=(\S+)$", said, re.MULTILINE)
    browser.open(address)
    took = []
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(emails):
            subject = f"Email number {number}."
            connection.execute(ENQUEUE, (subject,))
            committed = time.time()
            took.append(browser.run_async(APPEARED, subject) / 1000 - committed)
    return took


def in_the_browser(place: Path, emails: int) -> dict[str, Any] | None:
    """Measure with a real browser, if there is one."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.browser import CHROMIUM, DRIVER, browser  # noqa: PLC0415 - of the tests

    if CHROMIUM is None or DRIVER is None:
        return None
    with browser(place / "profile") as opened, dev(place / "0") as (said, _):
        return harness.milliseconds(shown(opened, said, emails))


def main(*, trial: bool) -> None:
    """Measure all of it."""
    with tempfile.TemporaryDirectory(prefix="mailgres-bench-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o711)  # for the account of root's server
        result = {
            "trial": trial,
            **starts(place, 1 if trial else 5),
            "commit_to_page": in_the_browser(place, 3 if trial else 50),
        }
        with dev(place / "0") as (said, _):
            (url,) = re.findall(r"^DATABASE_URL=(\S+)$", said, re.MULTILINE)
            with psycopg.connect(url) as connection:
                harness.report("inbox", connection, result)


if __name__ == "__main__":
    main(trial=harness.is_trial(__doc__))
