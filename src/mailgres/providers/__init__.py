"""Providers: the services that send emails."""

from mailgres.providers.base import Capabilities, NotMade, Provider

__all__ = ["Capabilities", "NotMade", "Provider"]
