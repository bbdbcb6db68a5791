CREATE TABLE mailgres.attachments (
    queue_id      uuid NOT NULL REFERENCES public.email_queue ON DELETE CASCADE,
    position      int NOT NULL CHECK (position > 0),
    filename      text NOT NULL CHECK (filename <> '' AND length(filename) <= 255),
    content_type  text NOT NULL DEFAULT 'application/octet-stream',
    content_id    text,
    content       bytea NOT NULL,
    PRIMARY KEY (queue_id, position)
);

-- Most attachments are already compressed: PostgreSQL need not try.
ALTER TABLE mailgres.attachments ALTER COLUMN content SET STORAGE EXTERNAL;

COMMENT ON TABLE mailgres.attachments IS 'The attachments of emails.';
COMMENT ON COLUMN mailgres.attachments.content_id IS 'For images shown inside the HTML part.';
