"""`mailgres templates`, run as a program."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from support.program import Program
from support.templates import FRONT, Script, Write

RECEIPT = """\
+++
subject = "Receipt for {{ name }}"
description = "What was paid"
[sample]
name = "Ana"
+++
<p>Dear {{ name }}, <a href="https://x.example">thank you</a>.</p>
"""


def state(conn: psycopg.Connection) -> object:
    return conn.execute(
        "SELECT to_jsonb(t), v.version, v.locale, v.subject, v.html, v.text FROM email_templates t"
        " JOIN mailgres.template_versions v USING (template_type) ORDER BY t.template_type, 2, 3"
    ).fetchall()


def test_templates_push_reports_new_and_unchanged_versions(
    templates: Script, write: Write, conn: psycopg.Connection
) -> None:
    directory = write(receipt__html=RECEIPT, other__txt=f"{FRONT}a")
    assert templates("push", directory, "--dry-run").splitlines() == [
        "other: created (version 1)",
        "receipt: created (version 1)",
        "Nothing was changed: this was a dry run.",
    ]
    assert conn.execute("SELECT count(*) FROM email_templates").fetchone() == (3,)
    assert "receipt: created (version 1)" in templates("push", directory)
    (text,) = conn.execute(
        "SELECT text FROM mailgres.template_versions WHERE template_type = 'receipt'"
    ).fetchall()
    assert text == ("Dear {{ name }}, thank you (https://x.example).",)
    needs = "SELECT required_variables FROM email_templates WHERE template_type = 'receipt'"
    assert conn.execute(needs).fetchone() == (["name"],)

    before = state(conn)
    assert templates("push", directory).splitlines() == [
        "other: unchanged (version 1)",
        "receipt: unchanged (version 1)",
    ]
    assert state(conn) == before

    file = directory / "receipt.html"
    file.write_text(RECEIPT.replace("What was", "All that was"))
    assert templates("push", file) == "receipt: settings (version 1)\n"
    file.write_text(RECEIPT.replace("Dear", "Hello"))
    assert templates("push", file) == "receipt: new version (version 2)\n"


COMMANDS = (
    ("list",), ("show", "welcome_user"), ("preview", "welcome_user"), ("retire", "welcome_user"),
    ("pull", "DIRECTORY"), ("push", "DIRECTORY"),
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_templates_push_names_the_missing_right(
    database_url: str, write: Write, conn: psycopg.Connection, command: tuple[str, ...]
) -> None:
    """A role without rights, and one whose transactions are read-only."""
    directory = str(write(other__txt=f"{FRONT}a"))
    order = ["templates", *(directory if part == "DIRECTORY" else part for part in command)]
    before = state(conn)
    conn.execute("CREATE ROLE mailgres_nobody NOLOGIN")
    try:
        what, hint = Program(database_url).fails(*order, PGOPTIONS="-c role=mailgres_nobody")
    finally:
        conn.execute("DROP ROLE mailgres_nobody")
    assert "permission denied" in what
    assert "GRANT mailgres_operator" in hint
    if command[0] in ("push", "retire"):
        read_only = "-c default_transaction_read_only=on"
        what, hint = Program(database_url).fails(*order, PGOPTIONS=read_only)
        assert "read-only transaction" in what
        assert hint == "Nothing was changed."
    assert state(conn) == before


def test_control_characters_of_a_template_do_not_reach_the_terminal(
    templates: Script, write: Write
) -> None:
    """Shown to people it does not; what goes into a file is what is sent."""
    evil = "\x1b]0;mine\x07\x1b[2J"
    directory = write(evil__html=f'+++\nsubject = "Hi"\n+++\n<p>{evil}</p>\n')
    templates("push", directory)
    for order in (("show", "evil"), ("preview", "evil")):
        printed = templates(*order)
        assert "\N{REPLACEMENT CHARACTER}[2J" in printed, order
        assert printed.replace("\n", "").isprintable(), order
    assert evil in templates("preview", "evil", "--html")


def test_push_is_all_or_nothing(templates: Script, write: Write, conn: psycopg.Connection) -> None:
    before = state(conn)
    directory = write(a__txt=f"{FRONT}fine", z__txt=f"{FRONT}\n{{% if %}}")
    what, hint = templates.fails("push", directory)
    assert "z.txt, line 5: " in what
    assert hint == "Nothing was written. Fix it and push again."
    # What only the database knows to be wrong.
    write(z__txt='+++\nsubject = "Hi"\nroute = "nowhere"\n+++\nb')
    what, hint = templates.fails("push", directory)
    assert what == "template 'z': there is no route 'nowhere'"
    assert "route" in hint
    assert templates.fails("push", directory, "--dry-run")[0] == what
    assert state(conn) == before


BY_SQL = """
    SELECT mailgres.push_template('by.sql',
        '{"de": {"subject": " a \\"b\\" ", "text": "\\n \\n c\\r\\nd "},
          "pt-BR": {"subject": "x", "html": "", "text": "y"}}',
        '{"expires_after": "1 day 02:00:00", "priority": 3, "required_variables": [],
          "from_email": "Acme <mail@example.com>", "sample": {"a b": [1, {"c": true}], "d": 1.5}}')
"""


def test_templates_that_are_pulled_and_pushed_do_not_change(
    templates: Script, tmp_path: Path, conn: psycopg.Connection
) -> None:
    conn.execute(BY_SQL)
    directory = tmp_path / "mails"
    assert "4 templates are in" in templates("pull", directory)
    before = state(conn)
    assert templates("push", directory).count("unchanged") == 4
    assert state(conn) == before


def test_templates_pull_does_not_overwrite_edited_files(templates: Script, tmp_path: Path) -> None:
    templates("pull", tmp_path)
    (tmp_path / "welcome_user.txt").write_text("edited")
    what, hint = templates.fails("pull", tmp_path)
    assert what.endswith("welcome_user.txt would be overwritten")
    assert "--force" in hint
    assert (tmp_path / "welcome_user.txt").read_text() == "edited"
    assert templates("pull", tmp_path, "--force").splitlines() == [
        f"{tmp_path}/welcome_user.txt",
        f"3 templates are in {tmp_path}.",
    ]


def test_templates_list_shows_versions_and_variables(
    templates: Script, conn: psycopg.Connection
) -> None:
    lines = templates("list").splitlines()
    assert lines[0].split() == ["template", "version", "languages", "needs", "description"]
    assert lines[3].startswith("welcome_user         1        en pt      -      Greets a new user.")
    conn.execute("SELECT mailgres.retire_template('welcome_user')")
    assert "retired" in templates("list")
    listed = json.loads(templates("list", "--json"))
    names = [one["name"] for one in listed]
    assert names == ["mailgres_alert", "signup_confirmation", "welcome_user"]
    assert listed[1]["locales"] == ["en", "pt"]
    assert listed[1]["on_uncertain"] == "resend"
    assert listed[2]["retired_at"]


def test_templates_show_prints_a_version(templates: Script, write: Write) -> None:
    directory = write(receipt__html=RECEIPT)
    templates("push", directory)
    write(receipt__html=RECEIPT.replace("Dear", "Hello"))
    templates("push", directory)
    shown = templates("show", "receipt")
    assert shown.startswith("receipt, version 2 (active)\ndescription: What was paid\n")
    assert 'required_variables: ["name"]\n' in shown
    assert "\n--- en, html\n<p>Hello {{ name }}" in shown
    first = templates("show", "receipt", "--version", "1")
    assert first.startswith("receipt, version 1 (2 is active)\n")
    assert "<p>Dear {{ name }}" in first
    what, hint = templates.fails("show", "receipt", "--version", "3")
    assert (what, hint) == ("'receipt' has no version 3", "Its versions are: 1, 2.")


@pytest.mark.parametrize("command", ["show", "preview", "retire"])
def test_templates_suggests_the_nearest_template(templates: Script, command: str) -> None:
    what, hint = templates.fails(command, "welcome_usr")
    assert what == "there is no template 'welcome_usr'"
    assert hint == "Did you mean 'welcome_user'?"


def test_templates_preview_renders_with_a_payload(
    templates: Script, write: Write, tmp_path: Path
) -> None:
    payload = '{"name": "<Ana>", "locale": "pt-BR"}'
    shown = templates("preview", "welcome_user", "--payload", payload)
    assert shown.startswith("Subject: Boas-vindas ao nosso serviço\n\nBoas-vindas, <Ana>!\n")
    assert "\n--- html\n<!doctype html>" in shown
    assert "&lt;Ana&gt;" in shown
    (tmp_path / "payload.json").write_text(payload)
    assert templates("preview", "welcome_user", "--payload", f"@{tmp_path}/payload.json") == shown
    assert templates("preview", "welcome_user", "--payload", "-", stdin=payload) == shown
    english = templates("preview", "welcome_user", "--payload", payload, "--locale", "en", "--html")
    assert english.startswith("<!doctype html>")
    assert "Welcome, &lt;Ana&gt;!" in english
    assert "Welcome, Ana!" in templates("preview", "welcome_user")  # the sample

    file = write(receipt__html=RECEIPT) / "receipt.html"
    assert templates("preview", file).startswith("Subject: Receipt for Ana\n")


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("{", "The payload is not JSON: "),
        ("[]", "The payload is not a JSON object"),
        ("@nowhere.json", "nowhere.json: No such file or directory"),
        ('{"a":' + "[" * 200_000 + "]" * 200_000 + "}", "The payload is not JSON: "),
        (
            '{"name": 1, "a":' + "[" * 200 + "]" * 200 + "}",
            "welcome_user (en), payload: it is nested",
        ),
    ],
)
def test_templates_preview_refuses_bad_payloads(
    templates: Script, payload: str, said: str, tmp_path: Path
) -> None:
    given = payload
    if len(payload) > 1000:
        (tmp_path / "deep.json").write_text(payload)
        given = f"@{tmp_path}/deep.json"
    assert templates.fails("preview", "welcome_user", "--payload", given)[0].startswith(said)


def test_templates_preview_names_a_missing_variable(templates: Script, write: Write) -> None:
    templates("push", write(receipt__html=RECEIPT))
    what, _ = templates.fails("preview", "receipt", "--payload", "{}")
    assert what == "receipt (en), subject: `name` is undefined"


def test_templates_retire_says_whether_it_changed_anything(
    templates: Script, tmp_path: Path, conn: psycopg.Connection
) -> None:
    assert templates("retire", "welcome_user") == "welcome_user is retired.\n"
    assert templates("retire", "welcome_user") == "welcome_user was retired before.\n"
    with pytest.raises(psycopg.Error, match="there is no template"):
        conn.execute("SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com')")
    templates("pull", tmp_path)
    assert not list(tmp_path.glob("welcome_user*"))


def test_templates_command_help_has_examples(templates: Script) -> None:
    assert "mailgres templates push templates/" in templates("push", "-h")
    listed = templates("-h")
    for command in ("push", "pull", "list", "show", "preview", "retire"):
        assert f"  {command}" in listed


def test_templates_without_a_database_says_what_to_do(write: Write) -> None:
    script = Script("")
    assert script.fails("list")[0] == "No database was named"
    # Bad files are found without one.
    assert "line" in script.fails("push", write(a__txt=f"{FRONT}{{% if %}}"))[0]


def test_templates_without_a_schema_names_migrate(empty_database_url: str, write: Write) -> None:
    script = Script(empty_database_url)
    for command in (("list",), ("push", write(a__txt=f"{FRONT}a"))):
        assert script.fails(*command)[1] == "Run `mailgres migrate`."
