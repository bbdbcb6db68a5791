-- The names that the shell completes, those that begin with what was typed.

-- templates --
SELECT t.template_type FROM public.email_templates t
WHERE starts_with(t.template_type, %(start)s) ORDER BY 1 LIMIT %(most)s

-- tenants --
SELECT x.tenant_id FROM (
    SELECT t.tenant_id::text FROM mailgres.tenants t
    UNION SELECT d.tenant_id::text FROM mailgres.current_depth_by_tenant d
    UNION SELECT c.tenant_id::text FROM mailgres.counted_by_tenant c
) x
WHERE starts_with(x.tenant_id, %(start)s) ORDER BY 1 LIMIT %(most)s

-- providers --
SELECT p.name FROM mailgres.providers p WHERE starts_with(p.name, %(start)s) ORDER BY 1 LIMIT %(most)s

-- routes --
SELECT r.route FROM mailgres.routes r WHERE starts_with(r.route, %(start)s) ORDER BY 1 LIMIT %(most)s

-- suppression_rules --
SELECT r.name FROM mailgres.suppression_rules r WHERE starts_with(r.name, %(start)s) ORDER BY 1 LIMIT %(most)s

-- rules --
SELECT r.name FROM mailgres.alert_rules r WHERE starts_with(r.name, %(start)s) ORDER BY 1 LIMIT %(most)s
