"""All settings of mailgres: the fields of `Settings` are their definitions."""
# ruff: noqa: RUF009 - `setting` returns a dataclass field, which is what a default may be

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, field, make_dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from mailgres.providers.base import Account
from mailgres.providers.registry import PROVIDERS
from mailgres.settings.accounts import NEEDED, OPTIONS, key_of, kind_of, variable_of
from mailgres.settings.definitions import DEFAULT, Definition, Origin, definitions, setting
from mailgres.settings.errors import InvalidSettings, Problem
from mailgres.values.kinds import (
    AccountNames,
    BadValue,
    Choice,
    Duration,
    Number,
    Or,
    PerTime,
    Rate,
    Text,
)
from mailgres.values.several import SIGNING_SECRETS
from mailgres.values.urls import DatabaseUrl, WebhookUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Profile = Literal["production", "development", "gateway"]
Listen = Literal["auto", "on", "off"]
WebhookFormat = Literal["auto", "json", "slack"]
PageMode = Literal["off", "on"]
LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]

PROFILES: dict[str, dict[str, object]] = {
    "production": {"retry_policy": "stepped"},
    "development": {"retry_policy": "development", "providers": "capture"},
    "gateway": {
        "retry_policy": "gateway",
        "expires_after": "24h",
        "rate_limit": "100/m",
        "concurrency": 5,
    },
}
"""The values of each profile; a flag, a variable or the file overrides them."""

_ADDRESS = r"""[^\s"(),:;<>@\[\\\]]{1,64}@(?:[^\W_][\w-]*\.)+[^\W_][\w-]*"""
_SENDER = Text(
    "an address such as mail@example.com or Example <mail@example.com>",
    rf"(?:[^<>]*<{_ADDRESS}>|{_ADDRESS})",
    "ADDRESS",
    320,
)
_TOKEN = Text("16 to 1000 characters of ASCII without blanks", r"[!-~]{16,}", "SECRET")


def new_worker_name() -> str:
    """Return a unique worker name, even on hosts and in containers of the same name."""
    return f"{socket.gethostname()[:100]}-{os.getpid()}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True)
class QueueDefaults:
    """The database's defaults for emails that do not say otherwise.

    `chosen` is false if neither a profile nor one of these values was set; then a value that an
    operator wrote into the database stays.
    """

    retry_policy: str
    expires_after: timedelta | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """One setting for display: its value, masked if secret, and its source."""

    name: str
    value: str
    origin: Origin


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """The file that settings came from, and how to load them again."""

    path: Path
    load: Callable[[], Settings]


ProviderSettings: Any = make_dataclass(
    "ProviderSettings",
    [
        (
            f"{each.kind}_{option.name}",
            Any,
            setting(
                option.value, option.about, option.default, also=option.also, secret=option.secret
            ),
        )
        for each in PROVIDERS.values()
        for option in each.options
    ],
    frozen=True,
    slots=True,
    kw_only=True,
)
"""The settings that the kinds of providers declare."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Settings(ProviderSettings):  # type: ignore[misc]  # its fields are known when it runs
    """How this process works. Made by `load`, or directly, as `Settings(lease=…)`."""

    profile: Profile = setting(
        Choice(get_args(Profile)), "Chooses retry policy, limits and expiry together.", "production"
    )
    database_url: str | None = setting(
        DatabaseUrl(),
        "The database.",
        None,
        also=("DATABASE_URL", "SUPABASE_DB_URL"),
        secret=True,
    )
    statement_timeout: timedelta = setting(
        Duration("100ms", "10m"),
        "Longest time a database statement may take.",
        timedelta(seconds=5),
    )
    listen: Listen = setting(
        Choice(get_args(Listen)),
        "Whether the database wakes the worker: `auto` detects whether it can, `on` is for a pooler"
        " in session mode.",
        "auto",
    )
    poll_interval: timedelta = setting(
        Duration("50ms", "5m"),
        "How often the worker polls for emails when nothing wakes it.",
        timedelta(seconds=1),
    )
    worker_name: str = setting(
        Text("1 to 200 characters without blanks", r"\S+", "NAME", 200),
        "Name of the worker in leases, logs and heartbeats.",
        factory=new_worker_name,
        default_text="host-pid-random",
    )
    processes: int = setting(Number(1, 64), "Number of worker processes.", 1)
    concurrency: int = setting(
        Number(1, 1000), "Number of concurrent calls to providers in each process.", 10
    )
    batch_size: int = setting(Number(1, 1000), "Most emails that one claim takes.", 10)
    lease: timedelta = setting(
        Duration("1s", "1h"),
        "How long a claim lasts unless the worker extends it.",
        timedelta(minutes=1),
    )
    grace: timedelta = setting(
        Duration("0s", "1h"),
        "How long a stopping worker may take to finish the emails in flight.",
        timedelta(seconds=30),
    )
    retry_policy: str = setting(
        Text("the name of a row in mailgres.retry_policies", r"[a-z][a-z0-9_-]{0,62}", "NAME"),
        "Retry policy of emails that name none.",
        "stepped",
    )
    expires_after: timedelta | None = setting(
        Or("never", Duration("1s", "3650d")),
        "Emails that are not sent this long after they were due expire.",
        None,
    )
    rate_limit: Rate | None = setting(
        Or("unlimited", PerTime()), "Most emails per unit of time, for all workers together.", None
    )
    from_email: str | None = setting(
        _SENDER, "Sender of emails whose template and tenant have none.", None
    )
    reply_to: str | None = setting(_SENDER, "Reply address of these emails.", None)
    providers: tuple[str, ...] = setting(
        AccountNames(tuple(PROVIDERS)),
        "Providers that send, in order of preference; `capture` keeps emails in the database.",
        ("capture",),
    )
    provider_timeout: timedelta = setting(
        Duration("100ms", "10m"),
        "Longest time a call to a provider may take.",
        timedelta(seconds=30),
    )
    alert_email: str | None = setting(
        Text("one plain address such as admin@example.com", _ADDRESS, "ADDRESS", 254),
        "Recipient of alerts and dead-letter notifications, sent through the queue itself.",
        None,
    )
    alert_webhook: str | None = setting(
        WebhookUrl(), "URL that gets alerts and dead-letter notifications.", None, secret=True
    )
    alert_webhook_format: WebhookFormat = setting(
        Choice(get_args(WebhookFormat)),
        "Format of notifications: JSON, or a message for Slack; `auto` detects Slack by its host.",
        "auto",
    )
    serve_host: str = setting(
        Text("an address or a name of this machine, such as 127.0.0.1", r"[\w.:-]+", "HOST", 253),
        "Address on which the HTTP service listens.",
        "127.0.0.1",
    )
    serve_port: int = setting(
        Number(0, 65535), "Port of the HTTP service; 0 is any free port.", 8725
    )
    serve_secret: str | None = setting(
        _TOKEN,
        "Bearer token that callers of the HTTP service's trigger must send.",
        None,
        secret=True,
    )
    metrics_token: str | None = setting(
        _TOKEN,
        "Bearer token that readers of the metrics must send; without one, /metrics refuses them.",
        None,
        secret=True,
    )
    events_secret: tuple[str, ...] | None = setting(
        SIGNING_SECRETS,
        "Signing secret of events that /webhooks/events accepts for every provider.",
        None,
        secret=True,
    )
    inbox_secret: str | None = setting(
        _TOKEN,
        "Secret that people enter to open the inbox of `mailgres serve --inbox`.",
        None,
        secret=True,
    )
    inbox_hosts: str = setting(
        Text("host names with commas, such as mail.example.com", r"[\w.,\[\]:-]+", "HOST,…", 1000),
        "Host names under which browsers reach the inbox.",
        "localhost,127.0.0.1,[::1]",
    )
    page_secret: str | None = setting(
        _TOKEN,
        "Secret that operators enter to open the page of `mailgres serve --page`.",
        None,
        secret=True,
    )
    page_viewer_secret: str | None = setting(
        _TOKEN,
        "Secret that viewers of the page enter: they see no recipients and change nothing.",
        None,
        secret=True,
    )
    page_hosts: str = setting(
        Text("host names with commas, such as mail.example.com", r"[\w.,\[\]:-]+", "HOST,…", 1000),
        "Host names under which browsers reach the page.",
        "localhost,127.0.0.1,[::1]",
    )
    page_proxies: str | None = setting(
        Text("addresses with commas, such as 10.0.0.5", r"[0-9A-Fa-f.,:]+", "ADDRESS,…", 1000),
        "Addresses of the proxies in front of the page; only they may say that TLS is used.",
        None,
    )
    page_user_header: str | None = setting(
        Text("the name of a header, such as X-Forwarded-User", r"[A-Za-z0-9-]+", "HEADER", 100),
        "Header in which these proxies name the person that they signed in.",
        None,
    )
    page_operators: str | None = setting(
        Text("names with commas, such as ana@example.com,ben", r"[!-~][ -~]*", "NAME,…", 10000),
        "People named by the proxy who may change something; the others are viewers.",
        None,
    )
    page_environment: str | None = setting(
        Text("a short word such as production", r"[\w .-]+", "NAME", 40),
        "Name of the environment on every page; `production` is red.",
        None,
    )
    page_read_only: PageMode = setting(
        Choice(get_args(PageMode)), "Whether nothing can be changed on the page.", "off"
    )
    log_format: LogFormat = setting(
        Choice(get_args(LogFormat)), "Format of logs; `auto` is console at a terminal.", "auto"
    )
    log_level: LogLevel = setting(
        Choice(get_args(LogLevel)), "Lowest level that is logged.", "info"
    )
    named_accounts: tuple[Account, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False)
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        problems = []
        for name, definition in DEFINITIONS.items():
            value = getattr(self, name)
            if value is None and definition.default is None:
                continue
            try:
                object.__setattr__(self, name, definition.kind.parse(value))
            except BadValue as why:
                problems.append(Problem(f"{name}: {why}", f"Give {definition.kind.allowed}."))
        if problems:
            raise InvalidSettings(problems)

    def __repr__(self) -> str:
        shown = (f"{each.name}={each.value!r}" for each in self.explain())
        return f"Settings({', '.join(shown)})"

    def origin(self, name: str) -> Origin:
        """Return where a setting's value came from."""
        return self.origins.get(DEFINITIONS[name].name, DEFAULT)

    def explain(self) -> tuple[Explanation, ...]:
        """Return every setting for display."""
        plain = (
            Explanation(name, definition.show(getattr(self, name)), self.origin(name))
            for name, definition in DEFINITIONS.items()
        )
        of_accounts = (
            Explanation(key, definition.show(value), self.origins.get(key, DEFAULT))
            for account in self.named_accounts
            for option in OPTIONS.get(account.kind, ())
            if (value := account.options.get(option)) is not None
            for key, definition in [
                (key_of(account.name, option), DEFINITIONS[f"{account.kind}_{option}"])
            ]
        )
        return (*plain, *of_accounts)

    def accounts(self) -> tuple[Account, ...]:
        """Return the accounts that send, in order of preference."""
        return tuple(map(self._account, self.providers))

    def receivers(self) -> tuple[Account, ...]:
        """Return the accounts that have a webhook, also those that this process does not send with.

        Plain accounts come first.
        """
        names = dict.fromkeys([*OPTIONS, *(each.name for each in self.named_accounts)])
        accounts = map(self._account, names)
        return tuple(each for each in accounts if each.options.get("webhook_secret"))

    def _account(self, name: str) -> Account:
        """Return an account: a plain name has the settings of its kind, others their own."""
        kind = kind_of(name)
        own = next((each.options for each in self.named_accounts if each.name == name), {})
        of_kind = {
            option.name: value
            for option in PROVIDERS[kind].options
            if (name == kind or option.shared)
            and (value := getattr(self, f"{kind}_{option.name}")) is not None
        }
        return Account(name, kind, {**of_kind, **own})

    def queue_defaults(self) -> QueueDefaults:
        """Return the defaults that the worker writes into the database when it starts."""
        ours = ("profile", "retry_policy", "expires_after")
        chosen = any(self.origin(name).layer not in {"default", "profile"} for name in ours)
        return QueueDefaults(self.retry_policy, self.expires_after, chosen)

    def check_providers(self) -> None:
        """Refuse providers without credentials."""
        problems = [
            Problem(f"providers, from {self.origin('providers')}: {account.name} needs {key}", hint)
            for account in self.accounts()
            for kind, option in NEEDED
            if account.kind == kind and option not in account.options
            for key, hint in [_how_to_give(account.name, option)]
        ]
        if problems:
            raise InvalidSettings(problems)

    def remarks(self) -> tuple[str, ...]:
        """Return what is allowed but most likely a mistake, for logs and terminals."""
        unused = [
            f"accounts.{account.name} is set, but providers does not name it"
            for account in self.named_accounts
            if account.name not in self.providers
        ]
        if self.origin("providers").layer != "default":
            return tuple(unused)
        plain = [
            f"{kind}_{option} is set, but emails are only captured, because providers does not name"
            f" {kind}"
            for kind, option in NEEDED
            if getattr(self, f"{kind}_{option}") is not None
        ]
        return (*plain, *unused)


def _how_to_give(account: str, option: str) -> tuple[str, str]:
    """Return the option that an account lacks, and how to set it."""
    if account == kind_of(account):
        needed = f"{account}_{option}"
        return needed, f"Set {' or '.join(reversed(DEFINITIONS[needed].variables))}."
    variable = variable_of(account, option)
    return option, f"Set {variable}, or {option} in [accounts.{account}] of the file."


DEFINITIONS: dict[str, Definition] = definitions(Settings)
"""Every setting by name."""
