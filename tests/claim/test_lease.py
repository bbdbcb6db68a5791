"""What an email keeps from its first claim, and what an old processor may get."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from claim.harness import ids
from mailgres.testing import travel

if TYPE_CHECKING:
    from claim.harness import ClaimHarness

NEW_VERSION = """
    INSERT INTO mailgres.template_versions (template_type, version, subject, text)
    VALUES ('welcome_user', %(version)s, 'Another subject', 'Another text');
    UPDATE email_templates SET active_version = %(version)s WHERE template_type = 'welcome_user'
"""


def activate(harness: ClaimHarness, version: int) -> None:
    with harness.connection.cursor() as cursor:
        for statement in NEW_VERSION.split(";"):
            cursor.execute(statement, {"version": version})


def test_the_template_version_of_the_first_claim_stays(harness: ClaimHarness) -> None:
    [email] = harness.put()
    assert harness.email(email)["template_version"] is None
    activate(harness, 2)
    [first] = harness.claim()
    activate(harness, 3)
    harness.finish([first], "transient")
    travel(harness.connection, timedelta(minutes=1))
    [again] = harness.claim()
    assert (first["template_version"], again["template_version"]) == (2, 2)


def test_an_email_that_is_given_back_keeps_its_template_version(harness: ClaimHarness) -> None:
    harness.put()
    [first] = harness.claim()
    harness.do("SELECT mailgres.give_back(%s, %s)", first["lease_token"], [first["id"]])
    activate(harness, 2)
    [again] = harness.claim()
    assert again["template_version"] == first["template_version"] == 1


def test_an_email_with_its_own_content_has_no_version(harness: ClaimHarness) -> None:
    harness.put(subject="Hello", text="Hello")
    [claimed] = harness.claim()
    assert claimed["template_version"] is None


def test_an_old_processor_gets_only_what_it_can_send(harness: ClaimHarness) -> None:
    plain = harness.put("a", 2) + harness.put("b", 1, priority=1)
    inline = harness.put("a", 4, priority=1, subject="Hello", text="Hello")
    uncertain = harness.put(
        "b", 4, priority=1, provider="capture",
        uncertain_since=timedelta(0), first_attempt_at=timedelta(0),
    )  # fmt: skip
    claimed = harness.rows("SELECT * FROM process_pending_emails_for_retry(10)")
    assert {row["queue_id"] for row in claimed} == set(plain)
    assert harness.rows("SELECT * FROM get_pending_emails_for_retry(10)") == []
    for row in map(harness.email, plain):
        assert (row["status"], row["lease_is_tokenless"], row["provider"]) == (
            "sending",
            True,
            None,
        )
        assert row["lease_until"] - row["leased_at"] == timedelta(minutes=15)
        assert row["attempt_started_at"] is None
    assert ids(harness.claim(100)) == {*inline, *uncertain}
