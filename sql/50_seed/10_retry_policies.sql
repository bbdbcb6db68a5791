INSERT INTO mailgres.retry_policies
    (name, max_retries, steps, base, factor, cap, jitter_down, jitter_up, description)
VALUES
    ('stepped', 3, '{1 minute,5 minutes,15 minutes}', NULL, 2, '1 day', 0, 0, 'Waits of 1, 5 and 15 minutes.'),
    ('gateway', 4, NULL, '1 second', 2, '60 seconds', 0.25, 0.25, 'Five attempts, 1 s doubling to 60 s.'),
    ('smtp', 4, NULL, '1 second', 2, '300 seconds', 0.25, 0.25, 'Five attempts, 1 s doubling to 300 s.'),
    ('development', 2, NULL, '500 milliseconds', 2, '30 seconds', 0, 0, 'Three quick attempts.'),
    ('patient', 2, NULL, '5 minutes', 2, '24 hours', 0, 0, 'Three attempts, 5 min doubling to 24 h.'),
    ('integration', 2, '{60 seconds,300 seconds}', NULL, 2, '1 day', 0, 0.2, 'Waits of 60 and 300 s and up to a fifth more.');

INSERT INTO mailgres.settings (retry_policy) VALUES ('stepped');
