"""Analysts may ask a hot standby: every view answers there, and says the same."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from monitoring.standby import standby
from monitoring.test_verbatim import work
from support.queue import Clock, Queue


@pytest.mark.slow
def test_every_view_answers_on_a_standby(committed: Queue, database_url: str) -> None:
    clock = Clock(committed.conn)
    committed.run("SELECT mailgres.heartbeat('worker-1')")
    work(committed, clock)
    committed.run("SELECT mailgres.measure_depth()")
    clock.forward(timedelta(seconds=5))
    examples = committed.rows("SELECT name, example FROM email_monitoring")
    assert len(examples) > 20
    committed.run("SET ROLE mailgres_analyst")
    with standby(database_url) as url, psycopg.connect(url, autocommit=True) as replica:
        replica.execute("SET ROLE mailgres_analyst")
        for view in examples:
            query = view.example.encode()
            said = replica.execute(query).fetchall()
            assert said == committed.conn.execute(query).fetchall(), view.name
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            replica.execute("CREATE TEMP TABLE written ()")
