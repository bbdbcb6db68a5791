"""The pages of the operator's page."""

from __future__ import annotations

from pathlib import Path

from mailgres.page.words import clock
from mailgres.web import Pages

STATIC = Path(__file__).parent / "static"
pages = Pages(Path(__file__).parent / "pages", {"clock": clock})
