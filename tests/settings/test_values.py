"""Values: how they are written, and that writing and reading agree."""

from __future__ import annotations

import dataclasses
import pickle
import re
import subprocess
import sys
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailgres.settings import DEFINITIONS, InvalidSettings, Rate, Settings, load
from mailgres.values.kinds import Duration, Number, PerTime
from settings.samples import GOOD

ANY_DURATION = Duration("0s", "36500d")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1.5h", 5400),
        ("2d", 172_800),
        ("500ms", 0.5),
        (" 30 s ", 30),
        ("30", 30),
        ("0.25", 0.25),
        (45, 45),
        (1.5, 1.5),
        (timedelta(minutes=1), 60),
    ],
)
def test_durations_are_parsed(text: object, seconds: float) -> None:
    assert ANY_DURATION.parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.05, "50ms"), (1.5, "1.5s"), (60, "1m"), (90, "90s"), (7200, "2h")],
)
def test_durations_are_shown_as_they_are_written(seconds: float, text: str) -> None:
    assert ANY_DURATION.show(timedelta(seconds=seconds)) == text


@given(st.timedeltas(timedelta(0), timedelta(days=36_000)))
def test_any_duration_is_read_as_it_is_written(value: timedelta) -> None:
    assert abs(ANY_DURATION.parse(ANY_DURATION.show(value)) - value) <= timedelta(microseconds=1)


@given(st.integers(1, 10**9 - 1), st.sampled_from("smhd"))
def test_any_rate_is_read_as_it_is_written(count: int, unit: str) -> None:
    kind = PerTime()
    rate = kind.parse(f"{count}/{unit}")
    assert rate.count == count
    assert kind.parse(kind.show(rate)) == kind.parse(rate) == rate


@given(
    st.text()
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
    | st.dates()
    | st.lists(st.text() | st.integers())
    | st.dictionaries(st.text(), st.text())
)
def test_nothing_that_toml_has_breaks_a_kind(value: object) -> None:
    for definition in DEFINITIONS.values():
        try:
            parsed = definition.kind.parse(value)
        except ValueError as error:
            assert str(error)  # noqa: PT017 - most values are refused, a few are not
        else:
            assert definition.kind.parse(parsed) == parsed


@pytest.mark.parametrize("name", DEFINITIONS)
def test_good_values_are_read_as_they_are_written(name: str) -> None:
    kind = DEFINITIONS[name].kind
    for text in GOOD[name]:
        assert kind.parse(kind.show(kind.parse(text))) == kind.parse(text)


def test_the_bounds_of_a_setting_are_allowed_values() -> None:
    for each in DEFINITIONS.values():
        if isinstance(each.kind, Number | Duration):
            each.kind.parse(each.kind.low)
            each.kind.parse(each.kind.high)


def test_the_defaults_are_those_of_the_page() -> None:
    settings = load({})
    assert settings.profile == "production"
    assert settings.database_url is None
    assert (settings.processes, settings.concurrency, settings.batch_size) == (1, 10, 10)
    assert (settings.lease, settings.grace) == (timedelta(seconds=60), timedelta(seconds=30))
    assert settings.poll_interval == timedelta(seconds=1)
    assert settings.statement_timeout == timedelta(seconds=5)
    assert settings.provider_timeout == timedelta(seconds=30)
    assert settings.providers == ("capture",)


def test_choices_are_accepted_in_any_case() -> None:
    assert load({"MAILGRES_LOG_LEVEL": " WARNING "}).log_level == "warning"


def test_a_slash_at_the_end_of_an_api_url_makes_no_difference() -> None:
    url = "https://api.example.com/"
    assert load({}, {"resend_api_url": url}).resend_api_url == url[:-1]


def test_two_workers_get_different_names() -> None:
    one, two = load({}).worker_name, load({}).worker_name
    assert re.fullmatch(r"\S+-\d+-[0-9a-f]{6}", one)
    assert one != two


def test_settings_cannot_be_changed() -> None:
    settings = load({})
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.concurrency = 1  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        settings.something = 1
    assert not hasattr(settings, "__dict__")


def test_settings_can_be_made_in_python() -> None:
    settings = Settings(concurrency=3, rate_limit=Rate(2, timedelta(seconds=1)))
    assert settings.origin("concurrency").layer == "default"
    changed = dataclasses.replace(settings, worker_name="two")
    assert (changed.worker_name, changed.concurrency) == ("two", 3)
    with pytest.raises(InvalidSettings, match="lease: "):
        dataclasses.replace(settings, lease=timedelta(0))


def test_settings_can_be_sent_to_other_processes() -> None:
    settings = load({"MAILGRES_PROFILE": "gateway"})
    copy = pickle.loads(pickle.dumps(settings))  # noqa: S301 - our own
    assert copy == settings
    assert copy.origin("concurrency") == settings.origin("concurrency")
    assert hash(copy) == hash(settings)


def test_unknown_names_have_no_origin() -> None:
    with pytest.raises(KeyError):
        load({}).origin("nonsense")


def test_a_profile_chooses_the_defaults_of_the_queue() -> None:
    assert load({}).queue_defaults().chosen is False
    gateway = load({"MAILGRES_PROFILE": "gateway"}).queue_defaults()
    assert (gateway.retry_policy, gateway.expires_after) == ("gateway", timedelta(hours=24))
    assert gateway.chosen
    production = load({}, {"profile": "production"}).queue_defaults()
    assert (production.retry_policy, production.expires_after) == ("stepped", None)
    assert production.chosen
    assert load({"MAILGRES_RETRY_POLICY": "smtp"}).queue_defaults().chosen


def test_providers_without_credentials_are_refused() -> None:
    load({}).check_providers()
    load({"MAILGRES_PROVIDERS": "resend", "RESEND_API_KEY": "re_1"}).check_providers()
    with pytest.raises(InvalidSettings) as raised:
        load({"MAILGRES_PROVIDERS": "resend,ses"}).check_providers()
    assert raised.value.message == (
        "providers, from MAILGRES_PROVIDERS in the environment: resend needs resend_api_key"
    )
    assert raised.value.hint == "Set RESEND_API_KEY or MAILGRES_RESEND_API_KEY."


def test_config_notes_a_key_that_no_provider_uses() -> None:
    key = {"RESEND_API_KEY": "re_1"}
    assert load({}).remarks() == ()
    assert "providers does not name resend" in load(key).remarks()[0]
    assert load(key | {"MAILGRES_PROVIDERS": "capture"}).remarks() == ()
    assert load(key | {"MAILGRES_PROFILE": "development"}).remarks() == ()


def test_importing_the_settings_reads_no_environment() -> None:
    program = "import mailgres.settings, mailgres.cli"
    environ = {"MAILGRES_NONSENSE": "1", "MAILGRES_CONCURRENCY": "x", "MAILGRES_CONFIG": "/none"}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True)
