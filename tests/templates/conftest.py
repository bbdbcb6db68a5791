"""The console script, and directories of templates."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.templates import Script, Write


@pytest.fixture
def templates(database_url: str) -> Script:
    return Script(database_url)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files into a directory; `__` in a name stands for a dot."""

    def files(**texts: str | bytes) -> Path:
        directory = tmp_path / "mails"
        directory.mkdir(exist_ok=True)
        for name, text in texts.items():
            data = text if isinstance(text, bytes) else text.encode()
            (directory / name.replace("__", ".")).write_bytes(data)
        return directory

    return files
