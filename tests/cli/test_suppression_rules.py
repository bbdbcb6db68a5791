"""`mailgres suppressions rules`, `set-rule` and `reset-rule`, run as a program."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.program import Program
from support.queue import Queue

SOFT = {"kind": "soft", "reason": "mailbox_full"}


def bounce(queue: Queue, tenant: str) -> None:
    """An email that is sent, and bounces softly."""
    queue_id = queue.enqueue(tenant_id=tenant)
    queue.attempt("sent")
    event = "SELECT record_email_event(NULL, 'bounced', p_queue_id => %s, p_detail => %s)"
    queue.run(event, queue_id, Jsonb(SOFT))


def test_the_defaults_of_suppression_rules_are_those_of_a_new_database(queue: Queue) -> None:
    rows = "SELECT * FROM {} ORDER BY name"
    defaults = queue.rows(rows.format("mailgres.default_suppression_rules()"))
    assert defaults == queue.rows(rows.format("mailgres.suppression_rules"))


def test_a_suppression_rule_changed_by_command_takes_effect_and_can_be_reset(
    mailgres: Program, queue: Queue
) -> None:
    before = mailgres.json("suppressions", "rules")
    changed = ("--needed", "2", "--expires", "14d", "--scope", "tenant")
    said = mailgres("suppressions", "set-rule", "soft_bounces", *changed)
    assert said == "soft_bounces: after 2 emails, for the tenant, expires: 14d\n"
    for _ in range(2):
        bounce(queue, "shop")
    made = "SELECT tenant_id, reason, expires_at - created_at AS lasts FROM email_suppressions"
    assert queue.rows(made) == [("shop", "soft_bounced", timedelta(days=14))]
    assert mailgres("suppressions", "set-rule", "complaint", "--off") == "complaint: off\n"
    never = mailgres("suppressions", "set-rule", "soft_bounces", "--expires", "never")
    assert never.endswith("expires: never\n")
    assert mailgres.json("suppressions", "rules") != before
    mailgres("suppressions", "reset-rule", "soft_bounces")
    mailgres("suppressions", "reset-rule", "complaint")
    assert mailgres.json("suppressions", "rules") == before
    assert "soft bounced  5       all tenants" in mailgres("suppressions", "rules")


@pytest.mark.parametrize("command", [("set-rule", "--off"), ("reset-rule",)])
def test_a_dry_run_changes_no_suppression_rule(
    mailgres: Program, queue: Queue, command: list[str]
) -> None:
    queue.run("UPDATE mailgres.suppression_rules SET needed = 7 WHERE name = 'soft_bounces'")
    before = mailgres.json("suppressions", "rules")
    assert mailgres("suppressions", command[0], "soft_bounces", *command[1:], "--dry-run")
    assert mailgres.json("suppressions", "rules") == before


def test_an_unknown_suppression_rule_is_refused_with_the_nearest_name(mailgres: Program) -> None:
    for command in (("set-rule", "soft_bounce", "--off"), ("reset-rule", "soft_bounce")):
        what, hint = mailgres.fails("suppressions", *command)
        assert what == "there is no suppression rule 'soft_bounce'"
        assert hint == "Did you mean soft_bounces? `mailgres suppressions rules` shows all."


@pytest.mark.parametrize(
    "options",
    [(), ("--needed", "0"), ("--expires", "0s"), ("--scope", "me"), ("--expires", "x")],
)
def test_a_bad_value_of_a_suppression_rule_is_refused(
    mailgres: Program, queue: Queue, options: list[str]
) -> None:
    before = queue.rows("SELECT * FROM mailgres.suppression_rules ORDER BY name")
    assert mailgres.run("suppressions", "set-rule", "soft_bounces", *options).returncode == 2
    assert queue.rows("SELECT * FROM mailgres.suppression_rules ORDER BY name") == before


@pytest.mark.parametrize(
    "settings",
    [
        *(
            {"needed": 0},
            {"needed": 101},
            {"needed": "x"},
            {"needed": None},
            {"enabled": "perhaps"},
        ),
        *({"expires_after": "-1 day"}, {"expires_after": "1001 years"}, {"expires_after": "soon"}),
        *({"event": "sent"}, {"except_reasons": []}, {"for_all": None}, [], None),
    ],
)
def test_the_database_refuses_bad_values_of_a_suppression_rule(queue: Queue, settings: Any) -> None:
    with pytest.raises(psycopg.Error) as caught:
        queue.run("SELECT mailgres.set_suppression_rule('soft_bounces', %s)", Jsonb(settings))
    assert caught.value.sqlstate == "MG093"
    assert caught.value.diag.message_hint


def test_a_suppression_rule_that_a_person_inserted_has_no_default(queue: Queue) -> None:
    queue.run(
        """
        INSERT INTO mailgres.suppression_rules (name, event, reason, for_all)
        VALUES ('mine', 'failed', 'bounced', false)
        """
    )
    with pytest.raises(psycopg.Error) as caught:
        queue.run("SELECT mailgres.reset_suppression_rule('mine')")
    assert caught.value.sqlstate == "MG093"
