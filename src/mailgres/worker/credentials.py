"""Replaces providers whose credentials changed in the settings file, without a restart."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mailgres.errors import MailgresError
from mailgres.providers.registry import sending_options
from mailgres.safe_errors import where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mailgres.providers import Provider
    from mailgres.settings import Account
    from mailgres.settings.live import LiveSettings

    Open = Callable[[Account], Provider]

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 1.0
"""Seconds between looks at the file."""


@contextmanager
def following(live: LiveSettings, providers: dict[str, Provider], open_: Open) -> Iterator[None]:
    """Follow the settings file in the background, if there is one."""
    if not live.follows:
        yield
        return
    stopped = threading.Event()

    def follow() -> None:
        while not stopped.wait(CHECK_INTERVAL_SECONDS):
            try:
                replace_changed(live, providers, open_)
            except Exception as error:  # noqa: BLE001 - the next change must be seen all the same
                log.error(  # noqa: TRY400 - a traceback may hold a secret
                    "the changed settings are not used: %s",
                    where(error),
                    extra={"action": "settings"},
                )

    thread = threading.Thread(target=follow, name="mailgres-settings", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def replace_changed(live: LiveSettings, providers: dict[str, Provider], open_: Open) -> None:
    """Read the file if it changed, and open the providers again whose options are new.

    Calls under way end with the old credentials: closing a provider closes its idle connections.
    """
    before = {account.name: sending_options(account) for account in live.current.accounts()}
    if not live.refresh():
        return
    for account in live.current.accounts():
        if sending_options(account) == before[account.name]:
            continue
        try:
            opened = open_(account)
        except MailgresError as error:
            log.error(  # noqa: TRY400 - it says all there is
                "%s keeps its old settings: %s", account.name, error, extra={"action": "settings"}
            )
            continue
        old, providers[account.name] = providers[account.name], opened
        old.close()
        log.info(
            "%s has new settings from the file",
            account.name,
            extra={"action": "settings", "provider": account.name},
        )
