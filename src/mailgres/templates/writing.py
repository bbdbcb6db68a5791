"""Write templates to files, so that pushing them again changes nothing."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from mailgres.errors import InvalidTemplate
from mailgres.templates.draft import SETTINGS
from mailgres.templates.files import FENCE
from mailgres.templates.locales import LOCALE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mailgres.templates.content import Content
    from mailgres.templates.draft import Draft

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def write_templates(drafts: Iterable[Draft], directory: Path, *, force: bool = False) -> list[Path]:
    """Write templates into a directory and return the files that were new or changed.

    If a file has other content, nothing is written at all, unless `force`.
    """
    files: dict[Path, str] = {}
    for draft in drafts:
        files |= {directory / name: text for name, text in template_files(draft).items()}
    before = {path: _content(path) for path in files}
    changed = [path for path, text in files.items() if before[path] != text]
    if not force and (other := [path for path in changed if before[path] is not None]):
        more = f" and {len(other) - 1} more files" if len(other) > 1 else ""
        raise InvalidTemplate(
            f"{other[0]}{more} would be overwritten", "Commit or move them, or use --force."
        )
    directory.mkdir(parents=True, exist_ok=True)
    for path in changed:
        path.write_text(files[path], encoding="utf-8")
    return changed


def _content(path: Path) -> str | None:
    return path.read_bytes().decode("utf-8", errors="replace") if path.exists() else None


def template_files(draft: Draft) -> dict[str, str]:
    """Return the files of a template by name."""
    files: dict[str, str] = {}
    for locale in sorted(draft.contents, key=lambda each: (each != draft.default_locale, each)):
        content = draft.contents[locale]
        if locale == draft.default_locale:
            files |= _language(draft.name, content, _settings(draft, locale))
        else:
            files |= _language(f"{draft.name}.{locale}", content, {})
    return files


def _settings(draft: Draft, locale: str) -> dict[str, Any]:
    # A name such as order.new might be read as the template `order` in a language called `new`.
    looks_translated = LOCALE.fullmatch(draft.name.rpartition(".")[2]) and "." in draft.name
    front: dict[str, Any] = {"template": draft.name} if looks_translated else {}
    if locale != "en":
        front["locale"] = locale
    defaults = {key: default for key, (_, default) in SETTINGS.items()}
    defaults["required_variables"] = draft.derived_variables()
    given = {key: value for key, value in draft.settings.items() if value != defaults[key]}
    return front | {key: given[key] for key in SETTINGS if key in given}


def _language(stem: str, content: Content, settings: dict[str, Any]) -> dict[str, str]:
    front = _front({"subject": content.subject, **settings})
    if content.html is None:
        return {f"{stem}.txt": f"{front}{content.text}\n"}
    return {f"{stem}.html": f"{front}{content.html}\n", f"{stem}.txt": f"{content.text}\n"}


def _front(values: dict[str, Any]) -> str:
    sample = values.pop("sample", None)
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    if sample:
        lines += ["", "[sample]", *(f"{_key(k)} = {_toml(v)}" for k, v in _given(sample))]
    return "\n".join([FENCE, *lines, FENCE, "", ""])


def _toml(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(k)} = {_toml(v)}' for k, v in _given(value))}}}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(each) for each in value if each is not None)}]"
    # The rest is written as in JSON, except for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _toml(key)


def _given(values: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the values that TOML can express: it has no null."""
    return [(key, value) for key, value in values.items() if value is not None]
