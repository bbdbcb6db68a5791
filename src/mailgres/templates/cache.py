"""Compiled templates, kept. A version never changes, so nothing here ever goes stale."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from mailgres.templates.rendering import Template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mailgres.templates.content import Contents, Rendered

    Load: TypeAlias = Callable[[str, int], Contents]


class TemplateCache:
    """The compiled templates that a worker used last. Any number of threads may use it."""

    def __init__(self, load: Load, *, size: int = 256) -> None:
        """Keep `size` versions of templates; `load` gets the content of one that is not here.

        An error of `load` goes to the caller; nothing is kept, so the next email loads again.
        """
        self._load = load
        self._size = size
        self._kept: OrderedDict[tuple[str, int], Template] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, template_type: str, version: int) -> Template:
        """Return a version of a template."""
        key = (template_type, version)
        with self._lock:
            if found := self._kept.get(key):
                self._kept.move_to_end(key)
                return found
        # Loading waits for the database and must not make other threads wait. Two threads may load
        # the same version; both get the same.
        loaded = Template(self._load(template_type, version), f"{template_type} v{version}")
        with self._lock:
            self._kept[key] = loaded
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return loaded

    def render(
        self,
        template_type: str,
        version: int,
        payload: Mapping[str, Any] | str,
        locale: str | None = None,
    ) -> Rendered:
        """Render an email with the version that is pinned to it."""
        return self.get(template_type, version).render(payload, locale)
