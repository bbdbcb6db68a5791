"""Frozen SQL stays as it was released, and `make freeze` knows what it may write."""

from __future__ import annotations

import hashlib
import itertools
import re
from pathlib import Path

import pytest

import freeze
import revision
from mailgres import resources

FROZEN = resources.migrations_directory() / "frozen"


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, Path]:
    """A small copy of sql/ and migrations/frozen/."""
    sql, frozen = tmp_path / "sql", tmp_path / "frozen"
    (sql / "20_later").mkdir(parents=True)
    (sql / "10_first").mkdir()
    frozen.mkdir()
    (frozen / "RELEASED").write_text("# none\n")
    (sql / "20_later" / "10_b.sql").write_text("CREATE INDEX b ON public.a (id);\n")
    (sql / "20_later" / "20_v.sql").write_text("CREATE VIEW public.v AS SELECT * FROM public.a;\n")
    (sql / "10_first" / "20_a.sql").write_text("CREATE TABLE public.a (id int);\n")
    (sql / "10_first" / "10_f.sql").write_text("CREATE TYPE public.f AS (id int);\n")
    return sql, frozen


def test_the_frozen_sql_is_current() -> None:
    stale = freeze.is_stale(resources.sql_directory(), FROZEN)
    assert not stale, "sql/ changed since it was frozen: run `make freeze`"


def test_the_checksums_of_the_frozen_sql_are_current() -> None:
    listed = (FROZEN / "SHA256SUMS").read_text().splitlines()
    actual = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}"
        for path in sorted(FROZEN.glob("*.sql"))
    ]
    assert listed == actual


def test_tables_that_changed_since_the_last_release_have_a_revision() -> None:
    missing = freeze.missing_revision(resources.sql_directory(), FROZEN)
    assert missing is None, missing


def test_every_revision_follows_the_one_before() -> None:
    """Two that follow the same one were begun at the same time: the later one gets a new number."""
    names = sorted(path.stem for path in (FROZEN.parent / "versions").glob("[0-9]*.py"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    for before, name in itertools.pairwise(names):
        text = (FROZEN.parent / "versions" / f"{name}.py").read_text(encoding="utf-8")
        assert f'down_revision = "{before}"' in text, name


def test_every_revision_says_which_locks_it_takes() -> None:
    for name in resources.revisions()[1:]:
        text = (FROZEN / f"{name}.up.sql").read_text(encoding="utf-8")
        assert re.search(r"^-- locks: (?!say which)", text, re.MULTILINE), name
        assert "TODO" not in text, name


def test_every_revision_has_its_frozen_files() -> None:
    revisions = sorted(p.stem for p in (FROZEN.parent / "versions").glob("[0-9]*.py"))
    names = {path.name for path in FROZEN.glob("*.sql")}
    assert names == {f"{r}.{way}.sql" for r in revisions for way in ("up", "down")}


def test_files_are_taken_in_the_order_of_their_paths(tree: tuple[Path, Path]) -> None:
    text = freeze.concatenate(tree[0])
    parts = [line.split("sql/")[1] for line in text.splitlines() if line.startswith("-- ----")]
    assert parts == ["10_first/10_f.sql", "10_first/20_a.sql", "20_later/10_b.sql"]


def test_the_generated_down_script_drops_the_tables(tree: tuple[Path, Path]) -> None:
    assert "DROP TABLE\n    public.a;" in freeze.undo(tree[0])


def test_an_unreleased_revision_follows_sql(tree: tuple[Path, Path]) -> None:
    sql, frozen = tree
    assert freeze.is_stale(sql, frozen)
    freeze.freeze(sql, frozen)
    assert not freeze.is_stale(sql, frozen)
    (sql / "10_first" / "20_a.sql").write_text("CREATE TABLE public.a (id bigint);\n")
    assert freeze.is_stale(sql, frozen)
    freeze.freeze(sql, frozen)
    assert "bigint" in (frozen / "0001_initial.up.sql").read_text()
    assert (frozen / "SHA256SUMS").read_text() == freeze.checksums(frozen)


def test_a_released_revision_is_not_rewritten(tree: tuple[Path, Path]) -> None:
    sql, frozen = tree
    freeze.freeze(sql, frozen)
    (frozen / "RELEASED").write_text("0001_initial\n")
    up = frozen / "0001_initial.up.sql"
    kept = up.read_text()
    (sql / "10_first" / "20_a.sql").write_text("CREATE TABLE public.a (id bigint);\n")
    freeze.freeze(sql, frozen)
    assert up.read_text() == kept
    assert not freeze.is_stale(sql, frozen)


@pytest.mark.parametrize("damage", ["edited", "deleted"])
def test_a_released_revision_that_changed_is_refused(tree: tuple[Path, Path], damage: str) -> None:
    sql, frozen = tree
    freeze.freeze(sql, frozen)
    (frozen / "RELEASED").write_text("0001_initial\n")
    sums = (frozen / "SHA256SUMS").read_text()
    up = frozen / "0001_initial.up.sql"
    up.write_text("-- edited\n") if damage == "edited" else up.unlink()
    with pytest.raises(freeze.Released, match=r"0001_initial\.up\.sql is released"):
        freeze.freeze(sql, frozen)
    assert (frozen / "SHA256SUMS").read_text() == sums


def test_a_table_without_a_revision_is_refused_after_a_release(tree: tuple[Path, Path]) -> None:
    sql, frozen = tree
    freeze.freeze(sql, frozen)
    assert freeze.missing_revision(sql, frozen) is None
    (frozen / "RELEASED").write_text("0001_initial\n")
    assert freeze.missing_revision(sql, frozen) is None
    (sql / "10_first" / "20_a.sql").write_text("CREATE TABLE public.a (id bigint);\n")
    (sql / "20_later" / "30_c.sql").write_text("CREATE TABLE public.c (id int);\n")
    assert "make revision NAME=what_it_does" in (freeze.missing_revision(sql, frozen) or "")
    (frozen.parent / "versions").mkdir()
    assert revision.begin(sql, frozen.parent, "more_of_it") == "0002_more_of_it"
    up = (frozen / "0002_more_of_it.up.sql").read_text()
    assert "CREATE TABLE public.c (id int);" in up
    assert "-- TODO: table public.a changed in sql/" in up
    assert "DROP TABLE public.c;" in (frozen / "0002_more_of_it.down.sql").read_text()
    freeze.freeze(sql, frozen)
    assert freeze.missing_revision(sql, frozen) is None


def test_a_new_revision_has_only_what_no_earlier_one_has(tree: tuple[Path, Path]) -> None:
    """Rows and functions that an unreleased revision added or replaced are not new again."""
    sql, frozen = tree
    rows = ["    (1, 'one, (or so)')", "    (2, 'two')", "    (3, 'three')"]

    def write(count: int, function: str) -> None:
        insert = "INSERT INTO public.a (id, name)\nVALUES\n" + ",\n".join(rows[:count]) + ";\n"
        (sql / "20_later" / "40_rows.sql").write_text(insert)
        made = f"CREATE FUNCTION public.g() RETURNS int LANGUAGE sql RETURN {function};\n"
        (sql / "10_first" / "05_g.sql").write_text(made)
        (sql / "10_first" / "20_a.sql").write_text(
            "CREATE TABLE public.a (id int DEFAULT public.g(), name text);\n"
        )

    write(1, "1")
    freeze.freeze(sql, frozen)
    (frozen / "RELEASED").write_text("0001_initial\n")
    (frozen.parent / "versions").mkdir()
    write(2, "2")
    assert revision.begin(sql, frozen.parent, "second") == "0002_second"
    place = frozen / "0002_second.up.sql"
    up = place.read_text()
    assert "VALUES\n    (2, 'two');" in up
    assert "-- TODO: function public.g changed" in up
    replaced = "CREATE OR REPLACE FUNCTION public.g() RETURNS int LANGUAGE sql RETURN 2;"
    place.write_text(f"{up}\n{replaced}\n")
    write(3, "2")
    revision.begin(sql, frozen.parent, "third")
    third = (frozen / "0003_third.up.sql").read_text()
    assert third.endswith("\n\nINSERT INTO public.a (id, name)\nVALUES\n    (3, 'three');\n")
    assert "TODO" not in third


def test_a_function_or_a_view_needs_no_revision(tree: tuple[Path, Path]) -> None:
    sql, frozen = tree
    freeze.freeze(sql, frozen)
    (frozen / "RELEASED").write_text("0001_initial\n")
    (sql / "20_later" / "20_v.sql").write_text("CREATE VIEW public.v AS SELECT 1 AS one;\n")
    assert freeze.missing_revision(sql, frozen) is None


@pytest.mark.parametrize("name", ["", "x", "Add", "a-b", "a" * 40])
def test_a_revision_needs_a_plain_name(tree: tuple[Path, Path], name: str) -> None:
    with pytest.raises(ValueError, match="is not a name such as"):
        revision.begin(*tree, name)
