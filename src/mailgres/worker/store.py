"""The worker's calls to the database, one method for each SQL function of the same name.

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
"""Milliseconds that a call in a hurry waits for a row lock."""
CONNECTION_TIMEOUT_SECONDS = 10.0
"""Seconds that a call waits for a connection before the database counts as away."""
RECONNECT_TIMEOUT_SECONDS = 3.0
"""Seconds after which a pool restarts its attempts to reach a database that is away.

Its own waits keep doubling: after an outage of minutes they would be minutes long.
"""


class Store:
    """The queue, as a worker sees it.

    `listen`: `auto` listens unless there is a pooler; `on` listens also behind a pooler, which must
    pool sessions and not transactions; `off` never listens.
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
            # The pool doubles its waits up to this; the next call then makes it reconnect.
            reconnect_timeout=RECONNECT_TIMEOUT_SECONDS,
            kwargs={"autocommit": True, "prepare_threshold": None if self.pooled else 0},
            configure=self._configure,
            open=True,
        )

    def close(self) -> None:
        """Close the connections."""
        self.pool.close()

    def connect(self) -> psycopg.Connection:
        """Return a separate connection, configured like those of the pool, for listening."""
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
        """Extend leases; return the emails that are still ours."""
        return set(self._for_each_lease("extend", emails, lease=lease))

    def give_back(self, emails: Iterable[ClaimedEmail], timeout: float | None = None) -> set[Claim]:
        """Return emails that were not sent; `timeout` limits the wait for a connection."""
        return set(self._for_each_lease("give_back", emails, timeout))

    def finish(self, outcomes: Sequence[Outcome], *, hurry: bool = False) -> list[Settled]:
        """Write outcomes, each only if its lease is still valid; return all but the plainly sent.

        In a hurry it does not wait for locked rows.
        """
        document = json.dumps([outcome.as_json() for outcome in outcomes])
        with self.connection() as connection, ExitStack() as stack:
            if hurry:
                stack.enter_context(connection.transaction())
                connection.execute(QUERIES["limit_locks"], {"milliseconds": str(LOCK_TIMEOUT)})
            return self._ask(connection, "finish", {"outcomes": document}, Settled)

    def log_dead_letters(self, ids: Sequence[UUID] | None) -> list[dict[str, Any]]:
        """Return what to log about these dead letters, or any, unless it was logged already."""
        parameters = {"ids": None if ids is None else list(ids)}
        with self.connection() as connection:
            row = connection.execute(QUERIES["log_dead_letters"], parameters).fetchone()
        return row[0] if row else []

    def attachments(self, emails: Iterable[ClaimedEmail]) -> dict[UUID, list[Attachment]]:
        """Return the attachments of these emails."""
        found: dict[UUID, list[Attachment]] = defaultdict(list)
        with self.connection() as connection:
            rows = connection.execute(
                QUERIES["attachments"], {"ids": [email.id for email in emails]}
            )
            for queue_id, *fields in rows:
                found[queue_id].append(Attachment(*fields))
        return found

    def senders(self) -> Senders:
        """Return from-address and reply address of templates and tenants that have their own."""
        with self.connection() as connection:
            templates = connection.execute(QUERIES["templates"]).fetchall()
            tenants = connection.execute(QUERIES["tenants"]).fetchall()
        return (
            {name: (sender, reply) for name, sender, reply in templates},
            {name: (sender, reply) for name, sender, reply in tenants},
        )

    def use_defaults(self, retry_policy: str, expires_after: timedelta | None) -> UsedDefaults:
        """Propose the defaults of this worker for emails that do not say otherwise."""
        parameters = {"retry_policy": retry_policy, "expires_after": expires_after}
        with self.connection() as connection:
            (found,) = self._ask(connection, "use_defaults", parameters, UsedDefaults)
        return found

    def capture(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Store messages instead of sending them; return the faults to simulate, by key."""
        with self.connection() as connection:
            found = connection.execute(QUERIES["capture"], {"messages": Jsonb(messages)})
            return dict(found.fetchall())

    def use_providers(self, providers: Sequence[Mapping[str, Any]]) -> UsedProviders:
        """Register the providers of this worker, in the order of preference."""
        with self.connection() as connection:
            parameters = {"providers": Jsonb(providers)}
            (found,) = self._ask(connection, "use_providers", parameters, UsedProviders)
        return found

    def heartbeat(
        self, version: str, details: Mapping[str, Any], providers: Sequence[str], *, on_demand: bool
    ) -> None:
        """Record that this worker is alive, and its details."""
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
        """Record that this worker stops."""
        with self.connection(timeout) as connection:
            connection.execute(QUERIES["sign_off"], {"worker": self.worker})

    def live_providers(self) -> set[str]:
        """Return the providers of all live workers."""
        with self.connection() as connection:
            return {name for (name,) in connection.execute(QUERIES["live_providers"])}

    def learn_limits(self, provider: str, limits: Limits) -> None:
        """Store what a provider said about its limits, for all workers."""
        with self.connection() as connection:
            connection.execute(
                QUERIES["learn_limits"], {"provider": provider, **dataclasses.asdict(limits)}
            )

    def last_event(self) -> int:
        """Return the number of the last event of any provider."""
        with self.connection() as connection:
            row = connection.execute(QUERIES["last_event"]).fetchone()
        return row[0] if row else 0

    def events(self, after: int) -> list[tuple[int, str, str, str | None]]:
        """Return the events that this worker's calls caused: number, provider, event, reason."""
        with self.connection() as connection:
            rows = connection.execute(QUERIES["events"], {"worker": self.worker, "after": after})
            return rows.fetchall()

    def routed(self) -> list[tuple[str, str]]:
        """Return every route with every provider on it."""
        with self.connection() as connection:
            return connection.execute(QUERIES["routed"]).fetchall()

    def mark_asleep(self, connection: psycopg.Connection, seconds: timedelta) -> timedelta | None:
        """Register as sleeping, if this worker listens.

        Return how long it is until an email is due.
        """
        parameters = {"worker": self.worker, "seconds": seconds if self.listens else None}
        with self._in_time(connection):
            row = connection.execute(QUERIES["mark_asleep"], parameters).fetchone()
        return row[0] if row else None

    def rate_limit_ends_in(self) -> timedelta | None:
        """Return how long ready emails wait for a rate limit; None if they do not."""
        with self.connection() as connection:
            row = connection.execute(QUERIES["rate_limit_ends_in"]).fetchone()
        return row[0] if row else None

    def mark_awake(self, connection: psycopg.Connection) -> None:
        """Deregister as sleeping."""
        with self._in_time(connection):
            connection.execute(QUERIES["mark_awake"], {"worker": self.worker})

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[psycopg.Connection]:
        """Yield a connection of the pool."""
        with self.borrow(timeout) as connection, self._in_time(connection):
            yield connection

    @contextmanager
    def borrow(self, timeout: float | None = None) -> Iterator[psycopg.Connection]:
        """Yield a connection of the pool for a caller that sets its own time limits."""
        with self._noting(), self.pool.connection(timeout) as connection:
            yield connection

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Record whether the database answered."""
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
        """Limit the time of statements; behind a pooler for one transaction only."""
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
        """Run a query that takes emails with their tokens; return its rows."""
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
    """The result of `use_providers`: this worker's default route, and the actual one.

    `was_initial`: it was as the migration made it, and this worker has set it. `other_limits` are
    the emails per second of providers whose limit is another than this worker's.
    """

    was_initial: bool
    wanted: list[str]
    actual: list[str]
    other_limits: dict[str, float | None]


@dataclasses.dataclass(frozen=True, slots=True)
class UsedDefaults:
    """The defaults for emails that do not say otherwise, and whether this worker has set them."""

    was_initial: bool
    retry_policy: str
    expires_after: timedelta | None


Senders = tuple[dict[str, tuple[str | None, str | None]], dict[str, tuple[str | None, str | None]]]
"""From-address and reply address by template, and by tenant."""


def _loads(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read JSON; what Python cannot read stays text, and an email that has it cannot be prepared.

    An error here would cost a claim all of its emails.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def behind_a_pooler(connection: psycopg.Connection) -> bool:
    """Return whether a pooler stands between us and PostgreSQL.

    A pooler makes up a process id for its client; the server's own differs.
    """
    row = connection.execute(QUERIES["backend_pid"], prepare=False).fetchone()
    return row is None or row[0] != connection.info.backend_pid
