-- Row security on every table of the contract, and no policy for everybody: who has
-- no policy here sees no row, whatever is granted by accident. The owner, and
-- Supabase's service_role, bypass it.

ALTER TABLE public.email_queue ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.email_templates ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.email_logs ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.email_suppressions ENABLE ROW LEVEL SECURITY;

DO $$
DECLARE
    v_policy record;
BEGIN
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
        JOIN pg_roles r ON r.rolname = p.role
    LOOP
        EXECUTE format('CREATE POLICY %I ON public.%I FOR %s TO %I USING (true)',
            v_policy.rolname, v_policy.tbl, v_policy.command, v_policy.rolname);
    END LOOP;
END
$$;
