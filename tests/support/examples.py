"""A call of every function that other roles than the owner may call, and every kind of write.

Words in braces are ids of the emails that `SEED` makes. Values are literals without a type, and
operators have their schema, so that a statement means the same whatever the caller's `search_path`.
"""

from __future__ import annotations

from typing import Final, LiteralString

SEED: LiteralString = """
    SELECT mailgres.use_providers(
        '[{"name": "smtp", "kind": "smtp", "idempotent": false, "batch_size": 1}]');
    INSERT INTO mailgres.tenants (tenant_id) VALUES ('acme');
    INSERT INTO mailgres.routes (route) VALUES ('spare');
    INSERT INTO public.email_templates (template_type) VALUES ('spare');
    INSERT INTO mailgres.retry_policies (name, max_retries, base, cap)
    VALUES ('spare', 1, '1 minute', '1 hour');
    INSERT INTO public.email_suppressions (recipient_email, reason)
    VALUES ('no@example.com', 'manual');
    INSERT INTO mailgres.workers (worker) VALUES ('w');
    INSERT INTO mailgres.sleepers VALUES ('w', pg_catalog.now() + interval '1 hour');
    SELECT public.enqueue_email(NULL, 'welcome_user', n || '@example.com',
                                '{"name": "Ana", "product": "Acme"}', p_idempotency_key => n)
    FROM pg_catalog.unnest('{pending,dead,sent,held}'::text[]) n;
    SELECT public.enqueue_email(NULL, 'welcome_user', 'waiting@example.com',
                                '{"name": "Ana", "product": "Acme"}',
                                p_idempotency_key => 'waiting',
                                p_scheduled_for => pg_catalog.now() + interval '1 day');
    UPDATE public.email_queue SET status = 'failed', error_message = 'no'
    WHERE idempotency_key = 'dead';
    UPDATE public.email_queue SET status = 'sent' WHERE idempotency_key = 'sent';
    UPDATE public.email_queue SET priority = 1 WHERE idempotency_key = 'held';
    SELECT mailgres.claim('w', 1, '1 hour');
    SELECT mailgres.measure_depth();
"""
NAMES: LiteralString = """
    SELECT idempotency_key, id::text FROM public.email_queue
    UNION ALL SELECT 'token', lease_token::text FROM public.email_queue WHERE status = 'sending'
"""

_FINISHED = '[{"id": "{held}", "token": "{token}", "outcome": "sent", "provider_message_id": "m"}]'
_WELCOME = """[{"template_type": "welcome_user", "recipient_email": "zoe@example.com",
                "payload": {"name": "Zoe", "product": "Acme"}}]"""
_STATE = "'sent', false, NULL, NULL, NULL, '2026-01-01', NULL, NULL, NULL, NULL, NULL, NULL"
_DRAFT = '{"en": {"subject": "Hi", "html": "<p>Hi</p>", "text": "Hi"}}'

EXAMPLES: Final[dict[str, str]] = {
    "public.enqueue_email": "NULL, 'welcome_user', 'zoe@example.com',"
    """ '{"name": "Zoe", "product": "Acme"}', p_tenant_id => 'acme', p_idempotency_key => 'new',"""
    " p_from_email => 'Acme <mail@acme.example.com>', p_cc => '{a@example.com}',"
    """ p_headers => '{"X-Order": "1"}', p_max_retries => 2, p_retry_delay => '1 minute'""",
    "public.enqueue_emails": f"'{_WELCOME}'",
    "public.cancel_email": "'{pending}', 'because'",
    "public.retry_email": "'{dead}'",
    "public.reschedule_email": "'{waiting}', '2099-01-01'",
    "public.record_email_event": "NULL, 'bounced', p_queue_id => '{sent}'",
    "public.record_email_events": """'[{"event": "bounced", "queue_id": "{sent}"}]'""",
    "public.process_pending_emails_for_retry": "10",
    "public.get_pending_emails_for_retry": "10",
    "public.mark_email_sent": "'{pending}', 're_1'",
    "public.mark_email_failed": "'{held}', 'no'",
    "public.calculate_next_retry_time": "1",
    "mailgres.now": "",
    "mailgres.uuid_v7": "",
    "mailgres.is_address": "'zoe@example.com'",
    "mailgres.is_sender": "'Zoe <zoe@example.com>'",
    "mailgres.are_addresses": "'{zoe@example.com}'",
    "mailgres.are_headers": """'{"X-Order": "1"}'""",
    "mailgres.are_tags": """'{"a": "b"}'""",
    "mailgres.is_subject": "'Hello'",
    "mailgres.is_state": _STATE,
    "mailgres.is_unambiguous": "'zoe'",
    "mailgres.invisible_characters": "",
    "mailgres.claim": "'w2', 10, '1 minute'",
    "mailgres.start_attempts": "'{token}', '{{held}}'",
    "mailgres.finish": f"'{_FINISHED}'",
    "mailgres.extend": "'{token}', '{{held}}', '1 hour'",
    "mailgres.give_back": "'{token}', '{{held}}'",
    "mailgres.template_contents": "'welcome_user', 1",
    "mailgres.push_template": f"'welcome_user', '{_DRAFT}', p_default_locale => 'en'",
    "mailgres.activate_version": "'welcome_user', 1, NULL",
    "mailgres.retire_template": "'welcome_user'",
    "mailgres.reap": "",
    "mailgres.promote": "",
    "mailgres.expire": "",
    "mailgres.fold_rollups": "",
    "mailgres.measure_depth": "'0'",
    "mailgres.match_email_events": "10",
    "mailgres.delete_expired_rollups": "",
    "mailgres.unintended_grants": "",
    "mailgres.compare_objects": "'{}'",
    "mailgres.archive_dead_letters": "",
    "mailgres.purge_archive": "",
    "mailgres.delete_expired_emails": "",
    "mailgres.heartbeat": "'w2'",
    "mailgres.record_janitor_run": "'janitor.reap', 'w', 'it failed', '1 minute'",
    "mailgres.failing_janitors": "",
    "mailgres.delete_stale_workers": "",
    "mailgres.log_dead_letters": "",
    "mailgres.notify": "1, 'ops@example.com', '0123456789abcdef'",
    "mailgres.alerts_now": "",
    "mailgres.record_webhook_result": "'0123456789abcdef', true",
    "mailgres.set_alert_rule": "'failure_rate', 50",
    "mailgres.reset_webhook": "",
    "mailgres.report_captured": "",
    "mailgres.delete_captured": "",
    "mailgres.delete_expired_suppressions": "",
    "mailgres.run_bulk_actions": "",
    "mailgres.set_suppression_rule": """'soft_bounces', '{"needed": 3, "expires_after": null}'""",
    "mailgres.reset_suppression_rule": "'soft_bounces'",
    "mailgres.inbox": "'ana'",
    "mailgres.inbox_state": "'{held}'",
    "mailgres.inbox_email": "'{held}'",
    "mailgres.inbox_file": "'{held}', 1",
    "mailgres.delete_from_inbox": "",
    "mailgres.set_capture_fault": "'bounce', 'ana@example.com', 'welcome_user'",
    "mailgres.remove_capture_fault": "1",
    "mailgres.quarantine": "",
    "mailgres.recovery_until": "now()",
    "mailgres.list_recovery": "'2026-01-01 12:00+00'",
    "mailgres.recover": "'2026-01-01 12:00+00'",
    "mailgres.recover_known": """'[{"id": "{held}", "provider_message_id": null}]'""",
    "mailgres.release_quarantine": "",
    "mailgres.quarantine_state": "",
    "mailgres.mark_asleep": "'w2', '1 minute'",
    "mailgres.mark_awake": "'w'",
    "mailgres.capture": """'[{"key": "k", "queue_id": "{held}", "message": {}}]'""",
    "mailgres.use_providers": """'[{"name": "capture", "kind": "capture", "idempotent": true,
                                    "batch_size": 1}]'""",
    "mailgres.set_defaults": """'{"retry_policy": "stepped"}'""",
    "mailgres.use_defaults": "'stepped', NULL",
    "mailgres.reported_emails": "",
    "mailgres.missing_providers": "",
    "mailgres.sign_off": "'w'",
    "mailgres.learn_limits": "'smtp', 10, 100, 1000, 5",
    "mailgres.rate_limit_ends_at": "",
    "mailgres.limit_provider": "'smtp', 10, 100, 1000",
    "mailgres.limit_tenant": "'acme', 10",
    "mailgres.pause_provider": "'smtp'",
    "mailgres.resume_provider": "'smtp'",
    "mailgres.reset_provider": "'smtp'",
    "mailgres.set_route": "'spare', '{smtp}'",
    "mailgres.pause_route": "'default'",
    "mailgres.resume_route": "'default'",
    "mailgres.set_tenant": """'acme', '{"contact_email": "ops@example.com"}'""",
    "mailgres.find_emails": """'{"status": ["pending"]}'""",
    "mailgres.count_emails": "",
    "mailgres.check_emails": f"'{_WELCOME}'",
    "mailgres.eta": "",
    "mailgres.provider_states": "",
    "mailgres.count_depth": "",
    "mailgres.claim_number": "",
    "mailgres.oldest_dead": "",
    "mailgres.newest_dead": "",
    "mailgres.round_robin_priority": "3",
    "mailgres.masked_recipient": "'{pending}'",
    "mailgres.route_states": "",
    "mailgres.cancel_emails": "'{{pending}}'",
    "mailgres.retry_emails": "'{{dead}}'",
    "mailgres.reschedule_emails": "'{{waiting}}', '2099-01-01'",
    "mailgres.preview_bulk_action": "'retry', '{}'",
    "mailgres.start_bulk_action": "'cancel', '{}'",
    "mailgres.stop_bulk_action": "1",
    "mailgres.resume_bulk_action": "1",
    "mailgres.find_dead_letters": "",
    "mailgres.purge_dead_letters": "'{{dead}}', '{NULL}'",
    "mailgres.pause_tenant": "'acme'",
    "mailgres.resume_tenant": "'acme'",
    "mailgres.set_tenant_weight": "'acme', 2",
    "mailgres.tenant_states": "",
    "mailgres.allow_sender": "'acme', 'acme.example.com'",
    "mailgres.disallow_sender": "'acme', 'acme.example.com'",
    "mailgres.bind_producer": "'{role}', 'acme'",
    "mailgres.unbind_producer": "'{role}'",
    "mailgres.set_policy": """'stepped', '{"max_retries": 2}'""",
    "mailgres.suppress": """'[{"recipient_email": "zoe@example.com", "reason": "manual"}]'""",
    "mailgres.unsuppress": "'{no@example.com}'",
    "mailgres.find_suppressions": "'{}', 10",
    "mailgres.release_suppressions": """'{"reason": "manual"}'""",
    "mailgres.explain_address": "'zoe@example.com'",
}
"""The arguments of a call that succeeds, by function."""

_BY_ID = "WHERE id OPERATOR(pg_catalog.=)"

WRITES: Final[dict[tuple[str, str], list[str]]] = {
    ("public.email_queue", "INSERT"): [
        """(template_type, recipient_email, payload)
           VALUES ('welcome_user', 'zoe@example.com', '{"name": "Zoe", "product": "Acme"}')""",
        """(template_type, recipient_email, subject, text, from_email, cc, headers, tags)
           VALUES ('inline', 'zoe@example.com', 'Hi', 'Hi', 'Zoe <zoe@example.com>',
                   '{a@example.com}', '{"X-Order": "1"}', '{"a": "b"}')""",
    ],
    ("public.email_queue", "UPDATE"): [
        f"SET status = 'cancelled' {_BY_ID} '{{pending}}'",
        f"SET status = 'pending' {_BY_ID} '{{dead}}'",
        f"SET status = 'failed', error_message = 'no' {_BY_ID} '{{pending}}'",
        f"SET next_retry_at = '2099-01-01' {_BY_ID} '{{waiting}}'",
    ],
    ("public.email_queue", "DELETE"): [f"{_BY_ID} '{{sent}}'", f"{_BY_ID} '{{pending}}'"],
    ("public.email_templates", "INSERT"): ["(template_type) VALUES ('new')"],
    ("public.email_templates", "UPDATE"): ["SET description = 'x'"],
    ("public.email_templates", "DELETE"): ["WHERE template_type OPERATOR(pg_catalog.=) 'spare'"],
    ("public.email_suppressions", "INSERT"): [
        "(recipient_email, reason) VALUES ('Zoe@Example.com', 'manual')"
    ],
    ("public.email_suppressions", "UPDATE"): ["SET reason = 'unsubscribed'"],
    ("public.email_suppressions", "DELETE"): [""],
    ("mailgres.alert_rules", "UPDATE"): ["SET threshold = 7"],
    ("mailgres.suppression_rules", "UPDATE"): ["SET needed = 3"],
    ("mailgres.providers", "INSERT"): ["(name, kind) VALUES ('other', 'smtp')"],
    ("mailgres.providers", "UPDATE"): ["SET paused_until = 'infinity'"],
    ("mailgres.providers", "DELETE"): ["WHERE name OPERATOR(pg_catalog.=) 'nosuch'"],
    ("mailgres.retry_policies", "INSERT"): [
        "(name, max_retries, base, cap) VALUES ('new', 1, '1 minute', '1 hour')"
    ],
    ("mailgres.retry_policies", "UPDATE"): ["SET cap = '2 hours'"],
    ("mailgres.retry_policies", "DELETE"): ["WHERE name OPERATOR(pg_catalog.=) 'spare'"],
    ("mailgres.route_providers", "INSERT"): [
        "(route, position, provider) VALUES ('spare', 1, 'smtp')"
    ],
    ("mailgres.route_providers", "UPDATE"): ["SET position = 7"],
    ("mailgres.route_providers", "DELETE"): ["WHERE route OPERATOR(pg_catalog.=) 'spare'"],
    ("mailgres.routes", "INSERT"): ["(route) VALUES ('new')"],
    ("mailgres.routes", "UPDATE"): ["SET paused = true"],
    ("mailgres.settings", "UPDATE"): ["SET retry_policy = 'patient'"],
    ("mailgres.sleepers", "INSERT"): ["VALUES ('w2', '2099-01-01')"],
    ("mailgres.sleepers", "UPDATE"): ["SET sleeps_until = '2099-01-01'"],
    ("mailgres.sleepers", "DELETE"): [""],
    ("mailgres.template_versions", "INSERT"): [
        "(template_type, version, subject, text) VALUES ('welcome_user', 99, 'Hi', 'Hi')"
    ],
    ("mailgres.tenants", "INSERT"): ["(tenant_id) VALUES ('new')"],
    ("mailgres.tenants", "UPDATE"): ["SET weight = 3"],
    ("mailgres.tenants", "DELETE"): [""],
    ("mailgres.workers", "INSERT"): ["(worker) VALUES ('w2')"],
    ("mailgres.workers", "UPDATE"): ["SET seen_at = '2099-01-01'"],
    ("mailgres.workers", "DELETE"): [""],
}
"""The rest of statements that succeed, by table and privilege."""

VERBS: Final = {"INSERT": "INSERT INTO {}", "UPDATE": "UPDATE {}", "DELETE": "DELETE FROM {}"}


def filled(text: str, names: dict[str, str]) -> str:
    """Put the ids of emails where their names are."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text
