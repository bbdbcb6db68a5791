"""The schema that `mailgres doctor` compares with; scripts/reference.py writes it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from psycopg.rows import dict_row

from mailgres import resources
from mailgres.doctor import schema
from mailgres.doctor.finding import QUERIES

if TYPE_CHECKING:
    import psycopg

_PUBLIC = re.compile(r"^CREATE (?:OR REPLACE )?(?:TABLE|VIEW|FUNCTION) public\.(\w+)", re.MULTILINE)


def text(connection: psycopg.Connection) -> str:
    """Return the content of the file, for the schema of a database."""
    names = {
        name
        for path in resources.sql_files()
        for name in _PUBLIC.findall(path.read_text(encoding="utf-8"))
    }
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(QUERIES["limits"])
        cursor.execute(QUERIES["objects"], {"relations": list(names), "functions": list(names)})
        found = schema.hashes(cursor)
    return json.dumps(found, indent=0, sort_keys=True) + "\n"
