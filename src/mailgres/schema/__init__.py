"""What the schema consists of, and how the part that is not in a revision gets there.

Tables, types, domains, indexes, rows and the functions that those need are in revisions
(`migrations/`). Every other function, and all views, triggers and comments, are repeatable: a
migration compares them with `sql/` and replaces those that differ (`sql/25_schema`).
"""
