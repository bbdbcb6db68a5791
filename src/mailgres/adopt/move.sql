-- What a move makes in the database. The parts in braces come from the mapping. Bodies of functions are parts of
-- their own, which are inserted as quoted texts.

-- state --
-- Tables and functions that all adopted queues share. `adopted_rows` is the memory of a move: which of our emails a
-- row of the old table became. It makes an import idempotent, and an undo possible.
CREATE SCHEMA IF NOT EXISTS mailgres_adopted;
REVOKE ALL ON SCHEMA mailgres_adopted FROM PUBLIC;
CREATE TABLE IF NOT EXISTS mailgres_adopted.adopted_queues (
    number      int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    schema_name text NOT NULL,
    table_name  text NOT NULL,
    state       text NOT NULL DEFAULT 'importing' CHECK (state IN ('importing', 'adopted', 'undoing')),
    hold        interval NOT NULL,
    oldest      timestamptz,
    jobs        int8[] NOT NULL DEFAULT '{{}}',
    imported_to text,
    UNIQUE (schema_name, table_name)
);
CREATE TABLE IF NOT EXISTS mailgres_adopted.adopted_steps (
    number  int NOT NULL REFERENCES mailgres_adopted.adopted_queues ON DELETE CASCADE,
    step    text NOT NULL,
    done_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (number, step)
);
CREATE TABLE IF NOT EXISTS mailgres_adopted.adopted_rows (
    number     int NOT NULL,
    old_id     text NOT NULL,
    place      int NOT NULL DEFAULT 0,
    kind       text NOT NULL,
    why        text,
    email_id   uuid UNIQUE,
    held_until timestamptz,
    too_late   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (number, old_id, place)
);
COMMENT ON TABLE mailgres_adopted.adopted_queues IS 'Queues that mailgres took over, and how far the move has come.';
COMMENT ON TABLE mailgres_adopted.adopted_steps IS 'The steps of a move that are done.';
COMMENT ON TABLE mailgres_adopted.adopted_rows IS 'Which emails of ours each row of an old table became, and which rows could not be mapped.';
COMMENT ON COLUMN mailgres_adopted.adopted_rows.too_late IS 'Whether the old processor reported this row when a worker of ours had it already.';
CREATE OR REPLACE FUNCTION mailgres_adopted.state_of(p_number int, p_old_id text) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {state_of};
CREATE OR REPLACE FUNCTION mailgres_adopted.settle(p_number int, p_old_id text, p_what text, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {settle};
CREATE OR REPLACE FUNCTION mailgres_adopted.close_to_others(p_object text, p_kind text, p_owner oid, p_acl aclitem[])
    RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS {close_to_others}

-- state_of --
-- What our emails of a row say together: null if the row has none. A sent email that was deleted when its retention
-- was over is `gone`.
BEGIN
    RETURN (
        SELECT CASE WHEN count(*) = 0 THEN NULL
                    WHEN bool_or(q.status IN ('pending', 'sending')) THEN 'held'
                    WHEN bool_or(coalesce(q.dead_reason, d.dead_reason) = 'uncertain') THEN 'uncertain'
                    WHEN bool_or(q.status = 'failed' OR d.queue_id IS NOT NULL) THEN 'failed'
                    WHEN bool_or(q.id IS NULL) THEN 'gone'
                    WHEN bool_and(q.status = 'cancelled') THEN 'cancelled'
                    ELSE 'sent' END
        FROM mailgres_adopted.adopted_rows r
        LEFT JOIN public.email_queue q ON q.id = r.email_id
        LEFT JOIN mailgres.dead_letters d ON d.queue_id = r.email_id
        WHERE r.number = p_number AND r.old_id = p_old_id AND r.email_id IS NOT NULL);
END

-- settle --
-- What the old queue says about a row decides about our emails of it, unless a worker of ours has them already.
DECLARE
    v_email record;
BEGIN
    FOR v_email IN
        SELECT q.id, q.status, q.dead_reason, q.uncertain_since, q.provider, r.held_until
        FROM mailgres_adopted.adopted_rows r JOIN public.email_queue q ON q.id = r.email_id
        WHERE r.number = p_number AND r.old_id = p_old_id ORDER BY r.place FOR UPDATE OF q
    LOOP
        IF p_what IN ('sent', 'uncertain')
           AND (v_email.status = 'sending' OR v_email.status = 'sent' AND v_email.provider IS NOT NULL) THEN
            UPDATE mailgres_adopted.adopted_rows SET too_late = true WHERE email_id = v_email.id;
        ELSIF v_email.status = 'pending' AND v_email.uncertain_since IS NULL
              OR v_email.status = 'failed' AND v_email.provider IS NULL THEN
            UPDATE public.email_queue q
            SET status = CASE p_what WHEN 'waiting' THEN 'pending' WHEN 'uncertain' THEN 'failed' ELSE p_what END,
                ready = false, lease_token = NULL, dead_at = NULL,
                dead_reason = CASE p_what WHEN 'uncertain' THEN 'uncertain' WHEN 'failed' THEN 'permanent' END,
                uncertain_since = CASE p_what WHEN 'uncertain' THEN mailgres.now() END,
                generation = q.generation + (p_what = 'waiting')::int,
                next_retry_at = CASE p_what WHEN 'waiting' THEN greatest(mailgres.now(), v_email.held_until, q.scheduled_for)
                                            ELSE q.next_retry_at END,
                error_message = CASE WHEN p_what IN ('sent', 'waiting') THEN NULL
                                     ELSE coalesce(nullif(p_error, ''), 'reported by the adopted queue') END
            WHERE q.id = v_email.id
              AND (p_what <> 'waiting' OR v_email.status = 'failed' AND v_email.dead_reason = 'uncertain');
        END IF;
    END LOOP;
END

-- close_to_others --
-- Default privileges may give rights on a new object to others. They lose them in the same transaction.
DECLARE
    v_grantee oid;
BEGIN
    FOR v_grantee IN SELECT DISTINCT a.grantee FROM aclexplode(coalesce(p_acl, acldefault(
        CASE p_kind WHEN 'FUNCTION' THEN 'f' WHEN 'SEQUENCE' THEN 's' ELSE 'r' END::"char", p_owner))) a WHERE a.grantee <> p_owner
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s', p_kind, p_object,
                       CASE v_grantee WHEN 0 THEN 'PUBLIC' ELSE v_grantee::regrole::text END);
    END LOOP;
END

-- close --
SELECT mailgres_adopted.close_to_others(p.oid::regprocedure::text, 'FUNCTION', p.proowner, p.proacl)
FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'mailgres_adopted'::pg_catalog.regnamespace
UNION ALL
SELECT mailgres_adopted.close_to_others(c.oid::regclass::text, CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.relowner, c.relacl)
FROM pg_catalog.pg_class c
WHERE c.oid = {view}::regclass
   OR c.relnamespace = 'mailgres_adopted'::pg_catalog.regnamespace AND pg_catalog.starts_with(c.relname, 'adopted_')
      AND c.relkind IN ('r', 'S')

-- take --
CREATE FUNCTION {take}(p_row {base}, p_hold interval, p_oldest timestamptz) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = {zone} SET datestyle = 'ISO'
    AS {body}

-- take_body --
-- Takes over one row: enqueues its emails and remembers them, or remembers why it cannot be mapped.
DECLARE
    v_row     record;
    v_content record;
    v_until   constant timestamptz := mailgres.now() + p_hold;
    v_place   int;
    v_id      uuid;
BEGIN
    SELECT x.* INTO v_row FROM ({classified}) x;
    IF v_row.kind NOT IN ('waiting', 'scheduled', 'uncertain', 'unmappable') THEN
        RETURN v_row.kind;
    END IF;
    DELETE FROM mailgres_adopted.adopted_rows r
    WHERE r.number = {number} AND r.old_id = v_row.id AND r.email_id IS NULL;
    IF v_row.kind <> 'uncertain' AND v_row.created_at < p_oldest THEN
        v_row.kind := 'unmappable';
        v_row.why := 'older than the limit';
    END IF;
    IF v_row.kind <> 'unmappable' THEN
        BEGIN
            SELECT x.* INTO v_content FROM ({content}) x;
            FOR v_place IN 1 .. cardinality(v_row.addresses) LOOP
                v_id := public.enqueue_email(
                    v_content.user_id, v_content.template_type, v_row.addresses[v_place],
                    coalesce(v_content.payload, '{{}}'), p_tenant_id => coalesce(v_content.tenant_id, 'default'),
                    p_priority => v_content.priority,
                    p_scheduled_for => greatest(v_row.due_at, CASE WHEN p_hold > '0' THEN v_until END),
                    p_expires_at => CASE WHEN v_row.kind <> 'uncertain' THEN v_row.expires_at END,
                    p_correlation_id => v_content.correlation_id, p_route => v_content.route,
                    p_from_email => v_content.from_email, p_reply_to => v_content.reply_to,
                    p_subject => v_content.subject, p_html => v_content.html, p_text => v_content.text,
                    p_headers => v_content.headers, p_cc => v_content.cc, p_bcc => v_content.bcc);
                INSERT INTO mailgres_adopted.adopted_rows (number, old_id, place, kind, email_id, held_until)
                VALUES ({number}, v_row.id, v_place, v_row.kind, v_id, v_until);
            END LOOP;
        EXCEPTION WHEN OTHERS THEN
            IF left(SQLSTATE, 2) NOT IN ('MG', '22', '23') THEN
                RAISE;
            END IF;
            v_row.kind := 'unmappable';
            v_row.why := SQLERRM;
        END;
    END IF;
    IF v_row.kind = 'unmappable' THEN
        INSERT INTO mailgres_adopted.adopted_rows (number, old_id, kind, why)
        VALUES ({number}, v_row.id, v_row.kind, v_row.why);
    ELSIF v_row.kind = 'uncertain' THEN
        PERFORM mailgres_adopted.settle({number}, v_row.id, 'uncertain', 'it was being sent when mailgres took over');
    END IF;
    RETURN v_row.kind;
END

-- kind_of --
CREATE FUNCTION {kind_of}(p_row {base}) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = {zone}
    SET datestyle = 'ISO' AS {body}

-- kind_of_body --
BEGIN
    RETURN (SELECT x.kind FROM ({classified}) x);
END

-- changed --
CREATE FUNCTION {changed}() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {body}

-- changed_body --
-- A trigger of the old table. It updates our emails after any change: through the view, a cascade or another trigger.
DECLARE
    v_queue mailgres_adopted.adopted_queues;
    v_until timestamptz;
    v_kind  text;
BEGIN
    SELECT * INTO v_queue FROM mailgres_adopted.adopted_queues a WHERE a.number = {number};
    IF v_queue.state = 'undoing' THEN
        RETURN NULL;
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM {take}(NEW, '0', NULL);
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM mailgres_adopted.settle({number}, OLD.{id}::text, {deleted}, 'the row was deleted');
        DELETE FROM mailgres_adopted.adopted_rows r
        WHERE r.number = {number} AND r.old_id = OLD.{id}::text AND r.email_id IS NULL;
        RETURN NULL;
    END IF;
    IF NEW.{id}::text <> OLD.{id}::text THEN
        UPDATE mailgres_adopted.adopted_rows r SET old_id = NEW.{id}::text
        WHERE r.number = {number} AND r.old_id = OLD.{id}::text;
    END IF;
    v_kind := {kind_of}(NEW);
    SELECT max(r.held_until) INTO v_until FROM mailgres_adopted.adopted_rows r
    WHERE r.number = {number} AND r.old_id = NEW.{id}::text AND r.email_id IS NOT NULL;
    IF v_until IS NULL THEN
        -- The row was not ours. If it waits now, it is taken over and held: its processor may still report.
        IF v_kind IN ('waiting', 'scheduled') THEN
            PERFORM {take}(NEW, v_queue.hold, v_queue.oldest);
        END IF;
    ELSIF v_kind IN ('waiting', 'scheduled') AND {content_changed}
          AND mailgres_adopted.state_of({number}, NEW.{id}::text) IN ('held', 'failed') THEN
        PERFORM {replace}(NEW, greatest(v_until - mailgres.now(), '0'));
    ELSE
        PERFORM mailgres_adopted.settle({number}, NEW.{id}::text, CASE v_kind
            WHEN 'dead' THEN 'failed' WHEN 'scheduled' THEN 'waiting' WHEN 'unmappable' THEN 'cancelled'
            WHEN 'left_alone' THEN 'cancelled' ELSE v_kind END, ({error})::text);
    END IF;
    RETURN NULL;
END

-- replace --
CREATE FUNCTION {replace}(p_row {base}, p_hold interval) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {body}

-- replace_body --
-- The application changed a row that waits: its emails are cancelled, and the new content is enqueued. If a worker
-- has one of them, the change comes too late.
DECLARE
    v_ids  uuid[] := ARRAY(SELECT r.email_id FROM mailgres_adopted.adopted_rows r
                           WHERE r.number = {number} AND r.old_id = p_row.{id}::text AND r.email_id IS NOT NULL);
BEGIN
    PERFORM FROM public.email_queue q WHERE q.id = ANY (v_ids) ORDER BY q.id FOR UPDATE;
    IF EXISTS (SELECT FROM public.email_queue q WHERE q.id = ANY (v_ids)
               AND (q.status IN ('sending', 'sent') OR q.uncertain_since IS NOT NULL)) THEN
        RETURN;
    END IF;
    PERFORM mailgres_adopted.settle({number}, p_row.{id}::text, 'cancelled', 'replaced: the adopted row was changed');
    DELETE FROM mailgres_adopted.adopted_rows r WHERE r.number = {number} AND r.old_id = p_row.{id}::text;
    PERFORM {take}(p_row, p_hold, NULL);
END

-- write --
CREATE FUNCTION {write}() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {body}

-- write_body --
-- Passes a change of the view on to the old table: only the columns that the statement changed, because the view
-- shows some of them differently.
DECLARE
    v_row {base};
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO {base} ({columns}) OVERRIDING SYSTEM VALUE VALUES ({new_values})
        RETURNING {all_columns} INTO {new_fields};
        RETURN NEW;
    END IF;
    SELECT * INTO v_row FROM {base} b WHERE b.{id} = OLD.{id} FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        DELETE FROM {base} b WHERE b.{id} = OLD.{id};
        RETURN OLD;
    END IF;
    IF {claim_lost} AND mailgres_adopted.state_of({number}, OLD.{id}::text) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
            MESSAGE = 'the row was changed by another transaction at this moment', HINT = 'Try again.';
    END IF;
    {unmask}
    UPDATE {base} b SET {assignments} WHERE b.{id} = OLD.{id};
    RETURN NEW;
END

-- unmask --
IF NEW.{column} #>> {path} = {mask} THEN
        NEW.{column} := jsonb_set(NEW.{column}, {path}, coalesce(v_row.{column} #> {path}, 'null'));
    END IF;

-- import --
CREATE FUNCTION {import_}(p_limit int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {body}

-- import_body --
-- Takes over the next rows in the order of their ids. A row that a trigger took over before is left out.
DECLARE
    v_queue mailgres_adopted.adopted_queues;
    v_after {base}.{id}%TYPE;
    v_row   record;
    v_rows  int := 0;
BEGIN
    SELECT * INTO v_queue FROM mailgres_adopted.adopted_queues a WHERE a.number = {number} FOR UPDATE;
    IF v_queue.state IS DISTINCT FROM 'importing' THEN
        RETURN 0;
    END IF;
    v_after := v_queue.imported_to;
    FOR v_row IN EXECUTE CASE WHEN v_after IS NULL THEN {first} ELSE {next} END USING p_limit, v_after LOOP
        v_rows := v_rows + 1;
        v_after := v_row.id;
        IF NOT EXISTS (SELECT FROM mailgres_adopted.adopted_rows r
                       WHERE r.number = {number} AND r.old_id = v_row.id::text) THEN
            PERFORM {take}(v_row.row, v_queue.hold, v_queue.oldest);
        END IF;
    END LOOP;
    UPDATE mailgres_adopted.adopted_queues a
    SET imported_to = v_after::text, state = CASE WHEN v_rows < p_limit THEN 'adopted' ELSE a.state END
    WHERE a.number = {number};
    IF v_rows < p_limit THEN
        INSERT INTO mailgres_adopted.adopted_steps (number, step) VALUES ({number}, 'import');
    END IF;
    RETURN v_rows;
END

-- first --
SELECT q AS row, q.{id} AS id FROM {base} q ORDER BY q.{id} LIMIT $1 FOR NO KEY UPDATE

-- next --
SELECT q AS row, q.{id} AS id FROM {base} q WHERE q.{id} > $2 ORDER BY q.{id} LIMIT $1 FOR NO KEY UPDATE

-- give_back --
CREATE FUNCTION {give_back}(p_limit int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = {zone} AS {body}

-- give_back_body --
-- For an undo: the old table learns what became of rows, and the old queue has them again. An email that waits is
-- cancelled here, so that only the old processor sends it. Rows that a worker of ours has are left for a later call.
DECLARE
    v_old   text;
    v_key   {base}.{id}%TYPE;
    v_ids   uuid[];
    v_state text;
    v_at    timestamptz;
    v_rows  int := 0;
BEGIN
    FOR v_old IN
        SELECT DISTINCT r.old_id FROM mailgres_adopted.adopted_rows r
        WHERE r.number = {number} AND NOT EXISTS (
            SELECT FROM mailgres_adopted.adopted_rows s JOIN public.email_queue q ON q.id = s.email_id
            WHERE s.number = r.number AND s.old_id = r.old_id AND q.status = 'sending')
        LIMIT p_limit
    LOOP
        v_ids := ARRAY(SELECT r.email_id FROM mailgres_adopted.adopted_rows r
                       WHERE r.number = {number} AND r.old_id = v_old AND r.email_id IS NOT NULL);
        PERFORM FROM public.email_queue q WHERE q.id = ANY (v_ids) ORDER BY q.id FOR UPDATE;
        CONTINUE WHEN EXISTS (SELECT FROM public.email_queue q WHERE q.id = ANY (v_ids) AND q.status = 'sending');
        v_rows := v_rows + 1;
        v_key := v_old;
        SELECT max(q.sent_at) INTO v_at FROM public.email_queue q WHERE q.id = ANY (v_ids) AND q.status = 'sent';
        v_state := CASE WHEN v_at IS NOT NULL THEN 'sent'
                        -- the old queue itself had it in flight, and its row says so
                        WHEN EXISTS (SELECT FROM mailgres_adopted.adopted_rows r WHERE r.number = {number}
                                     AND r.old_id = v_old AND r.kind = 'uncertain') THEN NULL
                        WHEN EXISTS (SELECT FROM public.email_queue q WHERE q.id = ANY (v_ids)
                                     AND q.uncertain_since IS NOT NULL) THEN 'uncertain'
                        ELSE mailgres_adopted.state_of({number}, v_old) END;
        IF v_state = 'held' THEN
            PERFORM mailgres_adopted.settle({number}, v_old, 'cancelled', 'the adopted queue was given back');
        END IF;
        {mark}
        DELETE FROM mailgres_adopted.adopted_rows r WHERE r.number = {number} AND r.old_id = v_old;
    END LOOP;
    RETURN v_rows;
END

-- mark_status --
UPDATE {base} b SET {assignments}
        WHERE b.{id} = v_key AND v_state = ANY ({marked}) AND {is_final} IS NOT TRUE
          AND (v_state = 'uncertain' AND {is_claimed}) IS NOT TRUE;

-- mark_gone --
DELETE FROM {base} b WHERE b.{id} = v_key AND v_state IN ('sent', 'gone', 'cancelled', 'uncertain');

-- is_one_of --
pg_catalog.lower(pg_catalog.btrim({value}::text, E' \t\n\r') COLLATE "C") = ANY ({statuses}::text[])

-- shown --
CASE WHEN {is_final} THEN o.{column}
     ELSE CASE mailgres_adopted.state_of({number}, o.{id}::text)
          WHEN 'sent' THEN {sent} WHEN 'failed' THEN {failed} WHEN 'cancelled' THEN {cancelled}
          WHEN 'held' THEN {held} WHEN 'gone' THEN {held}
          WHEN 'uncertain' THEN CASE WHEN {is_claimed} THEN o.{column} ELSE {held} END
          ELSE o.{column} END END

-- shown_time --
CASE WHEN mailgres_adopted.state_of({number}, o.{id}::text) IS NULL THEN o.{column} ELSE {mask} END

-- shown_json --
CASE WHEN mailgres_adopted.state_of({number}, o.{id}::text) IS NULL THEN o.{column}
     ELSE jsonb_set(o.{column}, {path}, to_jsonb({mask}::text)) END

-- unsent --
coalesce(mailgres_adopted.state_of({number}, o.{id}::text), '') NOT IN ('sent', 'gone', 'cancelled')

-- view --
CREATE VIEW {view} WITH (security_invoker = true) AS SELECT {columns} FROM {base} o WHERE {condition}

-- default --
ALTER VIEW {view} ALTER COLUMN {column} SET DEFAULT {expression}

-- attach --
CREATE TRIGGER mailgres_write INSTEAD OF INSERT OR UPDATE OR DELETE ON {view} FOR EACH ROW EXECUTE FUNCTION {write}();
CREATE TRIGGER mailgres_adopted AFTER INSERT OR UPDATE OR DELETE ON {base} FOR EACH ROW EXECUTE FUNCTION {changed}()

-- move --
ALTER TABLE {table} SET SCHEMA mailgres_adopted

-- move_back --
ALTER TABLE {base} SET SCHEMA {schema}

-- detach --
DROP TRIGGER mailgres_adopted ON {base};
DROP VIEW {view};
DROP FUNCTION {write}(), {changed}(), {take}({base}, interval, timestamptz), {kind_of}({base}),
    {replace}({base}, interval), {import_}(int), {give_back}(int)
