-- What becomes of each row of a foreign queue. The parts in braces come from the mapping; the decision is here.

-- limits --
SELECT pg_catalog.set_config('transaction_read_only', 'on', true),
       pg_catalog.set_config('statement_timeout', '10min', true), pg_catalog.set_config('lock_timeout', '2s', true),
       pg_catalog.set_config('search_path', 'pg_catalog, public, pg_temp', true),
       pg_catalog.set_config('datestyle', 'ISO', true), pg_catalog.set_config('timezone', %(timezone)s, true)

-- row --
-- One row of the queue with the fields that decide. {table} is the queue, or its dead letters.
SELECT {id}::text AS id,
       coalesce({is_email}, false) AS is_email,
       {is_dead_letter} AS is_dead_letter,
       {status}::text AS status,
       coalesce({statuses}::jsonb ->> nullif(lower(btrim({status}::text, E' \t\n\r') COLLATE "C"), ''),
                CASE WHEN nullif(btrim({status}::text, E' \t\n\r'), '') IS NULL THEN {null_status} ELSE 'unknown' END)
           AS meaning,
       {recipient} AS recipient,
       {has_content} AS has_content,
       {readable_times} AS has_readable_times,
       {logged} AS logged,
       {attempts} AS attempts,
       {attempts_limit} AS attempts_limit,
       {max_retries} AS max_retries,
       {created_at} AS created_at,
       {sent_at} AS sent_at,
       {next_retry_at} AS next_retry_at,
       {scheduled_for} AS scheduled_for,
       {expires_at} AS expires_at,
       {lease_until} AS lease_until,
       {locked_at} AS locked_at
FROM {table} q

-- classified --
-- `kind` is what becomes of the row, and `why` the reason for what cannot be mapped. An address is what both the
-- old queue and ours can send to: one at sign, a dot behind it, no space, comma or bracket. A limit that is not in a
-- column is one of the pick, so it counts for every row; one in a column only for rows that failed.
SELECT r.id, r.recipient, r.status, r.created_at,
       CASE WHEN r.recipients IS NULL THEN 0 ELSE cardinality(r.recipients) END AS recipients,
       CASE WHEN NOT r.is_email OR r.meaning = 'left_alone' THEN 'left_alone'
            WHEN r.meaning = 'sent' OR r.logged = 'sent' THEN 'sent'
            WHEN r.meaning = 'cancelled' OR r.logged = 'cancelled' THEN 'cancelled'
            WHEN r.meaning = 'failed_final' OR r.is_dead_letter THEN 'dead'
            WHEN r.meaning = 'unknown' THEN 'unmappable'
            WHEN r.next_retry_at IS NULL AND r.has_readable_times AND {without_next_retry} = 'failed_final' THEN 'dead'
            WHEN r.is_in_flight AND r.recipients <> '{{}}' THEN 'uncertain'
            WHEN r.is_in_flight THEN 'unmappable'
            WHEN r.attempts >= r.attempts_limit OR r.expires_at <= now()
                 OR r.meaning = 'failed_retriable' AND r.attempts >= r.max_retries THEN 'dead'
            WHEN r.recipients = '{{}}' OR NOT r.has_content OR NOT r.has_readable_times THEN 'unmappable'
            WHEN greatest(r.next_retry_at, r.scheduled_for) > now() THEN 'scheduled'
            ELSE 'waiting' END AS kind,
       CASE WHEN r.meaning = 'unknown' THEN 'unknown status'
            WHEN r.recipients = '{{}}' THEN 'no usable address'
            WHEN NOT r.has_readable_times THEN 'a time that cannot be read'
            WHEN NOT r.has_content THEN 'no content, or an unknown template' END AS why,
       r.recipients AS addresses, greatest(r.next_retry_at, r.scheduled_for) AS due_at, r.expires_at
FROM (SELECT b.*,
             b.meaning = 'processing' OR coalesce(b.lease_until > now(), false)
             OR b.locked_at IS NOT NULL OR b.sent_at IS NOT NULL AS is_in_flight,
             CASE WHEN {is_list} THEN
                  ARRAY(SELECT DISTINCT lower(m[1]) FROM regexp_matches(b.recipient, {address}, 'g') m)
             WHEN btrim(b.recipient) ~ ('^' || {address} || '$') THEN ARRAY[b.recipient]
             ELSE '{{}}' END AS recipients
      FROM ({rows}) b) r

-- content --
-- What an email of ours takes from a row. Content of its own comes before a template; a body is HTML if it has a tag.
SELECT c.user_id, c.payload, nullif(c.headers - 'Reply-To', '{{}}') AS headers, c.from_email,
       coalesce(c.reply_to, c.headers ->> 'Reply-To') AS reply_to, c.tenant_id, c.correlation_id,
       CASE WHEN c.has_content THEN c.subject END AS subject, CASE WHEN c.has_content THEN c.html END AS html,
       CASE WHEN c.has_content THEN c.text END AS text,
       CASE WHEN NOT c.has_content OR c.template_type ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{{0,99}}$'
            THEN c.template_type END AS template_type,
       (SELECT r.route FROM mailgres.routes r WHERE r.route = c.route) AS route,
       ({priorities}::jsonb ->> (lower(btrim(c.priority, E' \t\n\r') COLLATE "C")))::int AS priority,
       nullif(ARRAY(SELECT DISTINCT m[1] FROM regexp_matches(c.cc, {address}, 'g') m), '{{}}') AS cc,
       nullif(ARRAY(SELECT DISTINCT m[1] FROM regexp_matches(c.bcc, {address}, 'g') m), '{{}}') AS bcc
FROM (SELECT b.*, coalesce(b.html, b.text) IS NOT NULL AS has_content
      FROM (SELECT nullif(btrim({user_id}), '')::uuid AS user_id, nullif({payload}, 'null') AS payload, nullif({headers}, 'null') AS headers,
                   nullif(btrim({from_email}), '') AS from_email, nullif(btrim({reply_to}), '') AS reply_to,
                   nullif({tenant_id}, '') AS tenant_id, nullif({correlation_id}, '') AS correlation_id,
                   coalesce(nullif(btrim(regexp_replace({subject}, E'[\\x01-\\x1f\\x7f-\\x9f\\u2028\\u2029]+', ' ', 'g')), ''),
                            '(no subject)') AS subject,
                   coalesce(nullif({html}, ''), CASE WHEN {body} ~ '<[a-zA-Z!/][^<>]*>' THEN {body} END) AS html,
                   coalesce(nullif({text}, ''), CASE WHEN {body} !~ '<[a-zA-Z!/][^<>]*>' THEN nullif({body}, '') END) AS text,
                   {template_type} AS template_type, {route} AS route, {priority} AS priority,
                   {cc} AS cc, {bcc} AS bcc
            FROM {rows} q) b) c

-- counts --
SELECT c.kind, count(*) AS rows, sum(c.recipients)::int8 AS recipients,
       count(*) FILTER (WHERE c.created_at < now() - {old_after}::interval) AS old
FROM ({classified}) c GROUP BY c.kind

-- samples --
SELECT s.kind, s.id, s.recipient, s.status, s.why
FROM (SELECT c.*, row_number() OVER (PARTITION BY c.kind ORDER BY c.created_at, c.id) AS place
      FROM ({classified}) c
      WHERE c.kind = ANY ({kinds})) s
WHERE s.place <= {limit} ORDER BY s.kind, s.place

-- logged --
-- Messages that are in the log alone: their rows were deleted when they were done.
SELECT g.kind, count(*) AS rows
FROM (SELECT CASE WHEN bool_or({meanings}::jsonb ->> l.{status}::text = 'sent') THEN 'sent' ELSE 'cancelled' END AS kind
      FROM {table} l
      WHERE l.{key} IS NOT NULL AND {meanings}::jsonb ? l.{status}::text
        AND NOT EXISTS (SELECT FROM ({known}) k WHERE k.id = l.{key}::text)
      GROUP BY l.{key}) g
GROUP BY g.kind

-- known --
SELECT ({value})::text AS id FROM {table} q

-- sent_if_time --
CASE WHEN ({value}) IS NOT NULL THEN 'sent' END

-- json_text --
q.{column} #>> {path}

-- json_time --
CASE WHEN ({value}) ~ {pattern} THEN ({value})::timestamptz END

-- json_number --
CASE WHEN ({value}) ~ '^-?[0-9]{{1,9}}$' THEN ({value})::int END

-- readable --
coalesce(({value}) ~ {pattern}, true)

-- nonempty --
coalesce(btrim(({value})::text), '') <> ''

-- template_exists --
EXISTS (SELECT FROM {table} t WHERE t.{key}::text = ({value})::text)

-- only --
({value})::text = ANY ({values})

-- joined --
array_to_string({value}, ',')

-- log_outcome --
(SELECT CASE WHEN bool_or({meanings}::jsonb ->> l.{status}::text = 'sent') THEN 'sent'
             WHEN bool_or({meanings}::jsonb ->> l.{status}::text = 'cancelled') THEN 'cancelled' END
 FROM {table} l WHERE l.{key}::text = ({value})::text)

-- log_attempts --
(SELECT count(*)::int FROM {table} l WHERE l.{key}::text = ({value})::text AND l.{status}::text = ANY ({attempts}))
