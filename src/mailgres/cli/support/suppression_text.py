"""Why an address is suppressed, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.cli.support.output import moment

if TYPE_CHECKING:
    from collections.abc import Iterator

_WHY = {
    "bounced": "an email to it bounced, and the mailbox does not exist",
    "soft_bounced": "several emails to it bounced in a row",
    "complained": "its owner called an email spam",
    "unsubscribed": "its owner unsubscribed",
    "manual": "a person suppressed it",
}
_HOW = {
    "event": "reported by an event of the provider",
    "provider": "said by the provider",
    "operator": "set by an operator",
    "import": "imported",
}


def explained(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of `mailgres suppressions explain`."""
    if not found["suppressions"]:
        yield f"{found['address']} is not suppressed."
    for one in found["suppressions"]:
        yield from _suppression(found["address"], one)
    for series in found["series"]:
        if series["emails"]:
            yield (
                f"Soft bounces in a row since the last delivery: {series['emails']};"
                f" the address is suppressed after {series['needed']}."
            )
    if found["events"]:
        yield "Last events:"
    for event in found["events"]:
        what = " ".join(filter(None, (event["kind"], event["event"])))
        said = "; ".join(filter(None, (event["reason"], event["text"])))
        yield f"  {moment(event['occurred_at'])}  {what}  email {event['queue_id']}" + (
            f"  {said}" if said else ""
        )


def _suppression(address: str, one: dict[str, Any]) -> Iterator[str]:
    whom = "for all tenants" if one["tenant_id"] == "*" else f"for the tenant {one['tenant_id']}"
    state = "is" if one["holds"] else "was"
    yield f"{address} {state} suppressed {whom}: {_WHY[one['reason']]}."
    ends = f"until {moment(one['expires_at'])}" if one["expires_at"] else "without an end"
    yield f"  since {moment(one['created_at'])}, {ends}; {_HOW[one['source']]}"
    if one["queue_id"]:
        of = f" ({one['template_type']})" if one["template_type"] else ""
        yield f"  because of the email {one['queue_id']}{of}: `mailgres show {one['queue_id']}`"
    for name in ("detail", "note"):
        if one[name]:
            yield f"  {name}: {one[name]}"
