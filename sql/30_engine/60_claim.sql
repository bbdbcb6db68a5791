-- The claim: who is next, and takes it. Fair between tenants, bounded in cost.
--
-- It serves one route, the routes taking turns. It goes round the tenants that
-- have something ready there, starting after the one served last, and takes up to
-- 3 x weight emails of each, the tenant's own priorities first. Before that an
-- urgent pass does the same among priorities 1 and 2 for at most half of the
-- claim. Who is alone gets the whole claim. A claim of 10 is one turn round the
-- tenants; a larger one is a turn for every ten, unless it is full before.
--
-- Every step reads an exact range of an index, so neither sent rows nor future
-- rows nor the number of tenants nor the backlog make it slower.

CREATE TYPE mailgres.picked AS (
    ids     uuid[],  -- emails picked and locked so far
    counts  jsonb,   -- how many of them each tenant has
    hungry  text[],  -- tenants that took their share in this turn and may have more
    last    text     -- the tenant at which the turn ended
);

-- Picks and locks the next emails of one tenant.
-- Two statements, so that each has a partial index of its own.
CREATE FUNCTION mailgres.pick(
    p_route text, p_tenant text, p_limit int, p_urgent boolean, p_plain boolean, p_picked uuid[]
) RETURNS uuid[]
    LANGUAGE plpgsql
AS $$
BEGIN
    IF p_urgent THEN
        RETURN ARRAY(
            SELECT q.id FROM public.email_queue q
            WHERE q.ready AND q.priority <= 2 AND q.route = p_route AND q.tenant_id = p_tenant
              AND q.id <> ALL (p_picked)
              AND (NOT p_plain OR (q.subject IS NULL AND q.uncertain_since IS NULL))
            ORDER BY q.priority, q.next_retry_at
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED);
    END IF;
    RETURN ARRAY(
        SELECT q.id FROM public.email_queue q
        WHERE q.ready AND q.route = p_route AND q.tenant_id = p_tenant
          AND q.id <> ALL (p_picked)
          AND (NOT p_plain OR (q.subject IS NULL AND q.uncertain_since IS NULL))
        ORDER BY q.priority, q.next_retry_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED);
END
$$;

COMMENT ON FUNCTION mailgres.pick(text, text, int, boolean, boolean, uuid[]) IS
    'Picks and locks the next emails of a tenant; plain ones only for processors that know no content and no keys.';

-- One turn round the tenants, from the one after p_after to that one itself.
CREATE FUNCTION mailgres.turn(
    p_route text, p_limit int, p_urgent boolean, p_plain boolean, p_after text, p_picked mailgres.picked
) RETURNS mailgres.picked
    LANGUAGE plpgsql
AS $$
DECLARE
    c_most_visits constant int := 1000;  -- paused tenants are passed; this bounds how many
    v_result  mailgres.picked := p_picked;
    v_after   text := p_after;
    v_wrapped boolean := p_after = '';
    v_tenant  text;
    v_share   int;
    v_room    int;
    v_ids     uuid[];
BEGIN
    v_result.hungry := '{}';
    v_result.last := p_after;
    FOR v_visit IN 1 .. c_most_visits LOOP
        v_room := p_limit - cardinality(v_result.ids);
        EXIT WHEN v_room <= 0;

        IF p_urgent THEN
            SELECT q.tenant_id INTO v_tenant FROM public.email_queue q
            WHERE q.ready AND q.priority <= 2 AND q.route = p_route AND q.tenant_id > v_after
            ORDER BY q.tenant_id LIMIT 1;
        ELSE
            SELECT q.tenant_id INTO v_tenant FROM public.email_queue q
            WHERE q.ready AND q.route = p_route AND q.tenant_id > v_after
            ORDER BY q.tenant_id LIMIT 1;
        END IF;
        IF v_tenant IS NULL AND NOT v_wrapped THEN
            v_wrapped := true;
            v_after := '';
            CONTINUE;
        END IF;
        EXIT WHEN v_tenant IS NULL
            OR (v_wrapped AND p_after <> '' AND v_tenant COLLATE "C" > p_after);
        v_after := v_tenant;
        v_result.last := v_tenant;

        SELECT CASE WHEN t.paused_at IS NULL THEN 3 * t.weight ELSE 0 END INTO v_share
        FROM mailgres.tenants t WHERE t.tenant_id = v_tenant;
        v_share := coalesce(v_share, 3) - coalesce((v_result.counts ->> v_tenant)::int, 0);
        CONTINUE WHEN v_share <= 0;

        v_ids := mailgres.pick(p_route, v_tenant, least(v_share, v_room), p_urgent, p_plain, v_result.ids);
        v_result.ids := v_result.ids || v_ids;
        v_result.counts := v_result.counts || jsonb_build_object(
            v_tenant, coalesce((v_result.counts ->> v_tenant)::int, 0) + cardinality(v_ids));
        IF cardinality(v_ids) = v_share THEN
            v_result.hungry := v_result.hungry || v_tenant;
        END IF;
    END LOOP;
    RETURN v_result;
END
$$;
