"""Write docs/cli.md from the `--help` of every command: `make docs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailgres.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
WIDTH = 96
HEAD = """\
# The command line

Generated from `--help` by `make docs`.

Every command takes the database from `--database-url`, `MAILGRES_DATABASE_URL`, `DATABASE_URL` or
`mailgres.toml` (see [settings](settings.md)). People on call connect as a user with the role
`mailgres_operator`; the owner of the schema may do everything, too.

## Exit codes

| exit code | meaning |
|---|---|
| 0 | Success, also for a search that found nothing. |
| 1 | Failure: one line says what is wrong, one what to do. |
| 1 | A check found a problem, or the answer to a question was no. |
| 2 | The arguments are wrong: nothing was done. |
| 3 | `process --exit-empty` found nothing to do. |
| 128 + n | Signal n ended it, so 130 is Ctrl-C. The output says what was done before that. |

Results go to standard output, everything else to standard error. `--json` prints a document for
programs; its times are in ISO 8601.

## Times, colours, completion

- Times are shown in your zone (`TZ`), with `--utc` in UTC. Times that you give are read in the
  same zone, unless they name one: `2026-11-03T10:00`, `2026-11-03T10:00+01:00`. Times relative to
  now are written `90s`, `30m`, `24h` or `7d`.
- At a terminal, tables fit its width: times and ids are shorter, and texts are wrapped at spaces or
  put below their row. No other value is cut: `…` stands for one that is below its row. In a pipe
  all values are complete and in one line. The variable `COLUMNS` sets the width, also for a pipe.
- Where a command takes the id of an email, the first digits suffice (at least four). If several ids
  begin with them, the command lists these emails and changes nothing.
- There are no colours if the output is not a terminal, or if `NO_COLOR` is set.
- Completion of commands, options, and names of templates, tenants, providers, routes and alert
  rules (from the database; nothing if it does not answer within a second), for bash, zsh and fish:

  ```
  eval "$(_MAILGRES_COMPLETE=bash_source mailgres)"     # in ~/.bashrc
  eval "$(_MAILGRES_COMPLETE=zsh_source mailgres)"      # in ~/.zshrc
  _MAILGRES_COMPLETE=fish_source mailgres | source      # in ~/.config/fish/config.fish
  ```

## Choosing emails

`list`, `retry`, `cancel`, `reschedule` and `dlq` share their filters. An email must match all
kinds of filters that are given; a repeated filter matches if any of its values does. `--since` and
`--until` refer to the time at which an email was enqueued, `--died-since` and `--died-until` to the
time at which it died. `--status dead` means `--status failed`. A time window is a range of ids,
which are ordered by time, so searches stay fast in a large queue. This has two consequences for
imported history. Emails with an older `created_at` count from their import if `--until` is given:
leave it out to find them. Emails with random ids are found, but as long as there are any, a window
is no faster than the whole queue.
"""


def commands(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """Yield every command with its help, groups before their commands."""
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from commands(found, each, context)


def page() -> str:
    """Return the whole page."""
    parts = [f"\n## {path}\n\n```\n{text}\n```\n" for path, text in commands(main, "mailgres")]
    return HEAD + "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
