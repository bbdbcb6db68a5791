"""A double in another process: the same methods, over HTTP."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import asdict
from typing import Any


class RemoteDouble:
    """A double in another process: see `doubles.double.in_a_process`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def add_faults(self, *faults: Any) -> None:
        self._order("POST", "faults", [asdict(fault) for fault in faults])

    def clear_faults(self) -> None:
        self._order("DELETE", "faults")

    def set(self, **settings: Any) -> None:
        self._order("POST", "settings", settings)

    def accepted(self) -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = self._order("GET", "accepted")
        return reported

    def summary(self) -> dict[str, Any]:
        reported: dict[str, Any] = self._order("GET", "summary")
        return reported

    def _order(self, method: str, what: str, body: Any = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.url}/_double/{what}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return json.load(response)
