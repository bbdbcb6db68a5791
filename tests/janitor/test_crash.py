"""A janitor may die at any moment: an email is in the queue or in the archive, never in neither."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from janitor.harness import DAY, JanitorHarness, archived, ids, put
from support.concurrency import until

LOOP = """
import sys
from dataclasses import replace
import psycopg
from mailgres.janitor import JANITORS, WorkerInfo, run

archive = replace(JANITORS["archive_dead_letters"], chunk=3)
while True:
    run(archive, lambda: psycopg.connect(sys.argv[1], application_name="doomed"), WorkerInfo("w"))
"""
EMAILS = 3000
ALIVE = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'doomed'"


@pytest.mark.slow
def test_a_janitor_that_is_killed_repeatedly_loses_no_email(harness: JanitorHarness) -> None:
    emails = set(put(harness, "failed", EMAILS))
    harness.clock.forward(8 * DAY)
    for _ in range(4):
        before = len(archived(harness))
        janitor = subprocess.Popen([sys.executable, "-c", LOOP, harness.url])
        try:
            until(lambda: len(archived(harness)) > before + 50, "it archives")  # noqa: B023
        finally:
            janitor.send_signal(signal.SIGKILL)
            janitor.wait(60)
        until(lambda: harness.value(ALIVE) == 0, "its connection has ended")

        kept, moved = ids(harness), archived(harness)
        assert kept, "it was killed too late to prove anything"
        assert kept | moved == emails
        assert not kept & moved
        assert harness.locks() == 0
        logs = harness.rows("SELECT queue_id, count(*) FROM email_logs GROUP BY 1")
        assert {row.queue_id for row in logs} == kept
        assert {row.count for row in logs} == {2}
        lengths = harness.rows("SELECT DISTINCT jsonb_array_length(log) FROM mailgres.dead_letters")
        assert lengths == [(2,)]
    while harness.clean("archive_dead_letters").more:
        pass
    assert archived(harness) == emails
