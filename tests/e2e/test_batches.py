"""Batches at Resend: some refused, some interrupted; who belongs together, stays together."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from doubles.resend import KEY, Fault, ResendDouble, in_a_process
from e2e.harness import E2eHarness, accepted, once_each
from mailgres.testing import reset
from worker.harness import until

HANGING = 100.0
"""Seconds for which a call hangs that nobody will wait for."""


def test_refused_emails_of_a_batch_do_not_stop_the_others(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    """The provider names those it does not take; the rest of the batch is out."""
    bad = [harness.enqueue(recipient_email="invalid@example.org") for _ in range(2)]
    good = harness.send(5)
    assert resend.calls == {"/emails/batch": 1}
    assert accepted(resend) == once_each(good)
    assert {harness.status_of(email) for email in good} == {"sent"}
    for email in bad:
        row = harness.email(email)
        assert (row.status, row.dead_reason, row.error_class) == (
            "failed",
            "permanent",
            "permanent",
        )
        assert "@" not in row.error_message


def test_message_ids_of_a_batch_belong_to_their_emails(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    harness.enqueue(recipient_email="invalid@example.org")
    harness.send(4)
    reported = {each["mailgres_id"]: each["id"] for each in resend.accepted()}
    rows = harness.rows(
        "SELECT id::text, provider_message_id FROM email_queue WHERE status = 'sent'"
    )
    assert {row.id: row.provider_message_id for row in rows} == reported


def test_a_batch_refused_for_one_email_is_sent_one_by_one(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    """All of it is refused: each goes alone, at once and at no cost; only the culprit dies."""
    refused = Fault(422, "validation_error", "one of them", times=1, path="/emails/batch")
    resend.add_faults(refused)
    bad = harness.enqueue(recipient_email="invalid@example.org")
    good = harness.send(4)
    harness.work_until_settled()
    assert resend.calls == {"/emails/batch": 1, "/emails": 5}
    assert accepted(resend) == once_each(good)
    assert harness.email(bad).dead_reason == "permanent"
    assert harness.state() == {("sent", 0, None): 4, ("failed", 0, "permanent"): 1}


def test_urgent_emails_and_attachments_are_not_batched(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    """Urgent emails and those with files; the others share a call."""
    file = json.dumps([{"filename": "a.txt", "content": "YQ=="}])
    with_file = harness.enqueue(attachments=file)
    urgent = harness.enqueue(priority=2)
    others = harness.send(3)
    paths = {each["mailgres_id"]: each["path"] for each in resend.accepted()}
    alone = dict.fromkeys([str(with_file), str(urgent)], "/emails")
    assert paths == alone | dict.fromkeys(map(str, others), "/emails/batch")
    keys = {each["key"] for each in resend.accepted()}
    batch_id = harness.email(others[0]).batch_id
    assert keys == {f"mailgres/{each}/0" for each in alone} | {f"mailgres/batch/{batch_id}"}


@pytest.mark.parametrize("taken", [False, True], ids=["lost", "taken"])
def test_an_unsendable_email_is_left_out_when_its_batch_is_repeated(
    harness: E2eHarness, resend: ResendDouble, *, taken: bool
) -> None:
    """The others may have arrived: they are repeated without it, and it was none of them."""
    resend.add_faults(Fault(reset=True, accepts=taken))
    bad = harness.enqueue()
    harness.open_the_door()
    harness.run("UPDATE email_queue SET recipient_email = E'a@b.example\\nx' WHERE id = %s", bad)
    good = harness.send(4)
    row = harness.email(bad)
    assert (row.status, row.error_code, row.batch_id) == ("failed", "invalid_header", None)
    harness.work_until_settled()
    assert {harness.status_of(email) for email in good} == {"sent"}
    assert accepted(resend) == once_each(good)


def test_a_hundred_emails_go_in_one_call(harness: E2eHarness, resend: ResendDouble) -> None:
    emails = harness.send(230)
    assert accepted(resend) == once_each(emails)
    assert resend.calls == {"/emails/batch": 3}


@pytest.mark.parametrize("taken", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("priority", [1, 5], ids=["single", "batch"])
def test_a_batch_of_a_killed_worker_is_retried_under_its_key(
    harness: E2eHarness, priority: int, *, taken: bool
) -> None:
    """A worker dies in the call, before or after Resend took it; the next one repeats it."""
    reset(harness.conn)
    with in_a_process() as double:
        double.add_faults(Fault(delay=HANGING, accepts=taken, times=-1))
        harness.use("resend", resend_api_key=KEY, resend_api_url=double.url)
        harness.set(lease="1s")
        emails = [harness.enqueue(priority=priority) for _ in range(20)]
        with harness.script("worker") as victim:
            if taken:
                until(lambda: len(double.accepted()) >= (5 if priority == 1 else 20), "it is taken")
            else:
                until(lambda: double.summary()["faults_met"] > 0, "it is in the call")
            victim.kill()
        before = members(harness)
        double.clear_faults()
        with harness.script("worker") as heir:
            harness.until_settled()
            heir.stop()
        assert harness.statuses() == {"sent": 20}
        assert double.summary()["doubles"] == {}
        assert {each["mailgres_id"] for each in double.accepted()} == set(map(str, emails))
        if priority == 5:
            assert members(harness) == before
            assert len({each["key"] for each in double.accepted()}) == len(set(before.values()))


def members(harness: E2eHarness) -> dict[UUID, UUID]:
    """Return which email is in which batch."""
    rows = harness.rows("SELECT id, batch_id FROM email_queue WHERE batch_id IS NOT NULL")
    return {row.id: row.batch_id for row in rows}


def test_an_ambiguous_batch_that_is_refused_when_it_is_repeated_is_taken_apart(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    """A refusal under its key says that the first call was not accepted: nothing was sent."""
    resend.add_faults(
        Fault(reset=True, accepts=False, times=1, path="/emails/batch"),
        Fault(422, "validation_error", "one of them", times=-1, path="/emails/batch"),
    )
    bad = harness.enqueue(recipient_email="invalid@example.org")
    good = harness.send(4)
    assert harness.state() == {("pending", 0, "ambiguous"): 5}
    harness.work_until_settled()
    assert accepted(resend) == once_each(good)
    assert harness.email(bad).dead_reason == "permanent"
    assert harness.state() == {("sent", 0, None): 4, ("failed", 0, "permanent"): 1}


def test_an_ambiguous_batch_whose_key_was_used_for_other_content_is_never_sent_again(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    """It is not refused: an earlier call arrived."""
    resend.add_faults(
        Fault(reset=True, accepts=True, times=1, path="/emails/batch"),
        Fault(409, "invalid_idempotent_request", "other content", times=1, path="/emails/batch"),
    )
    emails = harness.send(4)
    harness.work_until_settled()
    assert accepted(resend) == once_each(emails)
    assert {harness.email(each).dead_reason for each in emails} == {"uncertain"}
