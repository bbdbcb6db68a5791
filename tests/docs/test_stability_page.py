"""docs/stability.md lists every public name there is, and no other.

A test here that fails has found a public name that was added, changed or removed. A failure shows
the rows that the page should have. Before you change the page, read its rules.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import click
import psycopg
import pytest
from click.testing import CliRunner

import mailgres
from doubles import http_server
from mailgres import errors, testing
from mailgres.cli import main
from mailgres.http.app import Service, endpoints, make_app
from mailgres.http.webhooks import Webhooks
from mailgres.settings import DEFINITIONS
from support.queue import Queue

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "stability.md").read_text(encoding="utf-8")
SECTIONS = dict(part.split("\n", 1) for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:])

FUNCTIONS = """
    SELECT p.proname, p.proargnames[:p.pronargs], p.proargtypes::regtype[]::text[],
           p.pronargs - p.pronargdefaults, pg_get_function_result(p.oid)
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace ORDER BY p.proname
"""
RELATIONS = """
    SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT attisdropped
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = %s
    GROUP BY c.relname ORDER BY c.relname
"""
VALUES = """
    SELECT coalesce(
        (SELECT pg_get_constraintdef(k.oid) FROM pg_constraint k WHERE k.contypid = a.atttypid),
        (SELECT pg_get_constraintdef(k.oid) FROM pg_constraint k
         WHERE k.conrelid = a.attrelid AND k.conkey = ARRAY[a.attnum] AND k.contype = 'c'))
    FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attname = %s
"""
EXIT_CODE = re.compile(r"^\| (\d|128 \+ n) \|", re.MULTILINE)
SHORT = {"timestamp with time zone": "timestamptz", "integer": "int"}


def rows(section: str) -> list[str]:
    """The rows of a section's table, without its head."""
    return re.findall(r"^\| `.*\|$", SECTIONS[section], re.MULTILINE)


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def code(words: Iterator[str] | list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def signatures(conn: psycopg.Connection) -> dict[str, str]:
    """Every public function as a row of the page; `…` stands for a default."""
    found = {}
    for name, arguments, types, required, result in conn.execute(FUNCTIONS):
        shown = [
            f"{argument} {SHORT.get(kind, kind)}{'' if place < required else ' = …'}"
            for place, (argument, kind) in enumerate(zip(arguments, types, strict=True))
        ]
        result_text = re.sub("|".join(SHORT), lambda match: SHORT[match[0]], result)
        found[name] = f"| `{name}` | {code(shown)} | `{result_text}` |"
    return found


def relations(conn: psycopg.Connection, kind: str) -> dict[str, list[str]]:
    return dict(conn.execute(RELATIONS, [kind]).fetchall())


def test_the_page_lists_every_public_function_with_its_arguments(conn: psycopg.Connection) -> None:
    assert rows("Functions") == list(signatures(conn).values())


def test_the_signature_of_record_email_event_is_that_of_the_function(
    conn: psycopg.Connection,
) -> None:
    shown = re.findall(r"^    p_.*$", SECTIONS["record_email_event"], re.MULTILINE)
    found = [re.sub(r" DEFAULT \S+?,?$", " = …", line.strip(" ,")) for line in shown]
    assert found == names(signatures(conn)["record_email_event"])[1:-1]


def test_the_page_lists_every_public_view_with_its_columns_in_order(
    conn: psycopg.Connection,
) -> None:
    found = [f"| `{name}` | {code(columns)} |" for name, columns in relations(conn, "v").items()]
    assert rows("Views") == found


def test_the_page_lists_every_public_table_with_its_columns(conn: psycopg.Connection) -> None:
    contract = dict(_listed(rows("Tables")))
    engine = set(names(SECTIONS["Columns of the engine"]))
    for name, columns in relations(conn, "r").items():
        hidden = engine if name == "email_queue" else set()
        assert contract.pop(name) == [column for column in columns if column not in hidden]
        assert hidden <= set(columns)
    assert not contract


def _listed(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for line in lines:
        first, *others = names(line)
        yield first, others


def test_the_page_lists_every_value_of_a_status_or_reason(conn: psycopg.Connection) -> None:
    for column, values in _listed(rows("Values")):
        table, _, name = column.partition(".")
        row = conn.execute(VALUES, (table, name)).fetchone()
        assert row is not None
        assert set(values) == set(re.findall(r"'(\w+)'", row[0])), column


def test_the_page_lists_every_name_of_the_package() -> None:
    found = [*mailgres.__all__, *(f"testing.{name}" for name in testing.__all__), "settings.load"]
    assert sorted(names(line)[0] for line in rows("Python")) == sorted(found)


def test_the_page_has_the_arguments_of_every_python_function() -> None:
    for line in rows("Python"):
        name, shown, *_ = [*names(line), ""]
        found = getattr(
            testing if name.startswith("testing.") else mailgres, name[name.find(".") + 1 :], None
        )
        if inspect.isfunction(found) and name != "open_worker":  # which has arguments of our own
            called = ", ".join(_arguments(found))
            assert shown == f"{name}({called})"


def _arguments(function: Callable[..., object]) -> Iterator[str]:
    star = False
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        if each.kind is each.VAR_KEYWORD:
            yield f"**{each.name}"
        else:
            yield each.name if each.default is each.empty else f"{each.name}=…"


def test_the_page_lists_every_field_of_an_email() -> None:
    fields = [*mailgres.Email.__required_keys__, *mailgres.Email.__optional_keys__]
    of_email, of_attachment = re.findall(
        r"^- .*?:((?:.|\n  )*)", SECTIONS["Fields of an email"], re.MULTILINE
    )
    assert set(names(of_email)) == set(fields)
    assert set(names(of_attachment)) == set(mailgres.Attachment.__annotations__)


def classes(base: type[errors.MailgresError]) -> Iterator[type[errors.MailgresError]]:
    yield base
    for cls in base.__subclasses__():
        if cls.__module__ == errors.__name__:
            yield from classes(cls)


def test_the_page_lists_every_error_below_its_base_with_its_sqlstate() -> None:
    shown = [
        f"| `{cls.__name__}` | `{cls.__bases__[0].__name__}` | {state} |"
        for cls in classes(errors.MailgresError)
        for state in (f"`{cls.sqlstate}`" if cls.sqlstate else "none",)
    ]
    assert rows("Errors and SQLSTATEs") == shown


def commands(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    if not isinstance(command, click.Group):
        yield context.command_path.removeprefix("mailgres "), command
        return
    for each in command.list_commands(context):
        found = command.get_command(context, each)
        assert found is not None
        yield from commands(found, each, context)


def test_the_page_lists_every_command_with_its_options() -> None:
    settings = {each.flag for each in DEFINITIONS.values()} | {"--config"}
    shown = []
    for path, command in commands(main, "mailgres"):
        options = [
            name
            for each in command.params
            if isinstance(each, click.Option)
            for name in (*each.opts, *each.secondary_opts)
            if name not in settings
        ]
        shown.append(f"| `{path}` | {code(options) or 'none'} |")
    assert rows("Commands") == shown


def test_the_exit_codes_of_the_page_are_those_of_the_page_on_commands() -> None:
    of_commands = (DOCS / "cli.md").read_text(encoding="utf-8")
    known = set(EXIT_CODE.findall(of_commands))
    assert set(EXIT_CODE.findall(SECTIONS["Exit codes"])) == known


def test_the_page_lists_every_setting() -> None:
    found = [f"| `{each.name}` | {code(list(each.variables))} |" for each in DEFINITIONS.values()]
    assert rows("Settings") == found


def test_the_page_lists_every_http_path() -> None:
    app = make_app(object.__new__(Service), object.__new__(Webhooks))  # nothing is called
    assert [names(line)[0] for line in rows("HTTP")] == endpoints(app)


def test_the_page_lists_every_metric_with_its_labels() -> None:
    of_metrics = (DOCS / "metrics.md").read_text(encoding="utf-8")
    known = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", of_metrics, re.MULTILINE)
    assert known
    assert rows("Metrics") == [f"| `{name}` | {kind} | {labels} |" for name, kind, labels in known]


def test_the_page_lists_every_key_of_a_log_line() -> None:
    of_logs = (DOCS / "logs.md").read_text(encoding="utf-8").partition("## Other events")[0]
    known = [
        key for line in re.findall(r"^\| (`.*?) \|", of_logs, re.MULTILINE) for key in names(line)
    ]
    assert known
    assert names(SECTIONS["Log keys"]) == known


def test_the_page_lists_every_key_of_the_documents_that_commands_print(
    conn: psycopg.Connection, database_url: str, tmp_path: Path, service: str
) -> None:
    one, other = dead_letters(conn)
    testing.travel(conn, timedelta(hours=2))  # so that an alert fires
    secret = {"MAILGRES_EVENTS_SECRET": "whsec_dGhlIGZpcnN0IHNlY3JldA=="}
    env = {"DATABASE_URL": database_url, "MAILGRES_PROVIDERS": "capture", **secret}
    places = {"URL": service} | {
        "ID": one,
        "OTHER": other,
        "FILE": str(tmp_path / "dead.jsonl"),
        "NAME": "promote",
    }
    shown = []
    for command, arguments in TO_RUN.items():
        words = [places.get(word, word) for word in f"{command} {arguments}".split()]
        done = CliRunner().invoke(main, words, env=env, catch_exceptions=False)
        assert done.exit_code == (1 if command == "doctor" else 0), done.output
        if "--json" in words:
            found = json.loads(done.stdout)
            (first, *_) = found if isinstance(found, list) else [found]
            shown.append(f"| `{command}` | {code(sorted(first))} |")
    assert rows("Keys of JSON") == shown


@pytest.fixture
def service() -> Iterator[str]:
    """A service that accepts every event."""
    with http_server.serving(lambda *_: http_server.Reply(200, b'{"recorded": 1}')) as url:
        yield url


def test_every_command_with_json_is_on_the_page() -> None:
    found = {
        path
        for path, command in commands(main, "mailgres")
        if any("--json" in each.opts for each in command.params)
    }
    assert {names(line)[0] for line in rows("Keys of JSON")} == found


def dead_letters(conn: psycopg.Connection) -> tuple[str, str]:
    """Two dead letters, beside an email that waits."""
    queue = Queue(conn)
    queue.enqueue()
    ids = [queue.enqueue(max_retries=0) for _ in range(2)]
    for each in ids:
        conn.execute("SELECT mark_email_failed(%s, 'no such mailbox')", [each])
    return str(ids[0]), str(ids[1])


TO_RUN = {
    "suppressions add": "ana@example.org",
    "senders allow": "example.com",
    "producers bind": "mailgres_producer acme",
    "tenants weight": "acme 2",
    "alerts list": "--json",
    "alerts rules": "--json",
    "config": "--json",
    "dlq list": "--json",
    "dlq show": "ID --json",
    "dlq stats": "--json",
    "doctor": "--offline --quiet --json",
    "enqueue": "welcome_user ana@example.com --json",
    "errors explain": "MG001 --json",
    "eta": "--json",
    "janitor": "NAME --json",
    "list": "--json",
    "policies list": "--json",
    "producers list": "--json",
    "providers list": "--json",
    "providers test": "--json",
    "quarantine status": "--json",
    "recover": "--since 1h --dry-run --json",
    "routes list": "--json",
    "senders list": "--json",
    "show": "ID --json",
    "status": "--json",
    "suppressions explain": "ana@example.org --json",
    "suppressions list": "--json",
    "suppressions rules": "--json",
    "templates list": "--json",
    "tenants list": "--json",
    "webhooks test": "--url URL --json",
    "retry": "ID --yes --json",
    "reschedule": "ID --to 2h --yes --json",
    "cancel": "ID --yes --json",
    "dlq export": "FILE --yes",
    "dlq purge": "--exported FILE --yes --json",
    "dlq retry": "--all-failed --yes --json",
}
"""Commands in an order in which each has something to print, and their arguments."""
