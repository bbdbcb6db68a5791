-- These tables stay too small for autovacuum to analyze them, and every enqueue reads them: without
-- statistics its plan takes several times as long to start.

ANALYZE mailgres.settings, mailgres.retry_policies, mailgres.routes, mailgres.providers,
    mailgres.route_providers, public.email_templates;
