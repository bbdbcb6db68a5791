"""What a role that may create objects can plant: a copy of all that PostgreSQL itself has.

Every function, operator, aggregate, type and catalog view of `pg_catalog` is planted again, so that
a name of ours that is looked up where it must not be finds one of them, whichever name it is. A
planted object raises an alarm when it runs as anybody but the role that planted it.
"""

from __future__ import annotations

from typing import Final, LiteralString

import psycopg
from psycopg import sql

PLANTED: Final = "EV001"
"""The SQLSTATE of a planted object that runs with the rights of another role."""

_ALARM: LiteralString = """
    CREATE SEQUENCE {schema}.planted_calls;
    GRANT ALL ON SEQUENCE {schema}.planted_calls TO PUBLIC;
    CREATE FUNCTION {schema}.planted(p_what pg_catalog.text DEFAULT 'a domain')
        RETURNS pg_catalog.bool LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $alarm$
    BEGIN
        IF current_user <> {planter} THEN
            -- a sequence remembers also what was rolled back
            PERFORM nextval({calls}::regclass);
            RAISE EXCEPTION 'planted: % runs as %', p_what, current_user USING ERRCODE = 'EV001';
        END IF;
        RETURN true;
    END $alarm$;
"""

_FUNCTIONS: LiteralString = """
    SELECT format('CREATE FUNCTION %I.%I(%s) RETURNS %s%s LANGUAGE plpgsql AS '
                  '$p$ BEGIN PERFORM %I.planted(%L); RETURN%s; END $p$',
                  {schema_name}, p.proname, pg_get_function_identity_arguments(p.oid),
                  CASE WHEN p.proretset THEN 'SETOF ' END, format_type(p.prorettype, NULL),
                  {schema_name}, p.oid::regprocedure,
                  CASE WHEN p.proretset OR p.prorettype = 'void'::regtype THEN '' ELSE ' NULL' END)
    FROM pg_proc p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'
      AND p.proargmodes IS NULL
"""

_OPERATORS: LiteralString = """
    SELECT format('CREATE FUNCTION %1$I.planted_operator_%2$s(%3$s) RETURNS %4$s LANGUAGE plpgsql '
                  'AS $p$ BEGIN PERFORM %1$I.planted(%5$L); RETURN NULL; END $p$;'
                  'CREATE OPERATOR %1$I.%6$s (%7$s FUNCTION = %1$I.planted_operator_%2$s)',
                  {schema_name}, o.oid,
                  concat_ws(', ', nullif(o.oprleft, 0)::regtype, o.oprright::regtype),
                  o.oprresult::regtype, o.oid::regoperator, o.oprname,
                  CASE WHEN o.oprleft <> 0 THEN format('LEFTARG = %s, ', o.oprleft::regtype) END
                  || format('RIGHTARG = %s,', o.oprright::regtype))
    FROM pg_operator o
    WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprcode <> 0
"""

_AGGREGATES: LiteralString = """
    SELECT format('CREATE FUNCTION %1$I.planted_step_%2$s(%3$s, %4$s) RETURNS %3$s '
                  'LANGUAGE plpgsql AS $p$ BEGIN PERFORM %1$I.planted(%5$L); RETURN NULL; END $p$;'
                  'CREATE AGGREGATE %1$I.%6$I(%4$s) (SFUNC = %1$I.planted_step_%2$s, STYPE = %3$s)',
                  {schema_name}, p.oid, format_type(p.prorettype, NULL),
                  pg_get_function_identity_arguments(p.oid), p.oid::regprocedure, p.proname)
    FROM pg_proc p JOIN pg_aggregate a ON a.aggfnoid = p.oid
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND a.aggkind = 'n' AND p.pronargs > 0
"""

_TYPES: LiteralString = """
    SELECT format('CREATE DOMAIN %1$I.%2$I AS pg_catalog.%2$I CHECK (%1$I.planted())',
                  {schema_name}, t.typname)
    FROM pg_type t
    WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype IN ('b', 'r', 'm')
      AND t.typelem = 0
"""

_RELATIONS: LiteralString = """
    SELECT format('CREATE VIEW %1$I.%2$I AS SELECT * FROM %3$I.%2$I WHERE %1$I.planted(%2$L)',
                  {schema_name}, c.relname, n.nspname)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'v')
      AND (n.nspname IN ('pg_catalog', 'mailgres')
           OR n.nspname = 'public' AND {schema_name} <> 'public' AND c.relname LIKE 'email%')
"""

_CASTS: LiteralString = """
    CREATE TYPE {schema}.planted_type AS ENUM ('welcome_user');
    CREATE FUNCTION {schema}.planted_cast({schema}.planted_type) RETURNS pg_catalog.text
        LANGUAGE plpgsql
        AS $p$ BEGIN PERFORM {schema}.planted('a cast'); RETURN 'welcome_user'; END $p$;
    CREATE CAST ({schema}.planted_type AS pg_catalog.text)
        WITH FUNCTION {schema}.planted_cast({schema}.planted_type) AS IMPLICIT;
"""

_CREATE_ALL: LiteralString = """
    DO $do$
    DECLARE
        v_statement text;
    BEGIN
        FOR v_statement IN {statements} LOOP
            BEGIN
                EXECUTE v_statement;
            EXCEPTION WHEN OTHERS THEN
                NULL;  -- what no language of ours can replace (internal, "any", columns twice)
            END;
        END LOOP;
    END $do$
"""

PLACES: Final = ("public", "pg_temp")


def restartable(connection: psycopg.Connection, planter: str, place: str = "public") -> None:
    """Plant everything in a schema as a role; the connection's own role is as before afterwards."""
    names = {
        "schema": sql.Identifier(place),
        "schema_name": sql.Literal(place),
        "planter": sql.Literal(planter),
        "calls": sql.Literal(f"{place}.planted_calls"),
    }
    if place == "public":
        grant = sql.SQL("GRANT CREATE, USAGE ON SCHEMA public TO PUBLIC")
        connection.execute(grant)
    with connection.transaction():
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(planter)))
        # Names are written as they have to be found: in pg_catalog.
        connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        connection.execute(sql.SQL(_ALARM).format(**names))
        connection.execute(sql.SQL(_CASTS).format(**names))
        for part in (_FUNCTIONS, _OPERATORS, _AGGREGATES, _RELATIONS, _TYPES):
            statements = sql.SQL(part).format(**names)
            connection.execute(sql.SQL(_CREATE_ALL).format(statements=statements))
        connection.execute("RESET ROLE")


def alarms(connection: psycopg.Connection, place: str = "public") -> int:
    """Return how often a planted object ran with other rights, also if that was rolled back."""
    calls = sql.Identifier(place, "planted_calls")
    query = sql.SQL("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {}").format(calls)
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def uproot(connection: psycopg.Connection, planter: str) -> None:
    """Drop what a role planted; fails if anything depends on it."""
    cast = "DROP CAST IF EXISTS (public.planted_type AS pg_catalog.text)"
    connection.execute(cast)
    connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(planter)))
    connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
