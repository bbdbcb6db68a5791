-- All rights of all roles: the only place that decides them. mailgres.secure() grants what is missing,
-- and mailgres.unintended_grants() lists the rights beyond this list. A right that a later version
-- removes has to be revoked by the revision of that version.

CREATE FUNCTION mailgres.intended_grants()
    RETURNS TABLE (grantee text, privilege text, kind text, object text, column_name text)
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH
-- An application may have its own functions with the same names in public, so these have arguments.
enqueue(names) AS (VALUES ('
    public.enqueue_email(uuid,text,text,jsonb,text,int,timestamptz,timestamptz,text,text,text,text,int,interval,interval,text,text,text,text,text,jsonb,jsonb,text[],text[],jsonb,text[],boolean)
    public.enqueue_emails(jsonb)')),
by_hand(names) AS (VALUES ('
    public.cancel_email(uuid,text) public.retry_email(uuid,boolean) public.reschedule_email(uuid,timestamptz)
    public.record_email_event(text,text,text,uuid,text,timestamptz,text,jsonb)
    public.record_email_events(jsonb) public.process_pending_emails_for_retry(int)
    public.get_pending_emails_for_retry(int) public.mark_email_sent(uuid,text) public.mark_email_failed(uuid,text)
    public.calculate_next_retry_time(int)')),
janitors(names) AS (VALUES ('
    mailgres.reap mailgres.promote mailgres.expire mailgres.fold_rollups mailgres.archive_dead_letters
    mailgres.purge_archive mailgres.delete_expired_emails mailgres.heartbeat mailgres.delete_stale_workers mailgres.notify
    mailgres.log_dead_letters mailgres.record_webhook_result mailgres.measure_depth
    mailgres.delete_expired_rollups mailgres.match_email_events mailgres.template_contents mailgres.unintended_grants mailgres.record_janitor_run
    mailgres.failing_janitors mailgres.report_captured mailgres.delete_captured mailgres.delete_expired_suppressions mailgres.quarantine_state
    mailgres.compare_objects mailgres.run_bulk_actions')),
-- functions that a plain INSERT or UPDATE of email_queue calls: defaults, and checks of its columns
called_by_writes(names) AS (VALUES ('
    mailgres.now mailgres.uuid_v7 mailgres.is_address mailgres.is_sender mailgres.are_addresses
    mailgres.are_headers mailgres.are_tags mailgres.is_subject mailgres.is_state
    mailgres.is_unambiguous mailgres.invisible_characters')),
-- The views for analysts and the tables below them: figures, no personal data. A view shows what its
-- reader may see of the tables, so analysts need rights on all of them; but they have no right on the
-- schema, so they reach the tables through the views only.
views(names) AS (VALUES ('
    public.email_queue_state public.email_pending_by_template public.email_throughput public.email_throughput_24h
    public.email_workers public.email_providers public.email_eta public.email_failure_rate_by_template
    public.email_kpis public.email_deliveries public.email_delivery_rates public.email_delivery_times public.email_recipients public.email_retried public.email_recovery_by_retries
    public.email_success_by_attempt public.email_time_between_attempts public.email_error_codes
    public.email_common_errors public.email_dlq_entries public.email_dlq_size public.email_dlq_per_hour
    public.email_dlq_by_code public.email_dlq_by_tenant public.email_dlq_by_age
    public.email_tenant_fairness public.email_alerts public.email_monitoring

    mailgres.rollup_deltas mailgres.attempt_deltas mailgres.rollup_by_template mailgres.rollup_by_tenant
    mailgres.rollup_by_provider mailgres.rollup_by_retries mailgres.rollup_by_status
    mailgres.rollup_dead mailgres.rollup_by_minute mailgres.rollup_by_attempt mailgres.rollup_by_fault
    mailgres.tenant_activity mailgres.depth mailgres.depth_by_template mailgres.depth_by_tenant
    mailgres.current_depth_by_template mailgres.current_depth_by_tenant mailgres.counted_by_template
    mailgres.counted_by_tenant mailgres.counted_by_provider mailgres.counted_by_retries
    mailgres.counted_by_status mailgres.counted_dead mailgres.counted_by_minute
    mailgres.counted_by_attempt mailgres.counted_by_fault mailgres.counted_tenants
    mailgres.deliveries mailgres.event_deltas mailgres.rollup_by_event mailgres.counted_by_event')),
called_by_views(names) AS (VALUES ('
    mailgres.now mailgres.count_depth mailgres.claim_number mailgres.oldest_dead mailgres.newest_dead
    mailgres.provider_states mailgres.eta mailgres.round_robin_priority mailgres.masked_recipient
    mailgres.alerts_now mailgres.missing_providers mailgres.reported_emails')),

matrix(grantees, privileges, kind, objects) AS (
    SELECT 'mailgres_producer mailgres_operator service_role', 'EXECUTE', 'function', e.names FROM enqueue e
    UNION ALL
    SELECT 'mailgres_operator service_role', 'EXECUTE', 'function', b.names FROM by_hand b
    UNION ALL
    SELECT 'mailgres_operator service_role', 'EXECUTE', 'function', c.names FROM called_by_writes c
    UNION ALL
    SELECT 'mailgres_worker mailgres_operator', 'EXECUTE', 'function', j.names FROM janitors j
    UNION ALL
    SELECT 'mailgres_worker mailgres_operator mailgres_analyst service_role', 'SELECT', 'table', v.names FROM views v
    UNION ALL
    SELECT 'mailgres_worker mailgres_operator mailgres_analyst service_role', 'EXECUTE', 'function', c.names
    FROM called_by_views c
    UNION ALL
    VALUES
    ('mailgres_worker mailgres_operator', 'USAGE', 'schema', 'mailgres'),
    ('mailgres_worker', 'EXECUTE', 'function', '
        mailgres.claim mailgres.start_attempts mailgres.finish mailgres.extend mailgres.give_back mailgres.mark_asleep
        mailgres.mark_awake mailgres.capture mailgres.use_providers mailgres.use_defaults mailgres.sign_off mailgres.learn_limits
        mailgres.rate_limit_ends_at public.record_email_events(jsonb)'),
    ('mailgres_worker', 'SELECT', 'table', '
        public.email_templates mailgres.schema_version mailgres.schema_releases mailgres.template_versions mailgres.attachments
        mailgres.providers mailgres.routes mailgres.route_providers mailgres.tenants mailgres.retry_policies
        mailgres.settings mailgres.provider_events mailgres.home'),
    ('mailgres_worker', 'SELECT INSERT UPDATE DELETE', 'table', 'mailgres.workers mailgres.sleepers'),

    ('mailgres_operator', 'EXECUTE', 'function', '
        mailgres.push_template mailgres.activate_version mailgres.retire_template mailgres.limit_provider
        mailgres.limit_tenant mailgres.pause_provider mailgres.resume_provider mailgres.reset_provider
        mailgres.set_route mailgres.pause_route mailgres.resume_route mailgres.set_tenant mailgres.route_states
        mailgres.find_emails mailgres.count_emails mailgres.check_emails mailgres.cancel_emails
        mailgres.retry_emails mailgres.reschedule_emails mailgres.preview_bulk_action mailgres.start_bulk_action
        mailgres.stop_bulk_action mailgres.resume_bulk_action mailgres.find_dead_letters mailgres.purge_dead_letters
        mailgres.pause_tenant mailgres.resume_tenant mailgres.set_tenant_weight mailgres.tenant_states
        mailgres.set_policy mailgres.set_defaults mailgres.suppress mailgres.unsuppress
        mailgres.find_suppressions mailgres.release_suppressions mailgres.explain_address
        mailgres.set_suppression_rule mailgres.reset_suppression_rule mailgres.allow_sender mailgres.disallow_sender
        mailgres.bind_producer mailgres.unbind_producer mailgres.set_alert_rule mailgres.reset_webhook
        mailgres.inbox mailgres.inbox_state mailgres.inbox_email mailgres.inbox_file mailgres.delete_from_inbox
        mailgres.set_capture_fault mailgres.remove_capture_fault mailgres.quarantine mailgres.release_quarantine
        mailgres.recovery_until mailgres.list_recovery mailgres.recover mailgres.recover_known'),
    ('mailgres_operator', 'SELECT', 'table', 'mailgres.* public.email_logs public.email_events public.email_dead_letters'),
    ('mailgres_operator', 'SELECT INSERT UPDATE DELETE', 'table',
        'public.email_queue public.email_templates public.email_suppressions'),
    ('mailgres_operator', 'INSERT', 'table', 'mailgres.template_versions'),
    ('mailgres_operator', 'INSERT UPDATE DELETE', 'table', '
        mailgres.providers mailgres.route_providers mailgres.tenants mailgres.retry_policies'),
    -- a route is paused, not deleted: emails may be on it
    ('mailgres_operator', 'INSERT UPDATE', 'table', 'mailgres.routes'),
    ('mailgres_operator', 'UPDATE', 'table', 'mailgres.settings mailgres.alert_rules mailgres.suppression_rules'),

    ('mailgres_analyst', 'SELECT', 'table', 'public.email_templates'),

    ('service_role', 'SELECT INSERT UPDATE DELETE', 'table',
        'public.email_queue public.email_templates public.email_suppressions'),
    ('service_role', 'SELECT', 'table', 'public.email_logs public.email_events')),

-- the columns without personal data
columns(grantees, object, names) AS (VALUES
    ('mailgres_analyst', 'public.email_queue', '
        id template_type status retries max_retries last_attempt_at next_retry_at error_message created_at
        tenant_id priority route scheduled_for expires_at ready retry_policy retry_delay max_retry_delay sent_at
        dead_at dead_reason error_code error_class provider provider_message_id resend_id generation
        template_version first_attempt_at uncertain_since parked_since last_duration_ms batch_id batch_size
        send_alone leased_at lease_until lease_worker lease_is_tokenless lease_losses attempt_started_at has_attachments ignore_suppression due_at'),
    ('mailgres_analyst', 'public.email_logs', '
        id queue_id at event from_status to_status attempt tenant_id template_type claimed_at worker duration_ms
        provider provider_message_id error_class error_code error_message next_retry_at dead_reason'),
    ('mailgres_analyst', 'public.email_events', '
        id queue_id provider event occurred_at received_at kind reason tenant_id template_type provider_message_id event_id'),
    ('mailgres_analyst service_role', 'mailgres.workers', 'worker version started_at seen_at providers on_demand stopped_at'),
    ('mailgres_analyst service_role', 'mailgres.tenants', 'tenant_id weight paused_at'))

SELECT g.grantee, p.privilege, m.kind, o.object, NULL
FROM matrix m
CROSS JOIN LATERAL string_to_table(m.grantees, ' ') g(grantee)
CROSS JOIN LATERAL string_to_table(m.privileges, ' ') p(privilege)
CROSS JOIN LATERAL regexp_split_to_table(btrim(m.objects, E' \n'), E'\\s+') o(object)
UNION
SELECT g.grantee, 'SELECT', 'column', c.object, n.name
FROM columns c
CROSS JOIN LATERAL string_to_table(c.grantees, ' ') g(grantee)
CROSS JOIN LATERAL regexp_split_to_table(btrim(c.names, E' \n'), E'\\s+') n(name)
$$;

COMMENT ON FUNCTION mailgres.intended_grants() IS
    'Every right that a role other than the owner is intended to have. mailgres.* means all tables of that schema.';
