"""What functions do does not depend on the search_path of the caller."""

from __future__ import annotations

import pytest

from security.conftest import acting_as
from support.grants import PRODUCER
from support.queue import Queue

# Everything a careless function would find here first. What is called or read is noted.
HOSTILE = """
    CREATE SCHEMA hostile;
    GRANT USAGE, CREATE ON SCHEMA hostile TO PUBLIC;
    CREATE TABLE hostile.traces (what text);
    GRANT INSERT ON hostile.traces TO PUBLIC;
    CREATE FUNCTION hostile.note(text) RETURNS void LANGUAGE sql
        AS $$ INSERT INTO hostile.traces VALUES ($1) $$;
    CREATE TABLE hostile.email_queue (LIKE public.email_queue);
    CREATE TABLE hostile.email_templates (LIKE public.email_templates);
    CREATE TABLE hostile.email_logs (LIKE public.email_logs);
    CREATE TABLE hostile.email_suppressions (LIKE public.email_suppressions);
    CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql
        AS $$ SELECT hostile.note('now'); SELECT '1999-12-31'::timestamptz $$;
    CREATE FUNCTION hostile.lower(text) RETURNS text LANGUAGE sql
        AS $$ SELECT hostile.note('lower'); SELECT 'evil@example.com' $$;
    CREATE FUNCTION hostile.gen_random_uuid() RETURNS uuid LANGUAGE sql
        AS $$ SELECT hostile.note('uuid'); SELECT '00000000-0000-0000-0000-000000000000'::uuid $$;
    CREATE FUNCTION hostile.jsonb_typeof(jsonb) RETURNS text LANGUAGE sql
        AS $$ SELECT hostile.note('typeof'); SELECT 'object' $$;
    CREATE FUNCTION hostile.octet_length(text) RETURNS int LANGUAGE sql
        AS $$ SELECT hostile.note('length'); SELECT 1 $$;
    CREATE FUNCTION hostile.pg_notify(text, text) RETURNS void LANGUAGE sql
        AS $$ SELECT hostile.note('notify') $$;
    CREATE FUNCTION hostile.same(text, text) RETURNS boolean LANGUAGE sql
        AS $$ SELECT hostile.note('='); SELECT true $$;
    CREATE OPERATOR hostile.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.same);
    CREATE OPERATOR hostile.~ (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.same);
    GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA hostile TO PUBLIC;
"""
# Temporary tables come before any schema, also where the search_path is empty.
TEMPORARY = """
    CREATE TEMP TABLE email_queue (id int);
    CREATE TEMP TABLE new_rows (id int);
    CREATE TEMP TABLE old_rows (id int);
    CREATE TEMP TABLE settings (id int);
"""
PATH = "SET LOCAL search_path = hostile, pg_temp, pg_catalog, public"


@pytest.fixture
def hostile(installation: Queue) -> Queue:
    installation.run(HOSTILE)
    return installation


def assert_untouched(queue: Queue) -> None:
    queue.run("SET search_path = public")
    assert queue.rows("SELECT * FROM hostile.traces") == []
    for table in ("email_queue", "email_templates", "email_logs", "email_suppressions"):
        assert queue.rows(f"SELECT * FROM hostile.{table}") == []


def test_enqueue_ignores_a_hostile_search_path(hostile: Queue) -> None:
    with acting_as(hostile, PRODUCER):
        hostile.run(TEMPORARY)
        hostile.run(PATH)
        queue_id = hostile.value(
            "SELECT public.enqueue_email(NULL, 'welcome_user', 'ana@example.com', '{}')"
        )
        hostile.value(
            'SELECT public.enqueue_emails(\'[{"template_type": "welcome_user",'
            ' "recipient_email": "bob@example.com"}]\')'
        )
        hostile.run("SET CONSTRAINTS ALL IMMEDIATE")
    assert_untouched(hostile)
    email = hostile.row("SELECT * FROM public.email_queue WHERE id = %s", queue_id)
    assert (email.recipient_email, email.status, email.ready) == (
        "ana@example.com",
        "pending",
        True,
    )
    assert email.created_at == hostile.value("SELECT pg_catalog.now()")
    assert queue_id.version == 7


def test_an_email_is_processed_with_a_hostile_search_path(hostile: Queue) -> None:
    """The whole of it under a hostile search_path, triggers included."""
    hostile.run(TEMPORARY)
    hostile.run("INSERT INTO mailgres.sleepers VALUES ('w', pg_catalog.now() + interval '1 hour')")
    hostile.run(PATH)
    first = hostile.value("SELECT public.enqueue_email(NULL, 'welcome_user', 'ana@example.com')")
    claimed = hostile.rows("SELECT * FROM public.process_pending_emails_for_retry()")
    assert [email.queue_id for email in claimed] == [first]
    for call in (
        "public.mark_email_failed(%s, 'no bob@example.com')",
        "public.reschedule_email(%s, pg_catalog.now())",
        "public.cancel_email(%s)",
        "public.retry_email(%s)",
        "public.mark_email_sent(%s, 're_1')",
    ):
        assert hostile.value(f"SELECT {call}", first) is True
    event = "public.record_email_event(NULL, 'complained', p_queue_id => %s)"
    assert hostile.value(f"SELECT {event}", first) == "recorded"
    unknown = 'SELECT public.record_email_events(\'[{"event": "sent", "provider": "x"}]\')'
    assert hostile.value(unknown) == "unmatched"
    assert hostile.value("SELECT mailgres.match_email_events()") == 1
    hostile.run("UPDATE public.email_queue SET status = 'failed'")
    hostile.run("SET CONSTRAINTS ALL IMMEDIATE")
    assert_untouched(hostile)
    log = hostile.rows("SELECT event FROM public.email_logs WHERE queue_id = %s ORDER BY id", first)
    assert [entry.event for entry in log] == [
        *("retry", "rescheduled", "cancelled", "reopened", "sent", "dead")
    ]
    address = hostile.value("SELECT recipient_email FROM public.email_suppressions")
    assert address == "ana@example.com"
