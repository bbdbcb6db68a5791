-- These tables stay too small for autovacuum to look at them, and every enqueue reads
-- them: without statistics its plan costs several times as much to start.

ANALYZE mailgres.settings, mailgres.retry_policies, mailgres.routes, mailgres.providers,
    mailgres.route_providers, public.email_templates;
