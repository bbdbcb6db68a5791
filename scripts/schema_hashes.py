"""The tables that `mailgres doctor` compares with; scripts/reference.py writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from psycopg.rows import dict_row

from mailgres.doctor import schema
from mailgres.doctor.finding import QUERIES

if TYPE_CHECKING:
    import psycopg


def text(connection: psycopg.Connection) -> str:
    """Return the content of the file, for the schema of a database."""
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(QUERIES["limits"])
        cursor.execute(QUERIES["objects"], {"relations": schema.relations()})
        found = schema.hashes(cursor)
    return json.dumps(found, indent=0, sort_keys=True) + "\n"
