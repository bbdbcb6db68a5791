"""Who sends: the interface of a provider, and those that need no account."""

from mailgres.providers.base import Capabilities, Limits, Provider

__all__ = ["Capabilities", "Limits", "Provider"]
