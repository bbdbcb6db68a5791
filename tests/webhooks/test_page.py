"""docs/events.md shows a payload of each event, and what it says about them is what happens."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mailgres.webhooks import bounces, own, resend, ses
from mailgres.webhooks.events import NAMES, Event
from mailgres.webhooks.own import FIELDS
from mailgres.webhooks.samples import RESEND, SES, About
from mailgres.webhooks.samples import own as own_sample
from mailgres.webhooks.samples import resend as resend_sample
from mailgres.webhooks.samples import ses as ses_sample

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
ABOUT = About()


def section(name: str) -> tuple[str, Any]:
    """The sentence and the payload below a heading."""
    pattern = rf"\n##+ {re.escape(name)}\n\nRecorded as ([^\n]*)\.\n\n```json\n(.*?)\n```"
    found = re.search(pattern, PAGE, re.DOTALL)
    assert found, f"no section {name}"
    return found[1], json.loads(found[2])


def words(event: Event) -> str:
    more = [f"{key} `{event.detail[key]}`" for key in ("kind", "reason") if key in event.detail]
    return ", ".join([f"`{event.event}`", *more])


def within(part: Any, whole: Any) -> bool:
    """Return whether a payload that is shown in part agrees with the sample."""
    if isinstance(part, dict):
        return all(key in whole and within(value, whole[key]) for key, value in part.items())
    return bool(part == whole)


def test_the_page_on_events_has_each_payload_of_resend_and_its_event() -> None:
    for kind in RESEND:
        said, shown = section(kind)
        sample = resend_sample(kind, ABOUT)
        assert within(shown, sample), kind
        assert said == words(resend.parse(sample, "1")), kind


def test_the_page_on_events_has_each_payload_of_ses_and_its_event() -> None:
    for kind in SES:
        said, shown = section(kind)
        sample = ses_sample(kind, ABOUT)
        assert within(shown, sample), kind
        assert said == words(ses.parse(sample, "1")[0]), kind


def test_the_page_on_events_shows_the_own_format() -> None:
    said, shown = section("Payload of the own format")
    assert shown == own_sample("postmark", ABOUT)
    assert said == words(own.parse(shown, "1")[0][1])
    for field in FIELDS:
        assert f"`{field}`" in PAGE


def table(head: str) -> dict[str, str]:
    rows = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = (row.strip("| ").split(" | ", 1) for row in rows)
    return {name: rest for names, rest in cells for name in re.findall(r"`(\S+)`", names)}


def test_the_tables_of_the_page_on_events_are_those_of_the_code() -> None:
    assert list(table("event | Resend | SES")) == list(NAMES)
    subtypes = {name.lower(): rest for name, rest in table("subtype | reason").items()}
    for subtype, reason in bounces.REASON_OF_SUBTYPE.items():
        assert f"`{reason}`" in subtypes[subtype]
    assert {name for name, rest in subtypes.items() if "suppressed" in rest} == (
        bounces.NOT_SENT_SUBTYPES
    )
    kinds = {name.lower(): rest for name, rest in table("type | kind").items()}
    assert {name: rest.strip("`") for name, rest in kinds.items()} == bounces.KIND_OF_TYPE
    for code, reason in table("status code | reason").items():
        shown = re.match(r"`(\w+)`", reason)
        assert shown
        assert shown[1] == bounces.reason_of_status(re.sub(r"x$", "9", re.sub("^x", "5", code)))
    delays = table("`delayType` of SES | reason")
    assert {name: rest.strip("`") for name, rest in delays.items()} == ses.REASON_OF_DELAY
