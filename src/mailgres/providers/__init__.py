"""Who sends: the interface of a provider, and those that need no account."""

from mailgres.providers.base import Capabilities, NotMade, Provider

__all__ = ["Capabilities", "NotMade", "Provider"]
