"""Write docs/settings.md from the definitions of the settings; a test compares them."""

from __future__ import annotations

from pathlib import Path

from mailgres.settings import DEFINITIONS, PROFILES, Definition
from mailgres.settings.accounts import OPTIONS, variable_of

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

HEAD = """\
# Settings

Generated from `mailgres.settings` by `scripts/settings_page.py`.

A setting is taken from the first source that has it:

1. the command's flag, such as `--batch-size 100`;
2. the environment: `MAILGRES_` and the setting's name, or another variable listed below. An empty
   variable counts as not set;
3. the file `mailgres.toml` in the current directory, or the one that `--config` or
   `MAILGRES_CONFIG` names;
4. the profile;
5. the default.

```toml
# mailgres.toml
profile = "gateway"
from_email = "Example <mail@example.com>"
providers = ["resend", "ses"]
lease = "90s"
```

`mailgres config` shows every value and where it came from, secrets masked. A wrong value, an
unknown key of the file and an unknown variable `MAILGRES_…` are errors that stop a command before
it does anything. Keep secrets in the environment, or in a file that only its owner can read
(`chmod 600 mailgres.toml`); otherwise mailgres warns.

Worker and service follow the options of accounts (keys, URLs, the secrets of webhooks) in the file
[without a restart](events.md#replace-a-secret-or-a-key); other settings are read once.

Durations are written as `500ms`, `30s`, `5m`, `1.5h` or `2d`; a plain number means seconds.
"""

ACCOUNTS = """
## Several accounts

A provider is an account. `resend`, `ses` and `smtp` are the accounts that the settings below
describe; there may be more of a kind, under names that start with the kind and a dash, such as
`resend-acme`: one for each customer, for example, or SES in two regions. `providers` and routes use
these names. The options of an account are in a table of the file or in variables; variables take
precedence.

```toml
# mailgres.toml
providers = ["resend-acme", "ses-eu", "smtp"]
smtp_url = "smtp://localhost?tls=none"

[accounts.resend-acme]  # its key is in MAILGRES_RESEND_ACME_API_KEY
api_url = "https://api.resend.com"

[accounts.ses-eu]
region = "eu-west-1"
configuration_set = "events"
```

An account without `api_url` or `region` uses the setting of its kind. It shares nothing else.

"""


def accounts() -> str:
    """Return the section on accounts."""
    rows = [
        f"| `{kind}-…` | `{option}` | `{variable_of(kind + '-acme', option)}` |"
        f" [{kind}_{option}](#{kind}_{option}) |"
        for kind, options in OPTIONS.items()
        for option in options
    ]
    head = ["| account | key | variable of `…-acme` | as the setting |", "|---|---|---|---|"]
    return ACCOUNTS + "\n".join([*head, *rows]) + "\n"


def section(definition: Definition) -> str:
    """Describe one setting."""
    rows = [
        ("allowed", definition.kind.allowed.replace("|", "\\|")),
        ("default", f"`{definition.default_text}`" if definition.default_text else "none"),
        ("environment", ", ".join(f"`{variable}`" for variable in definition.variables)),
    ]
    if definition.secret:
        rows.append(("secret", "yes: always masked"))
    table = "".join(f"| {name} | {text} |\n" for name, text in rows)
    return f"\n### {definition.name}\n\n{definition.about}\n\n| | |\n|---|---|\n{table}"


def profiles() -> str:
    """Return the table of profiles."""
    names = [name for name in DEFINITIONS if any(name in values for values in PROFILES.values())]
    lines = [
        "| profile | " + " | ".join(f"`{name}`" for name in names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for profile, values in PROFILES.items():
        cells = (f"`{values[name]}`" if name in values else "" for name in names)
        lines.append(f"| `{profile}` | " + " | ".join(cells) + " |")
    return "\n## Profiles\n\n" + "\n".join(lines) + "\n"


def page() -> str:
    """Return the whole page."""
    sections = "".join(map(section, DEFINITIONS.values()))
    return HEAD + profiles() + accounts() + "\n## All settings\n" + sections


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
