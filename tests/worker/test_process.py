"""`mailgres process`, as cron runs it: from the queue into the captured inbox."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from support import forked
from support.queue import RECIPIENT
from worker.harness import PROGRAM, WorkerHarness, until

NOTHING = {
    "claimed": 0,
    "sent": 0,
    "retried": 0,
    "dead": 0,
    "lost": 0,
    "given_back": 0,
    "refused": 0,
}


def process(
    harness: WorkerHarness, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    env = {"DATABASE_URL": harness.url, "LC_ALL": "C.UTF-8", **environment}
    return forked.run([PROGRAM, "process", *arguments], env=env, cwd=harness.directory)


def summary(harness: WorkerHarness, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run it well; its summary without the time it took."""
    done = process(harness, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert found.pop("seconds") >= 0
    return found


def inbox(harness: WorkerHarness) -> list[dict[str, Any]]:
    rows = harness.rows("SELECT message FROM mailgres.captured ORDER BY captured_at, key")
    return [row.message for row in rows]


class TestAMailArrives:
    def test_process_sends_a_rendered_template(self, harness: WorkerHarness) -> None:
        payload = {"name": "Ana <b>", "product": "Acme", "url": "https://acme.example.com/start"}
        email = harness.enqueue(payload=payload)
        assert summary(harness) == {**NOTHING, "claimed": 1, "sent": 1}

        (message,) = inbox(harness)
        assert message["to"] == RECIPIENT
        assert "Acme" in message["subject"]
        assert "Ana &lt;b&gt;" in message["html"]
        assert "Ana <b>" in message["text"]
        assert message["from"] == "mailgres <mailgres@localhost>"
        row = harness.email(email)
        assert (row.status, row.retries) == ("sent", 0)
        assert row.provider_message_id == f"mailgres/{email}/0"
        assert row.last_duration_ms is not None
        assert [entry.to_status for entry in harness.log(email)][-1] == "sent"

    def test_process_sends_an_email_with_content_of_its_own(self, harness: WorkerHarness) -> None:
        harness.enqueue(
            "inline",
            subject="Hi {{ name }}",
            html="<p>{{ 1 + 1 }}</p>",
            text="plain",
            cc=["cc@example.com"],
            bcc=["bcc@example.com"],
            headers={"X-Order": "7"},
            tags={"kind": "test"},
        )
        summary(harness)
        (message,) = inbox(harness)
        # What is brought along is sent as it is, not taken for a template.
        assert message["subject"] == "Hi {{ name }}"
        assert message["html"] == "<p>{{ 1 + 1 }}</p>"
        assert message["text"] == "plain"
        assert (message["cc"], message["bcc"]) == (["cc@example.com"], ["bcc@example.com"])
        assert (message["headers"], message["tags"]) == ({"X-Order": "7"}, {"kind": "test"})

    def test_process_sends_attachments(self, harness: WorkerHarness) -> None:
        files = [{"filename": name, "content": "aGVsbG8="} for name in ("b.txt", "a.txt")]
        harness.conn.execute(
            "SELECT enqueue_email(NULL, 'welcome_user', %s, p_attachments => %s::jsonb)",
            (RECIPIENT, json.dumps(files)),
        )
        summary(harness)
        (message,) = inbox(harness)
        assert message["attachments"] == ["b.txt", "a.txt"]


class TestFrom:
    @pytest.mark.parametrize(
        ("known", "chosen"),
        [
            ({"email", "template", "tenant", "default"}, "email"),
            ({"template", "tenant", "default"}, "template"),
            ({"tenant", "default"}, "tenant"),
            ({"default"}, "default"),
        ],
    )
    def test_the_most_specific_sender_is_used(
        self, harness: WorkerHarness, known: set[str], chosen: str
    ) -> None:
        names = ("email", "template", "tenant", "default")
        addresses = {name: f"{name}@example.com" for name in names}
        if "template" in known:
            harness.run(
                "UPDATE email_templates SET from_email = %s, reply_to = %s",
                *[addresses["template"]] * 2,
            )
        if "tenant" in known:
            harness.run(
                "INSERT INTO mailgres.tenants (tenant_id, from_email, reply_to)"
                " VALUES ('acme', %s, %s)",
                *[addresses["tenant"]] * 2,
            )
        own = {"from_email": addresses["email"], "reply_to": addresses["email"]}
        harness.enqueue(tenant_id="acme", **(own if "email" in known else {}))
        summary(
            harness,
            "--from-email",
            addresses["default"],
            MAILGRES_REPLY_TO=addresses["default"],
        )
        (message,) = inbox(harness)
        assert message["from"] == f"{chosen}@example.com"
        assert message["reply_to"] == f"{chosen}@example.com"


class TestExit:
    def test_process_exits_with_0_when_there_is_nothing_to_do(self, harness: WorkerHarness) -> None:
        assert summary(harness) == NOTHING
        assert summary(harness, "--until-empty") == NOTHING

    def test_process_exits_with_3_when_there_is_nothing_to_do_and_exit_empty_is_given(
        self, harness: WorkerHarness
    ) -> None:
        done = process(harness, "--exit-empty")
        assert done.returncode == 3
        assert json.loads(done.stdout)["claimed"] == 0
        harness.enqueue()
        assert process(harness, "--exit-empty").returncode == 0

    def test_process_sends_one_batch(self, harness: WorkerHarness) -> None:
        harness.fill(5)
        assert summary(harness, "--batch-size", "3") == {**NOTHING, "claimed": 3, "sent": 3}
        assert harness.statuses() == {"sent": 3, "pending": 2}

    def test_process_until_empty_sends_everything(self, harness: WorkerHarness) -> None:
        harness.fill(25)
        done = summary(harness, "--batch-size", "3", "--until-empty")
        assert done == {**NOTHING, "claimed": 25, "sent": 25}

    def test_process_ends_after_max_seconds(self, harness: WorkerHarness) -> None:
        """It stops in time, and what it had not begun is ready for the next one."""
        harness.fill(600)
        done = process(harness, "--until-empty", "--max-seconds", "0.05", "--batch-size", "10")
        assert done.returncode == 0, done.stderr
        reported = json.loads(done.stdout)
        assert reported["claimed"] == reported["sent"] + reported["given_back"] < 600
        left = harness.statuses()
        assert left.get("sent", 0) == reported["sent"]
        assert left["pending"] == 600 - reported["sent"]

    @pytest.mark.parametrize("arguments", [(), ("--until-empty",)])
    def test_process_refuses_a_database_without_the_schema(
        self, harness: WorkerHarness, empty_database_url: str, arguments: tuple[str, ...]
    ) -> None:
        done = process(harness, *arguments, DATABASE_URL=empty_database_url)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("Error: ")
        assert "mailgres migrate" in done.stderr

    def test_process_reports_a_database_it_cannot_reach(self, harness: WorkerHarness) -> None:
        done = process(harness, DATABASE_URL="postgresql://nobody:secret@127.0.0.1:1/none")
        assert (done.returncode, done.stdout) == (1, "")
        assert "Cannot connect to 127.0.0.1:1/none" in done.stderr
        assert "secret" not in done.stderr

    def test_process_refuses_an_unknown_provider(self, harness: WorkerHarness) -> None:
        done = process(harness, "--providers", "pigeon")
        assert done.returncode != 0
        assert "pigeon" in done.stderr
        assert "Traceback" not in done.stderr


def test_two_processes_at_once_send_each_email_once(harness: WorkerHarness) -> None:
    """Runs that overlap share the work and send nothing twice."""
    emails = harness.fill(200, tenants=7)
    with (
        harness.script("process", "--until-empty") as one,
        harness.script("process", "--until-empty") as other,
    ):
        sent = [run.summary()["sent"] for run in (one, other)]
    assert sum(sent) == 200
    assert {
        str(row.queue_id) for row in harness.rows("SELECT queue_id FROM mailgres.captured")
    } == (emails)


def test_worker_is_stopped_by_a_signal(harness: WorkerHarness) -> None:
    with harness.script("worker", "--poll-interval", "1s") as worker:
        email = harness.enqueue()
        until(lambda: harness.status_of(email) == "sent", "the worker sends")
        reported = worker.stop()
    assert (reported["claimed"], reported["sent"]) == (1, 1)
    assert harness.value("SELECT count(*) FROM mailgres.sleepers") == 0
