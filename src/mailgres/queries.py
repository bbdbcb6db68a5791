"""Load named queries from the `.sql` files of this package.

A line `-- name --` starts a query, which extends to the next such line. Parameters are psycopg's
`%(name)s`; for SQLAlchemy they are converted.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import LiteralString, cast

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def load(file: str = "api.sql") -> dict[str, LiteralString]:
    """Return the queries of a file by name."""
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    # psycopg asks for literals, so that no SQL is built from values. A file that comes with the
    # package is as safe as a literal.
    return {
        name: cast("LiteralString", query.strip())
        for name, query in zip(parts[::2], parts[1::2], strict=True)
    }
