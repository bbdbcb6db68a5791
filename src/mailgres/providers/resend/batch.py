"""Groups messages into calls and assigns the results of a batch to its messages."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mailgres.model import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from mailgres.model import Message

LARGEST_BATCH = 100
_ID = re.compile(r"[\x21-\x7e]{1,200}")


def calls(messages: Sequence[Message]) -> Iterable[tuple[UUID | None, list[int]]]:
    """Return the calls: the id of a batch, or None for one message, and the messages' positions.

    A batch with only one message left is still sent as a batch: it may have been accepted before,
    and Resend only notices that by the key of the batch. Batches cannot have attachments.
    """
    batches: dict[UUID, list[int]] = {}
    for place, message in enumerate(messages):
        batch_id = message.email.batch_id
        if batch_id is None or message.attachments:
            yield None, [place]
        else:
            batches.setdefault(batch_id, []).append(place)
    yield from batches.items()


def results_of(
    reported: Mapping[str, Any], count: int, refused: Callable[[str], Result]
) -> list[Result] | None:
    """Return the results of a batch, in order, or None if the answer is inconsistent.

    `errors` has the positions of refused messages, `data` the ids of all others.
    """
    errors, data = _errors(reported.get("errors")), _ids(reported.get("data"))
    if errors is None or data is None or len(errors) + len(data) != count:
        return None
    if any(not 0 <= place < count for place in errors):
        return None
    ids = iter(data)
    return [
        refused(errors[place]) if place in errors else Result("sent", next(ids))
        for place in range(count)
    ]


def shared(fault: Result, messages: Sequence[Message]) -> Result:
    """Return the fault of a call as a fault of each of its messages.

    A fault of one message or sender must not affect the others, so it is transient for a batch, and
    the messages are sent one by one the next time.
    """
    of_one = fault.verdict == "permanent"
    of_a_sender = fault.verdict == "config" and not fault.account
    senders = {message.from_email for message in messages}
    if len(messages) > 1 and (of_one or (of_a_sender and len(senders) > 1)):
        return replace(fault, verdict="transient", batch_refused=True)
    return fault


def _errors(reported: object) -> dict[int, str] | None:
    """Return the error text for each position, or None if they cannot be parsed."""
    if reported is None:
        return {}
    if not isinstance(reported, list):
        return None
    found: dict[int, str] = {}
    for each in reported:
        place = each.get("index") if isinstance(each, dict) else None
        if type(place) is not int or place in found:
            return None
        found[place] = str(each.get("message") or "")
    return found


def _ids(reported: object) -> list[str] | None:
    """Return the ids, or None if they cannot be parsed."""
    if not isinstance(reported, list):
        return None
    ids = [each for each in map(id_in, reported) if each]
    return ids if len(ids) == len(reported) else None


def id_in(reported: object) -> str | None:
    """Return the id in an answer, if there is one that can be stored."""
    given = reported.get("id") if isinstance(reported, dict) else None
    return given if isinstance(given, str) and _ID.fullmatch(given) else None
