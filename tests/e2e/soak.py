"""The soak: many emails, random faults of providers, killed workers, restarts of the database.

One email in a hundred cannot be sent: a malformed row, or a template that fails or asks for
gigabytes. It has to die for its own reason, and no other with it.

    python -m e2e.soak [--kind resend] [--mails 20000] [--seed 1] ...

Prints one line of JSON. Ends with 1 if an email was lost, or arrived twice where it must not have,
or if one that cannot be sent did not end as it must; then it also prints the command that repeats
the run. The seed fixes the emails, the faults, the disturbances and their order, but not how the
processes run side by side. `e2e.soak_seeds` runs many short ones.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from psycopg.types.json import Jsonb

from doubles import resend as resend_double
from doubles import ses
from doubles import smtp as smtp_double
from doubles.resend import KEY
from e2e import soak_faults
from e2e.soak_bad import BOMBS, MALFORMED, BadEmails
from e2e.soak_workers import SoakWorkers
from mailgres import resources
from support.queue import HOLD, RESEND
from worker.restartable import RestartableHarness

LOOK = 0.1
CHUNKS = 8
PORTS = range(20_000, 30_000)
"""Ports that no system gives to a connection by itself."""
BAD_SHARE = 0.01
FILE = [{"filename": "a.txt", "content": "YQ=="}]
PREPARE = """
    INSERT INTO mailgres.retry_policies (name, max_retries, base, factor, cap, jitter_up)
    VALUES ('soak', 100, '200 milliseconds', 1.5, '2 seconds', 0.5);
    UPDATE mailgres.settings SET retry_policy = 'soak', max_lease_losses = 100;
    INSERT INTO mailgres.providers (name, kind, open_for, open_for_at_most)
    SELECT x, x, '0.5 seconds', '2 seconds' FROM unnest('{resend, ses, smtp}'::text[]) x;
"""
LEFT_BY_THE_PROCESSOR = """
    UPDATE email_queue SET lease_until = mailgres.now()
    WHERE status = 'sending' AND lease_is_tokenless
"""
"""A claim whose answer a restart swallowed is nobody's: let its fifteen minutes be over."""
ROWS = """
    SELECT q.id::text, q.status::text, q.dead_reason::text, q.error_code, q.error_message,
           q.error_detail,
           t.on_uncertain = 'resend' AND EXISTS (
               SELECT FROM email_logs l
               WHERE l.queue_id = q.id AND (
                   l.error_class = 'ambiguous' OR l.event = 'lost' AND l.worker <> 'processor')
           ) AS may_be_double,
           EXISTS (
               SELECT FROM email_logs l
               WHERE l.queue_id = q.id AND l.event = 'lost' AND l.worker <> 'processor'
           ) AS lost
    FROM email_queue q LEFT JOIN email_templates t USING (template_type)
"""


@dataclass(frozen=True)
class Plan:
    """What is done.

    `kills` of workers; `restarts` of the server; `crashes`: a backend is killed, and the server
    restarts its processes; `cuts`: all connections are terminated. `bad`: how many kinds of emails
    that cannot be sent, 0 for all. `lease` and `seconds`, when to give up, are seconds.
    """

    kind: str = "resend"
    mails: int = 20_000
    workers: int = 4
    kills: int = 40
    restarts: int = 2
    crashes: int = 0
    cuts: int = 0
    bad: int = 0
    lease: float = 3.0
    seed: int = 1
    seconds: float = 1800.0

    def command(self) -> str:
        """The one command that repeats the run."""
        options = " ".join(f"--{name} {value}" for name, value in asdict(self).items())
        return f"cd tests && ../.venv/bin/python -m e2e.soak {options}"

    def disturbances(self, chance: random.Random) -> list[str]:
        """Return what happens to workers and server, in order."""
        counts = {"kill": self.kills, "restart": self.restarts}
        counts |= {"crash": self.crashes, "cut": self.cuts}
        each = [name for name, count in counts.items() for _ in range(count)]
        chance.shuffle(each)
        return each


class Soak:
    def __init__(
        self,
        plan: Plan,
        restartable: RestartableHarness,
        double: Any,
        processors: Any,
        directory: Path,
    ) -> None:
        self.plan = plan
        self.restartable = restartable
        self.double = double
        self.processors = processors  # where the old processor sends: they all use Resend
        self.chance = random.Random(plan.seed)  # noqa: S311 - chaos, not secrets
        self.workers = SoakWorkers(restartable, directory)
        kinds = MALFORMED + BOMBS
        self.bad = BadEmails(self.chance.sample(kinds, plan.bad) if plan.bad else kinds)
        self.disturbances = plan.disturbances(self.chance)
        self.done: Counter[str] = Counter()
        # In a short soak, each kind once.
        self.step = min(round(1 / BAD_SHARE), max(plan.mails // len(self.bad.kinds), 1))
        self.enqueued = 0

    def run(self) -> dict[str, Any]:
        start = time.monotonic()
        self.restartable.conn.execute(PREPARE)
        self.bad.prepare(self.restartable.conn)
        self.enqueue()
        old = [sys.executable, "-m", "e2e.old_processor", self.restartable.url, self.processors.url]
        self.workers.processor = self.workers.start(*old)
        try:
            reported = self._disturb(start + self.plan.seconds)
        finally:
            self.workers.close()
        return {
            "soak": asdict(self.plan),
            "seconds": round(time.monotonic() - start, 1),
            "kills": self.done["kill"],
            "restarts": self.done["restart"],
            "crashes": self.done["crash"],
            "cuts": self.done["cut"],
            "old_processor": reported,
            **self.outcome(),
        }

    def _disturb(self, deadline: float) -> dict[str, int] | None:
        """Enqueue and disturb; wait until all is settled."""
        reported = None
        while (open_rows := self.open_rows()) or self.enqueued < self.plan.mails:
            if time.monotonic() > deadline:
                break
            self.workers.fill(self.plan.workers)
            if self.enqueued < self.plan.mails and open_rows < self.plan.mails // 4:
                self.enqueue()
            elif self.is_next_due(self.enqueued - open_rows):
                self.disturb(self.disturbances[self.done.total()])
            elif self.enqueued >= self.plan.mails and open_rows < self.plan.mails // 20:
                reported = reported or self.workers.stop_processor()
                self.restartable.run(LEFT_BY_THE_PROCESSOR)
            time.sleep(LOOK * self.chance.random())
        return reported or self.workers.stop_processor()

    def is_next_due(self, settled: int) -> bool:
        """Whether enough is settled for the next disturbance: they are spread over the emails."""
        number, count = self.done.total() + 1, len(self.disturbances)
        return number <= count and settled > self.plan.mails * number // (count + 1)

    def disturb(self, what: str) -> None:
        {
            "kill": lambda: self.workers.kill_one(self.chance),
            "restart": self.restartable.restart,
            "crash": self.restartable.crash,
            "cut": self.restartable.cut_connections,
        }[what]()
        self.done[what] += 1

    def enqueue(self) -> None:
        """A part of the emails, of several tenants and kinds, with bad ones among them."""
        last = min(self.enqueued + -(-self.plan.mails // CHUNKS), self.plan.mails)
        while self.enqueued < last:
            # Never past a multiple of the step: there comes a bad one.
            count = min(self.step - self.enqueued % self.step, last - self.enqueued)
            mails = [self._mail(self.enqueued + n) for n in range(count)]
            self.restartable.run("SELECT count(*) FROM enqueue_emails(%s)", Jsonb(mails))
            self.enqueued += count
            if self.enqueued % self.step == 0:
                self.bad.insert(self.restartable.conn, tenant_id=self._tenant(), priority=5)

    def _mail(self, number: int) -> dict[str, Any]:
        mail: dict[str, Any] = {
            "template_type": self.chance.choice([HOLD, RESEND]),
            "recipient_email": f"user{number}@example.org",
            "tenant_id": self._tenant(),
            "priority": self.chance.choice([1, 5, 5, 5, 5, 5, 5, 9]),
        }
        if self.chance.random() < 0.03:
            mail["attachments"] = FILE
        return mail

    def _tenant(self) -> str:
        return f"tenant-{self.chance.randrange(7)}"

    def open_rows(self) -> int:
        found: int = self.restartable.value(
            "SELECT count(*) FROM email_queue WHERE status IN ('pending', 'sending')"
        )
        return found

    def outcome(self) -> dict[str, Any]:
        """Return what became of the emails, and what is wrong with that."""
        accepted = Counter(soak_faults.ids_at(self.double))
        if self.processors is not self.double:
            accepted.update(soak_faults.ids_at(self.processors))
        found = {row.id: row for row in self.restartable.rows(ROWS)}
        rows = {key: row for key, row in found.items() if key not in self.bad.ids}
        doubles = {key: count for key, count in accepted.items() if count > 1 and key in rows}
        sent = {row.id for row in rows.values() if row.status == "sent"}
        held = {row.id for row in rows.values() if row.dead_reason == "uncertain"}
        keyless = self.plan.kind != "resend"
        allowed = {key for key in doubles if keyless and rows[key].may_be_double}
        unsettled = [row for key, row in rows.items() if key not in sent | held]
        wrong = {
            "not_enqueued": self.plan.mails - len(rows),
            "not_settled": [list(row)[:6] for row in unsettled],
            "lost": len(sent - set(accepted)),
            "held_though_keys_protect": 0 if keyless else len(held),
            "doubles_not_allowed": len(doubles) - len(allowed),
            **self.bad.wrong(found, accepted),
        }
        return {
            "sent": len(sent),
            "held": len(held),
            "accepted": accepted.total(),
            "doubles_allowed": len(allowed),
            "bad": len(self.bad.ids),
            **wrong,
            "faults_met": soak_faults.met(self.double),
            "good": not any(wrong.values()),
        }


@contextmanager
def opened(plan: Plan, migrations: Path, prepared: Path | None = None) -> Iterator[Soak]:
    """The server, the double and all that is needed.

    `prepared`: the directory of a server that is off and has a migrated database; it is copied.
    """
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="mailgres-soak-")))
        place.chmod(0o711)
        if prepared is not None:
            copy = ["cp", "--archive", "--reflink=auto", f"{prepared}/.", str(place)]
            subprocess.run(copy, check=True)
            # A port of its own: while this server restarts, no other soak may take it.
            for each in place.glob("postgresql-*/port"):
                each.write_text(str(PORTS[plan.seed % len(PORTS)]))
        logs = Path(stack.enter_context(TemporaryDirectory(prefix="mailgres-soak-logs-")))
        restartable = RestartableHarness(place, logs, migrations)
        stack.callback(restartable.switch_off)
        double, variables = stack.enter_context(DOUBLES[plan.kind](plan.seed))
        restartable.variables |= {
            "MAILGRES_PROVIDERS": plan.kind,
            "MAILGRES_FROM_EMAIL": "Shop <noreply@example.com>",
            "MAILGRES_LEASE": f"{plan.lease}s",
            "MAILGRES_POLL_INTERVAL": "200ms",
            "MAILGRES_PROVIDER_TIMEOUT": "2s",
            "MAILGRES_BATCH_SIZE": "25",
            "MAILGRES_CONCURRENCY": "4",
            **variables,
        }
        apart = plan.kind != "resend"
        processors = stack.enter_context(resend_double.in_a_process()) if apart else double
        yield Soak(plan, restartable, double, processors, logs)


@contextmanager
def _resend(seed: int) -> Iterator[tuple[Any, dict[str, str]]]:
    with resend_double.in_a_process(seed=seed) as double:
        double.add_faults(*soak_faults.RESEND)
        yield double, {"MAILGRES_RESEND_API_KEY": KEY, "MAILGRES_RESEND_API_URL": double.url}


@contextmanager
def _ses(seed: int) -> Iterator[tuple[Any, dict[str, str]]]:
    with ses.in_a_process(seed=seed, rate=100_000.0) as double:
        double.add_faults(*soak_faults.SES)
        yield double, {"MAILGRES_SES_REGION": "eu-west-1", **ses.environ(double.url)}


@contextmanager
def _smtp(seed: int) -> Iterator[tuple[Any, dict[str, str]]]:
    with smtp_double.serve(smtp_double.SmtpDouble()) as double:
        double._random.seed(seed)
        double.add_faults(*soak_faults.SMTP)
        yield double, {"MAILGRES_SMTP_URL": double.url}


DOUBLES: dict[str, Callable[[int], Any]] = {"resend": _resend, "ses": _ses, "smtp": _smtp}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in asdict(Plan()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    plan = Plan(**vars(parser.parse_args()))
    with opened(plan, resources.migrations_directory()) as soak:
        reported = soak.run()
    print(json.dumps(reported), flush=True)  # noqa: T201
    if not reported["good"]:
        sys.exit(f"To repeat it: {plan.command()}")


if __name__ == "__main__":
    main()
