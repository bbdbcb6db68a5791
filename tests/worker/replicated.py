"""Two servers: a primary, and a standby that follows it and can take over."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import psycopg

from mailgres import embedded, migrate
from mailgres.embedded import accounts, binaries
from monitoring.standby import catch_up, copy, running
from worker.harness import until
from worker.restartable import is_cut

DATABASE = "app"
IN_SYNC = """
    SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'
"""


class Pair:
    """The URLs of both servers, and what can happen to them."""

    def __init__(self, primary: str, standby: str) -> None:
        self.primary = primary
        self.standby = standby

    @property
    def url(self) -> str:
        """The URL that leads to whichever of them accepts writes."""
        parts = [urlsplit(each) for each in (self.primary, self.standby)]
        hosts = ",".join(f"{each.hostname}:{each.port}" for each in parts)
        account = parts[0].netloc.rpartition("@")[0]
        return f"postgresql://{account}@{hosts}/{DATABASE}?target_session_attrs=read-write"

    def make_synchronous(self) -> None:
        """Let commits of the primary wait for the standby."""
        with psycopg.connect(self.primary, autocommit=True) as primary:
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.execute("SELECT pg_reload_conf()")
            until(lambda: primary.execute(IN_SYNC).fetchone() == (1,), "the standby is synchronous")

    def catch_up(self) -> None:
        catch_up(self.primary, self.standby)

    def cut_replication(self) -> None:
        """Let the standby get no more: what is committed from now on is lost in a failover."""
        with psycopg.connect(self.standby, autocommit=True) as standby:
            standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
            standby.execute("SELECT pg_reload_conf()")
            query = "SELECT count(*) FROM pg_stat_wal_receiver"
            until(lambda: standby.execute(query).fetchone() == (0,), "the standby is cut off")

    def kill_primary(self) -> None:
        """End the primary as a power cut would."""
        with psycopg.connect(self.primary, autocommit=True) as witness:
            postmaster = _parent(witness.info.backend_pid)
            os.kill(postmaster, signal.SIGKILL)
            until(lambda: is_cut(witness), "the processes of the primary have ended")

    def promote(self) -> None:
        """Let the standby take over."""
        with psycopg.connect(self.standby, autocommit=True) as standby:
            assert standby.execute("SELECT pg_promote()").fetchone() == (True,)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def pair(migrations: Path) -> Iterator[Pair]:
    """A migrated primary and its standby, which has caught up."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="mailgres-pair-")))
        place.chmod(0o711)
        server = stack.enter_context(embedded.server(place / "primary"))
        url = embedded.database(server, DATABASE)
        migrate.upgrade(url, directory=migrations)
        data = place / "standby"
        account = accounts.server_account(data)
        found = binaries.for_account(binaries.find(os.environ), account, place / "programs")
        data.mkdir(mode=0o700)
        account.give(data)
        copy(url, data, found.major, account)
        port = stack.enter_context(running(found.program("postgres"), data, account))
        parts = urlsplit(url)
        netloc = f"{parts.netloc.rpartition(':')[0]}:{port}"
        both = Pair(url, parts._replace(netloc=netloc).geturl())
        both.catch_up()
        yield both
