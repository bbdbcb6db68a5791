-- What a hard bounce or a complaint says, it says at once. A soft bounce says it after five emails in a
-- row. The content, the size, a policy or the sender's reputation say nothing about the mailbox.

INSERT INTO mailgres.suppression_rules (name, event, kind, except_reasons, needed, reason, for_all, expires_after, enabled)
VALUES
    ('hard_bounce', 'bounced', 'hard', '{content,size,reputation,policy}', 1, 'bounced', true, NULL, true),
    ('soft_bounces', 'bounced', 'soft', '{content,size,reputation,policy}', 5, 'soft_bounced', true, '30 days', true),
    ('complaint', 'complained', NULL, '{}', 1, 'complained', false, NULL, true),
    ('unsubscribe', 'unsubscribed', NULL, '{}', 1, 'unsubscribed', false, NULL, true),
    -- the provider has the address on a list of its own
    ('suppressed_by_provider', 'suppressed', NULL, '{}', 1, 'bounced', true, NULL, false);
