"""What a dry run counts is what each shape expects, once its questions are answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from adopt.conftest import NAMES, facts_of
from mailgres.adopt import ASK, InvalidMapping, Mapping, Plan, check, count, inspect
from mailgres.adopt.checking import answered
from support.dump import dump

Load = Callable[[str], str]
LOOKED_UP = """
    (SELECT coalesce(s.settings ->> 'notification-email', u.userattrs ->> 'email')
     FROM public.users u LEFT JOIN public.user_settings s USING (userid)
     WHERE u.userid = q.outboxdata #>> '{outbox/email,to-user}')
"""
ANSWERS: dict[str, dict[str, Any]] = {
    "boolean-sent": {"timezone": "UTC"},
    "drizzle-serial": {"timezone": "UTC"},
    "jsonb-outbox": {
        "recipient_sql": LOOKED_UP,
        "null_status": "waiting",
        "without_next_retry": "failed_final",
    },
}
"""What a person answers; a status that nobody knows is `unknown` everywhere."""


def mapped(connection: psycopg.Connection, shape: str) -> tuple[Mapping, Any]:
    found = inspect(connection)
    queues = tuple(
        replace(
            each,
            statuses={k: "unknown" if v == ASK else v for k, v in each.statuses.items()},
            **ANSWERS.get(shape, {}),
        )
        for each in found.mapping.queues
    )
    return Mapping(queues), found.catalog


def planned(url: str, shape: str) -> Plan:
    with psycopg.connect(url) as connection:
        mapping, catalog = mapped(connection, shape)
        check(mapping, catalog)
        answered(mapping)
        return count(connection, mapping, catalog)


def test_adopt_counts_the_rows_of_each_kind_in_every_known_shape(load: Load, shape: str) -> None:
    url, facts = load(shape), facts_of(shape)
    plan = planned(url, shape)
    expected = {kind: number for kind, number in facts["expected"].items() if number}
    found = {kind: plan.rows(kind) for kind in expected}
    assert found == expected
    counted = {kind for each in plan.queues for kind in each.counts} | set(plan.logged)
    assert counted == set(expected)
    with psycopg.connect(url) as connection:
        rows = Counter(row[0] for row in connection.execute(facts["classify"].encode()))
    assert rows == Counter(expected), "the shape's own query counts the same"


@pytest.mark.parametrize("shape", sorted(set(NAMES) - {"lovable-pgmq"}))
def test_adopt_classifies_each_row_of_every_known_shape(load: Load, shape: str) -> None:
    """Not only as many, but the same ones. Lovable's query counts messages, and names none."""
    facts = facts_of(shape)
    url = load(shape)
    key = "id"
    ours = {}
    with psycopg.connect(url) as connection:
        mapping, catalog = mapped(connection, shape)
        plan = count(connection, mapping, catalog)
        zone = mapping.queues[0].timezone or "UTC"
        connection.execute("SELECT set_config('timezone', %s, false)", (zone,))
        for row in connection.execute(plan.queues[0].query.encode()):
            ours[row[0]] = row[5]
        query = facts["classify"].replace("SELECT CASE", f"SELECT {key}::text, CASE", 1)
        theirs = {row[0]: row[1] for row in connection.execute(query.encode())}
    assert ours == theirs


@pytest.mark.parametrize("shape", ["spanish-comma-list", "django-post-office"])
def test_adopt_counts_a_list_of_recipients_by_address(load: Load, shape: str) -> None:
    plan = planned(load(shape), shape)
    (queue,) = plan.queues
    expected = facts_of(shape)["recipients"]
    assert {kind: queue.counts[kind].recipients for kind in expected} == expected


def test_adopt_counts_waiting_rows_older_than_30_days(load: Load, shape: str) -> None:
    expected = facts_of(shape).get("older_than_30_days", {"waiting": 0})
    plan = planned(load(shape), shape)
    kinds = ("waiting", "scheduled")
    found = {k: sum(q.counts[k].old for q in plan.queues if k in q.counts) for k in kinds}
    assert {kind: number for kind, number in found.items() if number} == {
        kind: number for kind, number in expected.items() if number
    }


def test_counting_a_foreign_queue_changes_nothing(load: Load, shape: str) -> None:
    url = load(shape)
    before = dump(url)
    planned(url, shape)
    assert dump(url) == before


def test_adopt_gives_a_reason_for_every_row_that_cannot_be_mapped(load: Load, shape: str) -> None:
    for queue in planned(load(shape), shape).queues:
        for each in queue.samples:
            if each.kind == "unmappable":
                assert each.why, each


@pytest.mark.parametrize(
    "expression",
    [
        "nonsense(",
        "(SELECT 1",
        "nosuch.column",
        "1); DROP TABLE outbox; SELECT (1",
        "NULL)::text); COMMIT; --",
    ],
)
def test_an_sql_expression_of_a_mapping_that_does_not_run_is_an_error(
    load: Load, expression: str
) -> None:
    url = load("jsonb-outbox")
    with psycopg.connect(url) as connection:
        mapping, catalog = mapped(connection, "jsonb-outbox")
        (queue,) = mapping.queues
        broken = Mapping((replace(queue, recipient_sql=expression),))
        with pytest.raises(InvalidMapping, match="cannot read the rows as the mapping says"):
            count(connection, broken, catalog)
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (40,)


def test_an_unreadable_time_in_json_is_listed_and_the_rest_goes_on(load: Load) -> None:
    url = load("jsonb-outbox")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """UPDATE outbox
               SET outboxdata = jsonb_set(outboxdata, '{outbox/next-attempt}', '"soon"')
               WHERE id = 1"""
        )
    plan = planned(url, "jsonb-outbox")
    assert (plan.rows("waiting"), plan.rows("unmappable")) == (16, 6)
    whys = [each.why for each in plan.queues[0].samples if each.kind == "unmappable"]
    assert "a time that cannot be read" in whys
