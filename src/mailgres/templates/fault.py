"""What is wrong with a template or its payload, before the template's name is known."""

from __future__ import annotations


class Fault(Exception):
    """One fault and its place. It never quotes a value of the payload."""

    def __init__(self, part: str, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.part = part
        """`subject`, `html`, `text`, or `payload`."""
        self.what = what
        self.line = line
        """The line within the part."""

    def __str__(self) -> str:
        where = f", line {self.line}" if self.line and self.part != "subject" else ""
        return f"{self.part}{where}: {self.what}"
