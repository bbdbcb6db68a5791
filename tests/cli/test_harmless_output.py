"""What commands write runs in no spreadsheet, and orders no terminal about."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mailgres.cli.support import files
from support.program import PROGRAM, Program
from support.queue import Queue

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a spreadsheet takes for the start of a formula, or drops to find one."""
CELLS = st.text(st.sampled_from([*FORMULAS, "'", '"', ",", "a", " ", "\xa0", "é"]), max_size=8)


def written(*cells: str) -> str:
    out = io.StringIO()
    files.writer(files.CSV, [f"c{n}" for n in range(len(cells))], out)(
        {f"c{n}": cell for n, cell in enumerate(cells)}
    )
    return out.getvalue()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cells=st.lists(CELLS, min_size=1, max_size=4))
@example(cells=["=1+1"])
@example(cells=["'=1+1", "''@x", "'"])
@example(cells=["  =1+1", "' =1", " '=1"])
def test_no_cell_of_an_export_is_a_formula_and_all_are_read_back_as_they_were(
    tmp_path: Path, cells: list[str]
) -> None:
    text = written(*cells)
    _, row = csv.reader(io.StringIO(text, newline=""))
    assert not any(cell.lstrip(" \xa0").startswith(FORMULAS) for cell in row)
    path = tmp_path / "cells.csv"
    path.write_text(text, encoding="utf-8", newline="")
    ((_, record),) = files.read(str(path), files.CSV)
    assert list(record.values()) == cells


def test_a_cell_that_is_no_formula_is_written_as_it_is() -> None:
    assert written("it's", "a=b", "'quoted'", "5") == "c0,c1,c2,c3\nit's,a=b,'quoted',5\n"


def test_suppressions_survive_a_spreadsheet_unchanged(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    path = tmp_path / "all.csv"
    detail = '=HYPERLINK("http://evil.example.com")'
    queue.run(
        "INSERT INTO email_suppressions (recipient_email, tenant_id, reason, detail)"
        " VALUES ('-ana@example.com', '*', 'manual', %s)",
        detail,
    )
    mailgres("suppressions", "export", str(path))
    assert "'-ana@example.com" in path.read_text()
    assert "'=HYPERLINK" in path.read_text()
    queue.run("DELETE FROM email_suppressions")
    mailgres("suppressions", "import", str(path))
    (found,) = queue.rows("SELECT recipient_email, detail FROM email_suppressions")
    assert found == ("-ana@example.com", detail)


def at_a_terminal(mailgres: Program, *arguments: str) -> str:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    env = {"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8", "TERM": "xterm", "TZ": "UTC"}
    with subprocess.Popen([PROGRAM, *arguments], env=env, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 65536):
                said += part
        except OSError:  # the other end is closed
            pass
        assert process.wait() == 0, said
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


NAME = "w\x9b31m\u202eevil\u2066\x7f\u2028\U000e0041é"


def test_json_at_a_terminal_escapes_control_characters_and_marks_of_direction(
    mailgres: Program, queue: Queue
) -> None:
    queue.run("SELECT mailgres.heartbeat(%s, '0.1.0')", NAME)
    text = at_a_terminal(mailgres, "status", "--json")
    assert text.replace("\n", "").isprintable()
    assert "é" in text
    (worker,) = json.loads(text)["workers"]
    assert worker["worker"] == NAME


def test_json_output_for_programs_is_not_altered(mailgres: Program, queue: Queue) -> None:
    queue.run("SELECT mailgres.heartbeat(%s, '0.1.0')", NAME)
    text = mailgres("status", "--json")
    assert NAME in text


@pytest.mark.parametrize("command", ["export -", "list --json", "list"])
def test_control_characters_in_suppressions_do_not_reach_the_terminal(
    mailgres: Program, queue: Queue, command: str
) -> None:
    queue.run(
        "INSERT INTO email_suppressions (recipient_email, tenant_id, reason, detail)"
        " VALUES ('ana@example.com', '*', 'manual', %s)",
        "x" + NAME,
    )
    text = at_a_terminal(mailgres, "suppressions", *command.split())
    assert "ana@example.com" in text
    assert text.replace("\n", "").isprintable()
