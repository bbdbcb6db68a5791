"""The error of the settings: what is wrong, where it was set, what is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to fix. Neither text ever holds the value of a secret."""

    message: str
    hint: str


class InvalidSettings(MailgresError):
    """A setting is wrong."""

    default_hint = "`mailgres config` shows every setting and where it came from."

    def __init__(self, problems: Sequence[Problem] = ()) -> None:
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            super().__init__(self.problems[0].message, self.problems[0].hint)
        elif self.problems:
            lines = (f"\n  {problem.message}. {problem.hint}" for problem in self.problems)
            super().__init__(
                f"{len(self.problems)} settings are wrong:{''.join(lines)}",
                "Fix them all; `mailgres config` then shows every setting and its source.",
            )
        else:
            super().__init__()
