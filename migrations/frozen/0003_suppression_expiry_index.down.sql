-- 0003_suppression_expiry_index, undone, with emails in the queue.

DROP INDEX public.email_suppressions_expires_at_idx;
