"""The faults of SMTP: replies by status and enhanced code, other faults by codes of mailgres.

The first rule that matches decides. The enhanced code (5.1.1) says more than the status before it,
but a reply that starts with 4 is never final.
"""

from __future__ import annotations

from mailgres.providers.faults import Rule

NO_CONNECTION = "no_connection"
LOST = "connection_lost"
LOST_AFTER_DATA = "lost_after_data"
NOT_UNDERSTOOD = "reply_not_understood"
CERTIFICATE = "certificate"
TLS = "tls_failed"
NO_STARTTLS = "no_starttls"
NO_LOGIN = "no_login"
NOT_WELCOME = "not_welcome"
SENDER_REFUSED = "sender_refused"
TOO_LARGE = "message_too_large"
NO_UTF8 = "no_smtputf8"

# Not an address such as 4.3.2.1.
_TEMPORARY_CODE = r"(?<![\d.])4\.\d{1,3}\.\d{1,3}(?!\.?\d)"
_REPLIES = range(400, 600)
_TEMPORARY = range(400, 500)
_FINAL = range(500, 600)

_CONNECTION = (
    Rule(
        "transient",
        "Could not connect: nothing was sent.",
        code=NO_CONNECTION,
        scope="account",
    ),
    Rule(
        "transient",
        "The connection was lost before the message was complete.",
        code=LOST,
        scope="account",
    ),
    Rule(
        "ambiguous",
        "The connection was lost after the whole message was sent, before the server answered.",
        code=LOST_AFTER_DATA,
        scope="account",
    ),
    Rule(
        "ambiguous",
        "The server's reply to the message is invalid.",
        code=NOT_UNDERSTOOD,
        scope="account",
    ),
    Rule("config", "The server's certificate is not trusted.", code=CERTIFICATE, scope="account"),
    Rule("config", "The connection could not be encrypted.", code=TLS, scope="account"),
    Rule("config", "The server does not offer STARTTLS.", code=NO_STARTTLS, scope="account"),
    Rule("config", "The server offers no supported login.", code=NO_LOGIN, scope="account"),
    Rule("permanent", "The message is larger than the server allows.", code=TOO_LARGE),
    Rule(
        "permanent",
        "An address has non-ASCII letters before the @, which the server does not accept.",
        code=NO_UTF8,
    ),
)

_LIMITS = (
    Rule(
        "quota",
        "The daily quota is used up.",
        status=_REPLIES,
        text=r"daily\b.{0,40}\b(quota|limit)",
        scope="account",
    ),
    Rule(
        "rate",
        "Too many messages or connections.",
        status=_TEMPORARY,
        text=r"sending rate|rate limit|too many (messages|emails|mails|connections)|throttl",
        scope="account",
    ),
)

_LOGIN = (
    *(
        Rule("config", meaning, status=status, scope="account")
        for status, meaning in (
            (530, "The server requires a login, or encryption first."),
            (534, "The server requires a stronger login."),
            (535, "The user or the password is wrong."),
            (538, "The server requires encryption before the login."),
        )
    ),
    Rule("config", "The server refuses the connection.", code=NOT_WELCOME, scope="account"),
)

_TRY_LATER = (
    Rule("transient", "The server is temporarily unavailable.", status=421, scope="account"),
    *(
        Rule("transient", meaning, status=status)
        for status, meaning in (
            (450, "The mailbox is busy, or the server greylists."),
            (451, "The server has a temporary problem."),
            (452, "The server has too little storage, or accepts fewer recipients."),
        )
    ),
    Rule("transient", "The server refuses for now.", status=_TEMPORARY),
    Rule(
        "transient",
        "A permanent status with a temporary enhanced code.",
        status=range(550, 555),
        text=_TEMPORARY_CODE,
    ),
)

_NO_SUCH_ADDRESS = tuple(
    Rule("permanent", meaning, code=code, suppress=True)
    for code, meaning in (
        ("5.1.1", "There is no such mailbox."),
        ("5.1.2", "There is no such domain."),
        ("5.1.3", "The syntax of the address is invalid."),
        ("5.1.4", "The address is ambiguous."),
        ("5.1.6", "The mailbox has moved to an unknown address."),
        ("5.1.10", "The domain accepts no email."),
        ("5.2.1", "The mailbox is disabled."),
    )
)

_SENDER = (
    Rule("config", "The from-address is not valid.", code="5.1.7", scope="sender"),
    Rule("config", "The from-domain is not valid.", code="5.1.8", scope="sender"),
    Rule(
        "config",
        "Reputation or policy: the server does not accept emails from this sender.",
        status=_FINAL,
        text=r"^5\.7\.\d+",
        scope="sender",
    ),
    Rule("config", "The server refuses this from-address.", code=SENDER_REFUSED, scope="sender"),
)

_FINAL_ANSWERS = (
    Rule("permanent", "The mailbox is full.", code="5.2.2"),
    Rule("permanent", "The message is too long for the mailbox.", code="5.2.3"),
    Rule("permanent", "The message is too large for the server.", code="5.3.4"),
    *(
        Rule("permanent", meaning, status=status)
        for status, meaning in (
            (500, "The command is unknown to the server."),
            (501, "The server does not accept the parameters."),
            (502, "The server does not support the command."),
            (503, "The commands came in the wrong order."),
            (504, "The server does not support the parameter."),
            (550, "The mailbox is not available."),
            (551, "The recipient does not belong to this server."),
            (552, "The message is too large, or the mailbox full."),
            (553, "The server does not accept the address."),
            (554, "The server refuses the message."),
        )
    ),
    Rule("permanent", "The server refuses permanently.", status=_FINAL),
)

SMTP_RULES = (
    *_CONNECTION,
    *_LIMITS,
    *_LOGIN,
    *_TRY_LATER,
    *_NO_SUCH_ADDRESS,
    *_SENDER,
    *_FINAL_ANSWERS,
)
"""All known faults of SMTP."""
