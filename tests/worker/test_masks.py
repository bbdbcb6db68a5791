"""No form of an address gets through the mask, in SQL and in Python alike."""

from __future__ import annotations

import psycopg
import pytest

from mailgres.safe_errors import redact_addresses

FORMS = (
    "ana@example.com",
    "ana%40example.com",
    "Ana%40Example.com",
    '"ana b"@example.com',
    "o'brien@example.com",
    "ana@xn--bcher-kva.example",
    "ana@b\u00fccher.example",
    "ana%2540example.com",
    "ana&#64;example.com",
    "ana&#x0040;example.com",
    "ana&commat;example.com",
    r"ana\u0040example.com",
    "ana\uff20example.com",
    "&lt;ana@example.com&gt;",
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", ["{} is unknown", "no user '{}'", "at <{}>, gone", "?to={}&x=1"])
def test_every_form_of_an_address_is_masked(conn: psycopg.Connection, form: str, text: str) -> None:
    said = text.format(form)
    row = conn.execute("SELECT mailgres.redact_addresses(%s)", [said]).fetchone()
    assert row is not None
    for masked in (row[0], redact_addresses(said)):
        assert "<address>" in masked
        for part in ("ana", "brien", "example.com", "cher"):
            assert part not in masked.lower()


@pytest.mark.parametrize("character", ["a", "@", '"', "'", "%", ".", " ", "<", "%40"])
def test_a_mask_of_a_megabyte_of_one_character_ends(
    conn: psycopg.Connection, character: str
) -> None:
    text = character * 1_000_000
    assert len(redact_addresses(text)) <= 2000
    conn.execute("SET statement_timeout = '5s'")
    conn.execute("SELECT mailgres.redact_addresses(%s)", [text])
