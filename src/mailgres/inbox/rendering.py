"""The pages of the inbox."""

from __future__ import annotations

from pathlib import Path

from mailgres.web import Pages

STATIC = Path(__file__).parent / "static"
page = Pages(Path(__file__).parent / "pages")
