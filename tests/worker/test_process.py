"""`mailgres process`, as cron runs it: from the queue into the captured inbox."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from support.queue import RECIPIENT
from worker.bench import PROGRAM, Bench, until

NOTHING = {
    "claimed": 0,
    "sent": 0,
    "retried": 0,
    "dead": 0,
    "lost": 0,
    "given_back": 0,
    "refused": 0,
}


def process(bench: Bench, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "process", *arguments],
        env={"DATABASE_URL": bench.url, "LC_ALL": "C.UTF-8", **environment},
        cwd=bench.directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def summary(bench: Bench, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run it well; its summary without the time it took."""
    done = process(bench, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert found.pop("seconds") >= 0
    return found


def inbox(bench: Bench) -> list[dict[str, Any]]:
    rows = bench.rows("SELECT message FROM mailgres.captured ORDER BY captured_at, key")
    return [row.message for row in rows]


class TestAMailArrives:
    def test_rendered(self, bench: Bench) -> None:
        payload = {"name": "Ana <b>", "product": "Acme", "url": "https://acme.example.com/start"}
        email = bench.enqueue(payload=payload)
        assert summary(bench) == {**NOTHING, "claimed": 1, "sent": 1}

        (message,) = inbox(bench)
        assert message["to"] == RECIPIENT
        assert "Acme" in message["subject"]
        assert "Ana &lt;b&gt;" in message["html"]
        assert "Ana <b>" in message["text"]
        assert message["from"] == "mailgres <mailgres@localhost>"
        row = bench.email(email)
        assert (row.status, row.retries) == ("sent", 0)
        assert row.provider_message_id == f"mailgres/{email}/0"
        assert row.last_duration_ms is not None
        assert [entry.to_status for entry in bench.log(email)][-1] == "sent"

    def test_with_content_of_its_own(self, bench: Bench) -> None:
        bench.enqueue(
            "inline",
            subject="Hi {{ name }}",
            html="<p>{{ 1 + 1 }}</p>",
            text="plain",
            cc=["cc@example.com"],
            bcc=["bcc@example.com"],
            headers={"X-Order": "7"},
            tags={"kind": "test"},
        )
        summary(bench)
        (message,) = inbox(bench)
        # What is brought along is sent as it is, not taken for a template.
        assert message["subject"] == "Hi {{ name }}"
        assert message["html"] == "<p>{{ 1 + 1 }}</p>"
        assert message["text"] == "plain"
        assert (message["cc"], message["bcc"]) == (["cc@example.com"], ["bcc@example.com"])
        assert (message["headers"], message["tags"]) == ({"X-Order": "7"}, {"kind": "test"})

    def test_with_files(self, bench: Bench) -> None:
        files = [{"filename": name, "content": "aGVsbG8="} for name in ("b.txt", "a.txt")]
        bench.conn.execute(
            "SELECT enqueue_email(NULL, 'welcome_user', %s, p_attachments => %s::jsonb)",
            (RECIPIENT, json.dumps(files)),
        )
        summary(bench)
        (message,) = inbox(bench)
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
    def test_order(self, bench: Bench, known: set[str], chosen: str) -> None:
        names = ("email", "template", "tenant", "default")
        addresses = {name: f"{name}@example.com" for name in names}
        if "template" in known:
            bench.run(
                "UPDATE email_templates SET from_email = %s, reply_to = %s",
                *[addresses["template"]] * 2,
            )
        if "tenant" in known:
            bench.run(
                "INSERT INTO mailgres.tenants (tenant_id, from_email, reply_to)"
                " VALUES ('acme', %s, %s)",
                *[addresses["tenant"]] * 2,
            )
        own = {"from_email": addresses["email"], "reply_to": addresses["email"]}
        bench.enqueue(tenant_id="acme", **(own if "email" in known else {}))
        summary(
            bench,
            "--from-email",
            addresses["default"],
            MAILGRES_REPLY_TO=addresses["default"],
        )
        (message,) = inbox(bench)
        assert message["from"] == f"{chosen}@example.com"
        assert message["reply_to"] == f"{chosen}@example.com"


class TestExit:
    def test_nothing_to_do(self, bench: Bench) -> None:
        assert summary(bench) == NOTHING
        assert summary(bench, "--until-empty") == NOTHING

    def test_nothing_to_do_with_exit_empty(self, bench: Bench) -> None:
        done = process(bench, "--exit-empty")
        assert done.returncode == 3
        assert json.loads(done.stdout)["claimed"] == 0
        bench.enqueue()
        assert process(bench, "--exit-empty").returncode == 0

    def test_one_batch(self, bench: Bench) -> None:
        bench.fill(5)
        assert summary(bench, "--batch-size", "3") == {**NOTHING, "claimed": 3, "sent": 3}
        assert bench.statuses() == {"sent": 3, "pending": 2}

    def test_until_empty(self, bench: Bench) -> None:
        bench.fill(25)
        done = summary(bench, "--batch-size", "3", "--until-empty")
        assert done == {**NOTHING, "claimed": 25, "sent": 25}

    def test_max_seconds(self, bench: Bench) -> None:
        """It stops in time, and what it had not begun is ready for the next one."""
        bench.fill(600)
        done = process(bench, "--until-empty", "--max-seconds", "0.05", "--batch-size", "10")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["claimed"] == told["sent"] + told["given_back"] < 600
        left = bench.statuses()
        assert left.get("sent", 0) == told["sent"]
        assert left["pending"] == 600 - told["sent"]

    @pytest.mark.parametrize("arguments", [(), ("--until-empty",)])
    def test_not_migrated(
        self, bench: Bench, empty_database_url: str, arguments: tuple[str, ...]
    ) -> None:
        done = process(bench, *arguments, DATABASE_URL=empty_database_url)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("Error: ")
        assert "mailgres migrate" in done.stderr

    def test_unreachable(self, bench: Bench) -> None:
        done = process(bench, DATABASE_URL="postgresql://nobody:secret@127.0.0.1:1/none")
        assert (done.returncode, done.stdout) == (1, "")
        assert "Cannot connect to 127.0.0.1:1/none" in done.stderr
        assert "secret" not in done.stderr

    def test_unknown_provider(self, bench: Bench) -> None:
        done = process(bench, "--providers", "pigeon")
        assert done.returncode != 0
        assert "pigeon" in done.stderr
        assert "Traceback" not in done.stderr


def test_two_at_once(bench: Bench) -> None:
    """Runs that overlap share the work and send nothing twice."""
    emails = bench.fill(200, tenants=7)
    with (
        bench.script("process", "--until-empty") as one,
        bench.script("process", "--until-empty") as other,
    ):
        sent = [run.summary()["sent"] for run in (one, other)]
    assert sum(sent) == 200
    assert {str(row.queue_id) for row in bench.rows("SELECT queue_id FROM mailgres.captured")} == (
        emails
    )


def test_worker_is_stopped_by_a_signal(bench: Bench) -> None:
    with bench.script("worker", "--poll-interval", "1s") as worker:
        email = bench.enqueue()
        until(lambda: bench.status_of(email) == "sent", "the worker sends")
        told = worker.stop()
    assert (told["claimed"], told["sent"]) == (1, 1)
    assert bench.value("SELECT count(*) FROM mailgres.sleepers") == 0
