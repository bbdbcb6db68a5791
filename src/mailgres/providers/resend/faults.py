"""The faults of Resend, as https://resend.com/docs/api-reference/errors names them.

A fault without a name (such as a proxy's page) has the code `http_` and its status; faults of the
connection have codes of mailgres. The first rule that matches decides, so special rules come first.
"""

from __future__ import annotations

from mailgres.providers.faults import Rule

NO_CONNECTION = "no_connection"
NO_ANSWER = "no_answer"
UNREADABLE = "unreadable_answer"
BAD_REQUEST = "malformed_request"
TOO_LARGE = "message_too_large"

_CONNECTION = (
    Rule(
        "transient",
        "Could not connect to Resend (refused, no such host, no TLS): nothing was sent.",
        code=NO_CONNECTION,
        scope="account",
    ),
    Rule(
        "ambiguous",
        "The request was sent, but no answer came back (timeout, connection lost).",
        code=NO_ANSWER,
        scope="account",
    ),
    Rule(
        "ambiguous",
        "The answer says that the call succeeded, but has no id of the email.",
        code=UNREADABLE,
        scope="account",
    ),
    Rule(
        "permanent",
        "The email cannot be written as a request: nothing was sent.",
        code=BAD_REQUEST,
    ),
    Rule(
        "permanent",
        "The email is larger than 40 MB with its attachments, the limit of Resend.",
        code=TOO_LARGE,
    ),
)

_KEYS = (
    # Resend documents invalid_api_key but really sends validation_error, with 400 or 401: without
    # this rule a wrong key would be a permanent fault of the email.
    Rule(
        "config",
        "Resend does not accept this API key: it is wrong, expired or deleted.",
        code="validation_error",
        text=r"^\W*(the |this |your )?API key\b",
        scope="account",
    ),
    Rule("config", "No API key was sent.", code="missing_api_key", scope="account"),
    Rule(
        "config",
        "The API key does not allow this: it is restricted, for example to another domain.",
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
        "Resend refuses the emails of this sender for security reasons.",
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
        "Another call with this idempotency key is still in progress.",
        code="concurrent_idempotent_requests",
        pinned=True,
    ),
    Rule(
        "uncertain",
        "An earlier call with this idempotency key was accepted with other content.",
        code="invalid_idempotent_request",
        pinned=True,
    ),
    Rule(
        "config",
        "Resend does not accept the format of our idempotency keys.",
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
    Rule("config", "The API has no such path.", code="not_found", scope="account"),
    Rule(
        "config",
        "The API does not support this method here.",
        code="method_not_allowed",
        scope="account",
    ),
    Rule(
        "ambiguous",
        "Resend failed during the call.",
        code="application_error",
        scope="account",
    ),
    Rule(
        "ambiguous",
        "Resend failed during the call.",
        code="internal_server_error",
        scope="account",
    ),
)

_STATUSES = (
    Rule(
        "ambiguous",
        "Resend, or a proxy before it, failed.",
        status=range(500, 600),
        scope="account",
    ),
    Rule("ambiguous", "A proxy before Resend timed out.", status=408, scope="account"),
    Rule("rate", "Too many requests.", status=429, scope="account"),
    Rule("config", "The API key is not accepted.", status=401, scope="account"),
    Rule("config", "The call is forbidden.", status=403, scope="account"),
    Rule("permanent", "The request is not valid.", code="http_400"),
    Rule("config", "There is no API at this URL.", code="http_404", scope="account"),
    Rule("config", "There is no API at this URL.", code="http_405", scope="account"),
    Rule("permanent", "The email is too large.", status=413),
    Rule("permanent", "The request is not valid.", code="http_422"),
    Rule(
        "config",
        "The API redirects elsewhere: the api_url of the account is wrong.",
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
"""All known faults of Resend."""
