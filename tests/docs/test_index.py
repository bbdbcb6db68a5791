"""docs/README.md leads to every page, and every relative link of every page leads somewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "benchmarks/*.md")
    for page in ROOT.glob(pattern)
)
BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*([^)\s]+)\s*\)")


def without_code(text: str) -> str:
    """A page without its blocks and what stands between backticks."""
    return re.sub(r"`[^`\n]+`", "`", BLOCK.sub("", text))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """The relative links of a page: file and anchor, either of which may be empty."""
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if not re.match(r"\w+:", target):
            file, _, anchor = target.partition("#")
            yield file, anchor


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def test_every_page_is_in_the_index_exactly_once() -> None:
    listed = Counter(file for file, _ in links(INDEX) if "/" not in file)
    assert listed == Counter(page.name for page in DOCS.glob("*.md") if page != INDEX)


def test_every_page_of_the_index_has_a_question_or_more() -> None:
    lines = re.findall(r"^- .*$", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == len(list(DOCS.glob("*.md"))) - 1
    assert [line for line in lines if not re.fullmatch(r"- \[.+\]\(\S+\.md\): .+\?", line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for file, anchor in links(page):
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"there is no {file}"
        assert target.is_relative_to(ROOT), f"{file} is outside of the repository"
        if anchor:
            assert target.suffix == ".md", f"{file} has no headings"
            assert anchor in anchors(target), f"{target.name} has no heading #{anchor}"
