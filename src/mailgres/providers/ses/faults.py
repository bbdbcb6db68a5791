"""The faults of SES: the codes of its API, and the exceptions of botocore by their names.

The first rule that matches decides. Exceptions of botocore before a call (no credentials, no
region) are of the class config; exceptions while it waits for the answer are ambiguous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.providers.faults import Rule

if TYPE_CHECKING:
    from mailgres.model import Verdict

TOO_LARGE = "message_too_large"
NO_SUCH_REGION = "no_such_region"
NO_MESSAGE_ID = "no_message_id"
NO_PROXY = "no_proxy_connection"

_DAILY = r"daily message quota|daily sending quota|24.?hour"
_NOT_VERIFIED = r"not verified|failed the check"
_PAUSED = r"paused|suspended|shut ?down|disabled"

_THROTTLES = ("TooManyRequestsException", "ThrottlingException", "Throttling", "SlowDown")

_LIMITS = (
    *(
        Rule("quota", "The daily quota is used up.", code=code, text=_DAILY, scope="account")
        for code in _THROTTLES
    ),
    *(
        Rule("rate", "Too many emails or calls per second.", code=code, scope="account")
        for code in _THROTTLES
    ),
    Rule(
        "quota",
        "A limit of the account is reached.",
        code="LimitExceededException",
        scope="account",
    ),
)

_CREDENTIALS = (
    Rule(
        "config",
        "The credentials do not allow this from-address.",
        code="AccessDeniedException",
        text=r":identity/",
        scope="sender",
    ),
    *(
        Rule("config", meaning, code=code, scope="account")
        for code, meaning in (
            (
                "AccessDeniedException",
                "The credentials do not allow this: they need ses:SendEmail.",
            ),
            ("AccessDenied", "The credentials do not allow this: they need ses:SendEmail."),
            ("UnrecognizedClientException", "The access key is unknown to AWS."),
            ("InvalidClientTokenId", "The access key is unknown to AWS."),
            ("InvalidAccessKeyId", "The access key is unknown to AWS."),
            ("SignatureDoesNotMatch", "The secret key is wrong."),
            ("InvalidSignatureException", "The secret key is wrong, or the clock of this machine."),
            ("IncompleteSignature", "The secret key is wrong."),
            ("RequestExpired", "The clock of this machine is wrong."),
            ("ExpiredTokenException", "The session of these credentials has expired."),
            ("ExpiredToken", "The session of these credentials has expired."),
            ("MissingAuthenticationToken", "No credentials were sent."),
            ("MissingAuthenticationTokenException", "No credentials were sent."),
            ("OptInRequired", "The AWS account has no subscription to SES."),
            ("NotAuthorized", "The credentials do not allow this."),
            ("UnknownOperationException", "There is no SES at this endpoint."),
        )
    ),
)

_SENDING = (
    Rule("config", "The account is suspended.", code="AccountSuspendedException", scope="account"),
    Rule(
        "config",
        "Sending is paused, for the account or its configuration set.",
        code="SendingPausedException",
        scope="account",
    ),
    *(
        Rule(
            "config",
            "The MAIL FROM domain of the sender is not verified.",
            code=code,
            scope="sender",
        )
        for code in ("MailFromDomainNotVerifiedException", "MailFromDomainNotVerified")
    ),
    Rule(
        "config",
        "The call names something that does not exist, such as the configuration set.",
        code="NotFoundException",
        scope="account",
    ),
    Rule(
        "config",
        "The from-address is not verified; in the sandbox, the recipient's must be too.",
        code="MessageRejected",
        text=_NOT_VERIFIED,
        scope="sender",
    ),
    Rule("config", "Sending is paused.", code="MessageRejected", text=_PAUSED, scope="account"),
    Rule("permanent", "SES does not accept the content.", code="MessageRejected"),
    Rule("permanent", "The request is not valid.", code="BadRequestException"),
    Rule(
        "permanent",
        "The email is larger than 40 MB with its attachments, the limit of SES.",
        code=TOO_LARGE,
    ),
    Rule("permanent", "The email cannot be written as a request.", code="ParamValidationError"),
)

_BROKEN: tuple[tuple[Verdict, str, str], ...] = (
    ("transient", "EndpointConnectionError", "Could not connect to SES."),
    ("transient", "ConnectTimeoutError", "Could not connect to SES in time."),
    ("transient", NO_PROXY, "Could not connect through the proxy."),
    ("ambiguous", "ProxyConnectionError", "The connection to the proxy was lost during the call."),
    ("ambiguous", "ReadTimeoutError", "The request was sent and no answer came in time."),
    ("ambiguous", "ConnectionClosedError", "The connection was closed before the answer."),
    ("ambiguous", "ResponseStreamingError", "The answer is incomplete."),
    ("ambiguous", "IncompleteReadError", "The answer is incomplete."),
    ("ambiguous", "ResponseParserError", "The answer could not be read."),
    ("ambiguous", NO_MESSAGE_ID, "The answer has no message id."),
)

_CONNECTION = (
    Rule(
        "config",
        "SES has no such region, or boto3 is older than the region.",
        code=NO_SUCH_REGION,
        scope="account",
    ),
    *(Rule(verdict, meaning, code=code, scope="account") for verdict, code, meaning in _BROKEN),
    Rule(
        "config",
        "The endpoint's certificate is not trusted.",
        code="SSLError",
        text=r"certificate",
        scope="account",
    ),
    Rule("ambiguous", "The encrypted connection failed.", code="SSLError", scope="account"),
    Rule(
        "ambiguous",
        "The connection failed during the call.",
        code="HTTPClientError",
        scope="account",
    ),
)

_SET_UP = (
    Rule(
        "config",
        "There are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or"
        " a profile or a role.",
        code="NoCredentialsError",
        scope="account",
    ),
    Rule(
        "config",
        "The AWS credentials are not complete.",
        code="PartialCredentialsError",
        scope="account",
    ),
    Rule("config", "No AWS region is set: set AWS_REGION.", code="NoRegionError", scope="account"),
    Rule(
        "config",
        "boto3 cannot make a call: credentials, profile or region are wrong.",
        code="BotoCoreError",
        scope="account",
    ),
)

_STATUSES = (
    *(
        Rule("transient", "SES is unavailable: it accepted nothing.", code=code, scope="account")
        for code in ("ServiceUnavailable", "ServiceUnavailableException")
    ),
    Rule("ambiguous", "SES failed during the call.", status=range(500, 600), scope="account"),
    Rule("rate", "Too many calls.", status=429, scope="account"),
    Rule("permanent", "The email is too large.", status=413),
    Rule("config", "The credentials are not accepted.", status=401, scope="account"),
    Rule("config", "The credentials are not accepted.", status=403, scope="account"),
)

SES_RULES = (*_LIMITS, *_CREDENTIALS, *_SENDING, *_CONNECTION, *_SET_UP, *_STATUSES)
"""All known faults of SES."""
