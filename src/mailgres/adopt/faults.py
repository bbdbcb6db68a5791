"""Find what is wrong with a foreign queue; each finding has the line that shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mailgres.adopt.catalog import line_with
from mailgres.adopt.statuses import normal
from mailgres.adopt.writers import endpoints, inserting_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.adopt.catalog import Catalog
    from mailgres.adopt.tables import Proposal
    from mailgres.adopt.writers import Writers

_TOKEN: Final = re.compile(
    r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|\b(?:re|sk|SG)[_.][\w.-]{16,}"
)
_SWALLOWS: Final = r"EXCEPTION\s+WHEN\s+OTHERS|WHEN\s+OTHERS\s+THEN"
_OPEN: Final = ("PUBLIC", "anon", "authenticated")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong: a stable name, a sentence, and the line of the database that shows it."""

    name: str
    message: str
    line: str


def faults(proposal: Proposal, who: Writers, catalog: Catalog) -> list[Fault]:
    """Return what is wrong with a queue, the worst first."""
    return [
        *_open_functions(proposal, who),
        *_open_table(proposal),
        *_secrets(who),
        *_claims(proposal, who),
        *_retries(proposal),
        *_swallowed(who),
        *_rows(proposal),
        *_functions(who),
        *_endless(proposal, catalog),
    ]


def _open_functions(proposal: Proposal, who: Writers) -> Iterator[Fault]:
    for each in who.inserting:
        if each.definer and each.executors:
            yield Fault(
                "open_relay",
                f"{' and '.join(each.executors)} may call {each.signature}, which inserts as its"
                " owner: who has the public key can send email to anybody",
                inserting_line(each, proposal.table) or f"SECURITY DEFINER {each.signature}",
            )
    for each in (*who.inserting, *who.changing):
        if each.definer and not each.pinned:
            yield Fault(
                "no_search_path",
                f"{each.signature} runs as its owner and sets no search_path: a caller can put"
                " objects of its own in front",
                f"FUNCTION {each.signature} SECURITY DEFINER",
            )


def _open_table(proposal: Proposal) -> Iterator[Fault]:
    table = proposal.table
    for each in table.policies:
        roles = [role for role in each.roles if role in _OPEN]
        condition = (each.using or each.checked or "").strip("() ").lower()
        if each.permissive and roles and condition == "true":
            yield Fault(
                "open_policy",
                f"a policy lets {' and '.join(roles)} {each.command} all of {table.full_name}",
                each.definition,
            )
    if not table.row_security:
        for role, rights in table.grants.items():
            yield Fault(
                "open_table",
                f"{role} may {', '.join(rights)} {table.full_name}, and row security is off",
                f"GRANT {', '.join(rights)} ON {table.full_name} TO {role}",
            )


def _secrets(who: Writers) -> Iterator[Fault]:
    for each in who.jobs:
        if secret := _TOKEN.search(each.command):
            line = line_with(each.command, re.escape(secret[0])) or each.command
            yield Fault(
                "secret_in_cron",
                f"the cron job {each.title} has a key in its text; who may read cron.job has it",
                line.replace(secret[0], secret[0][:6] + "…"),
            )
        elif endpoints(each) and not re.search(
            r"authorization|apikey|secret", each.command, re.IGNORECASE
        ):
            yield Fault(
                "unchecked_endpoint",
                f"the cron job {each.title} calls it without credentials: so can anybody",
                line_with(each.command, r"/functions/v1/|https?://") or each.command.strip(),
            )


def _claims(proposal: Proposal, who: Writers) -> Iterator[Fault]:
    queue, table = proposal.queue, proposal.table
    if queue.source("lease_until") or queue.source("locked_at"):
        return
    in_flight = [name for name, what in queue.statuses.items() if what == "processing"]
    where = f"TABLE {table.full_name}"
    if not in_flight:
        declared = (each for each in proposal.seen.values() if not each.endswith("rows"))
        line = next(declared, where)
        yield Fault("no_claim", "no status says that an email is being sent: two runs that overlap"
                    " send it twice", line)  # fmt: skip
        return
    locking = r"FOR\s+(?:NO\s+KEY\s+)?UPDATE"
    if not any(line_with(each.source, locking) for each in (*who.changing, *who.inserting)):
        yield Fault(
            "no_claim",
            "no function of the database claims rows with a lock: two runs that overlap may send"
            " an email twice",
            proposal.seen.get(in_flight[0], where),
        )
    back = [each for each in (*who.changing,) if line_with(each.source, r"interval|now\(\)\s*-")]
    resets = rf"'{re.escape(in_flight[0])}'"
    if not any(line_with(each.source, resets) for each in back):
        number = sum(
            rows
            for value, rows in _values(proposal).items()
            if value is not None and normal(value) in in_flight
        )
        yield Fault(
            "no_reaper",
            f"nothing in the database takes a row back from {in_flight[0]} when a run dies"
            + (f"; {number:,} rows have that status now" if number else ""),
            proposal.seen.get(in_flight[0], where),
        )


def _retries(proposal: Proposal) -> Iterator[Fault]:
    queue, where = proposal.queue, f"TABLE {proposal.table.full_name}"
    if not queue.source("retries") and not queue.source("next_retry_at") and queue.log is None:
        yield Fault("no_retry", "no column counts attempts: the first failure is the last", where)
    elif not (queue.source("next_retry_at") or queue.source("lease_until") or proposal.package):
        yield Fault(
            "no_backoff",
            "no column says when to retry: an outage of a minute uses up all attempts",
            f"{where} ({queue.source('retries')})",
        )
    if not queue.source("idempotency_key"):
        yield Fault(
            "no_idempotency_key",
            "no column holds an idempotency key: the provider cannot recognise a second attempt",
            where,
        )


def _swallowed(who: Writers) -> Iterator[Fault]:
    for each in who.inserting:
        if line := line_with(each.source, _SWALLOWS):
            yield Fault(
                "swallowed_errors",
                f"{each.signature} catches every error: an email that it cannot insert is lost"
                " without a trace",
                line,
            )


def _rows(proposal: Proposal) -> Iterator[Fault]:
    source = proposal.queue.source("status")
    if source is None or source.path:
        return
    column = proposal.table.column(source.column)
    if not column.not_null:
        yield Fault(
            "nullable_status",
            f"{column.name} may be null: no pick finds such a row",
            f"{column.name} {column.type}"
            + (f" DEFAULT {column.default}" if column.default else ""),
        )
    spellings: dict[str, list[str]] = {}
    for value in _values(proposal):
        if value is not None:
            spellings.setdefault(normal(value), []).append(repr(value))
    for several in spellings.values():
        if len(several) > 1:
            yield Fault(
                "spellings",
                "one status is written in several ways; a pick by one of them misses the others",
                ", ".join(sorted(several)),
            )


def _functions(who: Writers) -> Iterator[Fault]:
    for each in (*who.inserting, *who.changing):
        if each.volatility == "i" and (line := line_with(each.source, r"\bnow\(\)")):
            yield Fault(
                "immutable_clock", f"{each.signature} is IMMUTABLE and reads the clock", line
            )


def _endless(proposal: Proposal, catalog: Catalog) -> Iterator[Fault]:
    queue = proposal.queue
    if proposal.package == "pgmq" or not (queue.source("status") or queue.source("sent_at")):
        return  # a row is deleted when it is sent
    delete = rf"DELETE\s+FROM\s+\S*{re.escape(proposal.table.name)}"
    sources = [each.code for each in catalog.functions] + [each.command for each in catalog.jobs]
    if not any(re.search(delete, each, re.IGNORECASE) for each in sources):
        yield Fault(
            "no_retention",
            "nothing in the database deletes old rows: the table grows without end",
            f"TABLE {proposal.table.full_name}",
        )


def _values(proposal: Proposal) -> dict[str | None, int]:
    source = proposal.queue.source("status")
    return proposal.rows.values.get(source.column, {}) if source else {}
