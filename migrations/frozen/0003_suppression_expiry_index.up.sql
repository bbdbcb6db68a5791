-- 0003_suppression_expiry_index: the janitor that deletes expired suppressions finds them by an index.
-- locks: SHARE on public.email_suppressions while the index is built; it has one row per address

CREATE INDEX email_suppressions_expires_at_idx ON public.email_suppressions (expires_at) WHERE expires_at IS NOT NULL;
