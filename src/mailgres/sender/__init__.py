"""Send one batch of emails: render, start, send."""

from mailgres.sender.render import Renderer
from mailgres.sender.send import Sender

__all__ = ["Renderer", "Sender"]
