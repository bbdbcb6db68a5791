"""The faults that mailgres finds itself, before a provider is called."""

from __future__ import annotations

from mailgres.providers.faults import Rule

OWN_RULES = (
    Rule(
        "permanent",
        "A header of the email has a line break or is one that the email may not set.",
        code="invalid_header",
    ),
    Rule("permanent", "A recipient is not an email address.", code="invalid_address"),
    Rule(
        "permanent", "An attachment has an invalid content type or id.", code="invalid_attachment"
    ),
    Rule(
        "permanent",
        "An address has non-ASCII letters before the @, which SES does not accept.",
        code="address_not_ascii",
    ),
    Rule(
        "permanent",
        "The template cannot be rendered with the email's payload.",
        code="template_failed",
    ),
    Rule("permanent", "The email could not be prepared: see the log.", code="not_prepared"),
    Rule(
        "config",
        "The from-address or reply address cannot be used.",
        code="invalid_sender",
        scope="sender",
    ),
    Rule(
        "config",
        "There is no from-address: set MAILGRES_FROM_EMAIL, or one for the template or tenant.",
        code="no_sender",
        scope="sender",
    ),
)
"""All faults that are found without a provider."""
