"""Whatever is wrong is said at once: the setting, where it was set, what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailgres.embedded import binaries
from mailgres.settings import DEFINITIONS, InvalidSettings, Settings, load
from mailgres.settings.loading import OTHER_VARIABLES
from settings.samples import BAD, refused


def test_every_setting_has_bad_samples() -> None:
    assert set(BAD) == set(DEFINITIONS)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_bad_values_of_settings_are_refused(name: str, value: object) -> None:
    definition = DEFINITIONS[name]
    error = refused({}, {name: value})
    assert error.message.startswith(f"{name}, from {definition.flag}: ")
    assert error.hint == f"Give {definition.kind.allowed}."
    assert "\n" not in error.message
    if isinstance(value, str) and value.strip():
        variable = definition.variables[-1]
        assert refused({variable: value}).message.startswith(
            f"{name}, from {variable} in the environment: "
        )
    with pytest.raises(InvalidSettings, match=f"^{name}: "):
        Settings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "why", "hint"),
    [
        (
            "concurrency",
            "ten",
            "'ten' is not a whole number",
            "Give a whole number from 1 to 1000.",
        ),
        ("concurrency", "1001", "1001 is too large", "Give a whole number from 1 to 1000."),
        (
            "lease",
            "2h",
            "'2h' is too long",
            'Give 1s to 1h, such as "500ms", "30s", "1.5h" or a number of seconds.',
        ),
        (
            "profile",
            "gatewya",
            "'gatewya' is not one of the choices (did you mean gateway?)",
            'Give "production", "development" or "gateway".',
        ),
        (
            "providers",
            "ses,resnd",
            "'resnd' is unknown (did you mean resend?)",
            (
                "Give one or more of capture, resend, ses, smtp, or accounts of theirs such"
                " as smtp-acme, in a list or with commas."
            ),
        ),
        (
            "expires_after",
            "soon",
            "'soon' is not a duration",
            'Give 1s to 3650d, such as "500ms", "30s", "1.5h" or a number of seconds, or "never".',
        ),
        (
            "ses_region",
            "Frankfurt",
            "the value has the wrong form",
            "Give a region such as eu-west-1.",
        ),
    ],
)
def test_a_bad_setting_is_reported_with_source_and_hint(
    name: str, value: str, why: str, hint: str
) -> None:
    variable = f"MAILGRES_{name.upper()}"
    error = refused({variable: value})
    assert error.message == f"{name}, from {variable} in the environment: {why}"
    assert error.hint == hint


def test_a_bad_setting_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mailgres.toml").write_text('# mine\n\n"concurrency" = "ten"\n')
    assert refused({}, {}, tmp_path).message == (
        "concurrency, from mailgres.toml line 3: 'ten' is not a whole number"
    )


def test_unknown_keys_of_the_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mailgres.toml").write_text("lease = 60\nbatch-size = 10\n")
    error = refused({}, {}, tmp_path)
    assert error.message == "mailgres.toml line 2: unknown setting batch-size"
    assert error.hint == "Did you mean batch_size?"


def test_unknown_tables_of_the_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mailgres.toml").write_text("lease = 60\n[qqq]\nconcurrency = 0\n")
    error = refused({}, {}, tmp_path)
    assert error.message == "mailgres.toml line 2: unknown setting qqq"
    assert str(error.hint).startswith("Known settings: alert_email, alert_webhook, ")


def test_unknown_variables_are_refused() -> None:
    error = refused({"MAILGRES_CONCURENCY": ""})
    assert error.message == "MAILGRES_CONCURENCY in the environment is not a mailgres setting"
    assert error.hint == "Did you mean MAILGRES_CONCURRENCY?"


def test_unknown_flags_are_refused() -> None:
    error = refused({}, {"concurency": 1})
    assert (error.message, error.hint) == (
        "Unknown setting concurency",
        "Did you mean concurrency?",
    )


def test_variables_that_are_not_settings_are_accepted() -> None:
    assert binaries.CHOICE in OTHER_VARIABLES
    load({binaries.CHOICE: "wheel", "MAILGRES_CONFIG": "", "PATH": "/bin", "MAILGRESX": "1"})


KUBERNETES = [
    "MAILGRES_SERVICE_HOST",
    "MAILGRES_SERVICE_PORT",
    "MAILGRES_SERVICE_PORT_HTTP",
    "MAILGRES_PORT",
    "MAILGRES_PORT_8080_TCP",
    "MAILGRES_PORT_8080_TCP_ADDR",
    "MAILGRES_METRICS_SERVICE_HOST",
    "MAILGRES_METRICS_PORT_9090_TCP_PROTO",
]


@pytest.mark.parametrize("variable", KUBERNETES)
def test_variables_that_kubernetes_sets_are_ignored(variable: str) -> None:
    load({variable: "tcp://10.0.0.1:8080"})


@pytest.mark.parametrize("name", DEFINITIONS)
def test_no_setting_has_a_name_that_kubernetes_gives(name: str) -> None:
    assert name == "serve_port" or not name.endswith(("_port", "_service_host"))


def test_a_port_that_kubernetes_gives_is_not_ours() -> None:
    """A service that is called mailgres-serve puts its own address into MAILGRES_SERVE_PORT."""
    given = load({"MAILGRES_SERVE_PORT": "tcp://10.0.0.1:8080"})
    assert (given.serve_port, given.origin("serve_port").layer) == (8725, "default")
    assert load({"MAILGRES_SERVE_PORT": "8080"}).serve_port == 8080
    assert "serve_port" in str(refused({"MAILGRES_SERVE_PORT": "eighty"}))


def test_all_mistakes_in_settings_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "mailgres.toml").write_text('lease = "soon"\nconcurency = 3\n')
    error = refused({"MAILGRES_GRACE": "x", "MAILGRES_X": "1"}, {"profile": "y"}, tmp_path)
    assert len(error.problems) == 5
    first, *others = error.message.splitlines()
    assert first == "5 settings are wrong:"
    assert len(others) == 5
    for part in ("MAILGRES_X in", "grace, from", "lease, from", "concurency", "profile, from"):
        assert part in error.message


def test_a_bad_value_that_is_overridden_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "mailgres.toml").write_text('lease = "soon"\n')
    assert load({"MAILGRES_LEASE": "5s"}, {}, tmp_path).lease.seconds == 5


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"lease = \n", " line 1, column 9"),
        (b"lease = 1\nlease = 2\n", " line 2, column 10"),
        (b"grace = 1\nlease = soon\n", " line 2, column 9"),
        (b"lease = '\xff'\n", ""),
    ],
)
def test_a_settings_file_that_is_not_toml_is_refused(
    content: bytes, place: str, tmp_path: Path
) -> None:
    (tmp_path / "mailgres.toml").write_bytes(content)
    error = refused({}, {}, tmp_path)
    assert error.message == f"mailgres.toml{place}: this is not TOML in UTF-8"
    assert 'lease = "60s"' in str(error.hint)


def test_a_settings_file_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mailgres.toml").write_text("lease = " + "[" * 100_000)
    assert refused({}, {}, tmp_path).message.startswith("mailgres.toml")


@pytest.mark.parametrize(
    ("environ", "flags", "source"),
    [
        ({"MAILGRES_CONFIG": "no.toml"}, {}, "MAILGRES_CONFIG in the environment"),
        ({}, {"config": "no.toml"}, "--config"),
    ],
)
def test_a_missing_settings_file_is_reported(
    environ: dict[str, str], flags: dict[str, object], source: str, tmp_path: Path
) -> None:
    error = refused(environ, flags, tmp_path)
    assert error.message == f"config, from {source}: there is no file no.toml"


def test_an_unreadable_settings_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "mailgres.toml").mkdir()
    assert refused({}, {}, tmp_path).message == "mailgres.toml cannot be read: Is a directory"


def test_the_error_about_settings_has_a_default_message_and_hint() -> None:
    assert InvalidSettings().message == "A setting is wrong"
    assert "mailgres config" in str(InvalidSettings().hint)
