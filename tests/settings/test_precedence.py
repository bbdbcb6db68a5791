"""A flag goes before the environment, that before the file, the profile and the default."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from mailgres.settings import DEFINITIONS, PROFILES, Rate, Settings, load
from settings.samples import GOOD


def toml(directory: Path, text: str, name: str = "mailgres.toml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def test_every_setting_has_samples() -> None:
    assert set(GOOD) == set(DEFINITIONS)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_each_source_of_settings_overrides_those_below(name: str, tmp_path: Path) -> None:
    definition = DEFINITIONS[name]
    one, two = GOOD[name]
    environ = {definition.variables[0]: one}
    if name != "worker_name":
        assert getattr(load({}), name) == getattr(Settings(), name)
    assert load({}).origin(name).layer in {"default", "profile"}

    toml(tmp_path, f"# settings\n{name} = '{two}'\n")
    from_file = load({}, {}, tmp_path)
    assert getattr(from_file, name) == definition.kind.parse(two)
    assert str(from_file.origin(name)) == "mailgres.toml line 2"

    from_environment = load(environ, {name: None}, tmp_path)
    assert getattr(from_environment, name) == definition.kind.parse(one)
    assert str(from_environment.origin(name)) == f"{definition.variables[0]} in the environment"

    from_flag = load(environ, {name: two}, tmp_path)
    assert getattr(from_flag, name) == definition.kind.parse(two)
    assert str(from_flag.origin(name)) == definition.flag


@pytest.mark.parametrize("name", [name for name, each in DEFINITIONS.items() if each.also])
def test_variables_of_other_programs_have_their_order(name: str) -> None:
    one, two = GOOD[name]
    variables = DEFINITIONS[name].variables
    for before, after in pairwise(variables):
        settings = load({after: two, before: one})
        assert getattr(settings, name) == one
        assert settings.origin(name).text == f"{before} in the environment"
        assert getattr(load({after: two}), name) == two


def test_variables_of_other_programs_are_read_where_documented() -> None:
    assert {name: each.also for name, each in DEFINITIONS.items() if each.also} == {
        "database_url": ("DATABASE_URL", "SUPABASE_DB_URL"),
        "resend_api_key": ("RESEND_API_KEY",),
        "ses_region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    }


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_variable_is_not_set(empty: str) -> None:
    settings = load({"DATABASE_URL": empty, "SUPABASE_DB_URL": "host=b", "MAILGRES_LEASE": empty})
    assert settings.database_url == "host=b"
    assert settings.origin("lease").layer == "default"


def test_settings_take_the_types_of_toml(tmp_path: Path) -> None:
    toml(tmp_path, 'concurrency = 7\nlease = 1.5\ngrace = 0\nproviders = [\n  "ses",\n"smtp"]\n')
    settings = load({}, {}, tmp_path)
    assert settings.concurrency == 7
    assert settings.lease == timedelta(seconds=1.5)
    assert settings.grace == timedelta(0)
    assert settings.providers == ("ses", "smtp")


def test_a_settings_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    toml(tmp_path, "\ufeffconcurrency = 7\n")
    assert load({}, {}, tmp_path).concurrency == 7


def test_the_settings_file_is_found_in_the_documented_order(tmp_path: Path) -> None:
    toml(tmp_path, "concurrency = 1")
    toml(tmp_path, "concurrency = 2", "two.toml")
    three = toml(tmp_path, "concurrency = 3", "three.toml")
    environ = {"MAILGRES_CONFIG": "two.toml"}
    assert load({}, {}, tmp_path).concurrency == 1
    assert load({"MAILGRES_CONFIG": " "}, {}, tmp_path).concurrency == 1
    assert load(environ, {"config": None}, tmp_path).concurrency == 2
    settings = load(environ, {"config": str(three)}, tmp_path)
    assert settings.concurrency == 3
    assert settings.origin("concurrency").text == f"{three} line 1"


def test_without_a_directory_no_file_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml(tmp_path, "concurrency = 1")
    monkeypatch.chdir(tmp_path)
    assert load({}).concurrency == 10


def test_the_profile_gateway_sets_policy_and_expiry() -> None:
    settings = load({"MAILGRES_PROFILE": "gateway"})
    assert settings.retry_policy == "gateway"
    assert settings.expires_after == timedelta(hours=24)
    assert settings.rate_limit == Rate(100, timedelta(minutes=1))
    assert settings.concurrency == 5
    assert settings.origin("concurrency").text == "profile gateway"
    assert settings.origin("profile").layer == "environment"


def test_the_profiles_production_and_development_set_their_defaults() -> None:
    production, development = load({}), load({}, {"profile": "development"})
    assert (production.profile, production.retry_policy) == ("production", "stepped")
    assert production.expires_after is None
    assert production.rate_limit is None
    assert (development.retry_policy, development.providers) == ("development", ("capture",))


@pytest.mark.parametrize("layer", ["flag", "environment", "file"])
def test_every_source_overrides_the_profile(layer: str, tmp_path: Path) -> None:
    toml(tmp_path, 'profile = "gateway"\n')
    given = {"expires_after": "never", "rate_limit": "unlimited", "concurrency": "6"}
    environ = {DEFINITIONS[name].variables[0]: value for name, value in given.items()}
    if layer == "file":
        lines = (f"{name} = '{value}'\n" for name, value in given.items())
        toml(tmp_path, "profile = 'gateway'\n" + "".join(lines))
    settings = load(
        environ if layer == "environment" else {}, given if layer == "flag" else {}, tmp_path
    )
    assert settings.expires_after is None
    assert settings.rate_limit is None
    assert settings.concurrency == 6
    assert settings.retry_policy == "gateway"
    assert {settings.origin(name).layer for name in given} == {layer}


def test_every_value_of_a_profile_is_valid() -> None:
    assert list(PROFILES) == list(DEFINITIONS["profile"].kind.words)  # type: ignore[attr-defined]
    for values in PROFILES.values():
        for name, value in values.items():
            DEFINITIONS[name].kind.parse(value)
