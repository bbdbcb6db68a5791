"""The work per email does not grow unnoticed: counters are compared with committed figures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cost.measure import Figures, grown, measure
from support.postgres import GIVEN_URL, Connect

ACCEPTED = Path(__file__).with_name("figures.json")
MOST = 0.10
"""The share by which a counter may grow."""
ACCEPT = "If this is intended, accept the new figures: make figures"


pytestmark = pytest.mark.skipif(
    GIVEN_URL is not None, reason="the figures are those of the tests' own server"
)


@pytest.mark.parametrize("pinned", [False, True], ids=["free", "pinned"])
def test_an_email_costs_no_more_than_the_committed_figures(
    connect: Connect, *, pinned: bool
) -> None:
    conn, other = connect(), connect()
    kind = "pinned" if pinned else "free"
    major = str(conn.info.server_version // 10000)
    found = measure(conn, other, pinned=pinned)
    accepted: dict[str, dict[str, Figures]] = json.loads(ACCEPTED.read_text())
    if os.environ.get("MAILGRES_ACCEPT_FIGURES"):
        accepted.setdefault(major, {})[kind] = found
        ACCEPTED.write_text(json.dumps(accepted, indent=1, sort_keys=True) + "\n")
    if major not in accepted:
        pytest.skip(f"there are no figures of PostgreSQL {major}: make figures")
    problems = grown(found, accepted[major][kind], MOST)
    assert not problems, "\n".join([f"{kind}:", *problems, ACCEPT])


def test_the_cost_figures_notice_an_additional_index(connect: Connect) -> None:
    """What a careless change would cost is beyond the limit, and named."""
    conn, other = connect(), connect()
    major = str(conn.info.server_version // 10000)
    accepted = json.loads(ACCEPTED.read_text()).get(major)
    if accepted is None:
        pytest.skip(f"there are no figures of PostgreSQL {major}: make figures")
    conn.execute("CREATE INDEX ON email_queue (correlation_id, status)")
    problems = grown(measure(conn, other, pinned=False), accepted["free"], MOST)
    assert any(each.startswith("enqueue_email: wal_bytes per email grew") for each in problems)


def test_a_cost_that_grew_is_named() -> None:
    before = {"claim": {"buffers": 10.0, "wal_bytes": 200.0}}
    assert grown({"claim": {"buffers": 10.9, "wal_bytes": 100.0}}, before, MOST) == []
    assert grown({"claim": {"buffers": 11.1, "wal_bytes": 200.0}}, before, MOST) == [
        "claim: buffers per email grew from 10 to 11.1 (1.11 times)"
    ]
