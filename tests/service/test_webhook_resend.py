"""Resend's webhook, through a real service: who may call, what is recorded, what is refused."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from doubles.resend import KEY, ResendDouble
from e2e.harness import E2eHarness
from mailgres.webhooks import samples
from service.harness import Site, site
from service.webhook_calls import (
    ACME,
    PATH,
    RESEND,
    call,
    headers,
    recorded,
    sent,
    unmatched,
)
from support.concurrency import at_once
from worker.harness import DEADLINE, until
from worker.restartable import RestartableHarness


@pytest.fixture
def receiver(harness: E2eHarness, resend: ResendDouble) -> Any:  # noqa: ARG001
    """A service with a webhook for Resend."""
    with site(harness, resend_webhook_secret=RESEND) as running:
        yield running


def test_every_event_of_resend_is_recorded_for_its_email(
    harness: E2eHarness, receiver: Site
) -> None:
    about = sent(harness, receiver)
    for kind in samples.RESEND:
        answer = call(receiver, samples.resend(kind, about))
        assert (answer.status, answer.json) == (200, {"recorded": 1}), kind
    found = {row.detail["type"]: row.event for row in recorded(harness, about.queue_id)}
    assert set(found) == set(samples.RESEND)
    assert (found["email.bounced"], found["email.scheduled"]) == (
        "bounced",
        "resend.email.scheduled",
    )


def test_the_role_of_a_worker_is_enough_to_record_events(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    assert resend.url
    harness.variables["PGOPTIONS"] = "-c role=mailgres_worker"
    with site(harness, resend_webhook_secret=RESEND) as running:
        about = sent(harness, running)
        assert call(running, samples.resend("email.bounced", about)).json == {"recorded": 1}


def bounce(about: samples.About, text: str, **more: Any) -> dict[str, Any]:
    """A permanent bounce with the words of a server."""
    payload = samples.resend("email.bounced", about)
    payload["data"]["bounce"] |= {"diagnosticCode": text}
    payload["data"] |= more
    return payload


def test_only_a_hard_bounce_that_names_its_recipient_suppresses_the_address(
    harness: E2eHarness, receiver: Site
) -> None:
    def suppressed() -> list[str]:
        rows = harness.rows("SELECT recipient_email FROM email_suppressions ORDER BY 1")
        return [row.recipient_email for row in rows]

    copied = sent(harness, receiver, "ben@example.com", cc=["cy@example.com"])
    call(receiver, bounce(copied, "550 5.1.1 no such user"))  # perhaps it is Cy who is unknown
    about = sent(harness, receiver)
    call(receiver, bounce(about, "550 5.7.1 blocked by policy"))
    call(receiver, bounce(about, "552 5.2.2 mailbox full"))
    call(receiver, bounce(about, "550 5.1.1 no such user", to=["stranger@example.com"]))
    assert suppressed() == []
    call(receiver, bounce(about, "550 5.1.1 no such user"))
    assert suppressed() == ["ana@example.com"]


def test_an_email_that_resend_did_not_send_because_of_its_quota_is_a_dead_letter(
    harness: E2eHarness, receiver: Site
) -> None:
    about = sent(harness, receiver)
    assert call(receiver, samples.resend("email.failed", about)).json == {"recorded": 1}
    email = harness.email(UUID(about.queue_id))
    assert (email.status, email.dead_reason) == ("failed", "quota")


def test_a_repeated_webhook_call_is_recorded_once(harness: E2eHarness, receiver: Site) -> None:
    about = sent(harness, receiver)
    payload = samples.resend("email.delivered", about)
    results = [call(receiver, payload, name="msg_same", ago=ago).json for ago in (0, 1, 2)]
    assert results == [{"recorded": 1}, {"duplicate": 1}, {"duplicate": 1}]
    results = at_once([lambda: call(receiver, payload, name="msg_other").json] * 6)
    assert sorted(map(str, results)) == sorted(["{'recorded': 1}", *["{'duplicate': 1}"] * 5])
    assert len(recorded(harness, about.queue_id)) == 2


def test_an_event_of_an_email_that_is_not_known_is_kept(
    harness: E2eHarness, receiver: Site
) -> None:
    answer = call(receiver, samples.resend("email.delivered", samples.About()))
    assert (answer.status, answer.json) == (200, {"unmatched": 1})
    (row,) = unmatched(harness)
    assert (row.provider, row.event) == ("resend", "delivered")


def test_an_unknown_type_is_kept_and_answered_with_200(harness: E2eHarness, receiver: Site) -> None:
    about = sent(harness, receiver)
    payload = samples.resend("email.sent", about) | {"type": "email.brand_new"}
    assert (call(receiver, payload).status, call(receiver, payload).json) == (200, {"recorded": 1})
    assert recorded(harness, about.queue_id)[0].event == "resend.email.brand_new"
    for kind in ("contact.created", "domain.updated"):
        other = {"type": kind, "created_at": about.moment, "data": {"id": "1", "email": "a@b.c"}}
        answer = call(receiver, other)
        assert (answer.status, answer.json) == (200, {"ignored": 1})


@pytest.mark.parametrize(
    ("signed", "why"),
    [
        ({"key": ACME}, "No matching signature found"),
        ({"ago": 400}, "Message timestamp too old"),
        ({"ago": -400}, "Message timestamp too new"),
        ({"prefix": "webhook"}, "a header is missing: svix-id, svix-timestamp, svix-signature"),
    ],
)
def test_a_wrong_old_future_or_missing_signature_is_refused(
    harness: E2eHarness, receiver: Site, signed: dict[str, Any], why: str
) -> None:
    answer = call(receiver, samples.resend("email.sent", samples.About()), **signed)
    assert answer.status == 401
    assert answer.json["error"] == f"the signature is not accepted: {why}"
    assert "signing secret" in answer.json["hint"]
    assert not unmatched(harness)


def test_a_body_that_was_changed_on_its_way_is_refused(receiver: Site) -> None:
    body = json.dumps(samples.resend("email.sent", samples.About())).encode()
    assert receiver.ask("POST", PATH, *headers(body), body=body + b" ").status == 401


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"{}", b'"x"', b'{"type": 1}'])
def test_a_signed_body_that_is_no_event_is_refused(receiver: Site, body: bytes) -> None:
    answer = receiver.ask("POST", PATH, *headers(body), body=body)
    assert answer.status == 400
    assert "docs/events.md" in answer.json["hint"]


def test_a_body_of_ten_megabytes_is_refused_before_it_is_read(receiver: Site) -> None:
    body = b"x" * (10 * 1024 * 1024)
    answer = receiver.ask("POST", PATH, *headers(b"x"), body=body)
    assert (answer.status, answer.json["error"]) == (413, "the body is too large")
    chunked = [b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"] * 160
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert receiver.raw(head, *chunked, b"0\r\n\r\n").status == 413


def test_a_webhook_without_a_secret_does_not_exist(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    assert resend.url
    with site(harness) as running:
        for path in (PATH, f"{PATH}/resend-acme", "/webhooks/events"):
            answer = call(running, samples.resend("email.sent", samples.About()), path)
            assert (answer.status, answer.json["error"]) == (404, "there is no such webhook")
        assert running.get(PATH).status == 405


ACCOUNTS = """
[accounts.resend-acme]
api_key = "{key}"
api_url = "{url}"
webhook_secret = "{secret}"
"""


def test_each_resend_account_has_its_own_webhook_address_and_secret(
    harness: E2eHarness, resend: ResendDouble, tmp_path: Path
) -> None:
    path = write(tmp_path, ACCOUNTS.format(key=KEY, url=resend.url, secret=ACME))
    with site(harness, config=str(path), resend_webhook_secret=RESEND) as running:
        about = sent(harness, running)  # by the account `resend`
        payload = samples.resend("email.bounced", about)
        acme = f"{PATH}/resend-acme"
        assert call(running, payload, acme, key=RESEND).status == 401
        assert call(running, payload, PATH, key=ACME).status == 401
        assert call(running, payload, f"{PATH}/resend-other", key=ACME).status == 404
        # An account that did not send the email cannot report about it, whatever ids it knows.
        assert call(running, payload, acme, key=ACME).json == {"unmatched": 1}
        assert not recorded(harness, about.queue_id)
        assert call(running, payload, f"{PATH}/resend").json == {"recorded": 1}


def write(directory: Path, text: str) -> Path:
    path = directory / "settings.toml"
    new = directory / "settings.new"
    new.write_text(text)
    new.chmod(0o600)
    new.rename(path)
    return path


def test_secrets_and_keys_are_replaced_without_a_restart(
    harness: E2eHarness, resend: ResendDouble, tmp_path: Path
) -> None:
    text = 'resend_webhook_secret = {}\nresend_api_key = "{}"\n'
    path = write(tmp_path, text.format(json.dumps(RESEND), KEY))
    del harness.variables["MAILGRES_RESEND_API_KEY"]
    payload = samples.resend("email.sent", samples.About())
    with site(harness, config=str(path)) as running:
        assert call(running, payload).status == 200
        assert call(running, payload, key=ACME).status == 401
        write(tmp_path, text.format(json.dumps([RESEND, ACME]), KEY))
        until(lambda: call(running, payload, key=ACME).status == 200, "the new one is accepted")
        assert call(running, payload).status == 200
        another = "re_another_s3cr3t"
        resend.set(keys=[another])
        write(tmp_path, text.format(json.dumps(ACME), another))
        until(lambda: call(running, payload).status == 401, "the old one is refused")
        assert call(running, payload, key=ACME).status == 200
        until(lambda: "has new settings" in running.process.log, "the key is replaced")
        sent(harness, running)
        write(tmp_path, "resend_webhook_secret = 'nonsense'\n")
        until(lambda: "the changed settings are not used" in running.process.log, "it is logged")
        assert call(running, payload, key=ACME).status == 200


def test_no_call_is_refused_while_a_secret_replaces_another(
    harness: E2eHarness, resend: ResendDouble, tmp_path: Path
) -> None:
    assert resend.url
    text = "resend_webhook_secret = {}\n"
    path = write(tmp_path, text.format(json.dumps(RESEND)))
    payload = samples.resend("email.sent", samples.About())

    def until_set(running: Site, key: str, ended: Event) -> list[int]:
        statuses = [call(running, payload, key=key).status]
        while not ended.is_set():
            statuses.append(call(running, payload, key=key).status)
        return statuses

    with site(harness, config=str(path)) as running, ThreadPoolExecutor(2) as callers:
        ended, changed = Event(), Event()
        try:
            old = callers.submit(until_set, running, RESEND, changed)
            write(tmp_path, text.format(json.dumps([RESEND, ACME])))
            until(lambda: call(running, payload, key=ACME).status == 200, "the new one is accepted")
            new = callers.submit(until_set, running, ACME, ended)
            changed.set()
            assert set(old.result(DEADLINE)) == {200}
            write(tmp_path, text.format(json.dumps(ACME)))
            until(lambda: call(running, payload).status == 401, "the old one is refused")
        finally:
            changed.set()
            ended.set()
        assert set(new.result(DEADLINE)) == {200}


AT_COMMIT = """
    CREATE TABLE seen_at_commit AS SELECT ''::text AS setting;
    GRANT ALL ON seen_at_commit TO PUBLIC;
    CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN UPDATE public.seen_at_commit SET setting = current_setting('synchronous_commit');
        RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER note AFTER INSERT ON mailgres.unmatched_events
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_commit();
"""


def test_an_answered_webhook_survives_a_crash_with_any_synchronous_commit(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    assert resend.url
    harness.conn.execute(AT_COMMIT.encode())
    harness.variables["PGOPTIONS"] = "-c synchronous_commit=off"
    with site(harness, resend_webhook_secret=RESEND) as running:
        assert call(running, samples.resend("email.sent", samples.About())).status == 200
    assert harness.value("SELECT setting FROM seen_at_commit") == "on"


def test_without_a_database_webhooks_are_answered_with_503(
    tmp_path: Path, migrations: Path
) -> None:
    """Nothing is answered with 2xx that is not stored; afterwards the same call is."""
    with TemporaryDirectory(prefix="mailgres-tests-") as place:
        Path(place).chmod(0o711)
        restartable = RestartableHarness(Path(place), tmp_path, migrations)
        restartable.variables["MAILGRES_PROVIDERS"] = "capture"
        payload = samples.resend("email.delivered", samples.About())
        with site(restartable, resend_webhook_secret=RESEND) as running:
            restartable.switch_off()
            answer = call(running, payload, name="msg_1")
            assert (answer.status, answer.headers["retry-after"]) == (503, "30")
            assert answer.json["error"] == "the event could not be stored now"
            assert running.get("/healthz").status == 200
            restartable.switch_on()
            until(lambda: call(running, payload, name="msg_1").status == 200, "it is back")
            assert call(running, payload, name="msg_1").json == {"duplicate": 1}
        restartable.switch_off()


def test_no_log_has_a_secret_an_address_or_a_real_path(receiver: Site) -> None:
    call(receiver, {"type": "email.sent", "data": {"to": ["ana@example.com"]}})
    call(receiver, {}, f"{PATH}/ana@example.com")
    receiver.ask("POST", "/webhooks/ses/s3cr3t-s3cr3t-s3cr3t", body=b"{}")
    until(lambda: "/webhooks/ses/{secret}" in receiver.process.log, "it is logged")
    assert "/webhooks/resend/{account}" in receiver.process.log
