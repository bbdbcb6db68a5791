"""The exceptions of mailgres, as a tree.

MailgresError
├── BadDatabaseUrl
├── DatabaseUnreachable
├── MigrationFailed
├── NotMigrated
├── NoTransaction
├── TemplateFailed
├── InvalidTemplate
├── RequestRefused
│   ├── UnknownTemplate
│   ├── InvalidAddress
│   ├── InvalidPayload
│   ├── PayloadTooLarge
│   ├── MissingVariable
│   ├── InvalidPriority
│   ├── InvalidRetries
│   ├── InvalidExpiry
│   ├── IdempotencyConflict
│   ├── UnknownRetryPolicy
│   ├── UnknownRoute
│   ├── InvalidContent
│   ├── InvalidKey
│   ├── InvalidAttachments
│   ├── MalformedRequest
│   ├── InvalidSender
│   ├── InvalidHeaders
│   ├── SenderNotAllowed
│   └── TenantNotAllowed
├── ActionRefused
│   ├── UnknownEmail
│   ├── AlreadySettled
│   ├── BeingSent
│   ├── OutcomeUncertain
│   ├── MayDeliverTwice
│   ├── InvalidEvent
│   ├── ChangedMeanwhile
│   ├── HasAttachments
│   └── AddressSuppressed
├── ReportRefused
│   ├── LeaseLost
│   ├── OutcomeNotUnderstood
│   ├── NeverChanged
│   └── InvalidClaim
└── OrderRefused
    ├── UnknownProvider
    ├── InvalidLimit
    ├── InvalidRoute
    ├── InvalidPause
    ├── InvalidPolicy
    ├── InvalidSenderEntry
    ├── UnknownRole
    ├── InvalidFault
    ├── InvalidFilter
    ├── UnknownAlertRule
    ├── InvalidAlertRule
    ├── UnknownSuppressionRule
    ├── InvalidSuppressionRule
    └── InvalidRecovery

The first paragraph of a class's docstring is its default message, and `default_hint` says what to
do, so that an error is useful wherever it is raised. Errors that the database raises have a
SQLSTATE of class `MG`; the class for it has the same in `sqlstate`: see `mailgres.sqlstates`.
"""

from __future__ import annotations

import inspect
from typing import ClassVar


class MailgresError(Exception):
    """Something went wrong in mailgres."""

    sqlstate: ClassVar[str | None] = None
    default_hint: ClassVar[str | None] = None

    def __init__(self, message: str | None = None, hint: str | None = None) -> None:
        self.message = message if message is not None else self.default_message()
        self.hint = hint if hint is not None else self.default_hint
        super().__init__(self.message)

    @classmethod
    def default_message(cls) -> str:
        """Return the first paragraph of the docstring, on one line and without the full stop."""
        # `python -OO` strips docstrings; the class's name is then the best available.
        paragraph = (inspect.getdoc(cls) or cls.__name__).partition("\n\n")[0]
        return " ".join(paragraph.split()).rstrip(".")


class BadDatabaseUrl(MailgresError):
    """The database URL is not one that PostgreSQL understands.

    The text of the URL is never part of the message: it may hold a password.
    """

    default_hint = (
        "Write it as postgresql://user:password@host:5432/database"
        " and percent-encode special characters of the password."
    )


class DatabaseUnreachable(MailgresError):
    """The database cannot be reached."""

    default_hint = (
        "Check that the server runs and that host, port, database, user and password are right;"
        " `mailgres dev` starts one here."
    )


class MigrationFailed(MailgresError):
    """The migration failed and changed nothing."""

    default_hint = "Nothing was changed. Fix the cause and run `mailgres migrate` again."


class NotMigrated(MailgresError):
    """The database does not have the schema this version of mailgres needs."""

    default_hint = "Run `mailgres migrate`."


class NoTransaction(MailgresError):
    """The connection commits every statement by itself, so several cannot be all or none."""

    default_hint = "Call enqueue_many in a transaction, or with fewer than a thousand emails."


class TemplateFailed(MailgresError):
    """The template cannot be rendered with this payload.

    The message says where and why, and quotes no value of the payload.
    """

    default_hint = "Fix the template or the payload, then send it again."


class InvalidTemplate(MailgresError):
    """The template is not valid."""

    sqlstate = "MG060"
    default_hint = "Nothing was written. Fix it and push again."


class RequestRefused(MailgresError):
    """The email was not accepted.

    `index` is its position among the emails of one call, counting from 0, if there were several.
    """

    default_hint = "Nothing was enqueued; the subclass says what to fix."

    def __init__(
        self, message: str | None = None, hint: str | None = None, *, index: int | None = None
    ) -> None:
        super().__init__(message, hint)
        self.index = index


class UnknownTemplate(RequestRefused):
    """There is no such template."""

    sqlstate = "MG001"
    default_hint = "Name a template that is not retired, or give a subject with html or text."


class InvalidAddress(RequestRefused):
    """The recipient is not an email address."""

    sqlstate = "MG002"
    default_hint = "Give one plain address such as ana@example.com."


class InvalidPayload(RequestRefused):
    """The payload is not a JSON object."""

    sqlstate = "MG003"
    default_hint = "Give a mapping of JSON values; {} when the template needs none."


class PayloadTooLarge(RequestRefused):
    """The payload is larger than 1 MiB."""

    sqlstate = "MG004"
    default_hint = "Send files as attachments or link to them."


class MissingVariable(RequestRefused):
    """The payload lacks a variable that the template needs."""

    sqlstate = "MG005"
    default_hint = "Add the missing keys to the payload."


class InvalidPriority(RequestRefused):
    """The priority is not a whole number from 1 to 9."""

    sqlstate = "MG006"
    default_hint = "Give 1 (urgent) to 9 (bulk); 5 is the default."


class InvalidRetries(RequestRefused):
    """The number of retries or a delay between them is out of range."""

    sqlstate = "MG007"
    default_hint = "max_retries is 0 to 100; delays are not negative and at most 30 days."


class InvalidExpiry(RequestRefused):
    """The email would expire before it could be sent."""

    sqlstate = "MG008"
    default_hint = "Let expires_at be later than scheduled_for and later than now."


class IdempotencyConflict(RequestRefused):
    """The idempotency key was used before for another email."""

    sqlstate = "MG009"
    default_hint = "Use a new key for new content."


class UnknownRetryPolicy(RequestRefused):
    """There is no such retry policy."""

    sqlstate = "MG010"
    default_hint = "Name a policy of mailgres.retry_policies, or none."


class UnknownRoute(RequestRefused):
    """There is no such route."""

    sqlstate = "MG011"
    default_hint = "Name a route of mailgres.routes, or none."


class InvalidContent(RequestRefused):
    """The content of the email is not complete or not valid."""

    sqlstate = "MG012"
    default_hint = "Give a subject of one line, and html or text."


class InvalidKey(RequestRefused):
    """The tenant, the idempotency key or the correlation id is not valid."""

    sqlstate = "MG013"
    default_hint = "tenant_id takes 1 to 200 characters, the others 1 to 256."


class InvalidAttachments(RequestRefused):
    """The attachments are not valid."""

    sqlstate = "MG014"
    default_hint = "Give mappings with filename, content, and optionally content_type, content_id."


class MalformedRequest(RequestRefused):
    """The request has an unknown field or a value of the wrong type."""

    sqlstate = "MG015"
    default_hint = "The fields are those of mailgres.Email."


class InvalidSender(RequestRefused):
    """The sender, the reply address, a further To address or a copy is not an email address."""

    sqlstate = "MG016"
    default_hint = (
        "Display names are for from_email and reply_to only; also_to, cc and bcc are lists."
    )


class InvalidHeaders(RequestRefused):
    """The headers or tags are not valid."""

    sqlstate = "MG017"
    default_hint = (
        "Give mappings of one-line strings: at most 50 headers, 16 KB in all, and 40 tags; "
        "without headers such as From, Resent-To or Content-Type."
    )


class SenderNotAllowed(RequestRefused):
    """The sender is not one that this tenant's emails may have."""

    sqlstate = "MG018"
    default_hint = "Leave from_email out, or have its domain allowed: `mailgres senders allow`."


class TenantNotAllowed(RequestRefused):
    """The role that calls is bound to another tenant."""

    sqlstate = "MG019"
    default_hint = "Leave tenant_id out: the role's own tenant is then used."


class ActionRefused(MailgresError):
    """The email does not allow this now."""

    default_hint = "Look at its status; the subclass says what is in the way."


class UnknownEmail(ActionRefused):
    """There is no such email in the queue."""

    sqlstate = "MG020"
    default_hint = "Check the id; emails are deleted when their retention period is over."


class AlreadySettled(ActionRefused):
    """The email is already settled."""

    sqlstate = "MG021"
    default_hint = "To send it again, enqueue it again."


class BeingSent(ActionRefused):
    """The email is being sent."""

    sqlstate = "MG022"
    default_hint = "Wait for the outcome."


class OutcomeUncertain(ActionRefused):
    """An earlier attempt is uncertain, so the email cannot be cancelled."""

    sqlstate = "MG023"
    default_hint = "Wait until its outcome is known, or settle it with record_email_event."


class MayDeliverTwice(ActionRefused):
    """An earlier attempt is uncertain, so sending again may deliver it twice."""

    sqlstate = "MG024"
    default_hint = "Settle it with record_email_event, or retry it and accept a duplicate."


class InvalidEvent(ActionRefused):
    """The event has no name or no provider, or the events are not an array of objects."""

    sqlstate = "MG025"
    default_hint = "Give the name of the provider's account and an event such as delivered."


class ChangedMeanwhile(ActionRefused):
    """The email is being changed by someone else, or has changed since it was chosen.

    The database does not raise it: `mailgres.retry_emails` and its siblings return it for one
    email among many.
    """

    sqlstate = "MG026"
    default_hint = "Look at it again, and repeat the action if it is still needed."


class HasAttachments(ActionRefused):
    """The dead letter has attachments, which an export does not contain.

    The database does not raise it: `mailgres.purge_dead_letters` returns it for one among many.
    """

    sqlstate = "MG027"
    default_hint = "Save the attachments you need, then purge it with its attachments."


class AddressSuppressed(ActionRefused):
    """The address is suppressed, so the email would not be sent."""

    sqlstate = "MG028"
    default_hint = "Remove the suppression if the address may get email again, then retry."


class ReportRefused(MailgresError):
    """The queue refuses this report of a worker."""

    default_hint = "mailgres's own worker does not cause this; the subclass says what is wrong."


class LeaseLost(ReportRefused):
    """The lease was lost, so the report changed nothing.

    The database does not raise it: `mailgres.finish` returns it for one email among many.
    """

    sqlstate = "MG030"
    default_hint = "Do nothing: the email was settled, cancelled or given to another worker."


class OutcomeNotUnderstood(ReportRefused):
    """The outcome of an attempt is not valid."""

    sqlstate = "MG031"
    default_hint = "Report sent with the provider's id, or the class of the fault."


class NeverChanged(ReportRefused):
    """Rows of this table are never changed."""

    sqlstate = "MG040"
    default_hint = "Add a new row instead."


class InvalidClaim(ReportRefused):
    """A claim needs a worker, a limit and a lease."""

    sqlstate = "MG050"
    default_hint = "Claim 1 to 1000 emails for 1 second to 1 hour."


class OrderRefused(MailgresError):
    """The change of providers, routes or tenants was refused."""

    default_hint = "Nothing was changed; the subclass says what to fix."


class UnknownProvider(OrderRefused):
    """There is no such provider."""

    sqlstate = "MG070"
    default_hint = "`mailgres providers list` shows all; a worker registers its own when it starts."


class InvalidLimit(OrderRefused):
    """A limit is a number above zero."""

    sqlstate = "MG071"
    default_hint = "Give none to lift it. To stop a provider, pause it."


class InvalidRoute(OrderRefused):
    """A route needs a name and at least one provider."""

    sqlstate = "MG072"
    default_hint = "Names are lower-case letters, digits, - and _."


class InvalidPause(OrderRefused):
    """The pause would already be over."""

    sqlstate = "MG073"
    default_hint = "Give a time in the future, or none to pause until it is resumed."


class InvalidPolicy(OrderRefused):
    """The retry policy is not valid."""

    sqlstate = "MG074"
    default_hint = "Give 0 to 100 retries and waits above zero, and jitter from 0 to 1."


class InvalidSenderEntry(OrderRefused):
    """The sender is neither a domain nor an address."""

    sqlstate = "MG075"
    default_hint = "Give a domain, *.domain for its subdomains, or one plain address."


class UnknownRole(OrderRefused):
    """There is no such role in the database server."""

    sqlstate = "MG076"
    default_hint = "Give the role that logs in, or the one that sessions switch to."


class InvalidFault(OrderRefused):
    """The provider capture cannot simulate this fault."""

    sqlstate = "MG077"
    default_hint = "Give bounce, timeout, reject or unanswered."


class InvalidFilter(OrderRefused):
    """The filter is not valid."""

    sqlstate = "MG080"
    default_hint = "Fix it; docs/cli.md lists what emails can be filtered by."


class UnknownAlertRule(OrderRefused):
    """There is no such alert rule."""

    sqlstate = "MG090"
    default_hint = "`mailgres alerts rules` shows all."


class InvalidAlertRule(OrderRefused):
    """The alert rule is not valid."""

    sqlstate = "MG091"
    default_hint = "Thresholds are 0 or more; severities are info, warning and critical."


class UnknownSuppressionRule(OrderRefused):
    """There is no such suppression rule."""

    sqlstate = "MG092"
    default_hint = "`mailgres suppressions rules` shows all."


class InvalidSuppressionRule(OrderRefused):
    """The settings of the suppression rule are not valid."""

    sqlstate = "MG093"
    default_hint = "Give 1 to 100 emails, and an expiry above zero and of at most 1000 years."


class InvalidRecovery(OrderRefused):
    """A recovery needs the time that the database went back to."""

    sqlstate = "MG100"
    default_hint = "Give a time in the past, and an end that is not earlier."
