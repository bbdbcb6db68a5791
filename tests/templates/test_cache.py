"""A worker's cache: one load for each version, bounded, for many threads."""

from __future__ import annotations

import pytest

from mailgres.errors import TemplateFailed
from mailgres.templates import Content, TemplateCache
from support.concurrency import at_once


class Source:
    """Counts what is loaded."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, int]] = []

    def __call__(self, name: str, version: int) -> dict[str, Content]:
        self.loaded.append((name, version))
        return {"en": Content(f"{name} {version}", "{{ v }}")}


def test_a_version_is_loaded_once() -> None:
    source = Source()
    cache = TemplateCache(source)
    for _ in range(3):
        assert cache.render("a", 1, {"v": 1}).subject == "a 1"
    assert cache.render("a", 2, {"v": 1}).subject == "a 2"
    assert source.loaded == [("a", 1), ("a", 2)]


def test_the_cache_keeps_the_templates_used_last() -> None:
    source = Source()
    cache = TemplateCache(source, size=2)
    for version in (1, 2, 1, 3, 1, 2):
        cache.get("a", version)
    assert [version for _, version in source.loaded] == [1, 2, 3, 2]
    for version in range(100):
        cache.get("b", version)
    assert len(cache) == 2


def test_a_template_that_could_not_be_loaded_is_loaded_again() -> None:
    answers = [OSError("gone"), {}, {"en": Content("Hi", "x")}]

    def load(_name: str, _version: int) -> dict[str, Content]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        assert isinstance(answer, dict)
        return answer

    cache = TemplateCache(load)
    with pytest.raises(OSError, match="gone"):
        cache.get("a", 1)
    with pytest.raises(TemplateFailed, match="a v1 has no content"):
        cache.get("a", 1)
    assert cache.render("a", 1, {}).subject == "Hi"


def test_a_template_that_does_not_compile_fails_at_each_email() -> None:
    cache = TemplateCache(lambda _name, _version: {"en": Content("Hi", "\n{% if %}")})
    for _ in range(2):
        with pytest.raises(TemplateFailed, match=r"a v1 \(en\), text, line 2: "):
            cache.render("a", 1, {})


def test_threads_share_the_template_cache() -> None:
    cache = TemplateCache(Source(), size=3)

    def work() -> None:
        for number in range(300):
            version = number % 5
            assert cache.render("a", version, {"v": number}) == (
                f"a {version}",
                None,
                f"{number}\n",
            )

    at_once([work] * 8)
    assert len(cache) == 3
