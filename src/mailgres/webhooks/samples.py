"""A payload of each event, as its provider sends it: for `mailgres webhooks test` and the docs."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from mailgres.providers.tags import ID_TAG

DAY = "2026-11-18"


@dataclass(frozen=True, slots=True)
class About:
    """The email that samples are about."""

    message_id: str = "56761188-7520-42d8-8898-ff6fc54ce618"
    queue_id: str = "019aa2c0-7e1f-7a52-9c57-1b7e5f0c3d21"
    recipient: str = "ana@example.com"
    moment: str = f"{DAY}T09:30:12.126Z"


RESEND: dict[str, dict[str, Any]] = {
    "email.sent": {},
    "email.scheduled": {},
    "email.delivered": {},
    "email.delivery_delayed": {},
    "email.bounced": {
        "bounce": {
            "type": "Permanent",
            "subType": "General",
            "message": "The recipient's email provider sent a hard bounce message.",
            "diagnosticCode": "smtp; 550 5.1.1 no such user here",
        }
    },
    "email.complained": {},
    "email.opened": {},
    "email.clicked": {
        "click": {
            "ipAddress": "192.0.2.7",
            "link": "https://example.com/orders/7",
            "timestamp": f"{DAY}T09:30:12.000Z",
            "userAgent": "Mozilla/5.0",
        }
    },
    "email.failed": {"failed": {"reason": "reached_daily_quota"}},
    "email.suppressed": {
        "suppressed": {
            "message": "The address is on the account's suppression list.",
            "type": "OnAccountSuppressionList",
        }
    },
}
"""What each event of Resend has beside the email's own fields."""

SES: dict[str, dict[str, Any]] = {
    "Send": {"send": {}},
    "Delivery": {
        "delivery": {
            "timestamp": f"{DAY}T09:30:12.126Z",
            "processingTimeMillis": 1127,
            "recipients": ["ana@example.com"],
            "smtpResponse": "250 2.6.0 message received",
            "reportingMTA": "mta.example.com",
        }
    },
    "Bounce": {
        "bounce": {
            "feedbackId": "0100019aa2c07e1f-5e1cd7f2-000000",
            "bounceType": "Permanent",
            "bounceSubType": "General",
            "bouncedRecipients": [
                {
                    "emailAddress": "ana@example.com",
                    "action": "failed",
                    "status": "5.1.1",
                    "diagnosticCode": "smtp; 550 5.1.1 user unknown",
                }
            ],
            "timestamp": f"{DAY}T09:30:12.126Z",
            "reportingMTA": "dns; mta.example.com",
        }
    },
    "Complaint": {
        "complaint": {
            "feedbackId": "0100019aa2c07e1f-5e1cd7f3-000000",
            "complaintSubType": None,
            "complainedRecipients": [{"emailAddress": "ana@example.com"}],
            "timestamp": f"{DAY}T09:30:12.126Z",
            "userAgent": "Example Feedback Loop (V0.01)",
            "complaintFeedbackType": "abuse",
            "arrivalDate": f"{DAY}T09:30:12.126Z",
        }
    },
    "Reject": {"reject": {"reason": "Bad content"}},
    "Open": {
        "open": {
            "timestamp": f"{DAY}T09:30:12.126Z",
            "ipAddress": "192.0.2.7",
            "userAgent": "Mozilla/5.0",
        }
    },
    "Click": {
        "click": {
            "timestamp": f"{DAY}T09:30:12.126Z",
            "ipAddress": "192.0.2.7",
            "userAgent": "Mozilla/5.0",
            "link": "https://example.com/orders/7",
            "linkTags": None,
        }
    },
    "Rendering Failure": {
        "failure": {
            "templateName": "welcome",
            "errorMessage": "Attribute 'name' is not present in the rendering data.",
        }
    },
    "DeliveryDelay": {
        "deliveryDelay": {
            "timestamp": f"{DAY}T09:30:12.126Z",
            "delayType": "MailboxFull",
            "expirationTime": f"{DAY}T23:30:12.126Z",
            "delayedRecipients": [
                {
                    "emailAddress": "ana@example.com",
                    "status": "4.2.2",
                    "diagnosticCode": "smtp; 452 4.2.2 mailbox full",
                }
            ],
        }
    },
    "Subscription": {
        "subscription": {
            "contactList": "customers",
            "timestamp": f"{DAY}T09:30:12.126Z",
            "source": "UnsubscribeHeader",
            "newTopicPreferences": {"unsubscribeAll": True, "topicSubscriptionStatus": []},
            "oldTopicPreferences": {"unsubscribeAll": False, "topicSubscriptionStatus": []},
        }
    },
}
"""What each event of SES has beside `mail`."""


def resend(kind: str, about: About) -> dict[str, Any]:
    """Return an event of Resend."""
    email = {
        "created_at": f"{DAY}T09:30:11.894Z",
        "email_id": about.message_id,
        "message_id": "<0100019aa2c07e1f@example.com>",
        "from": "Shop <noreply@example.com>",
        "to": [about.recipient],
        "subject": "Your order",
        "tags": {ID_TAG: about.queue_id},
    }
    return {"type": kind, "created_at": about.moment, "data": {**email, **deepcopy(RESEND[kind])}}


def ses(kind: str, about: About) -> dict[str, Any]:
    """Return an event of SES."""
    mail = {
        "timestamp": f"{DAY}T09:30:11.894Z",
        "source": "Shop <noreply@example.com>",
        "sendingAccountId": "123456789012",
        "messageId": about.message_id,
        "destination": [about.recipient],
        "tags": {ID_TAG: [about.queue_id], "ses:configuration-set": ["events"]},
    }
    return {"eventType": kind, "mail": mail, **deepcopy(SES[kind])}


def own(provider: str, about: About) -> dict[str, Any]:
    """Return an event in our own format."""
    return {
        "provider": provider,
        "event": "bounced",
        "provider_message_id": about.message_id,
        "occurred_at": about.moment,
        "recipient_email": about.recipient,
        "kind": "hard",
        "reason": "mailbox_unknown",
        "text": "550 5.1.1 no such user here",
        "type": "HardBounce",
    }
