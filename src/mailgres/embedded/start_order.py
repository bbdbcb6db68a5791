"""The order that a user gives to the supervisor it starts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .accounts import Account
from .binaries import Binaries
from .home import Home


@dataclass(frozen=True)
class StartOrder:
    """What to run, as the starting user determined it."""

    home: Home
    binaries: Binaries
    account: Account
    settings: dict[str, str]

    def to_json(self) -> str:
        """Encode the order for standard input."""
        return json.dumps(
            {
                "home": str(self.home.path),
                "directory": str(self.binaries.directory),
                "version": self.binaries.version,
                "account": [self.account.uid, self.account.gid, self.account.switch],
                "settings": self.settings,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> StartOrder:
        """Decode the order from standard input."""
        fields: dict[str, Any] = json.loads(text)
        return cls(
            Home(Path(fields["home"])),
            Binaries(Path(fields["directory"]), fields["version"]),
            Account(*fields["account"]),
            fields["settings"],
        )
