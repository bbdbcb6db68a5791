"""Who may do what: nobody who must not calls our functions or sees our rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.doctor.finding import Check, Finding
from mailgres.doctor.schema import relations, signatures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import Patient

STRANGERS = ["anon", "authenticated"]
"""Roles that anybody on the internet has on Supabase."""


def row_security(patient: Patient) -> Iterator[Finding]:
    """Every table of the contract has row security, and no policy lets everybody in."""
    for row in patient.ask("without_row_security", relations=relations()):
        yield Finding(
            "row-security",
            "error",
            f"{row['table']} has no row security",
            patient.psql(f"ALTER TABLE {row['table']} ENABLE ROW LEVEL SECURITY"),
        )
    for row in patient.ask("open_policies", relations=relations(), strangers=STRANGERS):
        yield Finding(
            "row-security",
            "error",
            f"the policy {row['policy']} on {row['table']} lets in {row['who']}",
            patient.psql(f"DROP POLICY {row['policy']} ON {row['table']}"),
        )


def grants(patient: Patient) -> Iterator[Finding]:
    """Neither PUBLIC nor Supabase's strangers may call or read anything of ours."""
    asked = {"relations": relations(), "signatures": signatures(), "strangers": STRANGERS}
    for row in patient.ask("open_grants", **asked):
        many = f" and {row['objects'] - 1} more" if row["objects"] > 1 else ""
        verb = {"function": "call", "table": "use", "schema": "look into"}[row["kind"]]
        may = f"{row['role']} may {verb} {row['first']}{many}"
        yield Finding("grants", "error", may, patient.psql("SELECT mailgres.secure()"))
    for row in patient.ask("exposed_schema"):
        without = ", ".join(
            name for name in map(str.strip, row["schemas"].split(",")) if name != "mailgres"
        )
        yield Finding(
            "grants",
            "error",
            f"PostgREST exposes the schema mailgres (role {row['role']})",
            patient.psql(
                f"ALTER ROLE \"{row['role']}\" SET pgrst.db_schemas = '{without}'",
                "NOTIFY pgrst, 'reload config'",
            ),
        )


CHECKS = (
    Check("row-security", row_security, "on for every table"),
    Check("grants", grants, "nobody may do what he must not"),
)
