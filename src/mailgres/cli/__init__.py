"""The command line: thin, every command calls what the library offers."""

from __future__ import annotations

import click

from mailgres import __version__
from mailgres.cli.config import config
from mailgres.cli.demo import demo
from mailgres.cli.dev import dev
from mailgres.cli.errors import FriendlyGroup
from mailgres.cli.eta import eta
from mailgres.cli.explain import errors
from mailgres.cli.janitor import janitor
from mailgres.cli.migrate import migrate
from mailgres.cli.providers import providers
from mailgres.cli.routes import routes
from mailgres.cli.templates import templates
from mailgres.cli.tenants import tenants
from mailgres.cli.worker import process, worker

__all__ = ["main"]


@click.group(cls=FriendlyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mailgres")
def main() -> None:
    """An email queue that lives in your PostgreSQL."""


main.add_command(config)
main.add_command(demo)
main.add_command(dev)
main.add_command(errors)
main.add_command(eta)
main.add_command(janitor)
main.add_command(migrate)
main.add_command(providers)
main.add_command(routes)
main.add_command(templates)
main.add_command(tenants)
main.add_command(process)
main.add_command(worker)
