"""Accounts of providers. There may be several of a kind, each with its own name.

`resend` is the account that the settings `resend_…` describe; `resend-acme` is another, with the
same options in a table `[accounts.resend-acme]` of the file or in variables
`MAILGRES_RESEND_ACME_…`.
"""

from __future__ import annotations

from mailgres.providers.registry import PROVIDERS
from mailgres.settings.definitions import PREFIX

OPTIONS = {
    each.kind: tuple(option.name for option in each.options)
    for each in PROVIDERS.values()
    if each.options
}
"""The options of each kind that has any; `{kind}_{option}` is the setting of its plain account."""

NEEDED = [
    (each.kind, option.name)
    for each in PROVIDERS.values()
    for option in each.options
    if option.needed
]
"""The options without which an account of a kind cannot send."""


def kind_of(name: str) -> str:
    """Return the kind of an account: what its name has before the first dash."""
    return name.partition("-")[0]


def variable_of(name: str, option: str) -> str:
    """Return the environment variable for an option of an account."""
    return f"{PREFIX}{name.replace('-', '_')}_{option}".upper()


def key_of(name: str, option: str) -> str:
    """Return the name of an account's option in the file, and in messages."""
    return f"accounts.{name}.{option}"
