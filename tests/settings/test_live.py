"""Credentials follow the file while a process runs; everything else stays as it was."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from mailgres.providers import Provider
from mailgres.providers.registry import open_provider
from mailgres.settings import Account, Settings, load
from mailgres.settings.live import LiveSettings
from mailgres.worker import credentials
from mailgres.worker.credentials import replace_changed
from worker.harness import until

OLD = "whsec_dGhlIGZpcnN0IHNlY3JldA=="
NEW = "whsec_dGhlIHNlY29uZCBvbmUhISE="


def write(path: Path, text: str) -> None:
    """Replace a file, as careful programs do: always another inode."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").chmod(0o600)
    path.with_suffix(".new").rename(path)


def settings_of(path: Path, text: str, **environ: str) -> Settings:
    write(path, text)
    return load(environ, {}, path.parent)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mailgres.toml"


def test_a_new_secret_in_the_settings_file_is_used(path: Path) -> None:
    live = LiveSettings(settings_of(path, f'resend_webhook_secret = "{OLD}"\nlease = "2m"\n'))
    name = live.current.worker_name
    assert not live.refresh()
    write(path, f'resend_webhook_secret = ["{OLD}", "{NEW}"]\nlease = "9m"\n')
    assert live.refresh()
    assert live.current.resend_webhook_secret == (OLD, NEW)
    assert (live.current.worker_name, live.current.lease.total_seconds()) == (name, 120)
    assert not live.refresh()


def test_accounts_of_the_file_are_followed_too(path: Path) -> None:
    table = '[accounts.resend-acme]\nwebhook_secret = "{}"\n'
    live = LiveSettings(settings_of(path, table.format(OLD)))
    write(path, table.format(NEW))
    assert live.refresh()
    (account,) = live.current.receivers()
    assert (account.name, account.options["webhook_secret"]) == ("resend-acme", (NEW,))


def test_the_environment_takes_precedence_over_a_changed_file(path: Path) -> None:
    settings = settings_of(path, "", MAILGRES_EVENTS_SECRET=OLD)
    live = LiveSettings(settings)
    write(path, f'events_secret = "{NEW}"\n')
    assert not live.refresh()
    assert live.current.events_secret == (OLD,)


@pytest.mark.parametrize("text", ["events_secret = 'x'", "events_secret = 'whs", "nonsense = 1"])
def test_a_wrong_settings_file_changes_nothing_and_is_logged(
    text: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = LiveSettings(settings_of(path, f'events_secret = "{OLD}"\n'))
    write(path, text)
    assert not live.refresh()
    assert live.current.events_secret == (OLD,)
    assert "the changed settings are not used" in caplog.text
    assert OLD not in caplog.text
    write(path, f'events_secret = "{NEW}"\n')
    assert live.refresh()


def test_a_settings_file_that_is_missing_for_a_moment_changes_nothing(path: Path) -> None:
    live = LiveSettings(settings_of(path, f'events_secret = "{OLD}"\n'))
    path.unlink()
    assert not live.refresh()
    assert live.current.events_secret == (OLD,)


def test_a_link_that_leads_to_another_settings_file_is_a_change(tmp_path: Path) -> None:
    """So does Kubernetes replace a mounted secret."""
    for name, secret in (("one", OLD), ("two", NEW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mailgres.toml").write_text(f'events_secret = "{secret}"\n')
        (tmp_path / name / "mailgres.toml").chmod(0o600)
    link = tmp_path / "data"
    link.symlink_to("one")
    live = LiveSettings(load({}, {"config": str(link / "mailgres.toml")}))
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(link)
    assert live.refresh()
    assert live.current.events_secret == (NEW,)


def test_settings_without_a_file_follow_nothing() -> None:
    live = LiveSettings(Settings(events_secret=(OLD,)))
    assert not live.follows
    assert not live.refresh()


def test_settings_can_still_be_given_to_another_process(path: Path) -> None:
    settings = settings_of(path, f'events_secret = "{OLD}"\n')
    live = LiveSettings(pickle.loads(pickle.dumps(settings)))  # noqa: S301 - our own
    write(path, f'events_secret = "{NEW}"\n')
    assert live.refresh()


def opened(account: Account) -> Provider:
    return open_provider(account, timeout=1, connections=1, keep=lambda _: {})


def test_only_a_provider_with_other_credentials_is_opened_again(path: Path) -> None:
    text = (
        'providers = ["resend", "smtp"]\nsmtp_url = "smtp://mx"\nresend_api_key = "{}"\n'
        f'smtp_webhook_secret = "{OLD}"\n'
    )
    live = LiveSettings(settings_of(path, text.format("re_one")))
    providers = {account.name: opened(account) for account in live.current.accounts()}
    before = dict(providers)
    replace_changed(live, providers, opened)
    assert providers == before
    write(path, text.format("re_two").replace(OLD, NEW))
    replace_changed(live, providers, opened)
    assert providers["smtp"] is before["smtp"]
    assert providers["resend"] is not before["resend"]


def test_a_provider_that_breaks_when_it_is_opened_does_not_end_the_watch(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "CHECK_INTERVAL_SECONDS", 0.01)
    text = 'providers = ["resend"]\nresend_api_key = "{}"\n'
    live = LiveSettings(settings_of(path, text.format("re_one")))
    providers = {account.name: opened(account) for account in live.current.accounts()}
    before = dict(providers)

    def sometimes(account: Account) -> Provider:
        if account.options["api_key"] == "re_broken":
            raise ValueError("re_broken")
        return opened(account)

    with credentials.following(live, providers, sometimes):
        write(path, text.format("re_broken"))
        until(lambda: "are not used: ValueError" in caplog.text, "it is logged")
        write(path, text.format("re_two"))
        until(lambda: providers["resend"] is not before["resend"], "the next one is used")
    assert "re_broken" not in caplog.text


def test_a_provider_without_its_key_keeps_the_old_one(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = 'providers = ["resend"]\n'
    live = LiveSettings(settings_of(path, text + 'resend_api_key = "re_one"\n'))
    providers = {account.name: opened(account) for account in live.current.accounts()}
    before = dict(providers)
    write(path, text)
    replace_changed(live, providers, opened)
    assert providers == before
    assert "resend keeps its old settings" in caplog.text
