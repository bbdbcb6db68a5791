"""A migration that tests can kill: python -m migrations.upgrade_program URL DIRECTORY SQL."""

from __future__ import annotations

import sys
from pathlib import Path

from mailgres import migrate
from mailgres.schema.sources import Sources

if __name__ == "__main__":
    url, directory, sql = sys.argv[1:]
    migrate.upgrade(url, directory=Path(directory), sources=Sources(Path(sql)))
