"""`adopt.toml`: what it refuses, each by its name, and what it keeps."""

from __future__ import annotations

import pytest

from mailgres.adopt import InvalidMapping, Source, check, read
from mailgres.adopt.catalog import Catalog, Column, Table
from mailgres.adopt.checking import answered

GOOD = """
format = 1
[[queue]]
table = "public.cola"
timezone = "UTC"
attempts_limit = 3
lists = ["recipient_email"]
only = { source = ["kind"], values = ["email"] }
[queue.columns]
id = "id"
para = "recipient_email"
estado = "status"
kind = ""
[queue.json.data]
"a.b" = "subject"
inner = { html = "html" }
[queue.statuses]
Pendiente = "waiting"
[queue.priorities]
alta = 2
"""
COLUMNS = ("id", "para", "estado", "kind", "data")


def catalog(*names: str) -> Catalog:
    columns = tuple(Column(each, "text", "text") for each in names)
    return Catalog((Table("public", "cola", "public.cola", columns),))


def test_a_valid_mapping_file_is_read_with_its_json_keys() -> None:
    (queue,) = read(GOOD).queues
    assert queue.source("subject") == Source("data", ("a.b",))
    assert queue.source("html") == Source("data", ("inner", "html"))
    assert queue.statuses == {"pendiente": "waiting"}
    assert (queue.attempts_limit, queue.priorities) == (3, {"alta": 2})
    check(read(GOOD), catalog(*COLUMNS))
    answered(read(GOOD))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 1", "format = 2", "has no line `format = 1`"),
        ("[[queue]]", "[[queues]]", "unknown key 'queues'"),
        ("timezone =", "time_zone =", "unknown key 'time_zone'"),
        ('para = "recipient_email"', 'para = "recipient"', "columns.para is 'recipient'"),
        ('"waiting"', '"wait"', "statuses.Pendiente is 'wait'"),
        ("alta = 2", "alta = 20", "priorities.alta is not a number from 1 to 9"),
        ("attempts_limit = 3", "attempts_limit = 0", "attempts_limit is not a whole number"),
        ("attempts_limit = 3", 'attempts_limit = "3"', "attempts_limit is not a whole number"),
        ('["recipient_email"]', '["subject"]', "lists is 'subject'"),
        ('estado = "status"', 'estado = "id"', "id and estado are both id"),
        ('"a.b" = "subject"', '"a.b" = "sbject"', "json.data.a.b is 'sbject'"),
        ('values = ["email"]', 'value = ["email"]', "only: unknown key 'value'"),
        ('values = ["email"]', "values = []", "only needs a source and values"),
        ('table = "public.cola"', "table = 3", "a [[queue]] has no table"),
        ("[queue.columns]", "[queue.columns", "is not TOML"),
        ('timezone = "UTC"', "timezone = 1", "timezone is not a text"),
    ],
)
def test_a_mapping_file_with_an_unknown_name_or_value_is_refused(
    old: str, new: str, message: str
) -> None:
    assert old in GOOD
    with pytest.raises(InvalidMapping) as refused:
        read(GOOD.replace(old, new))
    assert message in refused.value.message
    assert refused.value.hint


def test_two_mappings_of_one_table_are_refused() -> None:
    with pytest.raises(InvalidMapping, match=r"has public\.cola twice"):
        read(GOOD + GOOD.replace("format = 1", ""))


def test_a_mapping_that_leaves_out_a_column_is_refused_and_names_it() -> None:
    with pytest.raises(InvalidMapping, match=r"leaves out nota, importe$"):
        check(read(GOOD), catalog(*COLUMNS, "nota", "importe"))


def test_a_mapping_of_a_missing_column_is_refused_and_names_it() -> None:
    with pytest.raises(InvalidMapping, match=r"has no column estado$"):
        check(read(GOOD), catalog("id", "para", "kind", "data"))


def test_a_mapping_of_a_missing_table_is_refused_and_names_it() -> None:
    with pytest.raises(InvalidMapping, match=r"there is no table public\.cola"):
        check(read(GOOD), Catalog(()))


def test_a_mapping_with_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(InvalidMapping, match="'Mars/Base' is no time zone"):
        check(read(GOOD.replace('"UTC"', '"Mars/Base"')), catalog(*COLUMNS))


def test_open_questions_of_a_mapping_are_listed_together() -> None:
    open_ = GOOD.replace('"waiting"', '"?"').replace('"UTC"', '"?"').replace('"id"', '""')
    with pytest.raises(InvalidMapping) as refused:
        answered(read(open_))
    message = refused.value.message
    assert message.startswith("3 questions of the mapping are open:")
    for each in ("statuses: pendiente", "timezone", "Which column identifies a row"):
        assert each in message


def test_a_mapping_of_times_without_a_zone_needs_a_time_zone() -> None:
    columns = tuple(Column(each, "text", "text") for each in COLUMNS)
    when = Column("creado", "timestamp without time zone", "timestamp")
    there = Catalog((Table("public", "cola", "public.cola", (*columns, when)),))
    given = GOOD.replace('kind = ""', 'kind = ""\ncreado = "created_at"')
    check(read(given), there)
    with pytest.raises(InvalidMapping, match="creado have no time zone"):
        check(read(given.replace('timezone = "UTC"', "")), there)
