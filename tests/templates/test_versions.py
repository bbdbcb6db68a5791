"""`mailgres templates`: checking files, comparing them with the database, and going back."""

from __future__ import annotations

import psycopg
import pytest

from support.program import Program
from support.templates import FRONT, Script, Write

RECEIPT = '+++\nsubject = "Receipt"\n[sample]\nname = "Ana"\n+++\n<p>Dear {{ name }}</p>\n'
ACTIVE = "SELECT active_version, required_variables FROM email_templates WHERE template_type = %s"


@pytest.fixture
def receipt(templates: Script, write: Write) -> Write:
    """A template with two versions; the second needs another variable."""
    templates("push", write(receipt__html=RECEIPT))
    templates("push", write(receipt__html=RECEIPT.replace("name", "total")))
    return write


def test_templates_push_check_needs_no_database(write: Write) -> None:
    directory = write(receipt__html=RECEIPT)
    nowhere = Program("postgresql://127.0.0.1:1/nothing")
    checked = nowhere("templates", "push", str(directory), "--check")
    assert checked == "1 template is valid.\n"
    write(other__txt=f"{FRONT}a")
    checked = nowhere("templates", "push", str(directory), "--check")
    assert checked == "2 templates are valid.\n"


def test_templates_push_check_finds_what_a_push_would_refuse(write: Write) -> None:
    directory = write(receipt__html=RECEIPT.replace("{{ name }}", "{{ name"))
    done = Program("").run("templates", "push", str(directory), "--check")
    assert done.returncode == 1
    assert f"{directory}/receipt.html, line 6" in done.stderr
    assert "Traceback" not in done.stderr


def test_templates_diff_shows_what_a_push_would_change(
    database_url: str, receipt: Write, conn: psycopg.Connection
) -> None:
    mailgres = Program(database_url)
    same = receipt(receipt__html=RECEIPT.replace("name", "total"))
    assert mailgres("templates", "diff", str(same)) == "There is no difference.\n"
    changed = receipt(receipt__html=RECEIPT.replace("name", "sum"), other__txt=f"{FRONT}a")
    before = conn.execute("SELECT * FROM mailgres.template_versions").fetchall()
    done = mailgres.run("templates", "diff", str(changed))
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert "--- receipt, version 2: en html" in lines
    assert "+++ receipt, file: en html" in lines
    assert "-<p>Dear {{ total }}</p>" in lines
    assert "+<p>Dear {{ sum }}</p>" in lines
    assert "--- other, not in the database: en subject" in lines
    assert '+required_variables = ["sum"]' in lines
    assert conn.execute("SELECT * FROM mailgres.template_versions").fetchall() == before


@pytest.mark.usefixtures("receipt")
def test_templates_diff_compares_versions(database_url: str) -> None:
    mailgres = Program(database_url)
    for given in ([], ["--version", "1"]):
        done = mailgres.run("templates", "diff", "receipt", *given)
        assert done.returncode == 1
        assert "--- receipt, version 1: en html" in done.stdout
        assert "+<p>Dear {{ total }}</p>" in done.stdout
    assert mailgres("templates", "diff", "receipt", "--version", "2") == "There is no difference.\n"
    assert mailgres("templates", "diff", "welcome_user") == "There is no difference.\n"
    what, hint = mailgres.fails("templates", "diff", "receipt", "--version", "9")
    assert (what, hint) == ("'receipt' has no version 9", "Its versions are: 1, 2.")
    what, _ = mailgres.fails("templates", "diff", "nowhere/receipt.html")
    assert what == "there is no template 'nowhere/receipt.html'"


@pytest.mark.usefixtures("receipt")
def test_templates_rollback_activates_the_version_before(
    templates: Script, conn: psycopg.Connection
) -> None:
    """With the variables that it needs."""
    assert conn.execute(ACTIVE, ("receipt",)).fetchone() == (2, ["total"])
    told = templates("rollback", "receipt", "--dry-run")
    assert told.startswith("receipt: version 1 is active; it was version 2\nNothing was changed")
    assert conn.execute(ACTIVE, ("receipt",)).fetchone() == (2, ["total"])
    assert templates("rollback", "receipt") == "receipt: version 1 is active; it was version 2\n"
    assert conn.execute(ACTIVE, ("receipt",)).fetchone() == (1, ["name"])
    told = templates("rollback", "receipt", "--version", "2")
    assert told == "receipt: version 2 is active; it was version 1\n"
    told = templates("rollback", "receipt", "--version", "2")
    assert told == "receipt: version 2 is active already\n"


def test_a_push_after_a_rollback_makes_a_new_version(
    templates: Script, receipt: Write, conn: psycopg.Connection
) -> None:
    templates("rollback", "receipt")
    directory = receipt(receipt__html=RECEIPT.replace("name", "total"))
    assert templates("push", directory) == "receipt: new version (version 3)\n"
    assert conn.execute(ACTIVE, ("receipt",)).fetchone() == (3, ["total"])


def test_an_email_keeps_its_version_after_a_rollback(
    templates: Script, receipt: Write, conn: psycopg.Connection
) -> None:
    del receipt
    conn.execute("SELECT enqueue_email(NULL, 'receipt', 'ana@example.com', '{\"total\": 1}')")
    conn.execute("SELECT mailgres.claim('worker-1', 10, '60 s')")
    templates("rollback", "receipt")
    pinned = conn.execute("SELECT template_version FROM email_queue").fetchone()
    assert pinned == (2,)


def test_rollback_without_an_earlier_version_is_refused(database_url: str) -> None:
    mailgres = Program(database_url)
    what, hint = mailgres.fails("templates", "rollback", "welcome_user")
    assert what == "'welcome_user' has no version before 1, the active one"
    assert hint == "Its versions are: 1."
    what, _ = mailgres.fails("templates", "rollback", "welcome_user", "--version", "7")
    assert what == "'welcome_user' has no version 7"
    what, hint = mailgres.fails("templates", "rollback", "welcome_usr")
    assert what == "there is no template 'welcome_usr'"
    assert hint == "Did you mean 'welcome_user'?"


def test_activate_version_refuses_unknown_templates_and_versions(conn: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.Error, match="has no version 9") as found:
        conn.execute("SELECT mailgres.activate_version('welcome_user', 9, NULL)")
    assert found.value.sqlstate == "MG060"
    with pytest.raises(psycopg.errors.Error, match="there is no template 'nothing'") as found:
        conn.execute("SELECT mailgres.activate_version('nothing', 1, NULL)")
    assert found.value.sqlstate == "MG001"
