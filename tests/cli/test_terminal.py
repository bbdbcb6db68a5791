"""What people see at a terminal: tables that fit, short ids, completion."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from mailgres import cli
from mailgres.cli.support.tables import Cell, Column, display_width, table
from support.program import PROGRAM, Program
from support.queue import Queue

WIDTHS = (80, 120)
LISTS = (
    ["list"],
    ["list", "--since", "all", "--status", "dead"],
    ["dlq", "list"],
    ["dlq", "stats"],
    ["templates", "list"],
    ["tenants", "list"],
    ["providers", "list"],
    ["routes", "list"],
    ["policies", "list"],
    ["alerts", "list"],
    ["alerts", "rules"],
    ["suppressions", "list"],
    ["eta"],
    ["janitor"],
    ["config"],
    ["status"],
)


@pytest.fixture
def emails(queue: Queue) -> Queue:
    """Emails of several states, with long names."""
    queue.enqueue("welcome_user", "maria.do-carmo.albuquerque@subsidiary.example.com")
    queue.attempt("permanent", code="invalid_to_address", message="The address does not exist")
    queue.enqueue("signup_confirmation", "bo@example.com", tenant_id="international-traders")
    queue.attempt("sent")
    queue.enqueue("welcome_user", "cy@example.com")
    queue.attempt("transient", code="http_503", message="away")
    queue.suppress("dora.of.the.very.long.name@subsidiary.example.com")
    queue.run("UPDATE mailgres.providers SET circuit = 'open', reopened = 1")
    return queue


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\s]+", text))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", LISTS, ids=" ".join)
@pytest.mark.usefixtures("emails")
def test_a_table_fits_the_terminal_and_breaks_no_word(
    mailgres: Program, command: list[str], width: int
) -> None:
    mailgres = Program(mailgres.url, {"MAILGRES_WORKER_NAME": "worker-1"})
    fitted = mailgres(*command, COLUMNS=str(width))
    for line in fitted.splitlines():  # a word that is longer than a line has one of its own
        assert display_width(line) <= width or len(line.split()) == 1, line
    # Every word is one of the complete table, the name of its column, or a shorter form of a time
    # or an id. An ellipsis stands for a text below the row.
    complete = words(mailgres(*command)) | {"…"}
    for word in words(fitted) - complete:
        is_short = re.fullmatch(r"\d\d-\d\d|\d\d:\d\d|[\w ]+:|\d.*", word)
        assert is_short or word.removesuffix(";") in complete, word
    assert fitted.count("…") <= len(re.findall(r"[a-z]:\s", fitted))


def test_a_timeline_fits_the_terminal(mailgres: Program, emails: Queue) -> None:
    email = emails.value("SELECT id FROM email_queue WHERE status = 'failed'")
    for command in (["show"], ["dlq", "show"]):
        shown = mailgres(*command, str(email), COLUMNS="80")
        assert max(map(display_width, shown.splitlines())) <= 80
        assert "maria.do-carmo.albuquerque@subsidiary.example.com" in shown


def test_in_a_pipe_ids_are_complete_and_at_a_terminal_short(
    mailgres: Program, emails: Queue
) -> None:
    ids = emails.value("SELECT array_agg(id::text ORDER BY id DESC) FROM email_queue")
    assert [line.split()[0] for line in mailgres("list").splitlines()[1:]] == ids
    fitted = mailgres("list", COLUMNS="120").splitlines()[1:]
    short = [line.split()[0] for line in fitted if not line.startswith(" ")]
    assert [one[: len(short[0])] for one in ids] == short
    assert 13 <= len(short[0]) < 36
    for prefix, whole in zip(short, ids, strict=True):
        assert mailgres("show", prefix).startswith(whole)


NEIGHBOURS = [
    "01a1e19f-de56-7abc-8000-000000000001",
    "01a1e19f-de56-7abc-8000-00000000001f",
    "01a1e19f-de56-7abd-8000-000000000000",
]


@pytest.fixture
def neighbours(queue: Queue) -> Queue:
    """Three emails whose ids begin alike, the first of them dead."""
    for one in NEIGHBOURS:
        queue.run(
            "INSERT INTO email_queue (id, template_type, recipient_email)"
            " VALUES (%s, 'welcome_user', 'ana@example.com')",
            one,
        )
    queue.run(
        "UPDATE email_queue SET status = 'failed', dead_reason = 'permanent', error_message = 'no'"
        " WHERE id = %s",
        NEIGHBOURS[0],
    )
    return queue


@pytest.mark.usefixtures("neighbours")
def test_a_short_id_in_a_table_names_one_email(mailgres: Program) -> None:
    lines = mailgres("list", "--since", "all", COLUMNS="120").splitlines()[1:]
    short = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert short == [one[:35] for one in reversed(NEIGHBOURS)]
    assert mailgres("show", short[0]).startswith(NEIGHBOURS[2])


@pytest.mark.parametrize(
    "typed",
    [
        "01a1e19f-de56-7abd",
        "01a1e19fde567abd",
        "01A1E19F-DE56-7ABD-8",
        "01a1e19f-de56-7abd-…",
        NEIGHBOURS[2],
    ],
)
@pytest.mark.usefixtures("neighbours")
def test_show_takes_the_first_digits_of_an_id(mailgres: Program, typed: str) -> None:
    assert mailgres("show", typed).startswith(NEIGHBOURS[2])


@pytest.mark.usefixtures("neighbours")
def test_an_ambiguous_id_lists_the_candidates(mailgres: Program) -> None:
    done = mailgres.run("show", "01a1e19f-de56")
    assert (done.returncode, done.stdout) == (1, "")
    first, *candidates, hint = done.stderr.splitlines()
    assert first == "Error: 3 ids begin with 01a1e19f-de56:"
    assert [line.split()[0] for line in candidates] == NEIGHBOURS
    assert candidates[0].endswith("failed   welcome_user")
    assert hint == "Hint: Give more digits."


def test_an_ambiguous_id_lists_a_bounded_number_of_candidates(
    mailgres: Program, queue: Queue
) -> None:
    queue.run(
        "INSERT INTO email_queue (id, template_type, recipient_email)"
        " SELECT ('01a1e19f-de56-7abc-8000-' || lpad(n::text, 12, '0'))::uuid, 'welcome_user',"
        " 'ana@example.com' FROM generate_series(1, 30) n"
    )
    lines = mailgres.run("show", "01a1").stderr.splitlines()
    assert lines[0] == "Error: More than 10 ids begin with 01a1:"
    assert len(lines) == 12


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["retry"], "pending"),
        (["dlq", "retry"], "pending"),
        (["cancel"], "cancelled"),
    ],
    ids=" ".join,
)
def test_commands_take_the_first_digits_of_an_id(
    mailgres: Program, neighbours: Queue, command: list[str], status: str
) -> None:
    assert mailgres(*command, "01a1e19f-de56-7abc-8000-00000000000").endswith("1 of 1 email.\n")
    assert neighbours.email(UUID(NEIGHBOURS[0])).status == status


def test_an_ambiguous_id_among_several_changes_nothing(
    mailgres: Program, neighbours: Queue
) -> None:
    done = mailgres.run("cancel", NEIGHBOURS[2], "01a1e19f-de56-7abc")
    assert done.returncode == 1
    assert "2 ids begin with 01a1e19f-de56-7abc" in done.stderr
    assert neighbours.value("SELECT count(*) FROM email_queue WHERE status = 'cancelled'") == 0


def test_an_archived_email_is_found_by_its_first_digits(
    mailgres: Program, neighbours: Queue
) -> None:
    neighbours.run("UPDATE mailgres.settings SET dead_letter_ttl = '1 microsecond'")
    assert neighbours.value("SELECT mailgres.archive_dead_letters()") == 1
    typed = NEIGHBOURS[0][:-1]
    assert "archive" in mailgres("dlq", "show", typed)
    assert mailgres("show", typed).startswith(NEIGHBOURS[0])


def test_a_short_id_is_found_by_the_primary_keys(conn: psycopg.Connection, queue: Queue) -> None:
    from mailgres.cli.support.operator import QUERIES

    queue.run(
        "INSERT INTO email_queue (template_type, recipient_email)"
        " SELECT 'welcome_user', 'ana@example.com' FROM generate_series(1, 2000)"
    )
    queue.run("ANALYZE email_queue")
    found = queue.value("SELECT id FROM email_queue LIMIT 1")
    for name, given in (
        ("emails_with_prefix", {"first": found, "last": found, "limit": 11}),
        ("neighbours", {"ids": [found]}),
    ):
        rows = conn.execute("EXPLAIN " + QUERIES[name], given).fetchall()
        plan = "\n".join(row[0] for row in rows)
        assert "email_queue_pkey" in plan
        assert "dead_letters_pkey" in plan
        assert "Seq Scan" not in plan


@pytest.mark.parametrize(
    "typed", ["xyz", "0", "01a", "----", "01a1e19f-de56-7abc-8000-0000000000001"]
)
def test_show_refuses_a_value_that_is_not_an_id(mailgres: Program, typed: str) -> None:
    assert "is not an id. Give a UUID, or at least its first 4 digits." in mailgres.misused(
        "show", typed
    ) or typed.startswith("-")


@pytest.mark.usefixtures("emails")
def test_dead_is_another_word_for_failed(mailgres: Program) -> None:
    dead = mailgres.json("list", "--status", "dead")
    assert dead == mailgres.json("list", "--status", "failed")
    assert [one["status"] for one in dead] == ["failed"]
    assert mailgres("retry", "--status", "dead", "--since", "1h", "--yes").startswith("Retried 1")


SAME = (
    ["--recipient", "@SUBSIDIARY.example.com"],
    ["--recipient", "maria.do-carmo.albuquerque@subsidiary.example.com", "--recipient", "@x.org"],
    ["--provider", "capture"],
    ["--since", "1h"],
    ["--died-since", "1h"],
    ["--died-until", "2999-01-01T00:00"],
    ["--reason", "permanent"],
    ["--error-code", "invalid_to_address"],
)


@pytest.mark.parametrize("given", SAME, ids=" ".join)
@pytest.mark.parametrize("archived", [False, True], ids=["queue", "archive"])
def test_dlq_and_retry_have_the_same_filters(
    mailgres: Program,
    emails: Queue,
    given: list[str],
    archived: bool,  # noqa: FBT001
) -> None:
    if archived:
        emails.run("UPDATE mailgres.settings SET dead_letter_ttl = '1 microsecond'")
        assert emails.value("SELECT mailgres.archive_dead_letters()") == 1
    else:
        assert mailgres("retry", *given, "--dry-run").startswith("Would have retried 1 of 1")
        assert mailgres("dlq", "retry", *given, "--dry-run").startswith("Would have retried 1 of 1")
        assert len(mailgres.json("list", "--status", "dead", *given)) == 1
    assert len(mailgres.json("dlq", "list", *given)) == 1
    (code,) = mailgres.json("dlq", "stats", "--by", "code", *given)
    assert code["in_queue"] + code["archived"] == 1


OTHERS = (
    ["--recipient", "@example.com"],
    ["--provider", "resend"],
    ["--until", "1h"],
    ["--died-until", "1h"],
)


@pytest.mark.parametrize("given", OTHERS, ids=" ".join)
def test_the_filters_of_dlq_and_retry_leave_others_out(
    mailgres: Program, emails: Queue, given: list[str]
) -> None:
    emails.use_provider("resend")
    assert mailgres.run("dlq", "list", *given, "--json").stdout == "[]\n"
    assert mailgres.run("list", "--status", "dead", *given, "--json").stdout == "[]\n"
    emails.run("UPDATE mailgres.settings SET dead_letter_ttl = '1 microsecond'")
    emails.run("SELECT mailgres.archive_dead_letters()")
    assert mailgres.run("dlq", "list", *given, "--json").stdout == "[]\n"


def test_died_since_is_refused_for_emails_that_are_not_dead(mailgres: Program) -> None:
    told = mailgres.misused("list", "--died-since", "1h", "--status", "sent")
    assert told == (
        "--died-since and --died-until select dead emails: leave out --status, or give failed."
    )
    assert "cannot be cancelled" not in mailgres.run("cancel", "--died-since", "1h").stderr
    told = mailgres.misused("reschedule", "--to", "1h", "--died-since", "1h")
    assert told.startswith("Dead emails cannot be rescheduled")
    told = mailgres.misused("list", "--died-since", "1h", "--died-until", "2h")
    assert told == "The time window ends before it begins: nothing can match."


@pytest.mark.parametrize("group", ["", "dlq", "templates", "tenants", "providers", "alerts"])
def test_help_has_whole_sentences(group: str) -> None:
    shown = Program("").run(*group.split(), "--help", COLUMNS="80").stdout
    assert "..." not in shown.partition("Commands:")[2]
    assert max(map(len, shown.splitlines())) <= 80


FIXED_PLURAL = re.compile(
    r"\} (?:more |bad )?(?:address|alert|attempt|comment|email|entrie|file|letter|line|message|name"
    r"|object|provider|retrie|route|row|rule|sender|suppression|template|tenant|version|worker)e?s\b"
)


def test_no_command_prints_a_number_before_a_fixed_plural() -> None:
    """`count` writes the noun: 1 email, 2 emails."""
    assert FIXED_PLURAL.search("{found:,} emails")
    for path in Path(cli.__file__).parent.rglob("*.py"):
        for text in re.findall(r'f"[^"]*"', path.read_text(encoding="utf-8")):
            assert not FIXED_PLURAL.search(text), (path.name, text)


def test_one_is_singular(mailgres: Program, queue: Queue, tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    one.write_text('{"template_type": "welcome_user", "recipient_email": "ana@example.com"}\n')
    assert mailgres("enqueue", "--jsonl", str(one)) == "Enqueued 1 email.\n"
    assert "1 email is pending or being sent." in mailgres("quarantine", "status")
    queue.run("UPDATE email_queue SET max_retries = 0")
    (email,) = mailgres.json("list")
    assert "one attempt" in mailgres("show", email["id"])
    assert mailgres("policies", "set", "stepped", "--steps", "1m", "--retries", "1").startswith(
        "stepped: 1 retry, "
    )


def completed(mailgres: Program, line: str) -> list[str]:
    *before, last = line.split(" ")
    done = mailgres.run(
        _MAILGRES_COMPLETE="bash_complete",
        COMP_WORDS=" ".join(["mailgres", *before, last]),
        COMP_CWORD=str(len(before) + 1),
    )
    assert done.stderr == ""
    return [each.removeprefix("plain,") for each in done.stdout.split()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("list --template wel", ["welcome_user"]),
        ("templates show sign", ["signup_confirmation"]),
        ("enqueue wel", ["welcome_user"]),
        ("retry --tenant inter", ["international-traders"]),
        ("tenants pause inter", ["international-traders"]),
        ("providers pause ca", ["capture"]),
        ("list --provider ca", ["capture"]),
        ("alerts explain circ", ["circuit_open"]),
        ("routes pause def", ["default"]),
        ("list --template nothing", []),
    ],
)
@pytest.mark.usefixtures("emails")
def test_the_shell_completes_names_of_the_database(
    mailgres: Program, line: str, expected: list[str]
) -> None:
    assert completed(mailgres, line) == expected


def test_completion_is_silent_without_a_database(empty_database_url: str) -> None:
    for url in ("", "postgresql://127.0.0.1:1/nothing", "nonsense", empty_database_url):
        assert completed(Program(url), "list --template wel") == []


def test_completion_does_not_wait_for_a_server_that_does_not_answer() -> None:
    """It accepts the connection and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/silent"
        assert completed(Program(url), "list --template wel") == []


def test_a_command_over_no_rows_shows_no_progress_bar(mailgres: Program, queue: Queue) -> None:
    del queue
    terminal = subprocess.run(
        ["script", "-qec", f"{PROGRAM} retry --all-failed --yes", "/dev/null"],
        env={
            "DATABASE_URL": mailgres.url,
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm",
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert terminal == "Retried 0 of 0 emails.\n"


def test_a_column_is_shortened_then_wrapped_then_moved_and_never_cut() -> None:
    head = (
        "time",
        Column("name", least=6),
        Column("tenant", spare="default"),
        Column("", below="{}"),
    )
    row = (
        Cell("2026-11-18 10:00:00 UTC", "11-18 10:00"),
        "long_name_of_it",
        "default",
        "so and so",
    )

    def lines(width: int | None) -> list[str]:
        return [line for block in table(head, [row], width) for line in block]

    assert lines(None)[1] == "2026-11-18 10:00:00 UTC  long_name_of_it  default  so and so"
    assert lines(60)[1] == "2026-11-18 10:00:00 UTC  long_name_of_it  default  so and so"
    assert lines(50)[1:] == ["11-18 10:00  long_name_of_it  default  so and so"]
    assert lines(40)[1:] == ["11-18 10:00  long_name_of_it  so and so"]
    assert lines(38)[1:] == ["11-18 10:00  long_name_of_it", "    so and so"]
    assert lines(30)[1:] == ["11-18 10:00  long_name_of_it", "    so and so"]
    assert lines(24)[1:] == [
        "11-18 10:00  …",
        "    name:",
        "    long_name_of_it; so",
        "    and so",
    ]


def test_only_the_texts_that_are_too_long_for_their_column_are_put_below() -> None:
    head = (Column("address", least=8), "status")
    rows = [("ana@a.example", "sent"), ("maria.do-carmo@subsidiary.example.com", "dead")]
    assert table(head, rows, 40)[1:] == [
        ["ana@a.example                     sent"],
        [
            "…                                 dead",
            "    address:",
            "    maria.do-carmo@subsidiary.example.com",
        ],
    ]


def test_wide_letters_take_two_columns() -> None:
    assert display_width("日本") == 4
    assert display_width("é") == 1
    assert table(("a", "b"), [("日本", "x")])[1] == ["日本  x"]
