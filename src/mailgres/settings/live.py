"""Settings that follow their file: credentials can be replaced while a process runs.

Only what a provider or a webhook is authenticated with is taken from a changed file; the rest needs
a restart. A value in the environment or on the command line takes precedence, and cannot change.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from mailgres.providers.registry import PROVIDERS
from mailgres.settings.errors import InvalidSettings

if TYPE_CHECKING:
    from mailgres.settings.model import Settings

log = logging.getLogger(__name__)

FOLLOWED = (
    *(f"{each.kind}_{option.name}" for each in PROVIDERS.values() for option in each.options),
    "events_secret",
    "named_accounts",
)
"""The settings that take effect without a restart."""

Stamp = tuple[int, int, int]


class LiveSettings:
    """The current settings. Any thread may read `current`; one calls `refresh`."""

    def __init__(self, settings: Settings) -> None:
        self.current = settings
        self._source = settings.source
        self._seen = self._stamp()

    @property
    def follows(self) -> bool:
        """Whether there is a file that may change."""
        return self._source is not None

    def refresh(self) -> bool:
        """Load the file if it has changed; return whether something that is followed is new.

        A file that is missing or wrong, perhaps because it is being written, changes nothing.
        """
        stamp = self._stamp()
        if self._source is None or stamp is None or stamp == self._seen:
            return False
        self._seen = stamp
        try:
            loaded = self._source.load()
        except InvalidSettings as error:
            log.error(  # noqa: TRY400 - it says all there is
                "the changed settings are not used: %s", error, extra={"action": "settings"}
            )
            return False
        news = {name: getattr(loaded, name) for name in FOLLOWED}
        before, self.current = self.current, dataclasses.replace(self.current, **news)
        return self.current != before

    def _stamp(self) -> Stamp | None:
        """Return what differs once a file was written, or a link leads to another one."""
        if self._source is None:
            return None
        try:
            found = self._source.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size
