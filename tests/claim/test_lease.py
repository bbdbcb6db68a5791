"""What an email keeps from its first claim, and what an old processor may get."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from claim.workbench import ids
from mailgres.testing import travel

if TYPE_CHECKING:
    from claim.workbench import Workbench

NEW_VERSION = """
    INSERT INTO mailgres.template_versions (template_type, version, subject, text)
    VALUES ('welcome_user', %(version)s, 'Another subject', 'Another text');
    UPDATE email_templates SET active_version = %(version)s WHERE template_type = 'welcome_user'
"""


def activate(bench: Workbench, version: int) -> None:
    with bench.connection.cursor() as cursor:
        for statement in NEW_VERSION.split(";"):
            cursor.execute(statement, {"version": version})


def test_the_template_version_of_the_first_claim_stays(bench: Workbench) -> None:
    [email] = bench.put()
    assert bench.email(email)["template_version"] is None
    activate(bench, 2)
    [first] = bench.claim()
    activate(bench, 3)
    bench.finish([first], "transient")
    travel(bench.connection, timedelta(minutes=1))
    [again] = bench.claim()
    assert (first["template_version"], again["template_version"]) == (2, 2)


def test_given_back_it_keeps_the_version_too(bench: Workbench) -> None:
    bench.put()
    [first] = bench.claim()
    bench.do("SELECT mailgres.give_back(%s, %s)", first["lease_token"], [first["id"]])
    activate(bench, 2)
    [again] = bench.claim()
    assert again["template_version"] == first["template_version"] == 1


def test_an_email_with_its_own_content_has_no_version(bench: Workbench) -> None:
    bench.put(subject="Hello", text="Hello")
    [claimed] = bench.claim()
    assert claimed["template_version"] is None


def test_an_old_processor_gets_only_what_it_can_send(bench: Workbench) -> None:
    plain = bench.put("a", 2) + bench.put("b", 1, priority=1)
    inline = bench.put("a", 4, priority=1, subject="Hello", text="Hello")
    uncertain = bench.put(
        "b", 4, priority=1, provider="capture",
        uncertain_since=timedelta(0), first_attempt_at=timedelta(0),
    )  # fmt: skip
    claimed = bench.rows("SELECT * FROM process_pending_emails_for_retry(10)")
    assert {row["queue_id"] for row in claimed} == set(plain)
    assert bench.rows("SELECT * FROM get_pending_emails_for_retry(10)") == []
    for row in map(bench.email, plain):
        assert (row["status"], row["lease_is_tokenless"], row["provider"]) == (
            "sending",
            True,
            None,
        )
        assert row["lease_until"] - row["leased_at"] == timedelta(minutes=15)
        assert row["begun_at"] is None
    assert ids(bench.claim(100)) == {*inline, *uncertain}
