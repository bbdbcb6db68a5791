"""`mailgres suppressions`, run as a program."""

from __future__ import annotations

import gzip
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.types.json import Jsonb

from doubles.resend import KEY, Fault, ResendDouble, serve
from support.program import Program
from support.queue import Queue

ALL = "SELECT recipient_email, tenant_id, reason, detail FROM email_suppressions ORDER BY 1, 2"


def known(queue: Queue) -> list[tuple[str | None, ...]]:
    return [tuple(row) for row in queue.rows(ALL)]


def test_suppressions_are_added_listed_and_removed(mailgres: Program, queue: Queue) -> None:
    assert mailgres.run("suppressions", "list").stderr == "No address is suppressed.\n"
    said = mailgres("suppressions", "add", "Ana@Example.com", "bob@example.com", "ana@example.com")
    assert said == "2 added, 1 known before\n"
    shop = ("--tenant", "shop", "--reason", "unsubscribed", "--detail", "by phone")
    mailgres("suppressions", "add", "ana@example.com", *shop)
    assert known(queue) == [
        ("ana@example.com", "*", "manual", None),
        ("ana@example.com", "shop", "unsubscribed", "by phone"),
        ("bob@example.com", "*", "manual", None),
    ]
    assert len(mailgres("suppressions", "list").splitlines()) == 4
    (one,) = mailgres.json("suppressions", "list", "--containing", "ANA@", "--tenant", "shop")
    assert one["detail"] == "by phone"
    limited = mailgres.run("suppressions", "list", "--limit", "2")
    assert limited.stderr == "There are more than these 2: --limit shows more.\n"
    assert mailgres("suppressions", "remove", "ANA@example.com") == "1 removed.\n"
    assert [row[:2] for row in known(queue)] == [
        ("ana@example.com", "shop"),
        ("bob@example.com", "*"),
    ]


def test_emails_to_a_suppressed_address_are_cancelled(mailgres: Program, queue: Queue) -> None:
    queue_id = queue.enqueue(recipient_email="ana@example.com")
    mailgres("suppressions", "add", "ana@example.com")
    assert queue.claim() == []
    assert queue.email(queue_id).status == "cancelled"


def test_suppressions_add_adds_all_or_none(mailgres: Program, queue: Queue) -> None:
    what, _ = mailgres.fails("suppressions", "add", "ana@example.com", "not an address")
    assert what == "'not an address' is not an email address"
    assert known(queue) == []
    mailgres("suppressions", "add", "ana@example.com")
    what, hint = mailgres.fails("suppressions", "remove", "ana@example.com", "eve@example.com")
    assert what == "eve@example.com is not suppressed for all tenants"
    assert hint.startswith("Nothing was changed.")
    assert len(known(queue)) == 1
    assert "is not one of" in mailgres.misused(
        "suppressions", "add", "a@b.example", "--reason", "x"
    )


FORMS = {
    "a.txt": "ana@example.com\n# a remark\n\n bob@example.com \n",
    "a.csv": 'email,extra,detail\nana@example.com,1,"two\nlines"\nbob@example.com,2,\n',
    "a.jsonl": '{"recipient_email": "ana@example.com"}\n\n{"address": "bob@example.com"}\n',
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_suppressions_import_reads_every_format(
    mailgres: Program,
    queue: Queue,
    tmp_path: Path,
    name: str,
    packed: bool,  # noqa: FBT001
) -> None:
    path = tmp_path / (f"{name}.gz" if packed else name)
    content = ("\ufeff" + FORMS[name]).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    order = ("suppressions", "import", str(path), "--reason", "bounced", "--tenant", "shop")
    dry = mailgres(*order, "--dry-run")
    assert dry == "2 added\nNothing was changed: this was a dry run.\n"
    assert known(queue) == []
    assert mailgres(*order) == "2 added\n"
    assert [row[:3] for row in known(queue)] == [
        ("ana@example.com", "shop", "bounced"),
        ("bob@example.com", "shop", "bounced"),
    ]
    assert mailgres(*order) == "2 known before\n"


@pytest.mark.parametrize(
    "case",
    [
        ("a.txt", b"ana@example.com\nnot one\n", "line 2: it has no email address"),
        ("a.csv", b"email\nana@example.com\na,b\n", "line 3: it has 2 cells, but the header has 1"),
        ("a.csv", b'email\nana@example.com\n"open', "line 3: it is not CSV"),
        ("a.csv", b"name\nAna\n", "line 2: there is no column recipient_email"),
        ("a.csv", b"email,reason\nana@example.com,spite\n", "line 2: the reason is not one of"),
        ("a.jsonl", b'{"email": "ana@example.com"}\n{"email"\n', "line 2: it is not JSON"),
        ("a.jsonl", b"[]\n", "line 1: it is not a JSON object"),
        ("a.txt", b"ana@example.com\n\xff\n", "it is not UTF-8"),
        ("a.txt.gz", b"no gzip", "line 1: it is damaged"),
        ("a.txt.gz", gzip.compress(b"ana@example.com\n" * 99)[:-9], "it ends in the middle"),
    ],
)
def test_a_bad_line_of_an_import_changes_nothing(
    mailgres: Program, queue: Queue, tmp_path: Path, case: tuple[str, bytes, str]
) -> None:
    name, content, why = case
    path = tmp_path / name
    path.write_bytes(content)
    what, hint = mailgres.fails("suppressions", "import", str(path))
    assert why in what
    assert str(path) in what
    assert hint == "Nothing was changed. Fix the file."
    assert known(queue) == []


def test_suppressions_import_with_skip_invalid_skips_bad_lines(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("ana@example.com\nnot one\n")
    said = mailgres("suppressions", "import", str(path), "--skip-invalid")
    assert said == "1 added, 1 invalid\n"
    assert len(known(queue)) == 1


def test_suppressions_import_reports_an_unreadable_file(mailgres: Program, tmp_path: Path) -> None:
    gone = mailgres.fails("suppressions", "import", str(tmp_path / "gone.txt"))
    assert "No such file or directory" in gone[0]
    named = mailgres.fails("suppressions", "import", "list.xlsx")
    assert named[1] == "End it with .txt, .csv, .jsonl, or one of them and .gz."


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz"])
def test_exported_suppressions_can_be_imported_again(
    mailgres: Program, queue: Queue, tmp_path: Path, name: str
) -> None:
    mailgres("suppressions", "add", "ana@example.com", "--detail", 'a "b",\nc')
    mailgres("suppressions", "add", "bob@example.com", "--tenant", "shop", "--reason", "bounced")
    before = known(queue)
    path = tmp_path / name
    assert mailgres("suppressions", "export", str(path)) == f"2 suppressions are in {path}.\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert mailgres.fails("suppressions", "export", str(path))[0] == f"{path} exists"
    mailgres("suppressions", "export", str(path), "--force")
    queue.run("DELETE FROM email_suppressions")
    assert mailgres("suppressions", "import", str(path)) == "2 added\n"
    assert known(queue) == before
    assert list(tmp_path.iterdir()) == [path]


def test_suppressions_export_writes_to_standard_output(mailgres: Program) -> None:
    mailgres("suppressions", "add", "ana@example.com")
    lines = mailgres("suppressions", "export", "-").splitlines()
    columns = "recipient_email,tenant_id,reason,detail,created_at,source,expires_at,note,queue_id"
    assert lines[0] == columns
    assert lines[1].startswith("ana@example.com,*,manual,,")


# --- source, expiry, note


def test_a_suppression_ends_when_it_expires(mailgres: Program, queue: Queue) -> None:
    mailgres("suppressions", "add", "ana@example.com", "--expires", "30d", "--note", "on leave")
    (one,) = mailgres.json("suppressions", "list")
    assert (one["source"], one["note"]) == ("operator", "on leave")
    queue.run("UPDATE email_suppressions SET expires_at = mailgres.now() - interval '1 second'")
    queue_id = queue.enqueue(recipient_email="ana@example.com")
    assert [email.id for email in queue.claim()] == [queue_id]
    assert mailgres("suppressions", "add", "ana@example.com") == "1 added\n"
    assert mailgres.json("suppressions", "list")[0]["expires_at"] is None


def test_a_complaint_replaces_a_weaker_reason(mailgres: Program, queue: Queue) -> None:
    mailgres("suppressions", "add", "ana@example.com")
    assert (
        mailgres("suppressions", "add", "ana@example.com", "--reason", "complained") == "1 added\n"
    )
    assert mailgres("suppressions", "add", "ana@example.com") == "1 known before\n"
    assert known(queue) == [("ana@example.com", "*", "complained", None)]


# --- release


def incident(mailgres: Program) -> None:
    for reason, address in (
        ("bounced", "a@one.example.com"),
        ("bounced", "b@one.example.com"),
        ("complained", "c@one.example.com"),
        ("bounced", "d@two.example.com"),
    ):
        mailgres("suppressions", "add", address, "--reason", reason)


def test_suppressions_release_removes_what_its_filter_matches_but_no_complaint(
    mailgres: Program, queue: Queue
) -> None:
    incident(mailgres)
    order = ("suppressions", "release", "--domain", "One.Example.com", "--since", "1h")
    expected = "bounced: 2\n2 released.\n"
    assert mailgres(*order, "--dry-run").startswith(expected)
    assert len(known(queue)) == 4
    assert mailgres(*order) == expected
    assert [row[0] for row in known(queue)] == ["c@one.example.com", "d@two.example.com"]
    assert mailgres("suppressions", "release", "--reason", "complained").endswith("1 released.\n")
    assert mailgres("suppressions", "release", "--source", "event") == "0 released.\n"


def test_suppressions_release_without_a_filter_is_refused(mailgres: Program, queue: Queue) -> None:
    incident(mailgres)
    what, hint = mailgres.fails("suppressions", "release")
    assert what == "a filter is needed to release suppressions"
    assert hint.startswith("Give a reason")
    assert len(known(queue)) == 4


# --- explain


def test_suppressions_explain_says_why_since_when_and_which_email(
    mailgres: Program, queue: Queue
) -> None:
    queue_id = queue.enqueue(recipient_email="Ana@Example.com")
    queue.attempt("sent", provider_message_id="re_1")
    queue.run(
        "SELECT record_email_event(NULL, 'bounced', p_queue_id => %s, p_detail => %s)",
        queue_id,
        Jsonb({"kind": "hard", "reason": "mailbox_unknown", "text": "550 no such user"}),
    )
    told = mailgres("suppressions", "explain", "ANA@example.com")
    assert "ana@example.com is suppressed for all tenants: an email to it bounced" in told
    assert f"because of the email {queue_id} (welcome_user)" in told
    assert "hard bounced" in told
    assert "550 no such user" in told
    assert mailgres.json("suppressions", "explain", "ana@example.com")["suppressions"]


def test_suppressions_explain_exits_with_1_for_an_address_that_is_not_suppressed(
    mailgres: Program,
) -> None:
    done = mailgres.run("suppressions", "explain", "eve@example.com")
    assert (done.returncode, done.stdout) == (1, "eve@example.com is not suppressed.\n")


# --- a large file


def test_one_bad_line_among_100_000_of_an_import_changes_nothing(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    path = tmp_path / "many.txt"
    lines = [f"user{place}@example.com" for place in range(100_000)]
    lines[70_000] = "not an address"
    path.write_text("\n".join(lines))
    what, _ = mailgres.fails("suppressions", "import", str(path))
    assert what == f"{path}, line 70001: it has no email address"
    assert known(queue) == []
    assert mailgres("suppressions", "import", str(path), "--skip-invalid") == (
        "99999 added, 1 invalid\n"
    )
    assert queue.value("SELECT DISTINCT source FROM email_suppressions") == "import"


# --- Resend's own list


@pytest.fixture
def double() -> Iterator[ResendDouble]:
    origins = ["manual", "bounce", "complaint"]
    entries = [
        {
            "email": f"user{place}@example.com",
            "origin": origins[place % 3],
            "created_at": "2026-10-06T23:47:56.678Z",
        }
        for place in range(250)
    ]
    with serve(ResendDouble(suppressions=entries)) as running:
        yield running


def resend_settings(double: ResendDouble, **more: str) -> dict[str, str]:
    return {
        "MAILGRES_PROVIDERS": "resend",
        "MAILGRES_RESEND_API_URL": double.url,
        "RESEND_API_KEY": KEY,
        **more,
    }


def test_the_list_of_resend_is_imported_by_its_api(
    mailgres: Program, queue: Queue, double: ResendDouble
) -> None:
    env = resend_settings(double)
    double.add_faults(
        Fault(status=429, name="rate_limit_exceeded", headers={"retry-after": "0"}, times=2)
    )
    order = ("suppressions", "import", "--provider", "resend")
    assert mailgres(*order, **env) == "250 added\n"
    assert mailgres(*order, **env) == "250 known before\n"
    found = queue.rows("SELECT reason, source, count(*) FROM email_suppressions GROUP BY 1, 2")
    assert {tuple(row) for row in found} == {
        ("manual", "provider", 84),
        ("bounced", "provider", 83),
        ("complained", "provider", 83),
    }
    since = "SELECT DISTINCT created_at::date::text FROM email_suppressions"
    assert queue.value(since) == "2026-10-06"


@pytest.mark.parametrize(
    ("provider", "env", "what"),
    [
        ("resend", {"RESEND_API_KEY": "re_wrong"}, "could not be read"),
        ("resnd", {}, "The settings name no provider 'resnd'"),
        (
            "smtp",
            {"MAILGRES_PROVIDERS": "smtp", "MAILGRES_SMTP_URL": "smtp://127.0.0.1:1"},
            "cannot read the suppressions of smtp",
        ),
    ],
)
def test_a_suppression_list_of_resend_that_cannot_be_read_is_an_error(
    mailgres: Program, double: ResendDouble, provider: str, env: dict[str, str], what: str
) -> None:
    order = ("suppressions", "import", "--provider", provider)
    said, hint = mailgres.fails(*order, **resend_settings(double, **env))
    assert what in said
    assert hint
    assert mailgres.json("suppressions", "list") == []


def test_suppressions_import_needs_a_file_or_a_provider(mailgres: Program) -> None:
    assert "Give a FILE or --provider NAME" in mailgres.misused("suppressions", "import")
