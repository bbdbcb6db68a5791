"""One batch of emails on its way: render, begin, send."""

from mailgres.sender.render import Renderer
from mailgres.sender.send import Sender

__all__ = ["Renderer", "Sender"]
