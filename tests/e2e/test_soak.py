"""A short soak for every change; `make soak` runs the long one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.soak import Plan, opened

PLANS = {
    "resend, briefly": Plan("resend", mails=150, workers=3, kills=2, restarts=1, seconds=150.0),
    "resend": Plan("resend", mails=600, kills=6, restarts=1, seconds=150.0),
    "ses": Plan("ses", mails=200, workers=3, kills=2, restarts=1, seconds=150.0),
    "smtp": Plan("smtp", mails=200, workers=3, kills=2, restarts=1, seconds=150.0),
}

LONGER = ("resend", "ses", "smtp")


@pytest.mark.parametrize(
    "kind", ["resend, briefly", *(pytest.param(kind, marks=pytest.mark.long) for kind in LONGER)]
)
def test_a_soak_loses_no_email(kind: str, migrations: Path) -> None:
    """Nothing is lost; only ambiguous emails without a key that are to be resent arrive twice.

    Of those that cannot be sent each dies for its own reason, and no other with it.
    """
    with opened(PLANS[kind], migrations) as soak:
        reported = soak.run()
    assert reported["good"], json.dumps(reported)
    assert reported["faults_met"] > 0
    assert reported["bad"] >= len(soak.bad.kinds)
    assert reported["restarts"] == 1
    assert reported["old_processor"]["sent"] > 0
