"""Check the rights: no role has more rights than it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.doctor.finding import Check, Finding
from mailgres.doctor.schema import relations
from mailgres.schema.sources import own, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mailgres.doctor.finding import DoctorContext, Severity

STRANGERS = ["anon", "authenticated"]
"""Roles that everybody on the internet has on Supabase."""


def row_security(context: DoctorContext) -> Iterator[Finding]:
    """Check that every public table has row security and no policy that admits everybody."""
    for row in context.ask("without_row_security", relations=relations()):
        yield Finding(
            "row-security",
            "error",
            f"{row['table']} has no row security",
            context.psql(f"ALTER TABLE {row['table']} ENABLE ROW LEVEL SECURITY"),
        )
    for row in context.ask("open_policies", relations=relations(), strangers=STRANGERS):
        yield Finding(
            "row-security",
            "error",
            f"the policy {row['policy']} on {row['table']} admits {row['who']}",
            context.psql(f"DROP POLICY {row['policy']} ON {row['table']}"),
        )


def grants(context: DoctorContext) -> Iterator[Finding]:
    """List the rights that `mailgres.intended_grants()` does not name."""
    for row in context.ask("unintended_grants", figures=_figures()):
        yield Finding("grants", _severity(row), _may(row), _revoke(context, row))
    for row in context.ask("strangers_among_ours", strangers=STRANGERS):
        yield Finding(
            "grants",
            "error",
            f"{row['who']} is a member of {row['role']}",
            context.psql(f"REVOKE {row['role']} FROM {row['who']}") if row["direct"] else None,
        )
    if context.one("creators_in_public")["everybody"]:
        yield Finding(
            "grants",
            "info",
            "everybody may create objects in the schema public",
            context.psql("REVOKE CREATE ON SCHEMA public FROM PUBLIC"),
        )
    for row in context.ask("exposed_schema"):
        without = ", ".join(
            name for name in map(str.strip, row["schemas"].split(",")) if name != "mailgres"
        )
        yield Finding(
            "grants",
            "error",
            f"PostgREST exposes the schema mailgres (role {row['role']})",
            context.psql(
                f"ALTER ROLE \"{row['role']}\" SET pgrst.db_schemas = '{without}'",
                "NOTIFY pgrst, 'reload config'",
            ),
        )


def _figures() -> list[str]:
    """Return the views without personal data."""
    views = own().names("view", schema="public")
    return [f"public.{name}" for name in views if name != "email_dead_letters"]


def _severity(row: Mapping[str, Any]) -> Severity:
    if row["everybody"]:
        return "error"
    return "info" if row["usual"] else "warning"


def _may(row: Mapping[str, Any]) -> str:
    """Describe which role has which right, and on how many objects."""
    who = "everybody (PUBLIC)" if row["grantee"] == "PUBLIC" else row["grantee"]
    many = f" and {row['objects'] - 1} more" if row["objects"] > 1 else ""
    on = f"{plain(row['first'])}{many}"
    further = ", and grant it to others" if row["passes_on"] else ""
    match row["kind"]:
        case "function":
            return f"{who} may call {on}{further}"
        case "table" | "column":
            part = "columns of " if row["kind"] == "column" else ""
            return f"{who} may use {part}{on} ({row['privileges']}){further}"
        case "schema":
            return f"{who} may look into {on} ({row['privileges']}){further}"
        case kind:
            return f"{who} may use the {kind} {on} ({row['privileges']}){further}"


def _revoke(context: DoctorContext, row: Mapping[str, Any]) -> str:
    if row["everybody"]:
        return context.psql("SELECT mailgres.secure()")
    return context.psql("; ".join(row["revokes"]))


CHECKS = (
    Check("row-security", row_security, "on for every table"),
    Check("grants", grants, "no role has more rights than it needs"),
)
