-- What `mailgres migrate` made. Functions, views, triggers and comments are not part of a revision: each
-- migration compares them with sql/ and replaces those that differ (sql/25_schema).

COMMENT ON TABLE mailgres.schema_version IS
    'The revision of the schema. Written by `mailgres migrate` (alembic) only.';

CREATE TYPE mailgres.wanted_object AS (
    kind       text,  -- function, view, trigger or comment
    name       text,  -- mailgres.reap(int), public.email_kpis, public.email_queue.wake, COLUMN public.email_queue.id
    statement  text   -- the statement that makes it, or replaces it
);

CREATE TABLE mailgres.schema_objects (
    object       text PRIMARY KEY,
    source       text NOT NULL,
    definition   text NOT NULL,
    fingerprint  text NOT NULL
);

COMMENT ON TABLE mailgres.schema_objects IS
    'The functions, views, triggers and comments that `mailgres migrate` made: the list of what it may replace or drop.';
COMMENT ON COLUMN mailgres.schema_objects.source IS 'A hash of the statement that made it.';
COMMENT ON COLUMN mailgres.schema_objects.definition IS
    'A hash of its definition, the same in every version of PostgreSQL and after a restore.';
COMMENT ON COLUMN mailgres.schema_objects.fingerprint IS
    'A hash of its row in the catalog: reading it takes no lock. After a restore it differs.';

CREATE TABLE mailgres.schema_releases (
    version      text NOT NULL,
    revision     text NOT NULL,
    works_since  text NOT NULL,
    digest       text NOT NULL,
    migrated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_current   boolean NOT NULL DEFAULT true,
    objects      mailgres.wanted_object[] NOT NULL,
    PRIMARY KEY (version, revision)
);

CREATE UNIQUE INDEX schema_releases_one_current ON mailgres.schema_releases (is_current) WHERE is_current;

COMMENT ON TABLE mailgres.schema_releases IS
    'The versions of mailgres that migrated this database, with their functions, views and triggers: a downgrade needs them.';
COMMENT ON COLUMN mailgres.schema_releases.works_since IS 'Workers of this version and of later ones work with this schema.';
COMMENT ON COLUMN mailgres.schema_releases.digest IS 'A hash of all its functions, views, triggers and comments.';
