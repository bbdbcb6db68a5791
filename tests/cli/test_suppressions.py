"""`mailgres suppressions`, run as a program."""

from __future__ import annotations

import gzip
import stat
from pathlib import Path

import pytest

from support.program import Program
from support.queue import Queue

ALL = "SELECT recipient_email, tenant_id, reason, detail FROM email_suppressions ORDER BY 1, 2"


def known(queue: Queue) -> list[tuple[str, ...]]:
    return [tuple(row) for row in queue.rows(ALL)]


def test_suppressions_add_list_remove(mailgres: Program, queue: Queue) -> None:
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


def test_what_is_queued_is_cancelled(mailgres: Program, queue: Queue) -> None:
    queue_id = queue.enqueue(recipient_email="ana@example.com")
    mailgres("suppressions", "add", "ana@example.com")
    assert queue.claim() == []
    assert queue.email(queue_id).status == "cancelled"


def test_suppressions_all_or_none(mailgres: Program, queue: Queue) -> None:
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
def test_suppressions_import(
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
        ("a.csv", b"email\nana@example.com\na,b\n", "line 3: it has 2 cells, but the head 1"),
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
def test_suppressions_a_bad_line(
    mailgres: Program, queue: Queue, tmp_path: Path, case: tuple[str, bytes, str]
) -> None:
    name, content, why = case
    path = tmp_path / name
    path.write_bytes(content)
    what, hint = mailgres.fails("suppressions", "import", str(path))
    assert why in what
    assert str(path) in what
    assert hint == "Nothing was changed. Mend the file."
    assert known(queue) == []


def test_bad_lines_can_be_left_out(mailgres: Program, queue: Queue, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("ana@example.com\nnot one\n")
    said = mailgres("suppressions", "import", str(path), "--skip-invalid")
    assert said == "1 added, 1 not valid\n"
    assert len(known(queue)) == 1


def test_files_that_cannot_be_read(mailgres: Program, tmp_path: Path) -> None:
    gone = mailgres.fails("suppressions", "import", str(tmp_path / "gone.txt"))
    assert "No such file or directory" in gone[0]
    named = mailgres.fails("suppressions", "import", "list.xlsx")
    assert named[1] == "End it with .txt, .csv, .jsonl, or one of them and .gz."


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz"])
def test_suppressions_export_and_back(
    mailgres: Program, queue: Queue, tmp_path: Path, name: str
) -> None:
    mailgres("suppressions", "add", "ana@example.com", "--detail", 'a "b",\nc')
    mailgres("suppressions", "add", "bob@example.com", "--tenant", "shop", "--reason", "bounced")
    before = known(queue)
    path = tmp_path / name
    assert mailgres("suppressions", "export", str(path)) == f"2 are in {path}.\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert mailgres.fails("suppressions", "export", str(path))[0] == f"{path} exists"
    mailgres("suppressions", "export", str(path), "--force")
    queue.run("DELETE FROM email_suppressions")
    assert mailgres("suppressions", "import", str(path)) == "2 added\n"
    assert known(queue) == before
    assert list(tmp_path.iterdir()) == [path]


def test_export_to_a_pipe(mailgres: Program) -> None:
    mailgres("suppressions", "add", "ana@example.com")
    lines = mailgres("suppressions", "export", "-").splitlines()
    assert lines[0] == "recipient_email,tenant_id,reason,detail,created_at"
    assert lines[1].startswith("ana@example.com,*,manual,,")
