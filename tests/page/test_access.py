"""Who may use the page: a secret or a named proxy, a host name, an origin, a token, and time."""

from __future__ import annotations

from dataclasses import replace
from secrets import token_hex

import pytest

from mailgres import page
from mailgres.errors import MailgresError
from mailgres.page.sessions import IDLE_SECONDS, MOST_SECONDS
from page.client import SECRET, VIEWER_SECRET, Client, serving
from page.sending import enqueue
from support.queue import Queue

HERE = ["127.0.0.1"]


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


# --- closed by default


@pytest.mark.parametrize(
    "given", [{}, {"viewer_secret": VIEWER_SECRET}, {"proxy": page.Proxy(HERE)}, {"secret": ""}]
)
def test_a_page_without_any_way_to_sign_in_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(MailgresError, match="The page has no secret") as caught:
        page.app("postgresql://", **given)  # type: ignore[arg-type]
    assert "MAILGRES_PAGE_SECRET" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"secret": "short"}, "too short"),
        ({"secret": SECRET, "viewer_secret": "short"}, "too short"),
        ({"secret": SECRET, "viewer_secret": SECRET}, "the same secret"),
    ],
)
def test_bad_secrets_of_the_page_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(MailgresError, match=told):
        page.app("postgresql://", **given)  # type: ignore[arg-type]


def test_a_login_that_may_not_act_as_both_roles_is_refused_with_the_grant_to_make(
    queue: Queue, database_url: str
) -> None:
    role = f"page_{token_hex(4)}"
    queue.run(f"CREATE ROLE {role} LOGIN PASSWORD 'x' IN ROLE mailgres_operator")
    try:
        host = database_url.partition("@")[2] or database_url.partition("://")[2]
        opened = page.app(f"postgresql://{role}:x@{host}", secret=SECRET)
        with pytest.raises(MailgresError, match="may not act as mailgres_analyst") as caught:
            opened.check()
        assert "GRANT mailgres_analyst, mailgres_operator TO" in str(caught.value.hint)
        queue.run(f"GRANT mailgres_analyst TO {role}")
        opened.check()
        opened.close()
    finally:
        queue.run(f"DROP ROLE {role}")


# --- signing in and out


def test_without_a_session_the_page_shows_only_the_form_to_sign_in(
    stranger: Client, queue: Queue
) -> None:
    enqueue(queue)
    for path in ("/", "/live"):
        answer = stranger.get(path)
        assert (answer.status, 'name="secret"' in answer.text) == (403, True)
        assert "Due now" not in answer.text


def test_each_secret_of_the_page_gives_its_role(stranger: Client) -> None:
    assert "(viewer)" in stranger.sign_in(VIEWER_SECRET).get("/").text
    assert "(viewer)" not in stranger.sign_in(SECRET).get("/").text


@pytest.mark.parametrize("wrong", ["", "x", SECRET + "0", SECRET[:-1], "\u00e9\0", "x" * 9000])
def test_a_wrong_secret_starts_no_session(stranger: Client, wrong: str) -> None:
    answer = stranger.post("/session", {"secret": wrong})
    assert (answer.status, "set-cookie" in answer.headers) == (403, False)
    assert "This is not a secret of this page" in answer.text


def test_after_wrong_secrets_an_address_has_to_wait_even_with_the_right_one(
    database_url: str,
) -> None:
    time = Time()
    with serving(database_url, clock=time) as stranger:
        for _ in range(5):
            assert stranger.post("/session", {"secret": "wrong"}).status == 403
        for secret in ("wrong", SECRET, VIEWER_SECRET):
            answer = stranger.post("/session", {"secret": secret})
            assert (answer.status, "set-cookie" in answer.headers) == (429, False)
            assert answer.headers["retry-after"] == "60"
        time.now += 60
        assert stranger.post("/session", {"secret": SECRET}).status == 303


def test_the_cookie_is_kept_from_scripts_and_other_sites_and_has_no_secret(
    stranger: Client,
) -> None:
    cookie = stranger.post("/session", {"secret": SECRET}).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert SECRET not in cookie


def test_the_cookie_is_secure_when_our_proxy_says_that_tls_is_used(database_url: str) -> None:
    for addresses, is_secure in ((HERE, True), (["10.0.0.9"], False)):
        with serving(database_url, proxy=page.Proxy(addresses)) as stranger:
            answer = stranger.post("/session", {"secret": SECRET}, X_Forwarded_Proto="https")
            assert ("Secure" in answer.headers["set-cookie"]) == is_secure


@pytest.mark.parametrize(
    "forged", ["x", "a.b", "{text}.", "{text}.{mark}0", ".{mark}", "{other}.{mark}", "{text}"]
)
def test_a_forged_cookie_opens_nothing(viewer: Client, forged: str) -> None:
    name, _, value = viewer.cookie.partition("=")
    text, _, mark = value.rpartition(".")
    other = text.replace("-1-", "-2-", 1)
    assert other != text
    viewer.cookie = f"{name}={forged.format(text=text, mark=mark, other=other)}"
    assert viewer.get("/").status == 403


def test_a_cookie_of_another_secret_opens_nothing(database_url: str, operator: Client) -> None:
    with serving(database_url, secret="another-secret-of-16") as other:
        cookie = other.sign_in("another-secret-of-16").cookie
        operator.cookie = cookie
        assert operator.get("/").status == 403


def test_signing_out_ends_every_copy_of_the_cookie(operator: Client) -> None:
    stolen = replace(operator)
    answer = operator.change("/sign-out")
    assert answer.status == 303
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert operator.get("/").status == 403
    assert stolen.get("/").status == 403


def test_an_unused_session_ends_though_live_updates_go_on(database_url: str) -> None:
    time = Time()
    with serving(database_url, clock=time) as stranger:
        client = stranger.sign_in()
        time.now += IDLE_SECONDS - 1
        live = client.get("/live")
        assert (live.status, "set-cookie" in live.headers) == (200, False)
        renewed = client.get("/").headers["set-cookie"].partition(";")[0]
        time.now += 1
        assert client.get("/").status == 403
        client.cookie = renewed
        assert client.get("/").status == 200


def test_a_used_session_ends_after_its_longest_time(database_url: str) -> None:
    time = Time()
    with serving(database_url, clock=time) as stranger:
        client = stranger.sign_in()
        for _ in range(MOST_SECONDS // IDLE_SECONDS * 2 - 1):
            time.now += IDLE_SECONDS / 2
            client.cookie = client.get("/").headers["set-cookie"].partition(";")[0]
        time.now += IDLE_SECONDS / 2
        assert client.get("/").status == 403


# --- other sites


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8725", "", "127.0.0.1@evil"]
)
def test_another_host_name_is_refused_even_with_the_cookie(operator: Client, host: str) -> None:
    answer = operator.get("/", Host=host)
    assert answer.status == 403
    assert "does not answer under this host name" in answer.text


@pytest.mark.parametrize("origin", ["https://evil.example", "null", None, "http://127.0.0.1:1"])
def test_a_form_of_another_site_signs_nobody_in_or_out(
    operator: Client, origin: str | None
) -> None:
    form = {"csrf": operator.get("/").csrf(), "secret": SECRET}
    for path in ("/session", "/sign-out"):
        assert operator.post(path, form, Origin=origin).status == 403
    assert operator.get("/").status == 200


@pytest.mark.parametrize("token", ["", "0" * 64, "another"])
def test_a_form_without_the_token_of_the_session_changes_nothing(
    stranger: Client, operator: Client, token: str
) -> None:
    if token == "another":
        token = stranger.sign_in().get("/").csrf()
    assert operator.post("/sign-out", {"csrf": token}).status == 403
    assert operator.get("/").status == 200


def test_every_answer_has_a_strict_policy(operator: Client) -> None:
    for path in ("/", "/live", "/static/page.js", "/static/common.css", "/nowhere", "/static/x"):
        answer = operator.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"


# --- proxies and applications


def test_the_header_that_names_a_person_counts_only_from_the_address_of_a_proxy(
    database_url: str,
) -> None:
    for addresses, is_known in ((HERE, True), (["10.0.0.9"], False)):
        proxy = page.Proxy(addresses, "X-Forwarded-User", ["ana@example.com"])
        with serving(database_url, secret=None, viewer_secret=None, proxy=proxy) as client:
            assert client.get("/").status == 403
            operator = client.get("/", X_Forwarded_User="ana@example.com")
            viewer = client.get("/", X_Forwarded_User="vic@example.com")
            assert [operator.status, viewer.status] == ([200, 200] if is_known else [403, 403])
            if is_known:
                assert "ana@example.com" in operator.text
                assert "(viewer)" not in operator.text
                assert "(viewer)" in viewer.text
            assert client.get("/", X_Forwarded_User="  ").status == 403


def test_the_form_token_of_one_person_is_refused_for_another(database_url: str) -> None:
    proxy = page.Proxy(HERE, "X-Forwarded-User", ["ana", "ben"])
    with serving(database_url, secret=None, viewer_secret=None, proxy=proxy) as client:
        token = client.get("/", X_Forwarded_User="ben")
        found = dict.fromkeys(("ana", "ben"), client.app.gate.sessions)
        assert token.status == 200
        assert found["ana"] is found["ben"]
        from mailgres.page.sessions import Session

        sessions = client.app.gate.sessions
        ana, ben = (
            Session(page.User(name, page.Role.OPERATOR), f"user {name}", 0, 0)
            for name in ("ana", "ben")
        )
        assert sessions.csrf_token(ana) != sessions.csrf_token(ben)


# --- what every page shows


def test_the_page_has_a_red_badge_in_production(database_url: str) -> None:
    with serving(database_url, environment="production") as stranger:
        badge = '<span class="badge is-production">production</span>'
        assert badge in stranger.get("/").text
        assert badge in stranger.sign_in().get("/").text
    with serving(database_url, environment="<b>") as stranger:
        assert "<b>" not in stranger.sign_in().get("/").text
