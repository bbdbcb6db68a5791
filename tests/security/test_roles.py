"""What each role can really do: not what the catalog says, but what happens."""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest
from psycopg.types.json import Jsonb

from security.conftest import acting_as, forbidden
from support.grants import (
    ANALYST,
    ANON,
    AUTHENTICATED,
    EXECUTE,
    INTERNAL,
    OPEN,
    OPERATOR,
    PERSONAL,
    PRODUCER,
    SERVICE,
    TABLES,
    VIEWS,
    WORKER,
)
from support.queue import Queue, report

ENQUEUE = "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com', '{}')"
ENQUEUE_MANY = (
    "SELECT enqueue_emails("
    '\'[{"template_type": "welcome_user", "recipient_email": "ana@example.com"}]\')'
)
PLAIN_INSERT = (
    "INSERT INTO email_queue (user_id, template_type, recipient_email, payload)"
    " VALUES (gen_random_uuid(), 'welcome_user', 'ana@example.com', '{}')"
)
BY_HAND = [
    "UPDATE email_queue SET next_retry_at = now() + interval '1 hour'",
    "UPDATE email_queue SET next_retry_at = NULL",
    "UPDATE email_queue SET status = 'failed'",
    "UPDATE email_queue SET status = 'pending'",
    "UPDATE email_queue SET status = 'sent'",
]
MONITORING = [
    """SELECT template_type, COUNT(*) AS pending_count, AVG(retries) AS avg_retries
       FROM email_queue WHERE status = 'pending' GROUP BY template_type""",
    """SELECT retries, COUNT(*) AS count,
              COUNT(CASE WHEN status = 'sent' THEN 1 END) AS eventually_sent
       FROM email_queue WHERE retries > 0 GROUP BY retries ORDER BY retries""",
    "SELECT event, error_code, count(*) FROM email_logs GROUP BY 1, 2",
    "SELECT template_type, active_version FROM email_templates",
]


def statements() -> dict[str, str]:
    """One for every function and for every privilege on every table; nobody writes to a view."""
    tables = TABLES.keys() - VIEWS
    return {
        **{f"call {name}": f"SELECT {name}()" for name in EXECUTE.keys() | INTERNAL},
        **{f"read {name}": f"SELECT count(*) FROM {name}" for name in TABLES},
        **{f"add to {name}": f"INSERT INTO {name} DEFAULT VALUES" for name in tables},
        **{f"empty {name}": f"DELETE FROM {name}" for name in tables},
        **{f"truncate {name}": f"TRUNCATE {name}" for name in tables},
    }


def possible(queue: Queue, role: str) -> set[str]:
    """Return what a role is not refused for want of a privilege, whatever else is wrong with it."""
    found = set()
    for name, statement in statements().items():
        refused = True
        with suppress(psycopg.errors.UndefinedFunction, psycopg.errors.NotNullViolation):
            refused = forbidden(queue, role, statement)
        if not refused:
            found.add(name)
    return found


@pytest.mark.parametrize("role", [ANON, AUTHENTICATED])
def test_the_api_of_supabase_can_do_nothing(supabase: Queue, role: str) -> None:
    assert possible(supabase, role) == set()
    assert forbidden(supabase, role, ENQUEUE)
    assert forbidden(supabase, role, PLAIN_INSERT)
    assert forbidden(supabase, role, "SELECT nextval('email_logs_id_seq')")


def shows_nothing(queue: Queue, role: str, view: str) -> bool:
    """Return whether it is refused, or empty."""
    query = f"SELECT * FROM {view}"
    if forbidden(queue, role, query):
        return True
    with acting_as(queue, role):
        return not queue.rows(query)


@pytest.mark.parametrize("role", [ANON, AUTHENTICATED])
def test_a_grant_by_accident_shows_no_row(supabase: Queue, role: str) -> None:
    """Row security: with every right granted, still no row is seen."""
    supabase.enqueue()
    supabase.attempt("transient")
    supabase.suppress()
    supabase.run(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    with acting_as(supabase, role):
        for table in (name for name in TABLES.keys() - VIEWS if name.startswith("public.")):
            assert supabase.value(f"SELECT count(*) FROM {table}") == 0
    for view in VIEWS - {"public.email_monitoring"}:  # that one lists views, and no rows
        assert shows_nothing(supabase, role, view), view
    assert forbidden(supabase, role, PLAIN_INSERT)


def test_a_producer_may_only_enqueue(installation: Queue) -> None:
    """It can enqueue, and nothing else."""
    with acting_as(installation, PRODUCER):
        assert installation.value(ENQUEUE)
        assert installation.value(ENQUEUE_MANY)
    assert installation.value("SELECT count(*) FROM email_queue") == 2
    assert possible(installation, PRODUCER) == set()
    assert forbidden(installation, PRODUCER, PLAIN_INSERT)
    assert forbidden(installation, PRODUCER, "SELECT * FROM process_pending_emails_for_retry(10)")
    assert forbidden(installation, PRODUCER, "SELECT * FROM mailgres.claim('me')")


def test_a_worker_may_process_but_neither_read_nor_enqueue(installation: Queue) -> None:
    """It claims, reports and keeps house; it reads no queue and enqueues nothing."""
    installation.enqueue()
    with acting_as(installation, WORKER):
        claimed = installation.claim_one()
        assert installation.start_attempts([claimed]) == {claimed.id}
        token, ids = claimed.lease_token, [claimed.id]
        assert installation.value("SELECT mailgres.extend(%s, %s)", token, ids) == claimed.id
        assert installation.value("SELECT mailgres.give_back(%s, %s)", token, ids) == claimed.id
        (done,) = installation.finish(report(installation.claim_one(), "sent"))
        assert done.status == "sent"
        for janitor in ("reap", "promote", "expire", "fold_rollups"):
            installation.run(f"SELECT mailgres.{janitor}()")
        assert installation.value("SELECT count(*) FROM email_templates") > 0
        assert installation.value("SELECT count(*) FROM mailgres.template_versions") > 0
        installation.run("INSERT INTO mailgres.workers (worker) VALUES ('w')")
        installation.run("INSERT INTO mailgres.sleepers VALUES ('w', now())")
        installation.run("DELETE FROM mailgres.sleepers")
    assert forbidden(installation, WORKER, "SELECT id FROM email_queue")
    assert forbidden(installation, WORKER, "UPDATE email_queue SET status = 'sent'")
    assert forbidden(installation, WORKER, ENQUEUE)
    assert forbidden(installation, WORKER, "SELECT mark_email_sent(gen_random_uuid(), 'x')")
    assert forbidden(installation, WORKER, "UPDATE mailgres.providers SET circuit = 'open'")


def test_an_operator_may_call_every_function_of_the_contract(installation: Queue) -> None:
    with acting_as(installation, OPERATOR):
        queue_id = installation.value(ENQUEUE)
        assert installation.email(queue_id).recipient_email == "ana@example.com"
        assert installation.value("SELECT reschedule_email(%s, now())", queue_id)
        assert installation.value("SELECT cancel_email(%s)", queue_id)
        assert installation.value("SELECT retry_email(%s)", queue_id)
        assert installation.value("SELECT mark_email_failed(%s, 'no')", queue_id)
        assert installation.value("SELECT mark_email_sent(%s, 're_1')", queue_id)
        assert installation.value(
            "SELECT record_email_event(NULL, 'complained', p_queue_id => %s)", queue_id
        )
        assert installation.value("SELECT count(*) FROM email_suppressions") == 1
        assert installation.value("SELECT count(*) FROM email_logs") > 3
    assert forbidden(installation, OPERATOR, "UPDATE email_logs SET event = 'x'")
    assert forbidden(installation, OPERATOR, "DELETE FROM email_logs")
    assert forbidden(installation, OPERATOR, "UPDATE mailgres.template_versions SET subject = 'x'")
    assert forbidden(installation, OPERATOR, "SELECT * FROM mailgres.claim('me')")


def test_an_operator_may_change_the_configuration(installation: Queue) -> None:
    with acting_as(installation, OPERATOR):
        installation.run("INSERT INTO mailgres.providers (name, kind) VALUES ('ses', 'ses')")
        installation.run("INSERT INTO mailgres.tenants (tenant_id, weight) VALUES ('shop', 2)")
        installation.run("UPDATE mailgres.settings SET retry_policy = 'patient'")
        installation.run("INSERT INTO email_templates (template_type) VALUES ('news')")
        installation.run(
            "INSERT INTO mailgres.template_versions (template_type, version, subject, text)"
            " VALUES ('news', 1, 'News', 'News')"
        )
        assert installation.value("SELECT enqueue_email(NULL, 'news', 'ana@example.com')")


@pytest.mark.parametrize("role", [OPERATOR, SERVICE])
def test_operators_and_the_service_role_may_change_rows_by_hand(supabase: Queue, role: str) -> None:
    """As people do it in the SQL editor, or code with the service key."""
    supabase.enqueue()
    for statement in BY_HAND:
        with acting_as(supabase, role):
            supabase.run(statement)


@pytest.mark.parametrize("role", [OPERATOR, SERVICE])
def test_a_plain_insert_is_claimed(supabase: Queue, role: str) -> None:
    with acting_as(supabase, role):
        supabase.run(PLAIN_INSERT)
    assert len(supabase.claim()) == 1


def test_the_service_role_may_enqueue_and_process(supabase: Queue) -> None:
    """What PostgREST calls for a backend with the service key."""
    with acting_as(supabase, SERVICE):
        queue_id = supabase.value(ENQUEUE)
        supabase.value(ENQUEUE_MANY)
        assert len(supabase.claim_rpc()) == 2
        assert supabase.value("SELECT mark_email_failed(%s, 'no')", queue_id) is True
        assert supabase.value("SELECT mark_email_sent(%s, 're_1')", queue_id) is True
        assert supabase.email(queue_id).status == "sent"
        assert supabase.value("SELECT calculate_next_retry_time(0)")
    assert forbidden(supabase, SERVICE, "SELECT * FROM mailgres.claim('me')")
    assert forbidden(supabase, SERVICE, "DELETE FROM email_logs")
    assert forbidden(supabase, SERVICE, "TRUNCATE email_queue CASCADE")


@pytest.mark.parametrize("statement", MONITORING)
def test_an_analyst_may_run_the_documented_queries(installation: Queue, statement: str) -> None:
    installation.enqueue()
    installation.attempt("transient", code="E1")
    with acting_as(installation, ANALYST):
        assert installation.rows(statement)


@pytest.mark.parametrize("table", OPEN)
def test_an_analyst_sees_no_personal_column(installation: Queue, table: str) -> None:
    with acting_as(installation, ANALYST):
        for column in OPEN[table]:
            installation.run(f"SELECT {column} FROM {table}")
    for column in PERSONAL[table]:
        assert forbidden(installation, ANALYST, f"SELECT {column} FROM {table}"), column
        assert forbidden(installation, ANALYST, f"SELECT id FROM {table} WHERE {column} IS NULL"), (
            column
        )
    assert forbidden(installation, ANALYST, f"SELECT * FROM {table}")
    assert forbidden(installation, ANALYST, f"SELECT x FROM {table} x")
    assert forbidden(installation, ANALYST, f"COPY {table} TO STDOUT")


@pytest.mark.parametrize(
    "statement",
    [
        ENQUEUE,
        PLAIN_INSERT,
        "UPDATE email_queue SET retries = 0",
        "DELETE FROM email_queue",
        "SELECT * FROM process_pending_emails_for_retry(10)",
        "SELECT * FROM email_suppressions",
        "SELECT * FROM mailgres.dead_letters",
        "SELECT * FROM mailgres.attachments",
        "UPDATE email_templates SET description = ''",
    ],
)
def test_an_analyst_may_change_nothing(installation: Queue, statement: str) -> None:
    assert forbidden(installation, ANALYST, statement)


def test_a_producer_gets_the_error_about_its_input(installation: Queue) -> None:
    """The refusal of bad input, not of a privilege that the check itself would need."""
    with pytest.raises(psycopg.Error) as error, acting_as(installation, PRODUCER):
        installation.run("SELECT enqueue_email(NULL, 'none such', 'ana@example.com')")
    assert error.value.sqlstate == "MG001"


def test_a_producer_may_enqueue_attachments(installation: Queue) -> None:
    with acting_as(installation, PRODUCER):
        installation.run(
            "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com', p_attachments => %s)",
            Jsonb([{"filename": "a.txt", "content": "YQ=="}]),
        )
    assert installation.value("SELECT content FROM mailgres.attachments") == b"a"


@pytest.mark.parametrize("role", [OPERATOR, SERVICE])
def test_roles_that_may_insert_may_call_every_check_of_the_columns(
    supabase: Queue, role: str
) -> None:
    """The checks of the columns run as the role that writes, and it may call all of them."""
    with acting_as(supabase, role):
        supabase.run(
            "INSERT INTO email_queue (template_type, recipient_email, payload, from_email,"
            " reply_to, subject, text, headers, tags, cc, bcc) VALUES ('letter', 'a@b.cc', '{}',"
            " 'A <a@b.cc>', 'a@b.cc', 'Hello', 'Hello', '{\"X-A\": \"b\"}', '{\"a\": \"b\"}',"
            " '{a@b.cc}', '{}')"
        )
        with pytest.raises(psycopg.errors.CheckViolation), supabase.conn.transaction():
            supabase.run("UPDATE email_queue SET cc = '{{a@b.cc}}'")
