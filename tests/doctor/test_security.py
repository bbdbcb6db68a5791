"""The doctor sees what is open that must not be, and secrets in jobs of pg_cron."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from doctor.harness import DoctorHarness, login
from mailgres.doctor.jobs import secret_in
from support.cluster import Cluster, supabase_project
from support.postgres import Server

STAND_IN = Path(__file__).parents[1] / "deploy" / "supabase_stand_in.sql"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJyb2xlIjoic2VydmljZSJ9.c2ln"


@pytest.fixture
def project(cluster: Cluster, supabase_roles: None, migrations: Path) -> Iterator[DoctorHarness]:  # noqa: ARG001
    """A project on Supabase, as its owner sees it."""
    with (
        supabase_project(cluster, migrations) as url,
        psycopg.connect(url, autocommit=True) as conn,
    ):
        yield DoctorHarness(url, conn)


def test_doctor_finds_nothing_wrong_on_supabase(project: DoctorHarness) -> None:
    """The owner is no superuser, and everything can be checked."""
    for check in ("grants", "row-security", "privileges", "schema-drift", "cron-secrets"):
        assert project.findings(check) == []


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (
            "GRANT EXECUTE ON FUNCTION enqueue_email TO anon",
            "anon may call public.enqueue_email",
        ),
        (
            "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA mailgres TO authenticated",
            "authenticated may call mailgres.",
        ),
        ("GRANT SELECT ON email_queue TO anon", "anon may use public.email_queue"),
        (
            "GRANT SELECT (payload) ON email_queue TO anon",
            "anon may use columns of public.email_queue",
        ),
        ("GRANT USAGE ON SCHEMA mailgres TO anon", "anon may look into mailgres"),
        (
            "GRANT EXECUTE ON FUNCTION retry_email TO PUBLIC",
            "everybody (PUBLIC) may call public.retry_email",
        ),
    ],
)
def test_doctor_reports_and_fixes_unintended_grants(
    project: DoctorHarness, fault: str, named: str
) -> None:
    project.run(fault)
    found = project.fixed("grants")
    assert found.severity == "error"
    assert found.message.startswith(named)


@pytest.mark.parametrize("role", ["mailgres_producer", "mailgres_operator", "service_role"])
def test_nobody_on_the_internet_is_a_member_of_a_role_of_ours(
    project: DoctorHarness, cluster: Cluster, role: str
) -> None:
    cluster.admin.execute(f"GRANT {role} TO anon")
    try:
        found = project.finding("grants")
        assert (found.severity, found.message) == ("error", f"anon is a member of {role}")
        assert found.fix is not None
        assert f"REVOKE {role} FROM anon" in found.fix
    finally:
        cluster.admin.execute(f"REVOKE {role} FROM anon")
    assert project.findings("grants") == []


def test_doctor_reports_a_recreated_function_that_everybody_may_call(
    harness: DoctorHarness,
) -> None:
    """As if it was dropped and created by hand."""
    harness.run("DROP FUNCTION public.calculate_next_retry_time")
    harness.run(
        "CREATE FUNCTION public.calculate_next_retry_time(retry_count int) RETURNS timestamptz"
        " LANGUAGE sql AS 'SELECT now()'"
    )
    found = harness.fixed("grants")
    assert found.message == "everybody (PUBLIC) may call public.calculate_next_retry_time"


def test_doctor_reports_that_postgrest_exposes_the_schema_mailgres(harness: DoctorHarness) -> None:
    harness.run("CREATE ROLE mailgres_test_authenticator")
    try:
        harness.run(
            "ALTER ROLE mailgres_test_authenticator SET pgrst.db_schemas = 'public, mailgres, api'"
        )
        found = harness.fixed("grants")
        assert found.message.startswith("PostgREST exposes the schema mailgres")
        assert harness.conn.execute(
            "SELECT rolconfig FROM pg_roles WHERE rolname = 'mailgres_test_authenticator'"
        ).fetchone() == (["pgrst.db_schemas=public, api"],)
    finally:
        harness.run("DROP ROLE mailgres_test_authenticator")


def test_doctor_reports_a_table_without_row_security(harness: DoctorHarness) -> None:
    harness.run("ALTER TABLE email_logs DISABLE ROW LEVEL SECURITY")
    found = harness.fixed("row-security")
    assert (found.severity, found.message) == ("error", "public.email_logs has no row security")


def test_doctor_reports_a_policy_that_is_open_to_everyone(harness: DoctorHarness) -> None:
    harness.run('CREATE POLICY "Enable read for all" ON email_queue FOR SELECT USING (true)')
    found = harness.fixed("row-security")
    assert found.severity == "error"
    assert found.message.endswith("on public.email_queue admits public")


def test_doctor_accepts_restrictive_policies(harness: DoctorHarness) -> None:
    harness.run(
        "CREATE POLICY office_hours ON email_queue AS RESTRICTIVE TO public USING (priority > 0)"
    )
    assert harness.findings("row-security") == []


# --- pg_cron


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (f"SELECT net.http_post('x', headers := '{{\"apikey\": \"{JWT}\"}}')", "a JWT"),
        ("SELECT f('Authorization', 'Bearer 0123456789abcdef')", "a bearer token"),
        ("SELECT f('re_AbCdEf12_34567890')", "a Resend key"),
        ("SELECT f('sb_secret_abcdefgh12')", "a Supabase key"),
        ("SELECT f('AKIAIOSFODNN7EXAMPLE')", "an AWS key"),
        ("SELECT dblink('postgresql://app:hunter2@db/app', 'x')", "a password"),
        ("""SELECT f('{"x-api-key": "0123456789abcdef0123"}')""", "an API key"),
        ("SELECT mailgres.reap(500)", None),
        ("SELECT 'Bearer ' || decrypted_secret FROM vault.decrypted_secrets", None),
        ("SELECT vault.read('mailgres_serve_secret')", None),
    ],
)
def test_doctor_distinguishes_secrets_from_their_names(command: str, kind: str | None) -> None:
    assert secret_in(command) == kind


@pytest.mark.parametrize("file", ["supabase/process.sql", "pg_cron/janitors.sql"])
def test_the_scheduled_commands_of_the_guides_hold_no_secret(file: str) -> None:
    text = (Path(__file__).parents[2] / "deploy" / file).read_text(encoding="utf-8")
    assert secret_in(text) is None


@pytest.fixture
def scheduled(harness: DoctorHarness) -> DoctorHarness:
    """With pg_cron, stood in for."""
    harness.conn.execute(STAND_IN.read_bytes())
    return harness


def test_doctor_reports_a_secret_in_a_pg_cron_job(scheduled: DoctorHarness) -> None:
    scheduled.run("SELECT cron.schedule('send-mail', '* * * * *', %s)", f"SELECT f('{JWT}')")
    scheduled.run("SELECT cron.schedule('harmless', '* * * * *', 'SELECT 1')")
    found = scheduled.fixed("cron-secrets")
    assert found.severity == "error"
    assert "the pg_cron job send-mail contains a JWT" in found.message
    assert JWT not in found.message + (found.fix or "")


def test_jobs_of_others_are_named_as_unseen(scheduled: DoctorHarness, server: Server) -> None:
    """pg_cron has this policy: a role that it applies to cannot check the jobs of others."""
    scheduled.run("ALTER TABLE cron.job ENABLE ROW LEVEL SECURITY")
    scheduled.run("CREATE POLICY cron_job_policy ON cron.job USING (username = CURRENT_USER)")
    scheduled.run("GRANT USAGE ON SCHEMA cron TO PUBLIC")
    scheduled.run("GRANT SELECT ON ALL TABLES IN SCHEMA cron TO PUBLIC")
    scheduled.run("SELECT cron.schedule('send-mail', '* * * * *', %s)", f"SELECT f('{JWT}')")
    with login(scheduled, server) as other:
        for check in ("cron-secrets", "cron-jobs"):
            found = other.finding(check)
            assert found.severity == "info"
            assert found.message.startswith("not checked: jobs of other users")
        scheduled.run(f"ALTER ROLE {other.conn.info.user} BYPASSRLS")
        assert other.finding("cron-secrets").severity == "error"
    assert scheduled.finding("cron-secrets").severity == "error", "a superuser sees all"


def test_doctor_says_that_a_role_may_not_read_the_cron_jobs(
    scheduled: DoctorHarness, server: Server
) -> None:
    with login(scheduled, server) as other:
        for check in ("cron-secrets", "cron-jobs"):
            found = other.finding(check)
            assert found.message == "not checked: permission denied for schema cron"
            scheduled.fix(found)  # as an administrator
            assert other.findings(check) == []
            scheduled.run(f"REVOKE ALL ON SCHEMA cron FROM {other.conn.info.user}")


def test_doctor_reports_a_failing_pg_cron_job(scheduled: DoctorHarness) -> None:
    scheduled.run("SELECT cron.schedule('mailgres-process', '* * * * *', 'SELECT 1')")
    ran = """INSERT INTO cron.job_run_details (jobid, status, return_message, start_time)
             SELECT jobid, %s, %s, now() - %s::interval FROM cron.job"""
    scheduled.run(ran, "succeeded", "", "4 minutes")
    assert scheduled.findings("cron-jobs") == []
    scheduled.run(ran, "failed", "ERROR:  Vault has no secret\nCONTEXT: …", "2 minutes")
    found = scheduled.finding("cron-jobs")
    assert found.severity == "error"
    assert found.message.endswith("mailgres-process failed: ERROR:  Vault has no secret")
    scheduled.fix(found)  # shows the last runs
    scheduled.run(ran, "succeeded", "", "1 minute")
    assert scheduled.findings("cron-jobs") == []


# --- rights beyond the intended ones


@pytest.mark.parametrize(
    ("grant", "severity", "words"),
    [
        ("EXECUTE ON FUNCTION public.enqueue_emails", "info", "may call public.enqueue_emails"),
        ("SELECT ON public.email_kpis, public.email_eta", "info", "may use public.email_eta and 1"),
        ("SELECT ON public.email_queue", "warning", "may use public.email_queue (SELECT)"),
        ("SELECT (payload) ON public.email_queue", "warning", "may use columns of public.email_q"),
        ("SELECT ON public.email_dead_letters", "warning", "may use public.email_dead_letters"),
        ("TRUNCATE ON public.email_suppressions", "warning", "(TRUNCATE)"),
        ("EXECUTE ON FUNCTION mailgres.claim", "warning", "may call mailgres.claim"),
        ("CREATE ON SCHEMA mailgres", "warning", "may look into mailgres (CREATE)"),
        ("USAGE ON TYPE mailgres.status", "warning", "may use the type mailgres.status (USAGE)"),
        ("USAGE ON SEQUENCE public.email_logs_id_seq", "warning", "may use the sequence public.em"),
    ],
)
@pytest.mark.parametrize("option", ["", " WITH GRANT OPTION"])
def test_doctor_names_the_grantee_of_an_unintended_right(  # noqa: PLR0917
    harness: DoctorHarness, server: Server, grant: str, severity: str, words: str, option: str
) -> None:
    with server.role() as role:
        harness.run(f"GRANT {grant} TO {role}{option}")
        found = harness.fixed("grants")
        assert found.severity == ("warning" if option else severity)
        assert found.message.startswith(f"{role} ")
        assert words in found.message
        assert found.message.endswith(", and grant it to others") is bool(option)


def test_a_role_of_ours_that_may_pass_on_what_it_has_is_listed(harness: DoctorHarness) -> None:
    harness.run("GRANT SELECT ON public.email_logs TO mailgres_operator WITH GRANT OPTION")
    found = harness.fixed("grants")
    assert found.severity == "warning"
    may = harness.conn.execute(
        "SELECT has_table_privilege('mailgres_operator', 'public.email_logs', 'SELECT')"
    ).fetchone()
    assert may == (True,), "only the option was too much"


def test_a_schema_in_which_everybody_may_create_is_named(harness: DoctorHarness) -> None:
    harness.run("GRANT CREATE ON SCHEMA public TO PUBLIC")
    assert harness.fixed("grants").severity == "info"
