"""Frozen SQL stays as it was released, and `make freeze` knows what it may write."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import freeze
from mailgres import resources

FROZEN = resources.migrations_directory() / "frozen"


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, Path]:
    """A small stand-in for sql/ and migrations/frozen/."""
    sql, frozen = tmp_path / "sql", tmp_path / "frozen"
    (sql / "20_later").mkdir(parents=True)
    (sql / "10_first").mkdir()
    frozen.mkdir()
    (frozen / "RELEASED").write_text("# none\n")
    (sql / "20_later" / "10_b.sql").write_text("CREATE VIEW public.b AS SELECT * FROM public.a;\n")
    (sql / "10_first" / "20_a.sql").write_text("CREATE TABLE public.a (id int);\n")
    (sql / "10_first" / "10_f.sql").write_text("CREATE OR REPLACE FUNCTION public.f() ...;\n")
    return sql, frozen


def test_sql_is_frozen() -> None:
    stale = freeze.is_stale(resources.sql_directory(), FROZEN)
    assert not stale, "sql/ changed since it was frozen: run `make freeze`"


def test_frozen_sql_checksums() -> None:
    listed = (FROZEN / "SHA256SUMS").read_text().splitlines()
    actual = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}"
        for path in sorted(FROZEN.glob("*.sql"))
    ]
    assert listed == actual


def test_every_revision_has_its_frozen_files() -> None:
    revisions = sorted(p.stem for p in (FROZEN.parent / "versions").glob("[0-9]*.py"))
    names = {path.name for path in FROZEN.glob("*.sql")}
    assert names == {f"{r}.{way}.sql" for r in revisions for way in ("up", "down")}


def test_files_are_taken_in_the_order_of_their_paths(tree: tuple[Path, Path]) -> None:
    text = freeze.concatenate(tree[0])
    parts = [line.split("sql/")[1] for line in text.splitlines() if line.startswith("-- ----")]
    assert parts == ["10_first/10_f.sql", "10_first/20_a.sql", "20_later/10_b.sql"]


def test_undo_drops_views_before_functions_before_tables(tree: tuple[Path, Path]) -> None:
    down = freeze.undo(freeze.concatenate(tree[0]))
    wanted = [
        "DROP VIEW\n    public.b;",
        "DROP SCHEMA mailgres_dropped CASCADE;",
        "DROP FUNCTION IF EXISTS\n    public.f;",
        "DROP TABLE\n    public.a;",
    ]
    places = [down.index(statement) for statement in wanted]
    assert places == sorted(places)


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


def test_a_released_revision_stays(tree: tuple[Path, Path]) -> None:
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
