"""The faults of SMTP: replies by their number and enhanced code, and codes of ours for the rest.

The first rule that fits decides. The enhanced code (5.1.1) says more than the number before it,
but a reply that begins with 4 is never final, whatever follows.
"""

from __future__ import annotations

from mailgres.providers.faults import Rule

UNREACHED = "unreached"
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
        "No connection came about: nothing was sent.",
        code=UNREACHED,
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
        "The server's answer to the whole message makes no sense.",
        code=NOT_UNDERSTOOD,
        scope="account",
    ),
    Rule("config", "The server's certificate is not trusted.", code=CERTIFICATE, scope="account"),
    Rule("config", "The connection could not be encrypted.", code=TLS, scope="account"),
    Rule("config", "The server does not offer STARTTLS.", code=NO_STARTTLS, scope="account"),
    Rule("config", "The server offers no login that we know.", code=NO_LOGIN, scope="account"),
    Rule("permanent", "The message is larger than the server allows.", code=TOO_LARGE),
    Rule(
        "permanent",
        "An address has letters beyond ASCII before the @, and the server does not take them.",
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
            (530, "The server wants a login, or encryption first."),
            (534, "The server wants a stronger login."),
            (535, "The user or the password is wrong."),
            (538, "The server wants encryption before the login."),
        )
    ),
    Rule(
        "config", "The server turns us away before any message.", code=NOT_WELCOME, scope="account"
    ),
)

_TRY_LATER = (
    Rule("transient", "The server closes the connection for now.", status=421, scope="account"),
    *(
        Rule("transient", meaning, status=status)
        for status, meaning in (
            (450, "The mailbox is busy, or the server greylists."),
            (451, "The server has a problem for now."),
            (452, "The server is short of storage, or wants fewer recipients."),
        )
    ),
    Rule("transient", "The server says to try later.", status=_TEMPORARY),
    Rule(
        "transient",
        "A final reply whose enhanced code says to try later.",
        status=range(550, 555),
        text=_TEMPORARY_CODE,
    ),
)

_NO_SUCH_ADDRESS = tuple(
    Rule("permanent", meaning, code=code, suppress=True)
    for code, meaning in (
        ("5.1.1", "There is no such mailbox."),
        ("5.1.2", "There is no such domain."),
        ("5.1.3", "The address is not written as one."),
        ("5.1.4", "The address stands for more than one mailbox."),
        ("5.1.6", "The mailbox has moved, nobody knows where."),
        ("5.1.10", "The domain takes no mail."),
        ("5.2.1", "The mailbox is disabled."),
    )
)

_SENDER = (
    Rule("config", "The from-address is not valid.", code="5.1.7", scope="sender"),
    Rule("config", "The from-domain is not valid.", code="5.1.8", scope="sender"),
    Rule(
        "config",
        "Reputation or policy: the server does not take mail from this sender.",
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
            (500, "The server does not know the command."),
            (501, "The server does not take the parameters."),
            (502, "The server does not have the command."),
            (503, "The commands came in the wrong order."),
            (504, "The server does not have the parameter."),
            (550, "The mailbox is not available."),
            (551, "The recipient is not at this server."),
            (552, "The message is too large, or the mailbox full."),
            (553, "The server does not take the address."),
            (554, "The server refuses the message."),
        )
    ),
    Rule("permanent", "The server refuses for good.", status=_FINAL),
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
"""Every fault that a server is known to show."""
