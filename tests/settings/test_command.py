"""`mailgres config`, and the flags that commands get from the settings."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from mailgres.cli import main
from mailgres.cli.support.options import settings_options
from mailgres.settings import DEFINITIONS, Settings


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, env=env)


def row(result: Result, name: str) -> str:
    """Return the line of a setting, its blanks made one."""
    assert result.exit_code == 0, result.output
    return next(
        " ".join(line.split()) for line in result.stdout.splitlines() if line.split()[0] == name
    )


def test_config_shows_every_setting() -> None:
    result = run("config")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["setting", *DEFINITIONS]
    assert row(result, "lease") == "lease 1m default"
    assert row(result, "from_email") == "from_email - default"
    assert result.stderr == ""


def test_config_shows_where_values_come_from(tmp_path: Path) -> None:
    (tmp_path / "mailgres.toml").write_text("grace = 5\nprofile = 'production'\n")
    result = run("config", "--profile", "gateway", env={"MAILGRES_LEASE": "2m"})
    assert row(result, "profile") == "profile gateway --profile"
    assert row(result, "lease") == "lease 2m MAILGRES_LEASE in the environment"
    assert row(result, "grace") == "grace 5s mailgres.toml line 1"
    assert row(result, "concurrency") == "concurrency 5 profile gateway"


def test_config_reads_the_file_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("grace = 5\n")
    assert row(run("config", "--config", "other.toml"), "grace") == "grace 5s other.toml line 1"


def test_config_json_has_values_and_origins() -> None:
    result = run("config", "--json", env={"MAILGRES_PROVIDERS": "ses,smtp"})
    listed = json.loads(result.stdout)["settings"]
    assert list(listed) == list(DEFINITIONS)
    assert listed["concurrency"] == {"value": 10, "from": "default", "layer": "default"}
    assert listed["providers"]["value"] == ["ses", "smtp"]
    assert listed["providers"]["layer"] == "environment"
    assert listed["from_email"]["value"] is None
    assert listed["expires_after"]["value"] == "never"


def test_config_notes_settings_without_effect() -> None:
    env = {"RESEND_API_KEY": "re_1"}
    assert "Note: resend_api_key is set, but" in run("config", env=env).stderr
    result = run("config", "--json", env=env)
    assert result.stderr == ""
    assert len(json.loads(result.stdout)["remarks"]) == 1


def test_config_reports_wrong_settings_and_prints_nothing() -> None:
    result = run("config", env={"MAILGRES_CONCURRENCY": "ten"})
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "Error: concurrency, from MAILGRES_CONCURRENCY in the environment:"
        " 'ten' is not a whole number\n"
        "Hint: Give a whole number from 1 to 1000.\n"
    )


def test_config_refuses_unknown_options() -> None:
    assert run("config", "--nonsense").exit_code == 2


def test_help_of_config_says_which_source_overrides_which() -> None:
    text = " ".join(run("config", "-h").output.split())
    assert "Flags override environment variables" in text
    assert "[env var: MAILGRES_PROFILE; default: production]" in text


def test_the_database_of_the_file_is_used_by_other_commands(tmp_path: Path) -> None:
    path = tmp_path / "mailgres.toml"
    path.write_text("database_url = 'postgresql://127.0.0.1:1/of_the_file'\n")
    path.chmod(0o600)
    result = run("migrate", "--check")
    assert result.exit_code == 1
    assert "127.0.0.1:1/of_the_file" in result.stderr


def test_an_empty_url_is_not_replaced_by_another() -> None:
    result = run("migrate", "--database-url", "", env={"DATABASE_URL": "postgresql://db/other"})
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: database_url, from --database-url: the value is empty")


@click.command()
@settings_options("concurrency", "grace")
@click.option("--once", is_flag=True)
def command(*, settings: Settings, once: bool) -> None:
    """A command for the test."""
    grace = settings.grace.total_seconds()
    click.echo(f"{settings.concurrency} {grace:g} {settings.batch_size} {once}")


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ([], "10 30 20 False\n"),
        (["--concurrency", "7", "--grace", "1m", "--once"], "7 60 20 True\n"),
        (["--concurrency=8", "--config", "file.toml"], "8 3 20 False\n"),
    ],
)
def test_options_of_a_command_override_environment_and_file(
    arguments: list[str], output: str, tmp_path: Path
) -> None:
    (tmp_path / "file.toml").write_text("concurrency = 1\ngrace = 3\nbatch_size = 4\n")
    result = CliRunner().invoke(command, arguments, env={"MAILGRES_BATCH_SIZE": "20"})
    assert result.output == output


def test_options_appear_in_the_order_in_which_they_are_named() -> None:
    assert [each.name for each in command.params] == ["concurrency", "grace", "config", "once"]


def test_options_for_secrets_warn_in_their_help() -> None:
    @click.command()
    @settings_options("resend_api_key")
    def secret(*, settings: Settings) -> None:
        """A command for the test."""
        click.echo(settings.resend_api_key)

    assert "Prefer the variable" in CliRunner().invoke(secret, ["--help"]).output
