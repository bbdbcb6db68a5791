"""A janitor may die at any moment: an email is in the queue or in the archive, never in neither."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from janitor.house import DAY, House, archived, ids, put, until

LOOP = """
import sys
from dataclasses import replace
import psycopg
from mailgres.janitor import JANITORS, WorkerInfo, run

archive = replace(JANITORS["archive"], chunk=3)
while True:
    run(archive, lambda: psycopg.connect(sys.argv[1], application_name="doomed"), WorkerInfo("w"))
"""
EMAILS = 3000
ALIVE = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'doomed'"


@pytest.mark.slow
def test_killed_again_and_again(house: House) -> None:
    emails = set(put(house, "failed", EMAILS))
    house.clock.forward(8 * DAY)
    for _ in range(4):
        before = len(archived(house))
        janitor = subprocess.Popen([sys.executable, "-c", LOOP, house.url])
        try:
            until(lambda: len(archived(house)) > before + 50)  # noqa: B023
        finally:
            janitor.send_signal(signal.SIGKILL)
            janitor.wait(30)
        until(lambda: house.value(ALIVE) == 0)

        kept, moved = ids(house), archived(house)
        assert kept, "it was killed too late to prove anything"
        assert kept | moved == emails
        assert not kept & moved
        assert house.locks() == 0
        logs = house.rows("SELECT queue_id, count(*) FROM email_logs GROUP BY 1")
        assert {row.queue_id for row in logs} == kept
        assert {row.count for row in logs} == {2}
        lengths = house.rows("SELECT DISTINCT jsonb_array_length(log) FROM mailgres.dead_letters")
        assert lengths == [(2,)]
    while house.clean("archive").more:
        pass
    assert archived(house) == emails
