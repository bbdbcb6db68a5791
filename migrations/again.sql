-- Runs in the transaction of a migration that has nothing to do: roles may have been created since.
SELECT mailgres.secure()
WHERE pg_catalog.has_function_privilege('mailgres.secure()', 'EXECUTE');
