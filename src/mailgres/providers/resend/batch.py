"""Which messages go in one call, and which result belongs to which of them."""

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
    """The calls to make: the batch, or None for a call of its own, and the places of its messages.

    A batch of which one message is left is still that batch: it may have arrived, and only under
    its own key would Resend notice. Batches take no attachments.
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
    """The results of a batch, in order; None if the answer does not add up.

    `errors` names the places of those that were refused, `data` has the ids of all others.
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
    """The fault of a whole call as a fault of each of its messages.

    What is wrong with one message must not kill the others, so such a fault of a batch is
    transient, and each of its messages goes alone the next time.
    """
    of_one = fault.verdict == "permanent"
    of_a_sender = fault.verdict == "config" and not fault.account
    senders = {message.from_email for message in messages}
    if len(messages) > 1 and (of_one or (of_a_sender and len(senders) > 1)):
        return replace(fault, verdict="transient", batch_refused=True)
    return fault


def _errors(reported: object) -> dict[int, str] | None:
    """The words for each place; None if they cannot be understood."""
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
    """The ids; None if they cannot be understood."""
    if not isinstance(reported, list):
        return None
    ids = [each for each in map(id_in, reported) if each]
    return ids if len(ids) == len(reported) else None


def id_in(reported: object) -> str | None:
    """The id in an answer, if there is one that can be kept."""
    given = reported.get("id") if isinstance(reported, dict) else None
    return given if isinstance(given, str) and _ID.fullmatch(given) else None
