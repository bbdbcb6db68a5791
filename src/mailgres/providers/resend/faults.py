"""The faults of Resend, as https://resend.com/docs/api-reference/errors names them.

A fault with no name (a proxy's page, say) has the code `http_` and its status; faults of the
connection have codes of ours. The first rule that fits decides, so the special ones come first.
"""

from __future__ import annotations

from mailgres.providers.faults import Rule

UNREACHED = "unreached"
NO_ANSWER = "no_answer"
UNREADABLE = "unreadable_answer"
BAD_REQUEST = "malformed_request"
TOO_LARGE = "message_too_large"

_CONNECTION = (
    Rule(
        "transient",
        "No connection to Resend came about (refused, no such host, no TLS): nothing was sent.",
        code=UNREACHED,
        scope="account",
    ),
    Rule(
        "ambiguous",
        "The request left, but no answer came back (timeout, connection lost).",
        code=NO_ANSWER,
        scope="account",
    ),
    Rule(
        "ambiguous",
        "The answer says that the call succeeded, but not what became of the email.",
        code=UNREADABLE,
        scope="account",
    ),
    Rule(
        "permanent",
        "The email cannot be put into a request: nothing was sent.",
        code=BAD_REQUEST,
    ),
    Rule("permanent", "Resend takes at most 40 MB, files included.", code=TOO_LARGE),
)

_KEYS = (
    # What the documents call invalid_api_key really comes as validation_error, with 400 or 401:
    # without this rule a wrong key would kill the mail.
    Rule(
        "config",
        "Resend does not take this API key: it is wrong, expired or deleted.",
        code="validation_error",
        text=r"^\W*(the |this |your )?API key\b",
        scope="account",
    ),
    Rule("config", "No API key was sent.", code="missing_api_key", scope="account"),
    Rule(
        "config",
        "The API key may not do this: it is restricted, to another domain for example.",
        code="restricted_api_key",
        scope="account",
    ),
    Rule("config", "The API key is wrong.", code="invalid_api_key", scope="account"),
    Rule("config", "The API key is suspended.", code="suspended_api_key", scope="account"),
    Rule("config", "The API key lacks a permission.", code="invalid_permission", scope="account"),
)

_SENDER = (
    Rule(
        "config",
        "The from-domain is not verified at Resend.",
        code="validation_error",
        status=403,
        scope="sender",
    ),
    Rule(
        "config",
        "The from-domain is not verified at Resend.",
        code="validation_error",
        text=r"domain is not verified|verify (a|your) domain",
        scope="sender",
    ),
    Rule(
        "config",
        "Resend holds this sender's mail back for reasons of security.",
        code="security_error",
        scope="sender",
    ),
)

_LIMITS = (
    Rule("rate", "Too many requests per second.", code="rate_limit_exceeded", scope="account"),
    Rule("quota", "The daily quota is used up.", code="daily_quota_exceeded", scope="account"),
    Rule("quota", "The monthly quota is used up.", code="monthly_quota_exceeded", scope="account"),
)

_KEYS_OF_CALLS = (
    Rule(
        "transient",
        "Another call with this idempotency key is still under way.",
        code="concurrent_idempotent_requests",
        pinned=True,
    ),
    Rule(
        "uncertain",
        "An earlier call with this idempotency key arrived with other content.",
        code="invalid_idempotent_request",
        pinned=True,
    ),
    Rule(
        "config",
        "Resend does not take the form of our idempotency keys.",
        code="invalid_idempotency_key",
        scope="account",
    ),
)

_CONTENT = (
    Rule("permanent", "A field of the email is not valid.", code="validation_error"),
    Rule("permanent", "A field of the email is missing.", code="missing_required_field"),
    Rule("permanent", "A field of the email is missing.", code="missing_required_fields"),
    Rule("permanent", "The from-address is not valid.", code="invalid_from_address"),
    Rule("permanent", "An attachment is not valid.", code="invalid_attachment"),
    Rule("permanent", "A parameter is not valid.", code="invalid_parameter"),
)

_SERVICE = (
    Rule("config", "There is no such address in the API.", code="not_found", scope="account"),
    Rule(
        "config",
        "The API does not take this method here.",
        code="method_not_allowed",
        scope="account",
    ),
    Rule(
        "ambiguous",
        "Resend failed in the middle of the call.",
        code="application_error",
        scope="account",
    ),
    Rule(
        "ambiguous",
        "Resend failed in the middle of the call.",
        code="internal_server_error",
        scope="account",
    ),
)

_STATUSES = (
    Rule(
        "ambiguous",
        "Resend, or something before it, failed.",
        status=range(500, 600),
        scope="account",
    ),
    Rule("ambiguous", "Something before Resend gave up waiting.", status=408, scope="account"),
    Rule("rate", "Too many requests.", status=429, scope="account"),
    Rule("config", "The API key is not taken.", status=401, scope="account"),
    Rule("config", "The call is forbidden.", status=403, scope="account"),
    Rule("permanent", "The request is not valid.", code="http_400"),
    Rule("config", "There is no API at this address.", code="http_404", scope="account"),
    Rule("config", "There is no API at this address.", code="http_405", scope="account"),
    Rule("permanent", "The email is too large.", status=413),
    Rule("permanent", "The request is not valid.", code="http_422"),
    Rule(
        "config",
        "The address of the API leads somewhere else: the api_url of the account is wrong.",
        status=range(300, 400),
        scope="account",
    ),
)

RESEND_RULES = (
    *_CONNECTION,
    *_KEYS,
    *_SENDER,
    *_LIMITS,
    *_KEYS_OF_CALLS,
    *_CONTENT,
    *_SERVICE,
    *_STATUSES,
)
"""Every fault that Resend is known to show."""
