"""A secret is in the object and nowhere else: no text, no error, no log."""

from __future__ import annotations

import json
import logging
import traceback
from base64 import b64encode
from pathlib import Path

import pytest
from click.testing import CliRunner

from mailgres.cli import main
from mailgres.settings import DEFINITIONS, Settings, load
from mailgres.values.kinds import MASK
from mailgres.values.urls import masked
from settings.samples import everything_in, refused

SECRET = "s3cr3t-w0rd"
SECRETS = {
    "database_url": f"postgresql://me:{SECRET}@db/mail",
    "resend_api_key": f"re_{SECRET}",
    "resend_webhook_secret": f"whsec_{b64encode(SECRET.encode() * 2).decode()}",
    "ses_webhook_secret": f"{SECRET}-{SECRET}",
    "smtp_webhook_secret": f"whsec_{b64encode(SECRET.encode() * 2).decode()}",
    "events_secret": f"whsec_{b64encode(SECRET.encode() * 2).decode()}",
    "smtp_url": f"smtp://me:{SECRET}@mx:587?tls=starttls",
    "alert_webhook": f"https://hooks.example.com/{SECRET}?key={SECRET}",
    "serve_secret": f"{SECRET}-{SECRET}",
    "metrics_token": f"{SECRET}+{SECRET}",
    "inbox_secret": f"{SECRET}~{SECRET}",
    "page_secret": f"{SECRET}!{SECRET}",
    "page_viewer_secret": f"{SECRET}?{SECRET}",
}
ENVIRON = {DEFINITIONS[name].variables[0]: value for name, value in SECRETS.items()}


def test_the_secret_settings_are_exactly_these() -> None:
    assert set(SECRETS) == {name for name, each in DEFINITIONS.items() if each.secret}


def test_no_text_of_settings_holds_a_secret() -> None:
    settings = load(ENVIRON)
    assert settings.resend_api_key == f"re_{SECRET}"
    for text in (repr(settings), str(settings), f"{settings}", str(settings.explain())):
        assert SECRET not in text
        assert f"postgresql://me:{MASK}@db/mail" in text
        assert f"smtp://me:{MASK}@mx:587?tls=starttls" in text


@pytest.mark.parametrize("arguments", [["config"], ["config", "--json"]])
def test_config_masks_secrets(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments, env=ENVIRON)
    assert result.exit_code == 0
    assert SECRET not in result.output + result.stderr
    assert result.output.count(MASK) == len(SECRETS)


@pytest.mark.parametrize(
    "value",
    [
        f"postgresql://me:{SECRET}@db/mail\n[x",
        f"smtp://me:{SECRET}/@mx",
        f"{SECRET}é",
        f"{SECRET} {SECRET}",
        SECRET * 100,
    ],
)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_no_error_repeats_a_secret_that_was_given_to_a_wrong_setting(name: str, value: str) -> None:
    environ = {DEFINITIONS[name].variables[0]: value}
    result = CliRunner().invoke(main, ["config"], env=environ)
    if result.exit_code == 0:
        return  # a text that may be almost anything, such as the name of a worker
    error = refused(environ)
    assert SECRET not in result.output + everything_in(error)
    assert SECRET not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("text", ["'{}", '"{}\n"', "[{}", "{} {}", "x\x00 = '{}'"])
def test_errors_about_the_settings_file_do_not_quote_it(text: str, tmp_path: Path) -> None:
    content = f"resend_api_key = {text.replace('{}', SECRET)}\n"
    (tmp_path / "mailgres.toml").write_text(content)
    error = refused({}, {}, tmp_path)
    assert SECRET not in everything_in(error) + "".join(traceback.format_exception(error))


def test_errors_about_unknown_settings_do_not_quote_values(tmp_path: Path) -> None:
    (tmp_path / "mailgres.toml").write_text(f"resend_api_kee = '{SECRET}'\n")
    error = refused({"MAILGRES_RESEND_KEY": SECRET}, {}, tmp_path)
    assert len(error.problems) == 2
    assert SECRET not in everything_in(error)


def test_errors_do_not_repeat_a_secret() -> None:
    with pytest.raises(ValueError, match="postgresql") as raised:
        raise ValueError(Settings(database_url=SECRETS["database_url"]))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pw@db:6543/mail", f"postgresql://me:{MASK}@db:6543/mail"),
        ("postgresql+psycopg://me:pw@a:1,b:2/mail", f"postgresql+psycopg://me:{MASK}@a:1,b:2/mail"),
        ("postgres://me@[::1]:5432/mail", "postgres://me@[::1]:5432/mail"),
        ("postgresql:///mail", "postgresql:///mail"),
        ("postgresql://:pw@db", f"postgresql://:{MASK}@db"),
        (
            "postgresql://db/mail?sslmode=require&password=pw&sslpassword=pw",
            f"postgresql://db/mail?sslmode=require&password={MASK}&sslpassword={MASK}",
        ),
        ("host=db password=pw", MASK),
        ("postgresql://me:p@w@db/mail", MASK),
        ("postgresql://me:p/w@db/mail", MASK),
        ("postgresql://me:1/pw@db/mail", MASK),
        ("postgresql://me:p?w=1@db/mail", MASK),
        ("postgresql://me:1?w=pw@db/mail", MASK),
        ("postgresql://me:1#pw@db/mail", MASK),
        ("postgresql://me:pw", MASK),
        ("postgresql://db/mail?pw", MASK),
        ("pw", MASK),
    ],
)
def test_urls_are_shown_without_their_password(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert "pw" not in shown


def test_masking_takes_no_time_on_odd_input() -> None:
    assert masked("postgresql://" + ",:" * 20_000 + "!") == MASK
    assert masked("postgresql://db?" + "a=&" * 20_000) == MASK


@pytest.mark.parametrize(
    ("mode", "text", "warnings"),
    [
        (0o644, "resend_api_key = 're_s3cr3t'\nlease = 60\n", 1),
        (0o640, "resend_api_key = 're_s3cr3t'\n", 0),
        (0o644, "lease = 60\n", 0),
    ],
)
def test_a_readable_settings_file_with_secrets_is_warned_of(
    mode: int, text: str, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "mailgres.toml"
    path.write_text(text)
    path.chmod(mode)
    with caplog.at_level(logging.WARNING):
        load({}, {}, tmp_path)
    assert len(caplog.records) == warnings
    if warnings:
        assert caplog.records[0].__dict__["action"] == "settings_file_open"
        assert "mailgres.toml holds resend_api_key" in caplog.text
        assert "chmod 600 mailgres.toml" in caplog.text
        assert "re_s3cr3t" not in caplog.text


def test_config_json_masks_secrets() -> None:
    result = CliRunner().invoke(main, ["config", "--json"], env=ENVIRON)
    listed = json.loads(result.stdout)["settings"]
    assert listed["resend_api_key"]["value"] == MASK
    assert listed["database_url"]["value"] == f"postgresql://me:{MASK}@db/mail"
