-- Picks the next emails: fair between tenants, at a cost that does not depend on the size of
-- the table. Every step reads an exact range of an index; sent rows, future rows, other tenants
-- and the rest of the backlog are never read. All functions are plpgsql, because it keeps the
-- plans between calls.

CREATE TYPE mailgres.pick_state AS (
    picked    uuid[],  -- the emails picked and locked so far
    taken     jsonb,   -- how many of them each tenant has
    has_more  text[],  -- tenants that used their whole share in this round: they may have more
    cursor    text,    -- the tenant after which the next round starts
    had       jsonb    -- how much of its share that tenant got before the last claim was full
);

-- The next tenant after p_after that has a ready email on the route. Two statements, so that
-- each uses its own partial index.
CREATE FUNCTION mailgres.next_tenant(p_route text, p_after text, p_urgent boolean) RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF p_urgent THEN
        RETURN (
            SELECT q.tenant_id FROM public.email_queue q
            WHERE q.ready AND q.priority <= 2 AND q.route = p_route AND q.tenant_id > p_after
            ORDER BY q.tenant_id LIMIT 1);
    END IF;
    RETURN (
        SELECT q.tenant_id FROM public.email_queue q
        WHERE q.ready AND q.route = p_route AND q.tenant_id > p_after
        ORDER BY q.tenant_id LIMIT 1);
END
$$;

COMMENT ON FUNCTION mailgres.next_tenant(text, text, boolean) IS
    'The next tenant in the round that has a ready email.';

CREATE FUNCTION mailgres.tenant_share(p_tenant text) RETURNS int
    LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN coalesce(
        (SELECT CASE WHEN t.paused_at IS NULL THEN 3 * t.weight ELSE 0 END
         FROM mailgres.tenants t WHERE t.tenant_id = p_tenant),
        3);
END
$$;

COMMENT ON FUNCTION mailgres.tenant_share(text) IS
    'How many emails a tenant may have per turn while other tenants wait; 0 while it is paused.';

-- A processor that only knows the template and the payload cannot send content of the email's
-- own, attachments, or an uncertain email, which needs its key.
CREATE FUNCTION mailgres.is_plain(q public.email_queue) RETURNS boolean
    LANGUAGE sql IMMUTABLE
RETURN NOT q.has_attachments AND num_nonnulls(
    q.subject, q.from_email, q.reply_to, q.headers, q.also_to, q.cc, q.bcc, q.uncertain_since) = 0;

COMMENT ON FUNCTION mailgres.is_plain(public.email_queue) IS
    'Whether a processor that only knows the template and the payload can send the email.';

-- For a day, only workers that have its provider claim an uncertain email. It is claimed with
-- the rest of its batch or not at all. p_plain: see is_plain.
CREATE FUNCTION mailgres.is_claimable(q public.email_queue, p_providers text[], p_plain boolean) RETURNS boolean
    LANGUAGE sql
RETURN (q.uncertain_since IS NULL OR p_providers IS NULL OR q.provider = ANY (p_providers)
        OR q.uncertain_since < mailgres.now() - interval '1 day')
    AND (NOT p_plain OR mailgres.is_plain(q))
    AND (q.uncertain_since IS NULL OR q.batch_id IS NULL OR mailgres.try_lock_batch(q.batch_id));

COMMENT ON FUNCTION mailgres.is_claimable(public.email_queue, text[], boolean) IS
    'Whether a claim may take a ready email.';

-- Picks and locks the next emails of one tenant.
CREATE FUNCTION mailgres.take_from_tenant(
    p_state mailgres.pick_state, p_route text, p_tenant text, p_limit int, p_urgent boolean,
    p_providers text[], p_plain boolean
) RETURNS mailgres.pick_state
    LANGUAGE plpgsql
AS $$
DECLARE
    v_ids   uuid[];
    v_room  constant int := mailgres.tenant_room(p_tenant) - coalesce((p_state.taken ->> p_tenant)::int, 0);
    v_limit constant int := least(p_limit, v_room);
BEGIN
    IF v_limit < 1 THEN
        RETURN p_state;
    END IF;
    IF p_urgent THEN
        v_ids := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.ready AND q.priority <= 2 AND q.route = p_route AND q.tenant_id = p_tenant
              AND q.id <> ALL (p_state.picked)
              AND mailgres.is_claimable(q, p_providers, p_plain)
            ORDER BY q.priority, q.next_retry_at
            LIMIT v_limit FOR UPDATE SKIP LOCKED);
    ELSE
        v_ids := ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.ready AND q.route = p_route AND q.tenant_id = p_tenant
              AND q.id <> ALL (p_state.picked)
              AND mailgres.is_claimable(q, p_providers, p_plain)
            ORDER BY q.priority, q.next_retry_at
            LIMIT v_limit FOR UPDATE SKIP LOCKED);
    END IF;
    p_state.picked := p_state.picked || v_ids;
    p_state.taken := p_state.taken || jsonb_build_object(
        p_tenant, coalesce((p_state.taken ->> p_tenant)::int, 0) + cardinality(v_ids));
    IF cardinality(v_ids) = p_limit AND v_room IS DISTINCT FROM p_limit THEN
        p_state.has_more := p_state.has_more || p_tenant;
    END IF;
    RETURN p_state;
END
$$;

COMMENT ON FUNCTION mailgres.take_from_tenant(mailgres.pick_state, text, text, int, boolean, text[], boolean) IS
    'Picks and locks the next emails of one tenant.';

-- One round: from the tenant after the cursor round to that tenant itself, until p_limit emails
-- are picked.
CREATE FUNCTION mailgres.take_round(
    p_state mailgres.pick_state, p_route text, p_limit int, p_urgent boolean, p_providers text[],
    p_plain boolean
) RETURNS mailgres.pick_state
    LANGUAGE plpgsql
AS $$
DECLARE
    c_most_visits  constant int := 1000;  -- limits how many paused tenants a claim passes
    v_start        text := p_state.cursor;
    v_wrapped      boolean := v_start = '';
    v_before       text;
    v_tenant       text;
    v_share        int;
    v_room         int;
BEGIN
    p_state.has_more := '{}';
    FOR v_visit IN 1 .. c_most_visits LOOP
        v_room := p_limit - cardinality(p_state.picked);
        EXIT WHEN v_room <= 0;
        v_before := p_state.cursor;
        v_tenant := mailgres.next_tenant(p_route, p_state.cursor, p_urgent);
        IF v_tenant IS NULL AND NOT v_wrapped THEN
            v_wrapped := true;
            p_state.cursor := '';
            CONTINUE;
        END IF;
        EXIT WHEN v_tenant IS NULL
            OR (v_wrapped AND v_start <> '' AND v_tenant > v_start COLLATE "C");
        p_state.cursor := v_tenant;

        v_share := mailgres.tenant_share(v_tenant);
        CONTINUE WHEN v_share = 0;
        v_share := v_share - coalesce((p_state.taken ->> v_tenant)::int, 0)
                           - coalesce((p_state.had ->> v_tenant)::int, 0);
        IF v_share > 0 THEN
            p_state := mailgres.take_from_tenant(
                p_state, p_route, v_tenant, least(v_share, v_room), p_urgent, p_providers, p_plain);
            -- A tenant whose share is cut short by the end of the claim gets the rest in the next one.
            IF cardinality(p_state.picked) = p_limit AND v_room < least(v_share, p_limit) THEN
                p_state.cursor := v_before;
                p_state.had := jsonb_build_object(
                    v_tenant, coalesce((p_state.had ->> v_tenant)::int, 0) + v_room);
                EXIT;
            END IF;
        ELSE
            p_state.has_more := p_state.has_more || v_tenant;
        END IF;
        p_state.had := '{}';
    END LOOP;
    RETURN p_state;
END
$$;

COMMENT ON FUNCTION mailgres.take_round(mailgres.pick_state, text, int, boolean, text[], boolean) IS
    'One round through the tenants, up to 3 x weight emails of each.';

-- If no more emails are ready than a claim takes, it takes all of them, and needs no rounds: a
-- quiet queue is the usual case, and it is where latency matters. Null: there are more, or a
-- tenant has a rate limit.
CREATE FUNCTION mailgres.pick_few(p_route text, p_limit int, p_providers text[], p_plain boolean)
    RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
DECLARE
    c_few constant int := least(p_limit, 10);
BEGIN
    IF EXISTS (SELECT FROM mailgres.buckets b WHERE b.name LIKE 'tenant:%') OR c_few < (
        SELECT count(*) FROM (
            SELECT FROM public.email_queue q WHERE q.ready AND q.route = p_route LIMIT c_few + 1) x)
    THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.ready AND q.route = p_route
          AND NOT EXISTS (
              SELECT FROM mailgres.tenants t WHERE t.tenant_id = q.tenant_id AND t.paused_at IS NOT NULL)
          AND mailgres.is_claimable(q, p_providers, p_plain)
        ORDER BY q.priority, q.next_retry_at
        LIMIT c_few FOR UPDATE OF q SKIP LOCKED);
END
$$;

COMMENT ON FUNCTION mailgres.pick_few(text, int, text[], boolean) IS
    'Picks and locks all ready emails of a route, if there are few.';

-- The emails of one claim. First an urgent round with priorities 1 and 2, for at most half of the
-- claim; then a round with all emails, where priority orders the emails of each tenant. If that
-- does not fill the claim and only one tenant has more, it gets the rest; several tenants get
-- another round for every ten emails of the claim.
CREATE FUNCTION mailgres.pick(
    p_route text, p_limit int, p_providers text[], p_plain boolean,
    INOUT p_cursors jsonb, OUT p_picked uuid[]
)
    LANGUAGE plpgsql
AS $$
DECLARE
    v_urgent    text := 'urgent:' || p_route;
    v_state     mailgres.pick_state;
    v_has_more  text[];
    v_tenant    text;
    v_room      int;
BEGIN
    p_picked := mailgres.pick_few(p_route, p_limit, p_providers, p_plain);
    IF p_picked IS NOT NULL THEN
        RETURN;
    END IF;

    v_state := ROW('{}', '{}', '{}', coalesce(p_cursors #>> ARRAY[v_urgent, 'cursor'], ''),
                   p_cursors #> ARRAY[v_urgent, 'had']);
    v_state := mailgres.take_round(v_state, p_route, p_limit / 2, true, p_providers, p_plain);
    p_cursors := p_cursors || jsonb_build_object(
        v_urgent, jsonb_build_object('cursor', v_state.cursor, 'had', v_state.had));

    v_state.cursor := coalesce(p_cursors #>> ARRAY[p_route, 'cursor'], '');
    v_state.had := p_cursors #> ARRAY[p_route, 'had'];
    v_state := mailgres.take_round(v_state, p_route, p_limit, false, p_providers, p_plain);
    p_cursors := p_cursors || jsonb_build_object(
        p_route, jsonb_build_object('cursor', v_state.cursor, 'had', v_state.had));

    FOR v_turn IN 2 .. p_limit LOOP
        v_has_more := v_state.has_more;
        v_state.has_more := '{}';
        EXIT WHEN cardinality(v_has_more) = 0
            OR (cardinality(v_has_more) > 1 AND v_turn > (p_limit + 9) / 10);
        FOREACH v_tenant IN ARRAY v_has_more LOOP
            v_room := p_limit - cardinality(v_state.picked);
            EXIT WHEN v_room = 0;
            v_state := mailgres.take_from_tenant(
                v_state, p_route, v_tenant,
                CASE WHEN cardinality(v_has_more) = 1 THEN v_room
                     ELSE least(v_room, mailgres.tenant_share(v_tenant)) END,
                false, p_providers, p_plain);
        END LOOP;
    END LOOP;
    p_picked := v_state.picked;
END
$$;

COMMENT ON FUNCTION mailgres.pick(text, int, text[], boolean, jsonb) IS
    'Picks and locks the emails of one claim, fairly between tenants.';
