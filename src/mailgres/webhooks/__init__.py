"""What providers report by webhook: check the signature, then translate the payload.

Nothing here talks to the database, and only `certificates` talks to the network.
"""

from mailgres.webhooks.events import BadPayload, Event

__all__ = ["BadPayload", "Event"]
