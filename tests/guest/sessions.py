"""Settings that a session, a role or a database may have, and a story told under each of them.

The data of `test_settings.py`: whatever the setting, every call does the same.
"""

from __future__ import annotations

from dataclasses import dataclass

SENT_STATE = "'sent', false, NULL, NULL, NULL, '2026-01-01', NULL, NULL, NULL, NULL, NULL, NULL"
"""The columns that `is_state` reads, of a sent email."""

SETTINGS: dict[str, dict[str, str]] = {
    "DateStyle SQL DMY in Jakarta": {
        "DateStyle": "SQL, DMY",
        "TimeZone": "Asia/Jakarta",
        "IntervalStyle": "postgres_verbose",
    },
    "DateStyle German in Sao Paulo": {
        "DateStyle": "German",
        "TimeZone": "America/Sao_Paulo",
        "IntervalStyle": "iso_8601",
    },
    "DateStyle Postgres in Chicago": {
        "DateStyle": "Postgres, MDY",
        "TimeZone": "America/Chicago",
        "IntervalStyle": "sql_standard",
    },
    "a time zone in POSIX form": {"TimeZone": "FOO+4:30"},
    "strings with backslashes": {
        "standard_conforming_strings": "off",
        "escape_string_warning": "off",
        "backslash_quote": "on",
    },
    "no backslash before a quote": {
        "standard_conforming_strings": "off",
        "escape_string_warning": "off",
        "backslash_quote": "off",
    },
    "values written otherwise": {
        "bytea_output": "escape",
        "extra_float_digits": "-15",
        "quote_all_identifiers": "on",
        "xmlbinary": "hex",
        "xmloption": "document",
        "lc_messages": "C",
        "lc_time": "C",
        "lc_numeric": "C",
        "lc_monetary": "C",
    },
    "values read otherwise": {"transform_null_equals": "on", "array_nulls": "off"},
    "LATIN1": {"client_encoding": "LATIN1"},
    "repeatable read": {"default_transaction_isolation": "repeatable read"},
    "serializable": {
        "default_transaction_isolation": "serializable",
        "default_transaction_deferrable": "on",
    },
    "function bodies unchecked": {"check_function_bodies": "off"},
    "row_security off": {"row_security": "off"},
    "custom plans": {"plan_cache_mode": "force_custom_plan"},
    "generic plans without indexes": {
        "jit": "off",  # which the costs of what is off would call for, for seconds
        "plan_cache_mode": "force_generic_plan",
        "enable_indexscan": "off",
        "enable_indexonlyscan": "off",
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_hashagg": "off",
        "enable_material": "off",
        "enable_memoize": "off",
        "enable_sort": "off",
    },
    "a planner tied down": {
        "jit": "off",
        "enable_nestloop": "off",
        "enable_mergejoin": "off",
        "from_collapse_limit": "1",
        "join_collapse_limit": "1",
        "constraint_exclusion": "on",
        "cursor_tuple_fraction": "0",
        "geqo_threshold": "2",
        "work_mem": "64kB",
    },
    "parallel for everything": {
        "min_parallel_table_scan_size": "0",
        "min_parallel_index_scan_size": "0",
        "parallel_setup_cost": "0",
        "parallel_tuple_cost": "0",
    },
    "PL/pgSQL that prefers variables": {
        "plpgsql.variable_conflict": "use_variable",
        "plpgsql.extra_errors": "all",
    },
    "PL/pgSQL that prefers columns": {
        "plpgsql.variable_conflict": "use_column",
        "plpgsql.check_asserts": "off",
    },
    "messages of errors only": {"client_min_messages": "error", "track_activities": "off"},
    "a search_path of others": {"search_path": "decoy, public, mailgres"},
    "an empty search_path": {"search_path": ""},
}


@dataclass(frozen=True)
class Call:
    """One statement of the story, by a role; `keep` names its first column for later ones."""

    role: str
    sql: str
    keep: str = ""
    forward: str = ""
    """How far the clock goes before."""


def _enqueue(label: str, arguments: str = "", template: str = "signup_confirmation") -> Call:
    return Call(
        "producer",
        f"SELECT public.enqueue_email(NULL, '{template}', '{label}@example.com',"
        f""" '{{"name": "Zoë", "link": "https://x"}}', p_correlation_id => '{label}'{arguments})""",
        keep=label,
    )


def _claim(keep: str, limit: int = 10, forward: str = "") -> Call:
    return Call(
        "worker",
        "SELECT lease_token, id, correlation_id, leased_at, lease_until, template_version, provider"
        f" FROM mailgres.claim('w', {limit}, '2 minutes') ORDER BY correlation_id",
        keep=keep,
        forward=forward,
    )


def _finish(of: str, outcome: str, more: str = "") -> Call:
    return Call(
        "worker",
        "SELECT status, retries, next_retry_at, dead_reason, refused FROM mailgres.finish(("
        f" SELECT jsonb_agg(jsonb_build_object('id', u.id, 'token', %({of})s::text,"
        f" 'outcome', '{outcome}', 'provider_message_id', 'm-' || u.id{more}))"
        f" FROM unnest(%({of}_ids)s::uuid[]) u(id))) ORDER BY 1, 2",
    )


def _operator(sql: str, keep: str = "", forward: str = "") -> Call:
    return Call("operator", _select(sql), keep=keep, forward=forward)


def _worker(sql: str) -> Call:
    return Call("worker", _select(sql))


def _select(sql: str) -> str:
    """A call alone is a table, whose columns are read one by one."""
    alone = sql.startswith(("mailgres.", "public.")) and sql.endswith(")") and "), " not in sql
    return f"SELECT * FROM {sql}" if alone else f"SELECT {sql}"


STORY: tuple[Call, ...] = (
    _worker("mailgres.mark_asleep('sleeper', '1 hour') IS NULL"),
    # enqueuing: each of the ways in
    _enqueue("plain"),
    _enqueue(
        "content",
        ", p_subject => 'Grüße', p_html => '<p>Ol\u00e1</p>', p_text => 'Ol\u00e1',"
        """ p_headers => '{"X-A": "b"}', p_tags => '{"a": "b"}', p_cc => '{c@example.com}',"""
        " p_bcc => '{d@example.com}', p_from_email => 'Zo\u00eb <z@example.com>',"
        ' p_reply_to => \'r@example.com\', p_attachments => \'[{"filename": "a.txt",'
        ' "content_type": "text/plain", "content": "YQ=="}]\'',
    ),
    _enqueue("options", ", p_priority => 1, p_max_retries => 2, p_retry_delay => '90 seconds'"),
    _enqueue("keyed", ", p_idempotency_key => 'k'"),
    _enqueue("keyed", ", p_idempotency_key => 'k'"),
    Call(
        "producer",
        "WITH later AS (SELECT n FROM generate_series(2, 1, -1) n)"
        " SELECT public.enqueue_email(NULL, 'welcome_user', 'later' || n || '@example.com',"
        """ '{"name": "a", "product": "b"}', p_correlation_id => 'later' || n,"""
        " p_scheduled_for => %(now)s::timestamptz + n * interval '1 day',"
        " p_expires_at => %(now)s::timestamptz + n * interval '30 days') FROM later",
        keep="later",
    ),
    Call(
        "producer",
        "SELECT public.enqueue_emails(jsonb_build_array("
        " jsonb_build_object('template_type', 'welcome_user',"
        " 'recipient_email', 'many@example.com',"
        " 'payload', jsonb_build_object('name', 'a', 'product', 'b'), 'correlation_id', 'many'),"
        " jsonb_build_object('template_type', 'welcome_user',"
        " 'recipient_email', 'whole@example.com',"
        " 'correlation_id', 'whole', 'subject', 'Hi', 'text', 'Hi', 'priority', 2,"
        " 'scheduled_for', '2027-03-04T05:06:07.123456Z', 'max_retry_delay', 'PT1H',"
        " 'cc', jsonb_build_array('c@example.com'))))",
        keep="many",
    ),
    _operator(
        """mailgres.check_emails('[{"template_type": "nosuch", "recipient_email": "x@example.com"},'
           ' {"template_type": "x", "recipient_email": "x@example.com", "subject": "Hi"}]')"""
    ),
    # the worker's round
    _worker(
        """mailgres.use_providers(jsonb_build_array(jsonb_build_object(
           'name', 'smtp', 'kind', 'smtp', 'idempotent', false, 'batch_size', 1)))"""
    ),
    _worker("mailgres.use_defaults('stepped', '30 days')"),
    _operator(
        """mailgres.set_defaults('{"retry_policy": "stepped", "expires_after": "30 days"}')"""
    ),
    _operator("provider, routes FROM mailgres.missing_providers()"),
    _worker("mailgres.sign_off('sleeper')"),
    _worker("mailgres.learn_limits('capture', 20.5, 1000, 10000, 3)"),
    _claim("first", 3),
    Call("worker", "SELECT mailgres.start_attempts(%(first)s, %(first_ids)s, true, '5 minutes')"),
    Call("worker", "SELECT mailgres.extend(%(first)s, %(first_ids)s, '10 minutes')"),
    _finish("first", "sent", ", 'duration_ms', 12"),
    _claim("second"),
    Call(
        "worker",
        "SELECT * FROM mailgres.give_back(%(second)s, (%(second_ids)s::uuid[])[1:1])",
    ),
    _finish(
        "second",
        "transient",
        ", 'code', '500', 'message', 'for ana@example.com', 'detail', 'x', 'duration_ms', 7",
    ),
    _claim("third", forward="3 minutes"),
    _finish("third", "permanent", ", 'code', '550', 'message', 'no such user', 'suppress', true"),
    _worker("mailgres.capture('[]')"),
    _worker("mailgres.mark_awake('sleeper')"),
    _worker("mailgres.rate_limit_ends_at()"),
    _worker("mailgres.template_contents('welcome_user', 1)"),
    # processors without tokens
    _enqueue("rpc"),
    _enqueue("rpc2"),
    _enqueue("rpc3"),
    Call(
        "operator",
        "SELECT recipient_email FROM public.process_pending_emails_for_retry(2) ORDER BY 1",
    ),
    Call("operator", "SELECT queue_id, recipient_email FROM public.get_pending_emails_for_retry()"),
    _operator("public.mark_email_sent(%(rpc)s, 're_1')"),
    _operator("public.mark_email_failed(%(rpc2)s, 'timed out')"),
    _operator("public.mark_email_failed(%(rpc3)s, 'timed out')"),
    _operator("public.calculate_next_retry_time(2)"),
    _operator("public.record_email_event(NULL, 'bounced', p_queue_id => %(rpc)s)"),
    Call(
        "operator",
        "SELECT public.record_email_events(jsonb_build_array("
        "jsonb_build_object('event', 'delivered', 'queue_id', %(rpc)s::uuid)))",
    ),
    # operators
    _enqueue("one"),
    _enqueue("two"),
    _enqueue("three"),
    _operator("public.cancel_email(%(one)s, 'by mistake')"),
    _operator("public.retry_email(%(one)s)"),
    _operator("public.reschedule_email(%(one)s, %(now)s::timestamptz + interval '2 days')"),
    _operator("mailgres.cancel_emails(ARRAY[%(two)s, %(three)s]::uuid[], 'both')"),
    _operator("mailgres.retry_emails(ARRAY[%(two)s, %(three)s]::uuid[])"),
    _operator(
        "mailgres.reschedule_emails(ARRAY[%(two)s, %(three)s]::uuid[],"
        " %(now)s::timestamptz + interval '3 hours')"
    ),
    _operator(
        "code, emails FROM mailgres.preview_bulk_action('reschedule', '{}',"
        ' \'{"scheduled_for": "2099-01-31T09:00Z"}\')'
    ),
    _operator(
        "mailgres.start_bulk_action('reschedule', '{}',"
        ' \'{"scheduled_for": "2099-01-31T09:00Z"}\')'
    ),
    _operator("mailgres.stop_bulk_action(1), mailgres.resume_bulk_action(1)"),
    _operator("mailgres.run_bulk_actions()"),
    _operator('count(*) FROM mailgres.find_emails(\'{"status": ["pending"]}\')'),
    _operator("mailgres.count_emails('{}')"),
    _operator("id FROM mailgres.find_dead_letters() ORDER BY dead_at"),
    _operator('mailgres.push_template(\'t\', \'{"en": {"subject": "S {{ a }}", "text": "T"}}\')'),
    _operator("mailgres.activate_version('t', 1, '{a}')"),
    _operator("mailgres.retire_template('t')"),
    _operator("mailgres.set_alert_rule('backlog', 0.5, '1 minute', 'critical', true)"),
    _operator("mailgres.limit_provider('smtp', 12.25, 500, NULL)"),
    _operator("mailgres.limit_tenant('acme', 0.125)"),
    _operator("mailgres.pause_provider('smtp', %(now)s::timestamptz + interval '1 hour', 'why')"),
    _operator("mailgres.resume_provider('smtp')"),
    _operator("mailgres.reset_provider('smtp')"),
    _operator("mailgres.set_route('bulk', '{capture}', 'for news')"),
    _operator("mailgres.pause_route('bulk')"),
    _operator("mailgres.resume_route('bulk')"),
    _operator("mailgres.pause_tenant('acme', 'unpaid')"),
    _operator("mailgres.resume_tenant('acme')"),
    _operator("mailgres.set_tenant_weight('acme', 2)"),
    _operator("mailgres.set_tenant('acme', '{\"contact_email\": \"a@example.com\"}')"),
    _operator(
        'mailgres.set_policy(\'mine\', \'{"max_retries": 2, "steps": ["00:01:30", "1 day"]}\')'
    ),
    _operator('mailgres.suppress(\'[{"recipient_email": "s@example.com", "reason": "manual"}]\')'),
    _operator("mailgres.find_suppressions('{}')"),
    _operator("mailgres.explain_address('s@example.com')"),
    _operator("mailgres.unsuppress('{s@example.com}')"),
    _operator('mailgres.release_suppressions(\'{"reason": "manual"}\')'),
    _operator("mailgres.allow_sender('acme', 'example.com')"),
    _operator("mailgres.disallow_sender('acme', 'example.com')"),
    _operator("mailgres.bind_producer('mailgres_producer', 'acme')"),
    _operator("mailgres.unbind_producer('mailgres_producer')"),
    _operator("grantee, kind, privileges FROM mailgres.unintended_grants()"),
    _operator("count(*) FROM mailgres.compare_objects('{}')"),
    _operator("mailgres.is_address('a@example.com'), mailgres.is_sender('A <a@example.com>')"),
    _operator("mailgres.are_addresses('{a@example.com}'), mailgres.are_headers('{}')"),
    _operator("mailgres.are_tags('{}'), mailgres.is_unambiguous('a'), mailgres.is_subject('a')"),
    _operator(f"mailgres.is_state({SENT_STATE})"),
    _operator("mailgres.invisible_characters()"),
    _operator("mailgres.reset_webhook()"),
    _operator("mailgres.set_capture_fault('timeout', 'nobody@example.com') > 0"),
    _operator("status, captured FROM mailgres.inbox('example') ORDER BY 1, 2"),
    _operator("length(mailgres.inbox_state())"),
    _operator("mailgres.inbox_email(%(plain)s) -> 'email' ->> 'status'"),
    _operator("filename FROM mailgres.inbox_file(%(plain)s, 1)"),
    _operator("mailgres.delete_from_inbox(ARRAY[%(one)s]::uuid[])"),
    _operator("mailgres.remove_capture_fault(0)"),
    _operator("mailgres.report_captured()"),
    _operator("mailgres.delete_captured()"),
    _operator(
        "r.needed, extract(epoch FROM r.expires_after)"
        """ FROM mailgres.set_suppression_rule('soft_bounces', '{"expires_after": "40 days"}') r"""
    ),
    _operator("needed, for_all FROM mailgres.reset_suppression_rule('soft_bounces')"),
    _operator("quarantined, because, anywhere, open_emails FROM mailgres.quarantine_state()"),
    _operator("mailgres.recovery_until('2020-01-01T00:00:00Z') IS NOT NULL"),
    _operator("action FROM mailgres.list_recovery('2020-01-01T00:00:00Z')"),
    _operator("result FROM mailgres.recover_known('[]')"),
    _operator("mailgres.recover('2020-01-01T00:00:00Z')"),
    _operator("mailgres.quarantine('staging')"),
    _operator("mailgres.release_quarantine(true)"),
    _operator("mailgres.masked_recipient(%(plain)s)"),
    _operator("mailgres.uuid_v7() IS NOT NULL"),
    # the janitors, when much is due
    _operator("mailgres.promote()", forward="40 days"),
    _operator("mailgres.reap()"),
    _operator("mailgres.expire()"),
    _operator("mailgres.fold_rollups()"),
    _operator("mailgres.measure_depth('0')"),
    _operator("mailgres.heartbeat('w', '1', '{}')"),
    _operator("mailgres.log_dead_letters()"),
    _operator("(mailgres.notify(10, 'ops@example.com', 'hash')).handled"),
    _operator("mailgres.record_webhook_result('hash', true)"),
    _operator("mailgres.record_janitor_run('fold_rollups', 'w', 'no', '5 seconds')"),
    _operator("mailgres.failing_janitors()"),
    _operator("mailgres.archive_dead_letters()"),
    _operator("mailgres.delete_expired_emails()", forward="400 days"),
    _operator("mailgres.delete_expired_rollups()"),
    _operator("mailgres.match_email_events()"),
    _operator("mailgres.delete_expired_suppressions()"),
    Call("operator", "SELECT event, emails FROM mailgres.reported_emails()"),
    _operator("mailgres.purge_archive()"),
    _operator("mailgres.delete_stale_workers()"),
    _operator("mailgres.purge_dead_letters('{}', '{}')"),
    # what is shown
    _operator("mailgres.now() IS NOT NULL"),
    _operator("mailgres.claim_number()"),
    _operator("count(*) FROM mailgres.count_depth()"),
    _operator("rule, subject, figure FROM mailgres.alerts_now() ORDER BY 1, 2"),
    _operator("mailgres.eta()"),
    _operator("mailgres.provider_states()"),
    _operator("mailgres.route_states()"),
    _operator("mailgres.tenant_states()"),
    _operator("mailgres.oldest_dead()"),
    _operator("mailgres.newest_dead()"),
    _operator("mailgres.round_robin_priority(3)"),
)
"""The life of some emails: every function that a role of ours may call, once at least."""
