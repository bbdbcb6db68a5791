-- Least privilege: nobody may do anything but what is granted here. Functions are
-- executable by PUBLIC by default, and Supabase grants to its roles by name, so all
-- of that is revoked before anything is granted. The policies let in whom the grants
-- let in; who has none sees no row, whatever is granted by accident.
-- To be called again when roles were created later: `mailgres migrate` does.

CREATE FUNCTION mailgres.secure() RETURNS void
    LANGUAGE plpgsql SET search_path = ''
AS $$
DECLARE
    -- The views for analysts, and what is below them: figures, no person's data. They show
    -- what their reader may see, so he needs all of it; but not the schema, and without
    -- that he reaches it through the views alone.
    c_views constant text := '
        public.email_queue_state, public.email_pending_by_template, public.email_throughput,
        public.email_workers, public.email_providers, public.email_eta, public.email_failure_rate_by_template,
        public.email_kpis, public.email_delivery_times, public.email_retried, public.email_recovery_by_retries,
        public.email_success_by_attempt, public.email_time_between_attempts, public.email_error_codes,
        public.email_common_errors, public.email_dlq_entries, public.email_dlq_size, public.email_dlq_per_hour,
        public.email_dlq_by_code, public.email_dlq_by_tenant, public.email_dlq_by_age,
        public.email_tenant_fairness, public.email_alerts, public.email_monitoring';
    c_figures constant text := '
        mailgres.rollup_deltas, mailgres.try_deltas, mailgres.rollup_by_template, mailgres.rollup_by_tenant,
        mailgres.rollup_by_provider, mailgres.rollup_by_retries, mailgres.rollup_by_status,
        mailgres.rollup_dead, mailgres.rollup_by_minute, mailgres.rollup_by_attempt, mailgres.rollup_by_fault,
        mailgres.tenant_activity, mailgres.depth, mailgres.depth_by_template, mailgres.depth_by_tenant,
        mailgres.open_by_template, mailgres.open_by_tenant, mailgres.counted_by_template,
        mailgres.counted_by_tenant, mailgres.counted_by_provider, mailgres.counted_by_retries,
        mailgres.counted_by_status, mailgres.counted_dead, mailgres.counted_by_minute,
        mailgres.counted_by_attempt, mailgres.counted_by_fault, mailgres.counted_tenants';
    -- In public an application may have functions of its own by the same names: with arguments.
    c_enqueue constant text := '
        public.enqueue_email(uuid, text, text, jsonb, text, int, timestamptz, timestamptz, text, text, text,
        text, int, interval, interval, text, text, text, text, text, jsonb, jsonb, text[], text[], jsonb),
        public.enqueue_emails(jsonb)';
    c_by_hand constant text := '
        public.cancel_email(uuid, text), public.retry_email(uuid, boolean),
        public.reschedule_email(uuid, timestamptz), public.record_email_event(text, uuid, text, text, boolean),
        public.process_pending_emails_for_retry(int), public.get_pending_emails_for_retry(int),
        public.mark_email_sent(uuid, text), public.mark_email_failed(uuid, text),
        public.calculate_next_retry_time(int)';
    c_asked constant text := '
        mailgres.now, mailgres.count_open, mailgres.turns, mailgres.oldest_dead, mailgres.newest_dead,
        mailgres.provider_states, mailgres.eta, mailgres.round_robin_priority, mailgres.masked_recipient,
        mailgres.alerts_now';
    v_role    text;
    v_object  text;
    v_grant   record;
    v_policy  record;
BEGIN
    FOR v_role IN
        SELECT 'PUBLIC' UNION ALL
        SELECT quote_ident(rolname) FROM pg_catalog.pg_roles WHERE rolname IN ('anon', 'authenticated', 'service_role')
    LOOP
        EXECUTE format('REVOKE ALL ON SCHEMA mailgres FROM %s', v_role);
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA mailgres FROM %s', v_role);
        EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA mailgres FROM %s', v_role);
        EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA mailgres FROM %s', v_role);
        FOREACH v_object IN ARRAY ARRAY[
            'TABLE public.email_queue', 'TABLE public.email_templates', 'TABLE public.email_logs',
            'TABLE public.email_suppressions', 'TABLE public.email_dead_letters', 'SEQUENCE public.email_logs_id_seq',
            'FUNCTION ' || c_enqueue, 'FUNCTION ' || c_by_hand]
        LOOP
            EXECUTE format('REVOKE ALL ON %s FROM %s', v_object, v_role);
        END LOOP;
        EXECUTE format('REVOKE ALL ON %s FROM %s', c_views, v_role);
    END LOOP;

    FOR v_grant IN
        SELECT g.privilege, r.rolname
        FROM (VALUES
            ('mailgres_producer', 'EXECUTE ON FUNCTION ' || c_enqueue),

            ('mailgres_worker', 'USAGE ON SCHEMA mailgres'),
            ('mailgres_worker', 'SELECT ON mailgres.schema_version'),
            ('mailgres_operator', 'SELECT ON mailgres.schema_version'),
            ('mailgres_worker', 'EXECUTE ON FUNCTION mailgres.now, mailgres.claim, mailgres.begin,
                mailgres.finish, mailgres.extend, mailgres.give_back, mailgres.reap, mailgres.promote,
                mailgres.expire, mailgres.fold, mailgres.sleep, mailgres.rise, mailgres.capture,
                mailgres.use_providers, mailgres.set_defaults, mailgres.learn_limits, mailgres.rate_frees_at'),
            ('mailgres_worker', 'EXECUTE ON FUNCTION mailgres.archive_dead_letters, mailgres.purge_archive,
                mailgres.retain, mailgres.heartbeat, mailgres.forget_workers, mailgres.tell, mailgres.check_alerts,
                mailgres.take_deaths, mailgres.take_news, mailgres.note_webhook'),
            ('mailgres_worker', 'EXECUTE ON FUNCTION mailgres.measure_depth, mailgres.trim_rollups'),
            ('mailgres_worker', 'EXECUTE ON FUNCTION mailgres.template_contents'),
            ('mailgres_worker', 'SELECT ON public.email_templates, mailgres.template_versions,
                mailgres.attachments, mailgres.providers, mailgres.routes, mailgres.route_providers,
                mailgres.tenants, mailgres.retry_policies, mailgres.settings, mailgres.provider_events'),
            ('mailgres_worker', 'SELECT, INSERT, UPDATE, DELETE ON mailgres.workers, mailgres.sleepers'),

            ('mailgres_operator', 'USAGE ON SCHEMA mailgres'),
            ('mailgres_operator', 'EXECUTE ON FUNCTION ' || c_enqueue || ',' || c_by_hand),
            ('mailgres_operator', 'EXECUTE ON FUNCTION mailgres.now, mailgres.uuid_v7, mailgres.reap,
                mailgres.promote, mailgres.expire, mailgres.fold'),
            ('mailgres_operator', 'EXECUTE ON FUNCTION mailgres.archive_dead_letters, mailgres.purge_archive,
                mailgres.retain, mailgres.heartbeat, mailgres.forget_workers, mailgres.tell, mailgres.check_alerts,
                mailgres.take_deaths, mailgres.take_news, mailgres.note_webhook'),
            ('mailgres_operator', 'EXECUTE ON FUNCTION mailgres.measure_depth, mailgres.trim_rollups'),
            ('mailgres_operator', 'EXECUTE ON FUNCTION mailgres.push_template, mailgres.retire_template,
                mailgres.template_contents'),
            ('mailgres_operator', 'EXECUTE ON FUNCTION mailgres.limit_provider, mailgres.limit_tenant,
                mailgres.pause_provider, mailgres.resume_provider, mailgres.reset_provider, mailgres.set_route,
                mailgres.pause_route, mailgres.resume_route, mailgres.set_tenant, mailgres.eta,
                mailgres.provider_states, mailgres.route_states'),
            ('mailgres_operator', 'EXECUTE ON FUNCTION mailgres.find_emails, mailgres.count_emails,
                mailgres.check_emails'),
            ('mailgres_operator', 'EXECUTE ON FUNCTION mailgres.cancel_emails, mailgres.retry_emails,
                mailgres.reschedule_emails, mailgres.find_dead_letters, mailgres.purge_dead_letters,
                mailgres.pause_tenant, mailgres.resume_tenant, mailgres.weigh_tenant, mailgres.tenant_states,
                mailgres.set_policy, mailgres.suppress, mailgres.unsuppress'),
            ('mailgres_operator', 'EXECUTE ON FUNCTION mailgres.set_alert_rule, mailgres.reset_webhook'),
            ('mailgres_operator', 'SELECT ON ALL TABLES IN SCHEMA mailgres'),
            ('mailgres_operator', 'SELECT, INSERT, UPDATE, DELETE ON public.email_queue,
                public.email_templates, public.email_suppressions'),
            ('mailgres_operator', 'SELECT ON public.email_logs, public.email_dead_letters'),
            ('mailgres_operator', 'INSERT ON mailgres.template_versions'),
            ('mailgres_operator', 'INSERT, UPDATE, DELETE ON mailgres.providers,
                mailgres.route_providers, mailgres.tenants, mailgres.retry_policies'),
            -- a route is paused, not deleted: emails may be on it
            ('mailgres_operator', 'INSERT, UPDATE ON mailgres.routes'),
            ('mailgres_operator', 'UPDATE ON mailgres.settings, mailgres.alert_rules'),

            -- the columns without a person's data
            ('mailgres_analyst', 'SELECT (id, template_type, status, retries, max_retries, last_attempt_at,
                next_retry_at, error_message, created_at, tenant_id, priority, route, scheduled_for,
                expires_at, ready, retry_policy, retry_delay, max_retry_delay, sent_at, dead_at, dead_reason,
                error_code, error_class, provider, provider_message_id, resend_id, generation,
                template_version, first_attempt_at, uncertain_since, parked_since, last_duration_ms,
                batch_id, batch_size, leased_at, lease_until, lease_worker, lease_losses, begun_at, has_attachments, due_at)
                ON public.email_queue'),
            ('mailgres_analyst', 'SELECT (id, queue_id, at, event, from_status, to_status, attempt, tenant_id,
                template_type, claimed_at, worker, duration_ms, provider, provider_message_id, error_class,
                error_code, error_message, next_retry_at, dead_reason) ON public.email_logs'),
            ('mailgres_analyst', 'SELECT ON public.email_templates'),

            ('mailgres_worker', 'SELECT ON ' || c_views || ',' || c_figures),
            ('mailgres_operator', 'SELECT ON ' || c_views || ',' || c_figures),
            ('mailgres_analyst', 'SELECT ON ' || c_views || ',' || c_figures),
            ('service_role', 'SELECT ON ' || c_views || ',' || c_figures),
            ('mailgres_worker', 'EXECUTE ON FUNCTION ' || c_asked),
            ('mailgres_operator', 'EXECUTE ON FUNCTION ' || c_asked),
            ('mailgres_analyst', 'EXECUTE ON FUNCTION ' || c_asked),
            ('service_role', 'EXECUTE ON FUNCTION ' || c_asked),
            ('mailgres_analyst', 'SELECT (worker, version, started_at, seen_at) ON mailgres.workers'),
            ('service_role', 'SELECT (worker, version, started_at, seen_at) ON mailgres.workers'),
            ('mailgres_analyst', 'SELECT (tenant_id, weight, paused_at) ON mailgres.tenants'),
            ('service_role', 'SELECT (tenant_id, weight, paused_at) ON mailgres.tenants'),

            ('service_role', 'EXECUTE ON FUNCTION ' || c_enqueue || ',' || c_by_hand),
            -- what a plain INSERT or UPDATE of email_queue calls
            ('service_role', 'EXECUTE ON FUNCTION mailgres.now, mailgres.uuid_v7'),
            ('service_role', 'SELECT, INSERT, UPDATE, DELETE ON public.email_queue,
                public.email_templates, public.email_suppressions'),
            ('service_role', 'SELECT ON public.email_logs')
        ) g(role, privilege)
        JOIN pg_catalog.pg_roles r ON r.rolname = g.role
        -- the migration tool's own table, which is there from the second call on
        WHERE to_regclass('mailgres.schema_version') IS NOT NULL OR g.privilege NOT LIKE '%schema_version'
    LOOP
        EXECUTE format('GRANT %s TO %I', v_grant.privilege, v_grant.rolname);
    END LOOP;

    FOR v_policy IN
        SELECT p.*, r.rolname
        FROM (VALUES
            ('mailgres_operator', 'email_queue', 'ALL'),
            ('mailgres_operator', 'email_templates', 'ALL'),
            ('mailgres_operator', 'email_logs', 'SELECT'),
            ('mailgres_operator', 'email_suppressions', 'ALL'),
            ('mailgres_worker', 'email_templates', 'SELECT'),
            ('mailgres_analyst', 'email_queue', 'SELECT'),
            ('mailgres_analyst', 'email_templates', 'SELECT'),
            ('mailgres_analyst', 'email_logs', 'SELECT')
        ) p(role, tbl, command)
        JOIN pg_catalog.pg_roles r ON r.rolname = p.role
        WHERE NOT EXISTS (
            SELECT FROM pg_catalog.pg_policies x
            WHERE x.schemaname = 'public' AND x.tablename = p.tbl AND x.policyname = p.role)
    LOOP
        EXECUTE format('CREATE POLICY %I ON public.%I FOR %s TO %I USING (true)',
            v_policy.rolname, v_policy.tbl, v_policy.command, v_policy.rolname);
    END LOOP;
END
$$;

COMMENT ON FUNCTION mailgres.secure() IS
    'Sets all privileges and policies anew, for the roles that exist now.';

SELECT mailgres.secure();
