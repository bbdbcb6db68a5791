"""Accounts: one for each provider, perhaps several of a kind, each under a name of its own.

`resend` is the account that the settings `resend_…` describe; `resend-acme` is another, with the
same options in a table `[accounts.resend-acme]` of the file or in variables
`MAILGRES_RESEND_ACME_…`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mailgres.settings.definitions import PREFIX

KINDS = ("capture", "null", "resend", "ses", "smtp")
"""The kinds of accounts."""

OPTIONS = {
    "resend": ("api_key", "api_url"),
    "ses": ("region", "configuration_set", "profile"),
    "smtp": ("url",),
}
"""The options of each kind; `{kind}_{option}` is the setting that describes it."""

NEEDED = {"resend": "api_key", "smtp": "url"}
"""The option without which an account cannot be used. (SES finds credentials as AWS's tools do.)"""


@dataclass(frozen=True, slots=True)
class Account:
    """An account at a provider, with its options. Its repr holds no secret."""

    name: str
    kind: str
    api_key: str | None = field(default=None, repr=False)
    api_url: str | None = None
    region: str | None = None
    configuration_set: str | None = None
    profile: str | None = None
    url: str | None = field(default=None, repr=False)


def kind_of(name: str) -> str:
    """Return the kind of an account: its name up to the first dash."""
    return name.partition("-")[0]


def variable_of(name: str, option: str) -> str:
    """Return the environment variable for an option of an account."""
    return f"{PREFIX}{name.replace('-', '_')}_{option}".upper()


def key_of(name: str, option: str) -> str:
    """Return the name of an account's option in the file and in messages."""
    return f"accounts.{name}.{option}"
