"""The parts of an email that the inbox prepares: images, links, headers; whatever they contain."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from inbox.sending import PNG
from mailgres.inbox.links import MOST_LINKS, check_unsubscribe, find_links
from mailgres.web.frame import MOST_INLINE_BYTES, document, image_kind

GIF = b"GIF89a" + struct.pack("<HH", 10, 20) + b"\0" * 10
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x0b\x08" + struct.pack(">HH", 20, 10) + b"\0" * 9
WEBP = b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x09\0\0\x13\0\0"
BOMB = PNG[:16] + struct.pack(">II", 100_000, 100_000) + PNG[24:]


def file(content: bytes, **more: Any) -> dict[str, Any]:
    size = len(content)
    return {"position": 1, "content_id": "logo", "bytes": size, "kept": True, **more}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "image/png"),
        (GIF, "image/gif"),
        (JPEG, "image/jpeg"),
        (WEBP, "image/webp"),
        (BOMB, None),
        (GIF[:6] + struct.pack("<HH", 65535, 65535), None),
        (PNG[:10], None),
        (JPEG[:6], None),
        (b"\xff\xd8" + b"\xff\x00" * 50_000, None),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
        (b"", None),
    ],
    ids=range(11),
)
def test_only_raster_images_of_a_bounded_size_are_shown(content: bytes, kind: str | None) -> None:
    assert image_kind(content) == kind


def test_an_image_that_is_a_bomb_or_too_large_or_not_kept_is_not_in_the_frame() -> None:
    html = "<img src='cid:logo'>"
    assert "base64" in document(html, [file(PNG)], lambda _: PNG)
    large, lost = file(PNG, bytes=MOST_INLINE_BYTES + 1), file(PNG, kept=False)
    shown = [document(html, [file(BOMB)], lambda _: BOMB)]
    shown += [document(html, [each], lambda _: PNG) for each in (large, lost)]
    assert all(each.endswith("<img src='data:,'>") for each in shown), shown


@pytest.mark.parametrize(
    "html",
    [
        "<a " * 300_000,
        "<a href=" * 200_000,
        "<img src='" * 200_000,
        "<" * 1_000_000,
        "url(" * 400_000,
        "<a href='x'>" * 100_000,
        "cid:" * 400_000,
        '<a href="' + "x" * 1_000_000,
        "<style " * 200_000,
        "<style>" + "prefers-color-scheme: " * 50_000,
        "<style>" + "color-scheme : light " * 50_000,
        "<source " * 200_000,
        "<!doctype " * 100_000,
        " " * 1_000_000,
    ],
    ids=range(14),
)
def test_no_html_makes_the_inbox_slow(html: str) -> None:
    """A pattern that is worse than linear would take hours here, not moments."""
    assert len(find_links(html, None).links) <= MOST_LINKS
    assert document(html, [], lambda _: None)


def test_links_of_a_text_are_found_without_html() -> None:
    found = find_links(None, "See https://example.com/a and https://example.com/a")
    assert found.links == [("https://example.com/a", "")]


@pytest.mark.parametrize(
    ("headers", "good"),
    [
        ({}, []),
        ({"list-unsubscribe": "<https://a.example/u>, <mailto:u@a.example>"}, [1, 1, 1, 0]),
        (
            {
                "List-Unsubscribe": "<https://a.example/u>",
                "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
            },
            [1, 1, 1, 1],
        ),
        ({"List-Unsubscribe": "https://a.example/u"}, [0, 0, 1, 0]),
        ({"List-Unsubscribe": "<http://a.example/u>"}, [1, 0, 0, 0]),
        ({"List-Unsubscribe": "<http://[bad>"}, [1, 0, 0, 0]),
        ({"List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}, [0]),
    ],
)
def test_list_unsubscribe_is_checked(headers: dict[str, str], good: list[int]) -> None:
    assert [check.ok for check in check_unsubscribe(headers)] == [bool(each) for each in good]


def test_an_image_that_is_named_often_is_shown_within_the_limit() -> None:
    shown = document("cid:x " * 200_000, [file(PNG)], lambda _: PNG)
    assert len(shown) < 2 * MOST_INLINE_BYTES


@pytest.mark.parametrize("tag", ["link rel=preconnect", "base", "iframe", "object"])
def test_an_element_that_connects_is_renamed_whatever_its_attributes_hide(tag: str) -> None:
    shown = document(f'<{tag} title=">" href="https://evil.example">', [], lambda _: None)
    assert f"<x-{tag}" in shown
    assert f"<{tag}" not in shown


QUESTIONS = [
    ("<style>@media (prefers-color-scheme: dark) {p {color: red}}</style>", "dark"),
    ("<STYLE>@media not all and (PREFERS-COLOR-SCHEME:light){}</STYLE>", "light"),
    ("<style media='(prefers-color-scheme : dark)'>p {color: red}", "dark"),
    ("<picture><source media='(prefers-color-scheme: dark)'></picture>", "dark"),
]


@pytest.mark.parametrize(("html", "asked"), QUESTIONS, ids=range(len(QUESTIONS)))
def test_the_preview_answers_colour_queries_of_an_email_with_the_chosen_scheme(
    html: str, asked: str
) -> None:
    for scheme in ("light", "dark"):
        shown = document(html, [], lambda _: None, scheme)
        assert ("(min-width:0)" in shown) == (scheme == asked)
        assert ("(max-width:0)" in shown) == (scheme != asked)
        assert "prefers-color-scheme" not in shown.lower()


def test_a_style_for_both_schemes_gets_the_chosen_one() -> None:
    html = "<style>:root{color-scheme: light dark;x-color-scheme: light dark}</style>"
    shown = document(html, [], lambda _: None, "dark")
    assert "{color-scheme: dark;x-color-scheme: light dark}" in shown


def test_text_about_colour_schemes_in_an_email_is_not_rewritten() -> None:
    html = "<p>Write @media (prefers-color-scheme: dark) and color-scheme: light dark</p>"
    assert document(html, [], lambda _: None, "dark").endswith(html)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_doctype_of_an_email_stays_first(scheme: str) -> None:
    shown = document("\n<!DOCTYPE html><html><p>x", [], lambda _: None, scheme)
    assert shown.startswith("\n<!DOCTYPE html><meta")
    assert shown.endswith("<html><p>x")
