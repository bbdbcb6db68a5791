"""Amazon SES. boto3 is imported when an account is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.errors import MailgresError
from mailgres.providers.base import Option, ProviderKind
from mailgres.providers.ses.faults import SES_RULES
from mailgres.values.kinds import Text
from mailgres.values.several import TOPICS, URL_SECRETS

if TYPE_CHECKING:
    from mailgres.providers.base import Account, Provider, Runtime


def _open(account: Account, runtime: Runtime) -> Provider:
    try:
        from mailgres.providers.ses.provider import SesProvider  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"boto3", "botocore"}:
            raise
        raise MailgresError(
            f"the provider {account.name} needs boto3, which is not installed",
            "Install it: pip install boto3",
        ) from None
    return SesProvider(
        **account.options,
        name=account.name,
        timeout=runtime.timeout,
        connections=runtime.connections,
    )


SES = ProviderKind(
    "ses",
    "SES",
    _open,
    options=(
        Option(
            "region",
            Text("a region such as eu-west-1", r"[a-z]{2,3}(-[a-z]+)+-\d{1,2}", "REGION"),
            "AWS region of SES.",
            also=("AWS_REGION", "AWS_DEFAULT_REGION"),
            shared=True,
        ),
        Option(
            "configuration_set",
            Text("letters, digits, - and _, at most 64", r"[A-Za-z0-9_-]{1,64}", "NAME"),
            "Configuration set of SES.",
        ),
        Option(
            "profile",
            Text("the name of a profile in AWS's own files", r"[^\[\]\s]+", "NAME", 200),
            "Profile in AWS's files that has the credentials; by default AWS's tools choose.",
        ),
        Option(
            "webhook_secret",
            URL_SECRETS,
            "Last part of the URL to which SNS posts the events of SES.",
            secret=True,
            receives=True,
        ),
        Option(
            "webhook_topics",
            TOPICS,
            "Topics of SNS whose events are accepted.",
            receives=True,
        ),
    ),
    rules=SES_RULES,
    advice="Set the region and the credentials as for AWS's tools, or a profile",
    spf="include:amazonses.com",
)
