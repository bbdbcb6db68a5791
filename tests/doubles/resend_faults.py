"""Every fault that Resend can show, for tests of single calls and of batches.

Each has a name, what the double does, and its class. Copy a fault before use: the double counts
`times` down.
"""

from __future__ import annotations

from doubles.resend import HTML, Fault


def named(status: int, name: str, message: str = "words") -> Fault:
    return Fault(status=status, name=name, message=message)


def accepted_but(body: str) -> Fault:
    """Return a fault in which the emails are sent, and the JSON of the answer is wrong."""
    return Fault(status=200, accepts=True, body=body, content_type="application/json")


FAULTS = {
    "rate": (named(429, "rate_limit_exceeded"), "rate"),
    "daily quota": (named(429, "daily_quota_exceeded"), "quota"),
    "monthly quota": (named(429, "monthly_quota_exceeded"), "quota"),
    "concurrent": (named(409, "concurrent_idempotent_requests"), "transient"),
    "other content": (named(409, "invalid_idempotent_request"), "uncertain"),
    "security": (named(451, "security_error"), "config"),
    "unverified": (named(403, "validation_error"), "config"),
    "wrong key": (named(403, "invalid_api_key"), "config"),
    "wrong key, as it really is": (named(400, "validation_error", "API key is invalid"), "config"),
    "suspended key": (named(403, "suspended_api_key"), "config"),
    "no key": (named(401, "missing_api_key"), "config"),
    "restricted key": (named(401, "restricted_api_key"), "config"),
    "restricted key, 403": (named(403, "restricted_api_key"), "config"),
    "no permission": (named(403, "invalid_permission"), "config"),
    "not found": (named(404, "not_found"), "config"),
    "method": (named(405, "method_not_allowed"), "config"),
    "form of the key": (named(400, "invalid_idempotency_key"), "config"),
    "internal": (named(500, "internal_server_error"), "ambiguous"),
    "application": (named(500, "application_error"), "ambiguous"),
    "500 by another name": (named(500, "surprise"), "ambiguous"),
    "html 502": (Fault(status=502, body=HTML), "ambiguous"),
    "empty 503": (Fault(status=503, body=""), "ambiguous"),
    "html 403": (Fault(status=403), "config"),
    "html 429": (Fault(status=429), "rate"),
    "redirect": (Fault(status=308, headers={"location": "/elsewhere"}), "config"),
    "unknown": (named(418, "teapot"), "transient"),
    "html 200": (Fault(status=200, accepts=True), "ambiguous"),
    "broken JSON": (accepted_but('{"id'), "ambiguous"),
    "empty JSON": (accepted_but("{}"), "ambiguous"),
    "null": (accepted_but("null"), "ambiguous"),
    "list": (accepted_but("[1]"), "ambiguous"),
    "200 that says 422": (
        accepted_but('{"statusCode": 422, "name": "validation_error", "message": "no"}'),
        "ambiguous",
    ),
    "reset": (Fault(reset=True), "ambiguous"),
    "reset after it was taken": (Fault(reset=True, accepts=True), "ambiguous"),
}
OF_THE_ACCOUNT = {
    *("rate", "daily quota", "monthly quota", "wrong key", "wrong key, as it really is"),
    *("suspended key", "not found", "html 403", "html 429", "redirect"),
    *("no key", "restricted key", "restricted key, 403", "no permission"),
    *("method", "form of the key"),
    # These open the circuit: a provider that fails, fails for all emails.
    *(name for name, (_, verdict) in FAULTS.items() if verdict == "ambiguous"),
}
REFUSALS = {
    "not valid": named(422, "validation_error"),
    "not valid, 400": named(400, "validation_error"),
    "a field is missing": named(422, "missing_required_field"),
    "from-address": named(422, "invalid_from_address"),
    "attachment": named(422, "invalid_attachment"),
    "parameter": named(422, "invalid_parameter"),
    "html 422": Fault(status=422),
    "too large": Fault(status=413),
}
"""Permanent faults of one message. In a batch, the answer does not say of which."""
