-- 0004_bulk_actions, undone, with emails in the queue.

DROP TABLE mailgres.bulk_action_emails;
DROP TABLE mailgres.bulk_actions;
