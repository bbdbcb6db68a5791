"""The database as the inbox sees it: short transactions, one function call each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.errors import MailgresError
from mailgres.web import Pool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    Row = dict[str, Any]

REFUSED = MailgresError(
    "The database role of the inbox may not read it", "Connect as a member of mailgres_operator."
)


class InboxStore:
    """Runs the queries of the inbox; every error is one of ours."""

    def __init__(self, url: str) -> None:
        self._pool = Pool(url, "inbox/inbox.sql", "mailgres inbox", REFUSED)
        self._ask = self._pool.ask

    def check(self) -> None:
        """Refuse a role that may not use the inbox."""
        (row,) = self._ask("may_use")
        if not row["has_function_privilege"]:
            role = row["current_user"]
            raise MailgresError(
                f"The role {role} may not read the inbox",
                f"Connect as a member of mailgres_operator: GRANT mailgres_operator TO {role};",
            )

    def emails(
        self,
        search: str | None,
        before: datetime | None,
        limit: int,
        before_id: UUID | None = None,
    ) -> list[Row]:
        """Return a page of the inbox, newest first: those before a time and an id."""
        given = {"search": search, "before": before, "before_id": before_id, "limit": limit}
        return self._ask("inbox", **given)

    def email(self, queue_id: UUID) -> Row | None:
        """Return everything about an email; None if the inbox does not have it."""
        found = self._ask("email", id=queue_id)
        return found[0]["inbox_email"] if found else None

    def file(self, queue_id: UUID, position: int) -> Row | None:
        """Return an attachment with its content."""
        found = self._ask("file", id=queue_id, position=position)
        return found[0] if found else None

    def state(self, queue_id: UUID | None = None) -> str:
        """Return a text that changes when the inbox, or this email, looks different."""
        return str(self._ask("state", id=queue_id)[0]["inbox_state"])

    def delete(self, ids: Sequence[UUID]) -> int:
        """Delete emails; return how many."""
        return int(self._ask("delete", ids=ids)[0]["delete_from_inbox"])

    def delete_all(self) -> int:
        """Delete what the inbox has, in short transactions; return how many emails."""
        deleted = 0
        while found := int(self._ask("delete", ids=None)[0]["delete_from_inbox"]):
            deleted += found
        return deleted

    def faults(self) -> list[Row]:
        """Return the faults that wait for an email."""
        return self._ask("faults")

    def set_fault(self, fault: str, recipient: str | None, template: str | None) -> None:
        """Let the next such email fail."""
        self._ask("set_fault", fault=fault, recipient=recipient, template=template)

    def remove_fault(self, fault_id: int) -> None:
        """Remove a fault that has not happened."""
        self._ask("remove_fault", id=fault_id)

    def templates(self) -> list[str]:
        """Return the names of the templates."""
        return [row["template_type"] for row in self._ask("templates")]

    def close(self) -> None:
        """Close the connections: those in use when they are given back."""
        self._pool.close()
