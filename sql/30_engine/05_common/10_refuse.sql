-- Bad input is refused in the caller's transaction with a SQLSTATE of class MG,
-- a message that says what is wrong and a hint that says what to do. The codes
-- are listed in the documentation (docs/errors.md) and mapped to exceptions in
-- the Python package.

CREATE FUNCTION mailgres.refuse(p_sqlstate text, p_message text, p_hint text) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = p_sqlstate, MESSAGE = p_message, HINT = p_hint;
END
$$;

COMMENT ON FUNCTION mailgres.refuse(text, text, text) IS
    'Raises an error of class MG. Declared boolean so that it can stand in a condition.';
