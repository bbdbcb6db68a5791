"""A template as its author wrote it, checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from mailgres.errors import InvalidTemplate
from mailgres.templates.engine import Compiled
from mailgres.templates.fault import Fault
from mailgres.templates.locales import default_locale
from mailgres.templates.rendering import finish
from mailgres.templates.variables import check_names, required_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mailgres.templates.content import Content, Rendered

SETTINGS: Mapping[str, tuple[type, Any]] = {
    "description": (str, ""),
    "required_variables": (list, []),
    "from_email": (str, None),
    "reply_to": (str, None),
    "route": (str, None),
    "priority": (int, None),
    "retry_policy": (str, None),
    "expires_after": (str, None),
    "on_uncertain": (str, "hold"),
    "sample": (dict, {}),
}
"""The settings of a template, with their type and default."""


@dataclass(frozen=True)
class Draft:
    """A template that is not in the database yet, or that was read from it."""

    name: str
    contents: dict[str, Content]
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings that were given; `SETTINGS` has the others."""
    places: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    """The file and line where a part starts, by locale and part."""

    @property
    def default_locale(self) -> str:
        """The language for readers whose own is not available."""
        return default_locale(self.contents)

    def derived_variables(self) -> list[str]:
        """Return the variables that the template cannot do without, according to its parts."""
        needed: set[str] = set()
        for locale, content in self.contents.items():
            needed |= required_variables(content, self._compile(locale, content).variables)
        return sorted(needed)

    def checked(self) -> Draft:
        """Return the draft with its required variables, or raise InvalidTemplate."""
        compiled = {loc: self._compile(loc, content) for loc, content in self.contents.items()}
        settings = dict(self.settings)
        if "required_variables" in settings:
            self._check_required(settings["required_variables"], compiled)
        else:
            settings["required_variables"] = self.derived_variables()
        sample = settings.get("sample", {})
        required = settings["required_variables"]
        if sample and (missing := sorted(set(required) - sample.keys())):
            self._refuse(f"the sample lacks {missing[0]!r}", "Add it to [sample]; it is required.")
        if sample or not required:
            for locale, each in compiled.items():
                self._render_sample(locale, each, sample)
        return Draft(self.name, self.contents, settings, self.places)

    def _compile(self, locale: str, content: Content) -> Compiled:
        try:
            compiled = Compiled(content.parts())
            for part, source in content.parts().items():
                check_names(part, source, compiled.variables)
        except Fault as fault:
            self._refuse_at(locale, fault)
        return compiled

    def _render_sample(self, locale: str, compiled: Compiled, sample: dict[str, Any]) -> Rendered:
        try:
            return finish(compiled.render(sample))
        except Fault as fault:
            payload = "the sample" if sample else "an empty payload"
            fault.what += f" (rendered with {payload})"
            self._refuse_at(locale, fault)

    def _check_required(self, names: list[Any], compiled: dict[str, Compiled]) -> None:
        used = set().union(*(each.variables for each in compiled.values()))
        for name in names:
            if name not in used:
                near = suggestion(str(name), used)
                self._refuse(f"required_variables has {name!r}, which is not used", near)

    def _refuse_at(self, locale: str, fault: Fault) -> NoReturn:
        file, line = self.places.get((locale, fault.part), (None, 0))
        if file is None:
            derived = "The text part was made from the HTML: write a .txt file instead."
            hint = derived if fault.part == "text" and self.places else None
            raise InvalidTemplate(f"{self.name} ({locale}), {fault}", hint) from None
        where = f", line {line + fault.line - 1}" if fault.line and fault.part != "subject" else ""
        part = f" {fault.part}:" if fault.part in {"subject", "payload"} else ""
        raise InvalidTemplate(f"{file}{where}:{part} {fault.what}") from None

    def _refuse(self, what: str, hint: str | None = None) -> NoReturn:
        file = self.places.get((self.default_locale, "subject"), (self.name, 0))[0]
        raise InvalidTemplate(f"{file}: {what}", hint)


def suggestion(given: str, known: set[str] | list[str]) -> str:
    """Return a hint that names the nearest known name, or all of them."""
    near = get_close_matches(given, known, n=1)
    listed = ", ".join(sorted(known)) or "none"
    return f"Did you mean {near[0]!r}?" if near else f"There are: {listed}."
