"""What inspection says about each shape is what `facts.json` says, or it asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from adopt.conftest import NAMES, facts_of
from mailgres.adopt import ASK, NO_PLACE, Inspection, Queue, Source, inspect, read, write

Load = Callable[[str], str]

ASKED = {
    "boolean-sent": {"timezone"},
    "django-post-office": {"statuses: 9"},
    "drizzle-serial": {"timezone", "statuses: archived"},
    "jsonb-outbox": {"recipient_sql", "null_status", "without_next_retry"},
    "spanish-comma-list": {"statuses: en revisión"},
}
"""Everything that a person has to answer, by shape; the catalog does not say it."""
IN_WORDS = {
    None: NO_PLACE,
    "html or text": "body",
    "html or text (the old processor looks for a tag)": "body",
    "lease until": "lease_until",
    "which rows are emails": NO_PLACE,
    "recipient_email (looked up in user_settings, then users)": NO_PLACE,
    "retry_delay (ms)": "retry_delay",
}


def inspected(url: str, *tables: str) -> Inspection:
    with psycopg.connect(url) as connection:
        return inspect(connection, tables)


def expected_columns(facts: dict[str, Any]) -> dict[Source, str]:
    found: dict[Source, str] = {}
    for column, ours in facts["columns"].items():
        if ours == "everything":
            for path, to in (facts.get("json") or facts["message"]).items():
                parts = path.split(".")
                found[Source(column, tuple(parts))] = to
        else:
            found[Source(column)] = ours
    return {source: IN_WORDS.get(to, to) for source, to in found.items()}


def as_in_facts(queue: Queue) -> dict[Source, str]:
    """The columns of a mapping in the words of the facts."""
    return {
        source: f"{to} (list)" if to in queue.lists else to for source, to in queue.columns.items()
    }


@pytest.mark.parametrize("shape", sorted(set(NAMES) - {"lovable-pgmq", "jsonb-outbox"}))
def test_inspection_maps_every_column_of_every_known_shape(load: Load, shape: str) -> None:
    (queue,) = inspected(load(shape)).mapping.queues
    facts = facts_of(shape)
    assert queue.table == facts["table"]
    assert as_in_facts(queue) == expected_columns(facts)


def test_inspection_maps_every_key_of_a_queue_in_json(load: Load) -> None:
    (queue,) = inspected(load("jsonb-outbox")).mapping.queues
    expected = expected_columns(facts_of("jsonb-outbox"))
    # The end of the retries: an email past it is sent once more, so it is no expiry.
    expected[Source("outboxdata", ("outbox/deadline",))] = "retry_until"
    ours = {each: to for each, to in queue.columns.items() if each in expected}
    assert ours == expected
    assert {to for each, to in queue.columns.items() if each not in expected} == {NO_PLACE}
    assert queue.only is not None
    assert (queue.only.source.path, queue.only.values) == (("outbox/type",), ("email",))


def test_pgmq_queues_are_read_with_their_dead_letters_log_and_expiry(load: Load) -> None:
    found = inspected(load("lovable-pgmq"))
    auth, transactional = found.mapping.queues
    facts = facts_of("lovable-pgmq")
    expected = expected_columns(facts)
    for queue in (auth, transactional):
        assert queue.columns == {each: expected[each] for each in queue.columns}
        assert queue.log is not None
        assert (queue.log.table, queue.log.attempts) == ("public.email_send_log", ("failed",))
    assert set(expected) == {*auth.columns, *transactional.columns}
    assert auth.dead_letters == "pgmq.q_auth_emails_dlq"
    assert (auth.expires_after_minutes, transactional.expires_after_minutes) == (15, 60)


def meant(facts: dict[str, Any]) -> dict[str, str]:
    """The statuses of the facts that are plain values, in the form in which rows are compared."""
    given = facts["statuses"].items()
    return {
        status.strip().lower(): what
        for status, what in given
        if not any(sign in status for sign in "=,<(") and status != "NULL"
    }


@pytest.mark.parametrize("shape", sorted(set(NAMES) - {"lovable-pgmq", "jsonb-outbox"}))
def test_inspection_understands_every_status_of_every_known_shape(load: Load, shape: str) -> None:
    (queue,) = inspected(load(shape)).mapping.queues
    answered = {status: what for status, what in queue.statuses.items() if what != ASK}
    expected = meant(facts_of(shape))
    if shape == "boolean-sent":
        expected = {"true": "sent", "false": "waiting"}
    if shape == "spanish-comma-list":
        expected["error"] = "failed_retriable"
    assert answered == expected


def test_inspection_asks_for_what_the_catalog_does_not_say(load: Load, shape: str) -> None:
    asked = {where.partition(", ")[2] for where, _ in inspected(load(shape)).mapping.questions()}
    assert asked == ASKED.get(shape, set())


def test_inspection_finds_the_time_zone_of_a_column_default(load: Load) -> None:
    (queue,) = inspected(load("spanish-comma-list")).mapping.queues
    assert queue.timezone == facts_of("spanish-comma-list")["timezone"]


def test_inspection_finds_functions_that_insert_through_other_functions(
    load: Load, shape: str
) -> None:
    facts = facts_of(shape)
    for found in inspected(load(shape)).queues:
        functions = [f"{f.name}({f.types})" for f in found.writers.inserting]
        triggers = [each.name for each in found.writers.inserting_triggers]
        names = [
            each.replace("timestamp)", "timestamp without time zone)") for each in facts["enqueue"]
        ]
        if shape == "lovable-pgmq":
            names.append("move_to_dlq(text, text, bigint, jsonb)")
        assert sorted(functions + triggers or ["INSERT by the application"]) == sorted(names)


@pytest.mark.parametrize(
    ("shape", "job"),
    [
        ("boolean-sent", "process-deposit-email-queue"),
        ("scheduled-trigger-fed", "process-email-queue"),
        ("lovable-pgmq", "process-email-queue"),
    ],
)
def test_inspection_finds_the_cron_job_that_processes_the_queue(
    load: Load, shape: str, job: str
) -> None:
    for found in inspected(load(shape)).queues:
        assert [each.title for each in found.writers.jobs] == [job]


FAULTS = {
    "retry-queue-priority": {"open_relay", "no_search_path", "no_claim", "no_reaper"},
    "boolean-sent": {"open_relay", "no_claim", "no_backoff", "swallowed_errors", "nullable_status"},
    "scheduled-trigger-fed": {
        *("open_policy", "no_claim", "no_reaper", "no_backoff", "nullable_status"),
    },
    "failed-is-final": {"open_relay", "no_claim", "no_retry"},
    "simulated-send": {"open_relay", "no_claim", "no_retry", "nullable_status"},
    "drizzle-serial": {"no_claim", "no_backoff", "spellings"},
    "lovable-pgmq": {"no_search_path"},
    "spanish-comma-list": {"open_relay", "no_claim", "no_reaper", "spellings"},
    "django-post-office": {"no_claim", "nullable_status"},
    "jsonb-outbox": {"no_claim"},
}
ALWAYS = {"no_idempotency_key", "no_retention", "no_search_path", "no_backoff"}


def test_inspection_names_each_defect_with_the_line_that_shows_it(load: Load, shape: str) -> None:
    for found in inspected(load(shape)).queues:
        names = {each.name for each in found.faults}
        assert FAULTS[shape] <= names <= FAULTS[shape] | ALWAYS
        assert all(each.line for each in found.faults)


def test_a_mapping_that_is_written_to_a_file_is_read_back_unchanged(load: Load, shape: str) -> None:
    found = inspected(load(shape))
    assert read(write([each.proposal for each in found.queues])) == found.mapping
