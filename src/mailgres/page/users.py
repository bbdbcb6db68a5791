"""Who uses the page: a name and a role. The role decides as which database role it acts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """What a person may do; each role may do what the ones before may."""

    ANYONE = 0
    VIEWER = 1
    """Sees figures and emails, without recipients and content."""
    OPERATOR = 2
    """Sees everything and changes it."""


DATABASE_ROLES = {Role.VIEWER: "mailgres_analyst", Role.OPERATOR: "mailgres_operator"}
"""PostgreSQL refuses what these roles have no right to."""


@dataclass(frozen=True)
class User:
    """A person who is signed in."""

    name: str
    role: Role

    @property
    def is_operator(self) -> bool:
        """Whether the person may change something."""
        return self.role >= Role.OPERATOR
