"""Who may do what: the decision for every function, table and column, written down once.

The tests compare it with the catalog in both directions, so that whatever is new needs a line here.
"""

from __future__ import annotations

from typing import Final

PUBLIC: Final = "public"
PRODUCER: Final = "mailgres_producer"
WORKER: Final = "mailgres_worker"
OPERATOR: Final = "mailgres_operator"
ANALYST: Final = "mailgres_analyst"
OURS: Final = (PRODUCER, WORKER, OPERATOR, ANALYST)

ANON: Final = "anon"
AUTHENTICATED: Final = "authenticated"
SERVICE: Final = "service_role"
SUPABASE: Final = (ANON, AUTHENTICATED, SERVICE)


def _names(text: str) -> set[str]:
    return set(text.split())


SCHEMA_USAGE: Final = {WORKER, OPERATOR}
"""Who may look into the schema `mailgres`."""

_ENQUEUE = {PRODUCER, OPERATOR, SERVICE}
_BY_HAND = {OPERATOR, SERVICE}
_JANITOR = {WORKER, OPERATOR}
_VIEWERS = {WORKER, OPERATOR, ANALYST, SERVICE}

FIELD_CHECKS: Final = {
    *_names("mailgres.is_address mailgres.is_sender mailgres.are_addresses"),
    *_names("mailgres.are_headers mailgres.are_tags mailgres.is_subject mailgres.is_state"),
    *_names("mailgres.is_unambiguous mailgres.invisible_characters"),
}
"""What decides whether a column takes a value; called as whoever writes it."""

EXECUTE: Final[dict[str, set[str]]] = {
    "public.enqueue_email": _ENQUEUE,
    "public.enqueue_emails": _ENQUEUE,
    "public.cancel_email": _BY_HAND,
    "public.retry_email": _BY_HAND,
    "public.reschedule_email": _BY_HAND,
    "public.record_email_event": _BY_HAND,
    "public.record_email_events": {*_BY_HAND, WORKER},  # the webhooks of `mailgres serve`
    "public.process_pending_emails_for_retry": _BY_HAND,
    "public.get_pending_emails_for_retry": _BY_HAND,
    "public.mark_email_sent": _BY_HAND,
    "public.mark_email_failed": _BY_HAND,
    "public.calculate_next_retry_time": _BY_HAND,
    # Defaults, checks and triggers of email_queue call these as whoever writes to it.
    **dict.fromkeys(FIELD_CHECKS, _BY_HAND),
    "mailgres.now": {WORKER, OPERATOR, ANALYST, SERVICE},
    "mailgres.uuid_v7": {OPERATOR, SERVICE},
    "mailgres.claim": {WORKER},
    "mailgres.start_attempts": {WORKER},
    "mailgres.finish": {WORKER},
    "mailgres.extend": {WORKER},
    "mailgres.give_back": {WORKER},
    "mailgres.template_contents": {WORKER, OPERATOR},
    "mailgres.push_template": {OPERATOR},
    "mailgres.activate_version": {OPERATOR},
    "mailgres.retire_template": {OPERATOR},
    "mailgres.reap": _JANITOR,
    "mailgres.promote": _JANITOR,
    "mailgres.expire": _JANITOR,
    "mailgres.fold_rollups": _JANITOR,
    "mailgres.measure_depth": _JANITOR,
    "mailgres.delete_expired_rollups": _JANITOR,
    "mailgres.match_email_events": _JANITOR,
    "mailgres.unintended_grants": _JANITOR,
    "mailgres.compare_objects": _JANITOR,
    "mailgres.archive_dead_letters": _JANITOR,
    "mailgres.purge_archive": _JANITOR,
    "mailgres.delete_expired_emails": _JANITOR,
    "mailgres.heartbeat": _JANITOR,
    "mailgres.delete_stale_workers": _JANITOR,
    "mailgres.log_dead_letters": _JANITOR,
    "mailgres.notify": _JANITOR,
    "mailgres.alerts_now": _VIEWERS,
    "mailgres.missing_providers": _VIEWERS,
    "mailgres.reported_emails": _VIEWERS,
    "mailgres.record_webhook_result": _JANITOR,
    "mailgres.record_janitor_run": _JANITOR,
    "mailgres.failing_janitors": _JANITOR,
    "mailgres.report_captured": _JANITOR,
    "mailgres.delete_captured": _JANITOR,
    "mailgres.delete_expired_suppressions": _JANITOR,
    "mailgres.run_bulk_actions": _JANITOR,
    "mailgres.inbox": {OPERATOR},
    "mailgres.inbox_state": {OPERATOR},
    "mailgres.inbox_email": {OPERATOR},
    "mailgres.inbox_file": {OPERATOR},
    "mailgres.delete_from_inbox": {OPERATOR},
    "mailgres.set_capture_fault": {OPERATOR},
    "mailgres.remove_capture_fault": {OPERATOR},
    "mailgres.set_alert_rule": {OPERATOR},
    "mailgres.reset_webhook": {OPERATOR},
    "mailgres.quarantine": {OPERATOR},
    "mailgres.recovery_until": {OPERATOR},
    "mailgres.list_recovery": {OPERATOR},
    "mailgres.recover": {OPERATOR},
    "mailgres.recover_known": {OPERATOR},
    "mailgres.release_quarantine": {OPERATOR},
    "mailgres.quarantine_state": {WORKER, OPERATOR},
    "mailgres.mark_asleep": {WORKER},
    "mailgres.mark_awake": {WORKER},
    "mailgres.capture": {WORKER},
    "mailgres.use_providers": {WORKER},
    "mailgres.use_defaults": {WORKER},
    "mailgres.sign_off": {WORKER},
    "mailgres.set_defaults": {OPERATOR},
    "mailgres.learn_limits": {WORKER},
    "mailgres.rate_limit_ends_at": {WORKER},
    "mailgres.limit_provider": {OPERATOR},
    "mailgres.limit_tenant": {OPERATOR},
    "mailgres.pause_provider": {OPERATOR},
    "mailgres.resume_provider": {OPERATOR},
    "mailgres.reset_provider": {OPERATOR},
    "mailgres.set_route": {OPERATOR},
    "mailgres.pause_route": {OPERATOR},
    "mailgres.resume_route": {OPERATOR},
    "mailgres.set_tenant": {OPERATOR},
    "mailgres.find_emails": {OPERATOR},
    "mailgres.count_emails": {OPERATOR},
    "mailgres.check_emails": {OPERATOR},
    # What the views for analysts call.
    **dict.fromkeys(_names("mailgres.eta mailgres.provider_states mailgres.count_depth"), _VIEWERS),
    **dict.fromkeys(
        _names("mailgres.claim_number mailgres.oldest_dead mailgres.newest_dead"), _VIEWERS
    ),
    **dict.fromkeys(_names("mailgres.round_robin_priority mailgres.masked_recipient"), _VIEWERS),
    "mailgres.route_states": {OPERATOR},
    "mailgres.cancel_emails": {OPERATOR},
    "mailgres.retry_emails": {OPERATOR},
    "mailgres.reschedule_emails": {OPERATOR},
    "mailgres.preview_bulk_action": {OPERATOR},
    "mailgres.start_bulk_action": {OPERATOR},
    "mailgres.stop_bulk_action": {OPERATOR},
    "mailgres.resume_bulk_action": {OPERATOR},
    "mailgres.find_dead_letters": {OPERATOR},
    "mailgres.purge_dead_letters": {OPERATOR},
    "mailgres.pause_tenant": {OPERATOR},
    "mailgres.resume_tenant": {OPERATOR},
    "mailgres.set_tenant_weight": {OPERATOR},
    "mailgres.tenant_states": {OPERATOR},
    "mailgres.allow_sender": {OPERATOR},
    "mailgres.disallow_sender": {OPERATOR},
    "mailgres.bind_producer": {OPERATOR},
    "mailgres.unbind_producer": {OPERATOR},
    "mailgres.set_policy": {OPERATOR},
    "mailgres.suppress": {OPERATOR},
    "mailgres.unsuppress": {OPERATOR},
    "mailgres.find_suppressions": {OPERATOR},
    "mailgres.release_suppressions": {OPERATOR},
    "mailgres.set_suppression_rule": {OPERATOR},
    "mailgres.reset_suppression_rule": {OPERATOR},
    "mailgres.explain_address": {OPERATOR},
}
"""Functions that other roles than the owner may call."""

_OF_ALERTS = _names(
    """
    add_notification alert_notification alert_window figures_of_database figures_of_emails
    figures_of_outcomes figures_of_providers figures_of_starving figures_of_waiting is_worth_email
    last_seen lock_notification_state minutes most_counted notify_alerts notify_dead_letters
    oldest_waiting rounded take_notifications unnotified_alerts update_alerts waiting_tenants
    """
)

_OF_EVENTS = _names(
    """
    apply_events count_states delete_events email_of_event event_bits insert_events
    is_current_message
    is_recipient keep_unmatched kind_rank lock_emails_of_events merge_events recipient_of_event
    record_events is_too_early release_delivered reported_event series_of settle_by_events
    settle_uncertain
    suppress_by_events
    suppresses suppression_rank is_chosen time_of
    default_suppression_rules require_suppression_rule
    """
)

_OF_ADDRESSES = _names(
    """
    address_of canonical_address canonical_suppression canonical_unicode for_caller
    require_sender lower_unicode mask_error may_send_as names_somebody ordinary_words punycode
    matches_recipient recipient_pattern spellings_of tenant_for redact_recipient redact_recipients
    """
)

INTERNAL: Final = {
    f"mailgres.{name}"
    for name in _names(
        """
        add_version cancel_refusal duplicate_refusal reschedule_refusal retry_refusal
        are_attachments requested_wait_until attach bucket_of cancel_these clean_source
        unusable_because commit_durably complete_batches count_email
        charge_limits count_against_quota
        enqueue_many expire_these fault_of fault_of_basics fault_of_contents fault_of_options
        fault_of_settings route_of_tenant rows_of
        first_id_of first_ids fit_fallbacks fold_counts fold_attempts fold_events forbid_change
        intended_grants intended_rights
        take_round has_attachments log_refused_copies
        has_fallback try_lock_batch try_lock_buckets update_provider_state update_circuit
        apply_quotas hold_uncertain id_range_of
        is_held_without_token
        is_in_uncertain_batch is_failure is_lease_lost is_retry_policy is_route is_usable is_plain
        needs_fallback
        is_suppressed decide_retry
        key_protects require_provider require_route lease lock_batches lock_email lock_limits
        mask_email matching_emails is_claimable may_retry_uncertain normalize_manual_update
        next_open_duration next_tenant next_token_at
        not_taken usable_routes
        usable_at reaches_share release_waiting drained_at send_rate_of pick pick_few
        take_from_tenant plan_calls
        provider_for quota_left read_filter log_changes count_imported count_removed count_truncated
        refuse refuse_if refuse_request delete_emails reopen provider_reports reschedule_these
        resolve
        definition_of dependents_of drop_object find_objects grants_on make_object normalize_query
        record_objects record_release replace_objects
        remember_objects rest_of_batches retry_delay revoke_unintended rights provider_room
        route_room
        seconds_between secure enqueue_alert settle_unsendable set_bucket delete_orphans
        require_policy providers_of register_providers set_initial_route set_circuit tenant_share
        correct_leases correct_provider correct_times filled_until time_after
        current_home current_server is_quarantined note_server
        protecting_provider recovery_action recovery_candidates
        suppress_reported take_emails take_lost take_tokens tenant_room time_text
        tokens_of used_of_quota mark_limited wake
        is_probe_due warn_uncertain with_settings with_whole_batches redact_addresses
        capturing_routes inbox_index is_in_inbox take_capture_fault time_of_id
        add_refusals bulk_filter bulk_options change_emails current_actor
        delete_expired_bulk_actions run_bulk_chunk
        """
    )
    | _OF_ALERTS
    | _OF_ADDRESSES
    | _OF_EVENTS
}
"""Functions that only the owner's functions call."""

_READ = {"SELECT"}
_WRITE = {"INSERT", "UPDATE", "DELETE"}
_ALL = _READ | _WRITE
_OPERATOR_READS = {OPERATOR: _READ}
_WORKER_READS = {WORKER: _READ, OPERATOR: _READ}
_WORKER_READS_OPERATOR_WRITES = {WORKER: _READ, OPERATOR: _ALL}

ANALYSTS_VIEWS: Final = {
    f"public.email_{name}"
    for name in _names(
        """
        queue_state pending_by_template throughput throughput_24h workers providers eta
        failure_rate_by_template
        kpis deliveries delivery_rates delivery_times recipients retried recovery_by_retries
        success_by_attempt time_between_attempts
        error_codes common_errors dlq_entries dlq_size dlq_per_hour dlq_by_code dlq_by_tenant
        dlq_by_age tenant_fairness alerts monitoring
        """
    )
}
"""What analysts ask."""

_SUMS: Final = {
    f"mailgres.{name}"
    for name in _names(
        """
        current_depth_by_template current_depth_by_tenant counted_by_template counted_by_tenant
        counted_by_provider
        counted_by_retries counted_by_status counted_dead counted_by_minute counted_by_attempt
        counted_by_fault counted_tenants counted_by_event
        """
    )
}
_FIGURES: Final = {
    f"mailgres.{name}"
    for name in _names(
        """
        rollup_deltas attempt_deltas rollup_by_template rollup_by_tenant rollup_by_provider
        rollup_by_retries rollup_by_status rollup_dead rollup_by_minute rollup_by_attempt
        rollup_by_fault tenant_activity depth depth_by_template depth_by_tenant deliveries
        event_deltas
        rollup_by_event
        """
    )
}
"""What those views read: numbers, and no person's data."""

TABLES: Final[dict[str, dict[str, set[str]]]] = {
    "public.email_queue": {OPERATOR: _ALL, SERVICE: _ALL},
    "public.email_templates": {OPERATOR: _ALL, SERVICE: _ALL, WORKER: _READ, ANALYST: _READ},
    "public.email_logs": {OPERATOR: _READ, SERVICE: _READ},
    "public.email_events": {OPERATOR: _READ, SERVICE: _READ},
    "public.email_suppressions": {OPERATOR: _ALL, SERVICE: _ALL},
    "public.email_dead_letters": {OPERATOR: _READ},
    "mailgres.alert_rules": {OPERATOR: _READ | {"UPDATE"}},
    "mailgres.bulk_actions": _OPERATOR_READS,
    "mailgres.bulk_action_emails": _OPERATOR_READS,
    "mailgres.alerts": _OPERATOR_READS,
    "mailgres.attachments": _WORKER_READS,
    "mailgres.buckets": _OPERATOR_READS,
    "mailgres.captured": _OPERATOR_READS,
    "mailgres.captured_files": _OPERATOR_READS,
    "mailgres.capture_faults": _OPERATOR_READS,
    "mailgres.claim_slots": _OPERATOR_READS,
    "mailgres.dead_letters": _OPERATOR_READS,
    "mailgres.dead_letters_to_log": _OPERATOR_READS,
    "mailgres.dead_letters_to_notify": _OPERATOR_READS,
    "mailgres.notifications": _OPERATOR_READS,
    "mailgres.notification_state": _OPERATOR_READS,
    "mailgres.producers": _OPERATOR_READS,
    "mailgres.provider_events": _WORKER_READS,
    "mailgres.providers": _WORKER_READS_OPERATOR_WRITES,
    "mailgres.quota_usage": _OPERATOR_READS,
    "mailgres.retention_walk": _OPERATOR_READS,
    "mailgres.retry_policies": _WORKER_READS_OPERATOR_WRITES,
    "mailgres.route_providers": _WORKER_READS_OPERATOR_WRITES,
    "mailgres.routes": {WORKER: _READ, OPERATOR: _ALL - {"DELETE"}},
    "mailgres.schema_objects": _OPERATOR_READS,
    "mailgres.schema_releases": _WORKER_READS,
    "mailgres.schema_version": _WORKER_READS,
    "mailgres.senders": _OPERATOR_READS,
    "mailgres.settings": {WORKER: _READ, OPERATOR: _READ | {"UPDATE"}},
    "mailgres.sleepers": {WORKER: _ALL, OPERATOR: _READ},
    "mailgres.template_versions": {WORKER: _READ, OPERATOR: _READ | {"INSERT"}},
    "mailgres.suppression_rules": {OPERATOR: _READ | {"UPDATE"}},
    "mailgres.tenants": _WORKER_READS_OPERATOR_WRITES,
    "mailgres.unmatched_events": _OPERATOR_READS,
    "mailgres.workers": {WORKER: _ALL, OPERATOR: _READ},
    "mailgres.janitor_failures": _OPERATOR_READS,
    "mailgres.home": _WORKER_READS,
    "mailgres.home_mark": _OPERATOR_READS,
    **dict.fromkeys(ANALYSTS_VIEWS | _SUMS | _FIGURES, dict.fromkeys(_VIEWERS, _READ)),
}
"""Tables and views: what each role may do with all columns; who is not named may do nothing."""

VIEWS: Final = {"public.email_dead_letters"} | ANALYSTS_VIEWS | _SUMS
"""Those that are views: they show what their reader may see of the tables below."""

PERSONAL: Final = {
    "public.email_queue": _names(
        """
        user_id recipient_email payload idempotency_key correlation_id error_detail lease_token
        from_email reply_to subject html text headers tags also_to cc bcc
        """
    ),
    "public.email_logs": {"error_detail", "role"},
    "public.email_events": {"recipient_email", "detail"},
}
"""Columns with a person's data (or the key to a lease): closed to analysts."""

OPEN: Final = {
    "public.email_queue": _names(
        """
        id template_type status retries max_retries last_attempt_at next_retry_at error_message
        resend_id created_at tenant_id priority route scheduled_for expires_at ready retry_policy
        retry_delay max_retry_delay sent_at dead_at dead_reason error_code error_class provider
        provider_message_id generation template_version first_attempt_at uncertain_since
        parked_since last_duration_ms batch_id batch_size leased_at lease_until lease_worker
        lease_is_tokenless lease_losses send_alone attempt_started_at has_attachments
        ignore_suppression due_at
        """
    ),
    "public.email_logs": _names(
        """
        id queue_id at event from_status to_status attempt tenant_id template_type claimed_at
        worker duration_ms provider provider_message_id error_class error_code error_message
        next_retry_at dead_reason
        """
    ),
    "public.email_events": _names(
        """
        id queue_id provider event occurred_at received_at kind reason tenant_id template_type
        provider_message_id event_id
        """
    ),
}
"""Columns that analysts may read."""

OPEN_TO_VIEWS: Final = {
    "mailgres.workers": _names("worker version started_at seen_at providers on_demand stopped_at"),
    "mailgres.tenants": _names("tenant_id weight paused_at"),
}
"""Columns that the views for analysts read as their readers do: analysts and Supabase's backend."""
