"""What is known about the tables of published packages, which their catalog does not say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mailgres.adopt.mapping import NO_PLACE, Source

if TYPE_CHECKING:
    from mailgres.adopt.catalog import Table
    from mailgres.adopt.mapping import Queue

POST_OFFICE = "django-post_office"
_POST_OFFICE_COLUMNS = {"number_of_retries", "recipient_delivery_status", "backend_alias", "to"}


def package(table: Table) -> str | None:
    """Return the package that made a table."""
    names = {each.name for each in table.columns}
    if table.name == "post_office_email" and names >= _POST_OFFICE_COLUMNS:
        return POST_OFFICE
    return None


def completed(queue: Queue, name: str, remarks: dict[str, str]) -> Queue:
    """Return a mapping with what the package's source says."""
    if name != POST_OFFICE:
        return queue
    columns = dict(queue.columns)
    for column, to in (
        ("last_updated", "last_attempt_at"),
        ("message_id", NO_PLACE),
        ("recipient_delivery_status", NO_PLACE),
    ):
        if Source(column) in columns:
            columns[Source(column)] = to
            remarks[f"columns.{column}"] = f"as {POST_OFFICE} writes it"
    statuses = {"0": "sent", "1": "failed_final", "2": "waiting", "3": "failed_retriable"}
    for status in statuses:
        remarks[f"statuses.{status}"] = f"as {POST_OFFICE} writes it"
    remarks["null_status"] = "priority now: sent inline, no status until it is done"
    remarks["priorities"] = "0 low, 1 medium, 2 high, 3 now"
    remarks["attempts_limit"] = "its MAX_RETRIES writes the status 1; no limit is needed here"
    return replace(
        queue,
        columns=columns,
        statuses=queue.statuses | statuses,
        null_status="processing",
        attempts_limit=None,
        priorities={"0": 7, "1": 5, "2": 3, "3": 1},
        lists=("recipient_email", "cc", "bcc"),
    )
