"""What the worker asks the database, one method for each SQL function of the same name.

A store is used by many threads; each call takes a connection from the pool and is a transaction of
its own. Behind a transaction pooler nothing may stay with a connection: no prepared statements, no
LISTEN, no settings.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import psycopg
from psycopg.rows import args_row
from psycopg.types.json import Jsonb, set_json_loads
from psycopg_pool import ConnectionPool

from mailgres import database, transport
from mailgres.model import Attachment, ClaimedEmail, Settled, Started
from mailgres.outage import Outage
from mailgres.queries import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from mailgres.model import Claim, Limits, Outcome

T = TypeVar("T")

QUERIES = load("worker/store.sql")
STATEMENT_TIMEOUT = timedelta(seconds=5)
LOCK_TIMEOUT = 100
"""Milliseconds that somebody in a hurry waits for a row."""
CONNECTION_TIMEOUT_SECONDS = 10.0
"""Seconds that a call waits for a connection before it takes the database for away."""
RECONNECT_TIMEOUT_SECONDS = 3.0
"""Seconds after which a pool starts anew to reach a database that is away.

Its own waits grow for as long as it is told: after an outage of minutes they would be as long.
"""


class Store:
    """The queue, as a worker sees it.

    `listen`: `auto` listens unless there is a pooler; `on` also then, for one that pools sessions
    and not transactions; `off` never.
    """

    def __init__(
        self,
        url: str,
        *,
        worker: str,
        connections: int = 4,
        timeout: float = CONNECTION_TIMEOUT_SECONDS,
        statement_timeout: timedelta = STATEMENT_TIMEOUT,
        listen: Literal["auto", "on", "off"] = "auto",
    ) -> None:
        self.worker = worker
        self.url = url
        self._milliseconds = round(statement_timeout / timedelta(milliseconds=1))
        self.outage = Outage()
        with database.connect(url, autocommit=True) as connection:
            self.pooled = behind_a_pooler(connection)
            self.connected_to = database.place(connection)
            self.protection = transport.protection(transport.of_connection(connection))
        self.listens = listen == "on" or (listen == "auto" and not self.pooled)
        self.pool = ConnectionPool(
            database.conninfo(url),
            min_size=1,
            max_size=connections,
            timeout=timeout,
            # The pool doubles its waits up to this; then whoever asks next makes it try again.
            reconnect_timeout=RECONNECT_TIMEOUT_SECONDS,
            kwargs={"autocommit": True, "prepare_threshold": None if self.pooled else 0},
            configure=self._configure,
            open=True,
        )

    def close(self) -> None:
        """Give up the connections."""
        self.pool.close()

    def connect(self) -> psycopg.Connection:
        """A connection of its own, set up like those of the pool: for whoever listens."""
        connection = database.connect(self.url, autocommit=True)
        connection.prepare_threshold = None if self.pooled else 0
        self._configure(connection)
        return connection

    def claim(
        self,
        limit: int,
        lease: timedelta,
        providers: Sequence[str],
        connection: psycopg.Connection | None = None,
    ) -> list[ClaimedEmail]:
        """Lease up to `limit` emails that one of the providers can send."""
        parameters = {
            "worker": self.worker,
            "limit": limit,
            "lease": lease,
            "providers": list(providers),
        }
        if connection is not None:
            with self._noting(), self._in_time(connection):
                return self._ask(connection, "claim", parameters, ClaimedEmail)
        with self.connection() as pooled:
            return self._ask(pooled, "claim", parameters, ClaimedEmail)

    def start_attempts(
        self,
        emails: Iterable[ClaimedEmail],
        lease: timedelta | None = None,
        *,
        checked: bool = True,
    ) -> Started:
        """Mark the attempts for these emails as started, with a lease of this length from now.

        `checked`: whether the provider was checked, if its circuit is open.
        """
        started = self._for_each_lease("start_attempts", emails, checked=checked, lease=lease)
        return Started(
            {(queue_id, token) for queue_id, token, check_first in started if not check_first},
            {(queue_id, token) for queue_id, token, check_first in started if check_first},
        )

    def extend(self, emails: Iterable[ClaimedEmail], lease: timedelta) -> set[Claim]:
        """Lengthen leases; returns the emails that are still ours."""
        return set(self._for_each_lease("extend", emails, lease=lease))

    def give_back(self, emails: Iterable[ClaimedEmail], timeout: float | None = None) -> set[Claim]:
        """Return emails that were not sent; `timeout` is for somebody in a hurry."""
        return set(self._for_each_lease("give_back", emails, timeout))

    def finish(self, outcomes: Sequence[Outcome], *, hurry: bool = False) -> list[Settled]:
        """Write outcomes, each only if its lease still holds; returns what was not just sent.

        In a hurry nobody is waited for who has one of the rows.
        """
        document = json.dumps([outcome.as_json() for outcome in outcomes])
        with self.connection() as connection, ExitStack() as stack:
            if hurry:
                stack.enter_context(connection.transaction())
                connection.execute(QUERIES["limit_locks"], {"milliseconds": str(LOCK_TIMEOUT)})
            return self._ask(connection, "finish", {"outcomes": document}, Settled)

    def log_dead_letters(self, ids: Sequence[UUID]) -> list[dict[str, Any]]:
        """What the log has to tell of these emails that died, unless somebody has told it."""
        with self.connection() as connection:
            parameters = {"limit": len(ids), "ids": list(ids)}
            row = connection.execute(QUERIES["log_dead_letters"], parameters).fetchone()
        return row[0] if row else []

    def attachments(self, emails: Iterable[ClaimedEmail]) -> dict[UUID, list[Attachment]]:
        """The files of these emails."""
        found: dict[UUID, list[Attachment]] = defaultdict(list)
        with self.connection() as connection:
            rows = connection.execute(
                QUERIES["attachments"], {"ids": [email.id for email in emails]}
            )
            for queue_id, *fields in rows:
                found[queue_id].append(Attachment(*fields))
        return found

    def senders(self) -> Senders:
        """From-address and reply address of templates and of tenants that have their own."""
        with self.connection() as connection:
            templates = connection.execute(QUERIES["templates"]).fetchall()
            tenants = connection.execute(QUERIES["tenants"]).fetchall()
        return (
            {name: (sender, reply) for name, sender, reply in templates},
            {name: (sender, reply) for name, sender, reply in tenants},
        )

    def use_defaults(self, retry_policy: str, expires_after: timedelta | None) -> UsedDefaults:
        """Say what this worker would have hold for emails that do not say otherwise."""
        parameters = {"retry_policy": retry_policy, "expires_after": expires_after}
        with self.connection() as connection:
            (found,) = self._ask(connection, "use_defaults", parameters, UsedDefaults)
        return found

    def capture(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Keep messages instead of sending them."""
        with self.connection() as connection:
            connection.execute(QUERIES["capture"], {"messages": Jsonb(messages)})

    def use_providers(self, providers: Sequence[Mapping[str, Any]]) -> UsedProviders:
        """Say which providers this worker has, in the order of preference."""
        with self.connection() as connection:
            parameters = {"providers": Jsonb(providers)}
            (found,) = self._ask(connection, "use_providers", parameters, UsedProviders)
        return found

    def heartbeat(
        self, version: str, details: Mapping[str, Any], providers: Sequence[str], *, on_demand: bool
    ) -> None:
        """Say that this worker is alive, and what it has."""
        with self.connection() as connection:
            connection.execute(
                QUERIES["heartbeat"],
                {
                    "worker": self.worker,
                    "version": version,
                    "details": Jsonb(details),
                    "providers": list(providers),
                    "on_demand": on_demand,
                },
            )

    def sign_off(self, timeout: float) -> None:
        """Say that this worker stops."""
        with self.connection(timeout) as connection:
            connection.execute(QUERIES["sign_off"], {"worker": self.worker})

    def live_providers(self) -> set[str]:
        """The providers that workers have which are alive."""
        with self.connection() as connection:
            return {name for (name,) in connection.execute(QUERIES["live_providers"])}

    def learn_limits(self, provider: str, limits: Limits) -> None:
        """Keep what a provider said of its limits, for all workers."""
        with self.connection() as connection:
            connection.execute(
                QUERIES["learn_limits"], {"provider": provider, **dataclasses.asdict(limits)}
            )

    def last_event(self) -> int:
        """The number of the last event of any provider."""
        with self.connection() as connection:
            row = connection.execute(QUERIES["last_event"]).fetchone()
        return row[0] if row else 0

    def events(self, after: int) -> list[tuple[int, str, str, str | None]]:
        """What this worker's calls showed of providers: number, provider, event, reason."""
        with self.connection() as connection:
            rows = connection.execute(QUERIES["events"], {"worker": self.worker, "after": after})
            return rows.fetchall()

    def routed(self) -> list[tuple[str, str]]:
        """Every route with every provider on it."""
        with self.connection() as connection:
            return connection.execute(QUERIES["routed"]).fetchall()

    def mark_asleep(self, connection: psycopg.Connection, seconds: timedelta) -> timedelta | None:
        """Ask to be woken, if this is somebody who listens.

        Returns how long it is until an email is due by itself.
        """
        parameters = {"worker": self.worker, "seconds": seconds if self.listens else None}
        with self._in_time(connection):
            row = connection.execute(QUERIES["mark_asleep"], parameters).fetchone()
        return row[0] if row else None

    def rate_limit_ends_in(self) -> timedelta | None:
        """How long emails that are ready have to wait for a rate limit; None if they do not."""
        with self.connection() as connection:
            row = connection.execute(QUERIES["rate_limit_ends_in"]).fetchone()
        return row[0] if row else None

    def mark_awake(self, connection: psycopg.Connection) -> None:
        """Ask not to be woken any more."""
        with self._in_time(connection):
            connection.execute(QUERIES["mark_awake"], {"worker": self.worker})

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[psycopg.Connection]:
        """A connection of the pool, for a while."""
        with self.borrow(timeout) as connection, self._in_time(connection):
            yield connection

    @contextmanager
    def borrow(self, timeout: float | None = None) -> Iterator[psycopg.Connection]:
        """A connection of the pool for somebody who limits the time of what he asks himself."""
        with self._noting(), self.pool.connection(timeout) as connection:
            yield connection

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note whether the database answered."""
        asked_at = time.monotonic()
        try:
            yield
        except psycopg.Error as error:
            self.outage.failed(error)
            raise
        self.outage.answered(asked_at)

    def _configure(self, connection: psycopg.Connection) -> None:
        set_json_loads(_loads, connection)
        database.use_fixed_settings(connection)
        if not self.pooled:
            self._limit_time(connection, local=False)

    @contextmanager
    def _in_time(self, connection: psycopg.Connection) -> Iterator[None]:
        """Limit the time of what is asked; behind a pooler that holds for a transaction only."""
        if not self.pooled:
            yield
            return
        with connection.transaction():
            self._limit_time(connection, local=True)
            yield

    def _limit_time(self, connection: psycopg.Connection, *, local: bool) -> None:
        parameters = {"milliseconds": str(self._milliseconds), "local": local}
        connection.execute(QUERIES["limit_time"], parameters)

    def _ask(
        self,
        connection: psycopg.Connection,
        query: str,
        parameters: Mapping[str, Any],
        kind: type[T],
    ) -> list[T]:
        with connection.cursor(row_factory=args_row(kind), binary=True) as cursor:
            return cursor.execute(QUERIES[query], parameters).fetchall()

    def _for_each_lease(
        self,
        query: str,
        emails: Iterable[ClaimedEmail],
        timeout: float | None = None,
        **more: Any,  # noqa: ANN401
    ) -> list[tuple[Any, ...]]:
        """Run a query that takes emails with their tokens; returns what it says of each."""
        held = [email.claim for email in emails]
        parameters = {
            "ids": [queue_id for queue_id, _ in held],
            "tokens": [token for _, token in held],
            **more,
        }
        with self.connection(timeout) as connection:
            return connection.execute(QUERIES[query], parameters).fetchall()


@dataclasses.dataclass(frozen=True, slots=True)
class UsedProviders:
    """What became of a worker's providers: the default route that it would make, and the one it is.

    `was_initial`: it was as the migration made it, and this worker has set it. `other_limits` are
    the emails per second of providers whose limit is another than this worker's.
    """

    was_initial: bool
    wanted: list[str]
    actual: list[str]
    other_limits: dict[str, float | None]


@dataclasses.dataclass(frozen=True, slots=True)
class UsedDefaults:
    """What holds for emails that do not say otherwise, and whether this worker has set it."""

    was_initial: bool
    retry_policy: str
    expires_after: timedelta | None


Senders = tuple[dict[str, tuple[str | None, str | None]], dict[str, tuple[str | None, str | None]]]
"""From-address and reply address by template, and by tenant."""


def _loads(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read JSON; what Python cannot read stays text, and the email that has it cannot be prepared.

    An error here would cost a claim all of its emails.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def behind_a_pooler(connection: psycopg.Connection) -> bool:
    """Tell whether somebody stands between us and PostgreSQL.

    A pooler makes up a process id for its client; the server's own tells the truth.
    """
    row = connection.execute(QUERIES["backend_pid"], prepare=False).fetchone()
    return row is None or row[0] != connection.info.backend_pid
