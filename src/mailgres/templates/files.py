"""Templates as files.

    welcome_user.html       front matter, then the HTML part
    welcome_user.txt        the text part; made from the HTML when it is missing
    welcome_user.pt.html    the same in Portuguese; its front matter has the subject
    welcome_user.pt.txt

Front matter is TOML between two lines of `+++` on top of one of the two files of a language.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mailgres.errors import InvalidTemplate
from mailgres.templates.content import Content
from mailgres.templates.draft import SETTINGS, Draft, suggestion
from mailgres.templates.locales import LOCALE
from mailgres.templates.plain_text import text_from_html

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILE_BYTES = 512 * 1024
FENCE = "+++"
_SPACE = " \t\r\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
_OF_TEMPLATE = ["subject", "locale", "template", *SETTINGS]
_OF_TRANSLATION = ["subject"]


@dataclass(frozen=True)
class _File:
    """One file, parsed."""

    path: Path
    front: dict[str, Any] | None
    body: str
    first_line: int


def read_templates(paths: list[Path]) -> list[Draft]:
    """Return the templates in directories and single files, checked and sorted by name."""
    drafts: dict[str, Draft] = {}
    for path in paths:
        found = _in_directory(path) if path.is_dir() else _of_file(path)
        for draft in found:
            if draft.name in drafts:
                raise InvalidTemplate(f"{path}: template {draft.name!r} is defined twice")
            drafts[draft.name] = draft.checked()
    return [drafts[name] for name in sorted(drafts)]


def _in_directory(directory: Path) -> list[Draft]:
    groups = _groups(directory)
    if not groups:
        raise InvalidTemplate(
            f"{directory}: there are no templates",
            "A template is a file such as welcome_user.html; see docs/templates.md.",
        )
    return _drafts({stem: [_read(path) for path in paths] for stem, paths in groups.items()})


def _of_file(path: Path) -> list[Draft]:
    """Read the template that a file belongs to, with its other files."""
    if path.suffix not in {".html", ".txt"} or not path.is_file():
        raise InvalidTemplate(
            f"{path}: there is no such template file", "Name a directory, or a .html or .txt file."
        )
    groups = _groups(path.parent)
    base = _base(path.stem, set(groups)) or path.stem
    return _drafts(
        {
            stem: [_read(each) for each in paths]
            for stem, paths in groups.items()
            if stem == base or _base(stem, {base})
        }
    )


def _groups(directory: Path) -> dict[str, list[Path]]:
    groups: dict[str, list[Path]] = {}
    for path in sorted(directory.iterdir()):
        if path.suffix in {".html", ".txt"} and path.is_file() and not path.name.startswith("."):
            groups.setdefault(path.stem, []).append(path)
    return groups


def _base(stem: str, stems: set[str]) -> str | None:
    """Return the template that a file is a translation of, if it is one."""
    base, _, locale = stem.rpartition(".")
    return base if base in stems and LOCALE.fullmatch(locale) else None


def _drafts(groups: dict[str, list[_File]]) -> list[Draft]:
    fronts = {stem: _front(files) for stem, files in groups.items()}
    own = {stem for stem in groups if "template" in fronts[stem][0] or not _base(stem, set(groups))}
    return [
        _draft(
            stem,
            {s: f for s, f in groups.items() if s == stem or (s not in own and _base(s, {stem}))},
            fronts,
        )
        for stem in sorted(own)
    ]


def _front(files: list[_File]) -> tuple[dict[str, Any], Path]:
    """Return the front matter of one language's files, and the path of its file."""
    given = [(file.front, file.path) for file in files if file.front is not None]
    if not given:
        raise InvalidTemplate(
            f"{files[0].path}: it has no front matter",
            f'Begin with a line {FENCE}, then subject = "…", then a line {FENCE}.',
        )
    if len(given) > 1:
        raise InvalidTemplate(
            f"{given[1][1]}: {given[0][1].name} has front matter too", "Keep it in one of them."
        )
    return given[0]


def _draft(
    stem: str, groups: dict[str, list[_File]], fronts: dict[str, tuple[dict[str, Any], Path]]
) -> Draft:
    front, path = fronts[stem]
    _check_keys(front, path, _OF_TEMPLATE)
    name = _typed(front, path, "template", str) or stem
    if not _NAME.fullmatch(name):
        raise InvalidTemplate(f"{path}: {name!r} cannot be the name of a template", _NAME.pattern)
    settings = {key: _typed(front, path, key, kind) for key, (kind, _) in SETTINGS.items()}
    main = _typed(front, path, "locale", str) or "en"
    draft = Draft(name, {}, {key: value for key, value in settings.items() if value is not None})
    for each, files in groups.items():
        locale = main if each == stem else each.rpartition(".")[2]
        if each != stem:
            _check_keys(fronts[each][0], fronts[each][1], _OF_TRANSLATION)
        _add_language(draft, locale, files, fronts[each], default=each == stem)
    return draft


def _add_language(
    draft: Draft,
    locale: str,
    files: list[_File],
    front: tuple[dict[str, Any], Path],
    *,
    default: bool,
) -> None:
    if not LOCALE.fullmatch(locale) or locale in draft.contents:
        raise InvalidTemplate(
            f"{front[1]}: {locale!r} is not a locale, or is used twice", "Use en, pt, pt-BR …"
        )
    subject = _typed(*front, "subject", str)
    if not subject or not subject.strip(_SPACE) or "\n" in subject.strip(_SPACE):
        raise InvalidTemplate(f"{front[1]}: it has no one-line subject", 'Add subject = "…".')
    bodies = {file.path.suffix: file for file in files if file.body}
    html = bodies[".html"].body if ".html" in bodies else None
    text = bodies[".txt"].body if ".txt" in bodies else text_from_html(html or "")
    if not text:
        raise InvalidTemplate(f"{front[1]}: it contains no text", "Write a text part.")
    draft.contents[locale] = Content(subject.strip(_SPACE), text, html, default)
    draft.places[locale, "subject"] = (str(front[1]), 1)
    for part, suffix in (("html", ".html"), ("text", ".txt")):
        if suffix in bodies:
            file = bodies[suffix]
            draft.places[locale, part] = (str(file.path), file.first_line)


def _read(path: Path) -> _File:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidTemplate(f"{path}: it is larger than {MAX_FILE_BYTES // 1024} KiB")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidTemplate(
            f"{path}: it is not UTF-8 (byte {error.start})", "Save it as UTF-8."
        ) from None
    if "\0" in text:
        raise InvalidTemplate(f"{path}: it holds a NUL character")
    lines = text.replace("\r\n", "\n").rstrip(_SPACE).split("\n")
    if lines[0].rstrip() != FENCE:
        return _File(path, None, *_body(lines, 0))
    ends = [number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE]
    if not ends:
        raise InvalidTemplate(f"{path}: its front matter has no end", f"Add a line {FENCE}.")
    front = _toml("\n".join(lines[1 : ends[0]]), path)
    return _File(path, front, *_body(lines, ends[0] + 1))


def _body(lines: list[str], start: int) -> tuple[str, int]:
    """Return the following text without leading empty lines, and its first line's number."""
    while start < len(lines) and not lines[start].strip(_SPACE):
        start += 1
    return "\n".join(lines[start:]), start + 1


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The front matter starts in the second line of the file.
        said = re.sub(r"at line (\d+)", lambda found: f"at line {int(found[1]) + 1}", str(error))
        hint = 'Front matter is TOML: strings in quotes, as in subject = "Hello".'
        raise InvalidTemplate(f"{path}: {said}", hint) from None


def _check_keys(front: dict[str, Any], path: Path, known: list[str]) -> None:
    for key in front:
        if key not in known:
            raise InvalidTemplate(f"{path}: unknown key {key!r}", suggestion(key, known))


def _typed(front: dict[str, Any], path: Path, key: str, kind: type) -> Any:  # noqa: ANN401 - of that type
    value = front.get(key)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        names = {str: "a quoted string", int: "a whole number", list: "an array", dict: "a table"}
        raise InvalidTemplate(f"{path}: {key} is not {names[kind]}")
    return value
