"""Two good values of every setting, and all that is bad, as texts."""

from __future__ import annotations

from pathlib import Path

from mailgres.settings import InvalidSettings, Settings, load

GOOD: dict[str, tuple[str, str]] = {
    "profile": ("gateway", "development"),
    "database_url": ("postgresql://me:one@db/mail", "host=db password=two"),
    "statement_timeout": ("2s", "7s"),
    "listen": ("on", "off"),
    "poll_interval": ("100ms", "2s"),
    "worker_name": ("one", "two"),
    "processes": ("2", "3"),
    "concurrency": ("20", "30"),
    "batch_size": ("100", "1000"),
    "lease": ("90s", "5m"),
    "grace": ("0s", "10s"),
    "retry_policy": ("patient", "smtp"),
    "expires_after": ("2d", "3h"),
    "rate_limit": ("2/s", "500/h"),
    "from_email": ("Ana, Acme <ana@example.com>", "mail@example.com"),
    "reply_to": ("help@example.com", "Help <help@example.co.uk>"),
    "providers": ("resend-acme,ses", "smtp"),
    "provider_timeout": ("5s", "15s"),
    "resend_api_key": ("re_one", "re_two"),
    "resend_api_url": ("http://127.0.0.1:8080", "https://resend.example.com/v1"),
    "resend_webhook_secret": (
        "whsec_dGhlIGZpcnN0IHNlY3JldA==",
        "whsec_dGhlIGZpcnN0IHNlY3JldA==,whsec_dGhlIHNlY29uZCBvbmUhISE",
    ),
    "ses_region": ("eu-west-1", "us-gov-east-1"),
    "ses_configuration_set": ("mail_one", "mail-two"),
    "ses_profile": ("acme", "mail@two"),
    "ses_webhook_secret": ("a-secret_of-16-c", "a-secret_of-16-c,another-secret_16"),
    "ses_webhook_topics": (
        "arn:aws:sns:eu-west-1:123456789012:mail",
        "arn:aws:sns:eu-west-1:123456789012:mail,arn:aws-us-gov:sns:us-gov-east-1:123456789012:m.fifo",
    ),
    "smtp_url": ("smtp://me:one@mx:587?tls=starttls", "smtps://mx.example.com"),
    "smtp_webhook_secret": ("whsec_dGhlIGZpcnN0IHNlY3JldA==", "whsec_dGhlIHNlY29uZCBvbmUhISE"),
    "alert_email": ("admin@example.com", "ops@example.co.uk"),
    "alert_webhook": ("https://hooks.example.com/T1/B2?key=3", "http://127.0.0.1:9/x"),
    "alert_webhook_format": ("slack", "json"),
    "serve_host": ("0.0.0.0", "::1"),  # noqa: S104 - a value, nobody listens
    "serve_port": ("80", "65535"),
    "serve_secret": ("a-secret-of-16-c", "another-secret-of-the-service"),
    "metrics_token": ("a-token-of-16-ch", "another-token-of-the-service"),
    "events_secret": ("whsec_dGhlIGZpcnN0IHNlY3JldA==", "whsec_dGhlIHNlY29uZCBvbmUhISE"),
    "inbox_secret": ("a-secret-of-the-inbox", "another-secret-of-the-inbox"),
    "inbox_hosts": ("mail.example.com", "mail.example.com,[::1]"),
    "page_secret": ("a-secret-of-the-page", "another-secret-of-the-page"),
    "page_viewer_secret": ("a-secret-of-viewers", "another-secret-of-viewers"),
    "page_hosts": ("mail.example.com", "mail.example.com,[::1]"),
    "page_proxies": ("10.0.0.5", "10.0.0.5,::1"),
    "page_user_header": ("X-Forwarded-User", "X-Auth-Request-Email"),
    "page_operators": ("ana@example.com", "ana@example.com,ben"),
    "page_environment": ("production", "staging 2"),
    "page_read_only": ("on", "off"),
    "log_format": ("json", "console"),
    "log_level": ("debug", "error"),
}

BAD: dict[str, list[object]] = {
    "profile": ["staging", "", 1],
    "database_url": ["", 5, "postgresql://db\n/mail", "x" * 1001],
    "statement_timeout": ["99ms", "11m", "soon", "-1s", "1 week", True, [], "nan", "\u0661s"],
    "listen": ["yes", True, ""],
    "poll_interval": ["0", "49ms", "301s", 1e400],
    "worker_name": ["a b", "", "x" * 201, "a\nb"],
    "processes": ["0", "65", "two", 1.0, "1e1"],
    "concurrency": ["0", "1001", "-1", "ten", "1_0", "\u0663", "9" * 50, True, 2.5],
    "batch_size": ["0", "1001", ""],
    "lease": ["999ms", "3601s", float("nan"), float("inf"), 10**400],
    "grace": ["-1s", -1, "61m"],
    "retry_policy": ["Stepped!", "", "x" * 64],
    "expires_after": ["0s", "none", "3651d", "1s2m"],
    "rate_limit": ["0/m", "100", "100/w", "fast", "1.5/s", 100],
    "from_email": ["me", "a@b", "a@example.com, b@example.com", "A <a@example.com", "a@x.y\nBcc:"],
    "reply_to": ["@example.com", "A <>", "a b@example.com"],
    "providers": [
        "resnd",
        "",
        [],
        ["ses", 1],
        "ses,ses",
        "ses,,smtp",
        {"ses": 1},
        "acme-resend",
        "resend-",
        "resend_acme",
        "ses-a b",
        "ses-é",
        "ses-" + "a" * 60,
        "ses-a-b,ses-a_b",
    ],
    "provider_timeout": ["0s", "601s"],
    "resend_api_key": ["re_one two", "", 7, "clé"],
    "resend_api_url": [
        "http://example.com",
        "https://me:pw@example.com",
        "https://example.com?key=1",
        "ftp://example.com",
        "https://",
        "https://a:99999",
        "https://a,b",
        "example.com",
    ],
    "resend_webhook_secret": [
        "",
        ",",
        1,
        [],
        [1],
        "dGhlIGZpcnN0IHNlY3JldA==",
        "whsec_",
        "whsec_dG9vIHNob3J0",
        "whsec_dGhlIGZpcnN0!IHNlY3JldA==",
        "whsec_dGhlIGZpcnN0IHNlY3JldA==,nothing",
        {"whsec_dGhlIGZpcnN0IHNlY3JldA==": 1},
    ],
    "ses_region": ["europe", "eu_west_1", "EU-WEST-1"],
    "ses_configuration_set": ["a b", "x" * 65],
    "ses_profile": ["a b", "[a]", "", 1],
    "ses_webhook_secret": ["short", "with/a/slash/in/it", "a" * 201, 1, []],
    "ses_webhook_topics": [
        "",
        "mail",
        "arn:aws:sqs:eu-west-1:123456789012:mail",
        "arn:aws:sns:eu-west-1:1234:mail",
        "arn:aws:sns:*:123456789012:mail",
    ],
    "smtp_webhook_secret": ["secret", 1],
    "smtp_url": [
        "mx.example.com",
        "http://mx",
        "smtp://",
        "smtp://mx:0",
        "smtp://mx/path",
        "smtp://mx?tls=maybe",
        "smtp://mx?tls=none&x=1",
        "smtp://me:p/w@mx",
    ],
    "alert_email": ["me", "Ana <ana@example.com>", "", 1],
    "alert_webhook": ["http://example.com/x", "ftp://example.com", "https://", "hooks", ""],
    "alert_webhook_format": ["teams", ""],
    "serve_host": ["", "a b", "http://x", 1],
    "serve_port": ["-1", "65536", "http", True],
    "serve_secret": ["x" * 15, "with blanks in the middle", "s\u00e9cret-of-16-chars", "", 1],
    "metrics_token": ["x" * 15, "x" * 1001],
    "events_secret": ["secret", ["whsec_dGhlIGZpcnN0IHNlY3JldA=="] * 21],
    "inbox_secret": ["x" * 15, "x" * 1001],
    "inbox_hosts": ["", "a b", "https://mail.example.com/"],
    "page_secret": ["x" * 15, "x" * 1001],
    "page_viewer_secret": ["x" * 15, "x" * 1001],
    "page_hosts": ["", "a b", "https://mail.example.com/"],
    "page_proxies": ["", "proxy.example.com", "10.0.0.0/8"],
    "page_user_header": ["", "X Forwarded", "X:"],
    "page_operators": ["", "\u00e4na"],
    "page_environment": ["", "<b>", "x" * 41],
    "page_read_only": ["yes", ""],
    "log_format": ["xml"],
    "log_level": ["loud", 10],
}


def refused(
    environ: dict[str, str], flags: dict[str, object] | None = None, directory: Path | None = None
) -> InvalidSettings:
    """Return the error that settings like these raise."""
    try:
        settings: Settings = load(environ, flags, directory)
    except InvalidSettings as error:
        return error
    raise AssertionError(f"accepted: {settings}")


def everything_in(error: BaseException) -> str:
    """Return all the text that a traceback or a log could show of an error."""
    texts = [str(error), repr(error), *map(repr, vars(error).values())]
    texts += [everything_in(each) for each in (error.__cause__, error.__context__) if each]
    return "\n".join(texts)
